# SPDX-License-Identifier: Apache-2.0
"""Places: the files of a folder or an archive, by their paths, each read to a limit and no further.

Archives are of people nobody knows: nothing is unpacked to disk, paths that leave the archive and members that grow
past any limit are reported and not read.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hexforge.errors import CallError

MOST_ENTRIES = 20_000
MOST_READ = 64 << 20
"""Bytes that are read of one file, whatever is asked for."""
MOST_UNPACKED = 8 << 30
"""Bytes that the members of an archive may have together."""
MOST_GROWTH = 1000
"""How many times its packed size a member may have, past a MiB."""
ARCHIVES = (".apk", ".aab", ".zip", ".aar", ".apks")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a place."""

    path: str
    size: int
    read: Callable[[int], bytes]
    """The first bytes of it, at most as many as are asked for."""
    stored_at: int | None = None
    """Where its bytes lie in the archive that has them unpacked; None in a folder, and where they are packed."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.path).name

    def text(self) -> str:
        """Its text; what is no UTF-8 is replaced."""
        return self.read(1 << 20).decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class ExaminedPlace:
    """What is examined: its name, its kind, its files, and what of it was not read."""

    name: str
    kind: str
    """folder or archive."""
    entries: tuple[Entry, ...]
    hostile: tuple[str, ...] = ()
    """What is wrong with the archive itself, in sentences."""


def open_place(path: Path) -> ExaminedPlace:
    """A folder, or an archive by its content; CallError for what is neither."""
    if path.is_dir():
        return _folder(path)
    if zipfile.is_zipfile(path):
        return _archive(path)
    if path.suffix.lower() in ARCHIVES:
        return ExaminedPlace(
            path.name, "archive", (), (f"{path.name} is no whole archive: it has no directory of its members.",)
        )
    raise CallError(f"{path}: is no folder and no archive; give a folder, an APK or AAB, or a log (.log, .txt)")


def _folder(path: Path) -> ExaminedPlace:
    entries: list[Entry] = []
    hostile = []
    for root, folders, files in os.walk(path):
        folders[:] = sorted(f for f in folders if f not in (".git", ".gradle", "node_modules"))
        for name in sorted(files):
            file = Path(root, name)
            if not file.is_file():
                continue
            if len(entries) == MOST_ENTRIES:
                hostile.append(f"Only the first {MOST_ENTRIES} files were examined.")
                return ExaminedPlace(path.name or str(path), "folder", tuple(entries), tuple(hostile))
            entries.append(Entry(file.relative_to(path).as_posix(), file.stat().st_size, _reader_of_file(file)))
    return ExaminedPlace(path.name or str(path), "folder", tuple(entries), tuple(hostile))


def _reader_of_file(file: Path) -> Callable[[int], bytes]:
    def read(count: int) -> bytes:
        try:
            with file.open("rb") as opened:
                return opened.read(min(count, MOST_READ))
        except OSError:
            return b""

    return read


def _archive(path: Path) -> ExaminedPlace:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, UnicodeDecodeError) as error:
        return ExaminedPlace(path.name, "archive", (), (f"{path.name} cannot be read as an archive: {error}.",))
    hostile = list(_hostile_members(members))
    if sum(member.file_size for member in members) > MOST_UNPACKED:
        hostile.append(f"Its members say that they have more than {MOST_UNPACKED >> 30} GiB together.")
    sound = [member for member in members[:MOST_ENTRIES] if not member.is_dir() and not _fault(member)]
    entries = tuple(
        Entry(member.filename, member.file_size, _reader_of_member(path, member), _offset(path, member))
        for member in sound
    )
    return ExaminedPlace(path.name, "archive", entries, tuple(hostile))


def _hostile_members(members: list[zipfile.ZipInfo]) -> Iterator[str]:
    if len(members) > MOST_ENTRIES:
        yield f"It has {len(members):,} members; the first {MOST_ENTRIES:,} were examined."
    for member in members[:MOST_ENTRIES]:
        if fault := _fault(member):
            yield f"{member.filename[:120]!r} {fault}; it was not read."
    names: set[str] = set()
    for member in members[:MOST_ENTRIES]:
        if member.filename in names:
            yield f"{member.filename[:120]!r} is there twice: tools disagree about which one counts."
        names.add(member.filename)


def _fault(member: zipfile.ZipInfo) -> str:
    """Why a member is not read; empty where it is as any other."""
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        return "leaves the archive"
    if member.flag_bits & 1:
        return "is encrypted"
    if member.file_size > (1 << 20) and member.file_size > MOST_GROWTH * max(1, member.compress_size):
        return f"grows from {member.compress_size:,} to {member.file_size:,} bytes"
    return ""


def _reader_of_member(path: Path, member: zipfile.ZipInfo) -> Callable[[int], bytes]:
    def read(count: int) -> bytes:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(member) as opened:
                return opened.read(min(count, MOST_READ))
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, RuntimeError, zlib.error):
            return b""

    return read


def _offset(path: Path, member: zipfile.ZipInfo) -> int | None:
    """Where the bytes of a member that is not packed begin: behind its own header, which has lengths of its own."""
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(30)
    if len(header) < 30:
        return None
    return member.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
