"""Files: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hexforge.errors import CallError


def write_atomically(path: Path, data: bytes | Iterable[bytes | bytearray | memoryview]) -> None:
    """Write a file whole or not at all: a temporary beside it, flushed to disk, then renamed."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise CallError(f"{path}: cannot be written: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            for part in (data,) if isinstance(data, bytes) else data:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)  # mkstemp makes it private
        Path(temporary).replace(path)
        _flush_folder(path.parent)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CallError(f"{path}: cannot be written: {error.strerror or error}") from None
        raise


def _flush_folder(folder: Path) -> None:
    """Make a rename in it last, where folders can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
