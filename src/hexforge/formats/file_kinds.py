# SPDX-License-Identifier: Apache-2.0
"""File kinds: what a file is, by its name and a few kilobytes of it, and what can be done with it.

Every kind is a row of one table (`hexforge.addon.file_kinds`): the core's rows and files of others are in
`hexforge/core_files.py`, those of add-ons in their declarations. Files are untrusted: at most `MOST_BYTES` at
either end of a file and `MOST_MEMBERS` names of a folder are read, and nothing but a file or a folder is opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from hexforge.addon import FileKind, file_kinds, import_target
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.files import file_stem

MOST_BYTES = 4096
"""Read of a file's beginning, and of its end."""
MOST_MEMBERS = 256
"""Names that are read of a folder."""
UNKNOWN = FileKind(
    "of no kind that hexforge knows",
    "it may be damaged, or a context binary of Qualcomm's tools, which is read by Qualcomm's libraries only "
    "(onnxruntime-qnn)",
)
_ZIP_NAMES = ((b"PK\x03\x04", 26, 30), (b"PK\x01\x02", 28, 46))
"""Of a header in a zip archive: how it begins, where the length of a name is, and the name."""


@dataclass(frozen=True, slots=True)
class FileSample:
    """What a file is recognised by: its name, its first and last bytes, and what it holds."""

    path: Path | None
    start: bytes
    end: bytes = b""
    members: tuple[str, ...] = ()
    is_folder: bool = False

    def is_of(self, kind: FileKind) -> bool:
        """True where all holds that a kind says of its files."""
        name = self.path.name.lower() if self.path is not None else ""
        return (
            kind.is_folder == self.is_folder
            and (not kind.suffixes or name.endswith(kind.suffixes))
            and (not kind.start or re.match(kind.start, self.start, re.DOTALL) is not None)
            and (not kind.end or re.search(kind.end, self.end, re.DOTALL) is not None)
            and all(any(fnmatchcase(member, wanted) for member in self.members) for wanted in kind.members)
            and (not kind.recognised_by or bool(self.path and import_target(kind.recognised_by)(self.path)))
        )

    @property
    def kind(self) -> FileKind:
        """The first kind that all holds of."""
        return next((kind for kind in file_kinds() if self.is_of(kind)), UNKNOWN)


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file of a known kind, which does what commands ask of it."""

    path: Path
    kind: FileKind

    def does(self, command: str) -> bool:
        """Whether a command takes files of this kind."""
        return command in self.kind.does

    def do(self, command: str, *arguments: Any, **keywords: Any) -> Any:
        """Do what a command does; an error for a kind that it does not take, with what would work."""
        target = self.kind.does.get(command)
        if target is None and self.kind.does:
            refused = f"is {self.kind.name}, which `hexforge {command}` does not take"
            raise UnsupportedError(f"{self.path}: {refused}; {self.kind.advice}")
        if target is None:
            raise FormatError(f"{self.path}: is {self.kind.name}; {self.kind.advice}")
        return import_target(target)(self.path, *arguments, **keywords)


def open_model(path: str | os.PathLike[str]) -> OpenedFile:
    """The file, as the kind that it is; what it holds is read when something is asked of it."""
    return OpenedFile(Path(path), kind_of(path))


def kind_of(path: str | os.PathLike[str]) -> FileKind:
    """What a file or a folder is; CallError for a pipe or a device, which could be read without end."""
    return sample_of_file(Path(path)).kind


def kind_of_bytes(data: bytes | memoryview, path: Path | None = None) -> FileKind:
    """What a file is whose bytes are known; its name counts where there is one."""
    start, end = bytes(data[:MOST_BYTES]), bytes(data[-MOST_BYTES:])
    return FileSample(path, start, end, tuple(_zip_members(start, end))).kind


def sample_of_file(path: Path) -> FileSample:
    """The little of a file or a folder that it is recognised by."""
    path, _ = file_and_member(path)
    require_plain(path)
    if path.is_dir():
        with os.scandir(path) as entries:
            members = tuple(entry.name for entry in islice(entries, MOST_MEMBERS))
        return FileSample(path, b"", members=members, is_folder=True)
    with path.open("rb") as file:
        start = file.read(MOST_BYTES)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - MOST_BYTES, 0))
        end = file.read(MOST_BYTES)
    return FileSample(path, start, end, tuple(_zip_members(start, end)))


def file_and_member(path: Path) -> tuple[Path, str]:
    """The file that a path names, and which of the models inside it, as in bundle.task#detector; empty for the file."""
    file, mark, member = str(path).partition("#")
    if not mark or path.exists() or not Path(file).is_file():
        return path, ""
    return Path(file), member


def stem_of(path: Path) -> str:
    """What files that are made of a model are called: its file, and which model in it."""
    file, member = file_and_member(path)
    return f"{file.stem}.{file_stem(member)}" if member else file.stem


def require_plain(path: Path) -> None:
    """CallError for what is neither a file nor a folder; FormatError where there is nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        what = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise CallError(f"{path}: is {what}, not a file; write what comes out of it to a file first")


def _zip_members(*parts: bytes) -> Iterator[str]:
    """Names in the headers of a zip archive that lie in what was read of it."""
    if not parts[0].startswith(b"PK"):
        return
    for part in parts:
        for signature, length_at, name_at in _ZIP_NAMES:
            at = part.find(signature)
            while at >= 0:
                length = int.from_bytes(part[at + length_at : at + length_at + 2], "little")
                yield part[at + name_at : at + name_at + length].decode("utf-8", "replace")
                at = part.find(signature, at + 4)
