# SPDX-License-Identifier: Apache-2.0
"""Files: written whole or not at all, under names that any graph, tensor or model may have.

Every path that is made of such a name is made here. A name becomes one part of a path, never a folder, never one above;
different names become different files.
"""

from __future__ import annotations

import glob
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hexforge.errors import CallError

Data = bytes | Iterable[bytes | bytearray | memoryview]
_SUFFIX = ".part"
_YOUNG_S = 60
"""A temporary of this age, in seconds, may be one whose writer has not locked it yet."""
_UMASK = threading.Lock()  # it can be read only by setting it


def write_atomically(path: Path, data: Data) -> None:
    """Write a file whole or not at all: a temporary beside it, flushed to disk, then renamed."""
    write_together([(path, data)])


def require_writable(*paths: str | Path | None) -> None:
    """CallError where a file cannot be written; call it before the work whose result is to be written."""
    for path in (Path(path) for path in paths if path is not None):
        if not path.parent.is_dir():
            raise CallError(f"{path}: cannot be written: there is no folder {str(path.parent)!r}")
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise CallError(f"{path}: cannot be written: {'it is a folder' if path.is_dir() else 'not permitted'}")


def require_another_file(output: Path, source: Path) -> None:
    """CallError where a file to write is the one that is read, under whatever name."""
    if output.resolve() == source.resolve() or (output.exists() and source.exists() and output.samefile(source)):
        raise CallError(f"{output}: is the model itself; write to another file")


def write_together(files: Sequence[tuple[Path, Data]], replace: bool = True) -> None:
    """Write several files: all of them to disk first, then each renamed in its turn.

    Without `replace` a file that is there, even one that appears meanwhile, is an error and stays as it is.
    """
    staged: list[tuple[Path, Path]] = []
    handles: list[int] = []
    placed: list[Path] = []
    at = files[0][0]
    try:
        for at, data in files:
            staged.append((_staged(at, data, handles), at))
        for temporary, at in staged:
            if replace:
                temporary.replace(at)
            else:
                _place_new(temporary, at)
                placed.append(at)
        for folder in dict.fromkeys(at.parent for at, _ in files):
            _flush_folder(folder)
        for at, _ in files:
            _sweep(at)
    except BaseException as error:
        for path in placed:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise CallError(f"{at}: is there already; remove it or give another path") from None
        if isinstance(error, OSError):
            raise CallError(f"{at}: cannot be written: {error.strerror or error}") from None
        raise
    finally:
        for temporary, _ in staged:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        for handle in handles:
            os.close(handle)


def _staged(path: Path, data: Data, handles: list[int]) -> Path:
    """A temporary file beside `path` with the data in it, on disk; locked until its handle is closed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_SUFFIX)
    handles.append(handle)
    _lock(handle)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            for part in (data,) if isinstance(data, bytes) else data:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes it private
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _lock(handle: int) -> bool:
    """Take a file's lock, which ends with its process; False where another has it, or where there are no locks."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(path: Path) -> None:
    """Remove the temporary files that killed writers left; those of running writers are locked."""
    with suppress(OSError):
        for left in path.parent.glob(f".{glob.escape(path.name)}.????????{_SUFFIX}"):
            handle = os.open(left, os.O_RDONLY)
            try:
                if time.time() - os.fstat(handle).st_mtime > _YOUNG_S and _lock(handle):
                    left.unlink()
            finally:
                os.close(handle)


def _place_new(temporary: Path, path: Path) -> None:
    """Give a temporary its name unless another file has it; FileExistsError then."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        temporary.replace(path)


def _umask() -> int:
    with _UMASK:
        umask = os.umask(0)
        os.umask(umask)
        return umask


def _flush_folder(folder: Path) -> None:
    """Make a rename in it last, where folders can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_ODD = re.compile(r"[^\w.+-]")
_MOST_BYTES = 180
"""Of a stem: file systems take 255 for a whole name, and writers add endings and the mark of a temporary."""


def file_stem(name: str) -> str:
    """A name as a file may be called: without separators, never empty or hidden, not too long."""
    stem = _ODD.sub("_", name)
    stem = "_" + stem[1:] if stem.startswith(".") else stem
    return stem.encode()[:_MOST_BYTES].decode(errors="ignore") or "unnamed"


def file_names(names: Iterable[str], endings: Sequence[str] = ("",), *, taken: Collection[str] = ()) -> dict[str, str]:
    """A stem for each of different names, no two of which are one file, with whichever of the endings.

    A name that is a file name as it is stays so. Another has `_` for each odd character and, where that is another's
    name, a number behind it. `taken` are file names of others in the same folder.
    """
    known = list(dict.fromkeys(names))
    used = set(taken)
    stems: dict[str, str] = {}
    for name in sorted(known, key=lambda name: file_stem(name) != name):  # those that stay as they are come first
        stem, number = file_stem(name), 1
        while any(f"{stem}{ending}" in used for ending in endings):
            number += 1
            stem = f"{file_stem(name)}~{number}"
        stems[name] = stem
        used.update(f"{stem}{ending}" for ending in endings)
    return {name: stems[name] for name in known}
