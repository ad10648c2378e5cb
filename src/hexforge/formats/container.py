# SPDX-License-Identifier: Apache-2.0
"""Container: named sections in one file that can be mapped, each with a checksum. docs/context_format.md describes it.

    header   64 bytes: magic, version, sizes, where the table is, checksums of the table and of the header itself
    sections each at a multiple of 4096 bytes, in the order they were added; zeros between
    table    JSON: kind, name, offset, bytes and CRC-32C of each section

Nothing is believed before its checksum is right, and nothing is read beyond the file.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge._native import crc32c, guard_mapping, mapping_lost, mapping_of, read_sections, unguard_mapping
from hexforge.errors import CallError, FormatError
from hexforge.formats.files import write_atomically

MAGIC = b"HXFCTX\r\n"
VERSION = 4
"""What is written, and all that is read."""
PAGE = 4096
SLACK = 2 * PAGE
"""Zeros behind the arrays of a file."""
HEADER = struct.Struct("<8sIIQQQII8x4xI")
"""Magic, version, header bytes, file bytes, table offset, table bytes, sections, table checksum, own checksum."""
MOST_NAME = 4096
assert HEADER.size == 64

Buffer = bytes | bytearray | memoryview
Source = str | os.PathLike[str] | Buffer


@dataclass(frozen=True, slots=True)
class ContainerSection:
    """Where something is in the file."""

    kind: str
    name: str
    offset: int
    bytes: int
    crc32c: int


def checksum(data: Buffer | np.ndarray[Any, Any], before: int = 0) -> int:
    """CRC-32C of bytes."""
    return int(crc32c(np.frombuffer(data, np.uint8), before)) if len(data) else before


def checksum_of_pieces(pieces: Iterable[Buffer], threads: int = 1, least_part: int = 4 << 20) -> int:
    """CRC-32C of bytes that lie in pieces; each of `threads` computes a part of a piece, of so many bytes at least."""
    crc = 0
    for piece in pieces:
        if len(piece):
            crc = int(crc32c(np.frombuffer(piece, np.uint8), crc, threads, least_part))
    return crc


class Writer:
    """Sections to be written; the data are kept, not copied, until then."""

    def __init__(self) -> None:
        self._sections: dict[tuple[str, str], list[Buffer]] = {}

    def add(self, kind: str, name: str, *parts: Buffer) -> None:
        """A section made of parts one after the other."""
        if (kind, name) in self._sections:
            raise CallError(f"section {kind} {name!r} is added twice")
        if len(name) > MOST_NAME:
            raise CallError(f"the name of section {kind} is {len(name)} characters; it may be {MOST_NAME}")
        self._sections[kind, name] = [memoryview(p).cast("B") for p in parts if len(p)]

    def add_json(self, kind: str, name: str, data: Any) -> None:
        """A section of JSON."""
        self.add(kind, name, json_bytes(data))

    def parts(self) -> Iterator[Buffer]:
        """The file's bytes, piece by piece."""
        at, table, body = PAGE, [], []
        for (kind, name), parts in self._sections.items():
            size, crc = sum(len(p) for p in parts), 0
            for part in parts:
                crc = checksum(part, crc)
            table.append([kind, name, at, size, crc])
            body.append((parts, -size % PAGE))
            at += size + -size % PAGE
        encoded_table = json_bytes(table)
        header = HEADER.pack(
            MAGIC, VERSION, HEADER.size, at + len(encoded_table), at, len(encoded_table), len(table),
            checksum(encoded_table), 0,
        )  # fmt: skip
        yield header[:-4] + struct.pack("<I", checksum(header[:-4])) + bytes(PAGE - HEADER.size)
        for parts, padding in body:
            yield from parts
            yield bytes(padding)
        yield encoded_table

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all."""
        write_atomically(Path(path), self.parts())

    def to_bytes(self) -> bytes:
        """The file in memory."""
        return b"".join(self.parts())


LARGE_BYTES = 1 << 26
"""A section of so many bytes leaves memory once its checksum was compared."""


class Container:
    """A file's sections, mapped. `where` names it in errors."""

    def __init__(self, source: Source, where: str = "") -> None:
        self._map: mmap.mmap | None = None
        if isinstance(source, bytes | bytearray | memoryview):
            self.where = where or "container"
            self._view = memoryview(source).cast("B").toreadonly()
        elif not isinstance(source, str | os.PathLike):
            raise CallError(f"a context is given by path or as bytes, not as {type(source).__name__}")
        else:
            self.where = where or os.fspath(source)
            self._map = map_file(Path(source))
            self._view = memoryview(self._map or b"")
        self.sections = self._read_table()
        self._by_name = {(s.kind, s.name): s for s in self.sections}
        self._checked: set[ContainerSection] = set()

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._by_name

    def __len__(self) -> int:
        return len(self._view)

    @property
    def view(self) -> memoryview:
        """The whole file."""
        return self._view

    def names(self, kind: str) -> list[str]:
        """Names of the sections of a kind."""
        return [s.name for s in self.sections if s.kind == kind]

    def section(self, kind: str, name: str, check: bool = True) -> memoryview:
        """The bytes of a section, their checksum verified on first use; FormatError where it is missing or damaged."""
        section = self._by_name.get((kind, name))
        if section is None:
            raise FormatError(f"{self.where}: has no section {kind} {name!r}")
        data = self._view[section.offset : section.offset + section.bytes]
        if check and section not in self._checked:
            self._check(section, checksum(data))
        return data

    def leave_memory(self) -> None:
        """Let the pages of all large sections go."""
        for section in self.sections:
            if section.bytes >= LARGE_BYTES:
                self._leave_memory(section)

    def _leave_memory(self, section: ContainerSection) -> None:
        """Let a section's pages go; what is used of it comes back, as of an embedding only some rows do."""
        if self._map is not None and section.offset % mmap.PAGESIZE == 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, section.offset, section.bytes)

    def json(self, kind: str, name: str) -> Any:
        """A section of JSON as plain data."""
        text = self.text(kind, name)
        return parse_json_bytes(text, self.where, self._by_name[kind, name].offset)

    def text(self, kind: str, name: str) -> bytes:
        """A section of text, which then leaves memory until it is read again."""
        raw = bytes(self.section(kind, name))
        if raw:
            self._leave_memory(self._by_name[kind, name])
        return raw

    def verify(self, checksum_of: Callable[[ContainerSection], int] | None = None) -> None:
        """Compare every checksum; `checksum_of` computes that of a section, where it is not to be read through the map
        at once."""
        for section in self.sections:
            if checksum_of is None:
                self.section(section.kind, section.name)
            elif section not in self._checked:
                self._check(section, checksum_of(section))

    def _check(self, section: ContainerSection, crc: int) -> None:
        if crc != section.crc32c:
            raise FormatError(
                f"{self.where}: section {section.kind} {section.name!r} is damaged: its checksum is wrong",
                section.offset,
            )
        self._checked.add(section)
        if section.bytes >= LARGE_BYTES:
            self._leave_memory(section)

    def _read_table(self) -> tuple[ContainerSection, ...]:
        view, where = self._view, self.where
        if len(view) < len(MAGIC) or bytes(view[: len(MAGIC)]) != MAGIC:
            raise FormatError(f"{where}: is not a hexforge context; {_what_else(view)}", 0)
        return tuple(ContainerSection(*row) for row in read_sections(np.frombuffer(view, np.uint8), where))


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def json_bytes(data: Any) -> bytes:
    """Data as JSON bytes, the same every time."""
    return _ENCODER.encode(data).encode()


def parse_json_bytes(raw: bytes, where: str, offset: int) -> Any:
    """JSON bytes as data; FormatError where they are none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: holds malformed JSON: {error}", offset) from None


def as_text(value: Any) -> str:
    """What JSON should have as a text; TypeError where it has something else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def map_file(path: Path) -> mmap.mmap | None:
    """A file's bytes; None where it has none, which cannot be mapped."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return None
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            number = guard_mapping(np.frombuffer(mapping, np.uint8), file.fileno())
            weakref.finalize(mapping, unguard_mapping, number)
            return mapping
    except FileNotFoundError:
        raise CallError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise CallError(f"{path}: cannot be read: {error}") from None


def mappings_of(arrays: Iterable[np.ndarray[Any, Any]]) -> frozenset[int]:
    """The mapped files that arrays lie in, for `require_whole`."""
    return frozenset(number for array in arrays if array.size and (number := mapping_of(array.ctypes.data)) >= 0)


def require_whole(mappings: Iterable[int]) -> None:
    """FormatError where a mapped file was truncated: results computed from its bytes are wrong."""
    if any(map(mapping_lost, mappings)):
        raise FormatError(
            "a file that holds its constants was truncated while it was open; write contexts anew, and rename them "
            "over the old"
        )


def _what_else(data: memoryview) -> str:
    """What else a file is, and what to do with it."""
    from hexforge.formats.file_kinds import UNKNOWN, kind_of_bytes  # the table is read for files of others only

    kind = kind_of_bytes(data)
    return kind.advice if kind is UNKNOWN else f"it is {kind.name}; {kind.advice}"


def _raw(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Pool:
    """Arrays of several graphs in one section, each stored once however often it is used."""

    ALIGN = 64

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._known: dict[tuple[int, int], list[tuple[int, memoryview]]] = {}
        """Where bytes of a size and checksum are."""
        self._end = 0
        self.put_bytes = 0
        """Bytes that were put, each time counted."""

    def put(self, data: Buffer | np.ndarray[Any, Any]) -> tuple[int, int]:
        """Store bytes, unless they are there already; where they are."""
        view = memoryview(data).cast("B") if not isinstance(data, np.ndarray) else _raw(data)
        size = len(view)
        self.put_bytes += size
        alike = self._known.setdefault((size, checksum(view)), [])
        for offset, known in alike:
            if known == view:
                return offset, size
        padding = -self._end % self.ALIGN
        self._parts += [bytes(padding), view]
        alike.append((self._end + padding, view))
        self._end += padding + size
        return alike[-1][0], size

    @property
    def stored(self) -> int:
        """Bytes that are stored."""
        return self._end

    def forget(self) -> None:
        """Store what comes from here on anew, also where it is there already: graphs that share nothing."""
        self._known.clear()

    @property
    def parts(self) -> Sequence[Buffer]:
        """The section's bytes; kernels may read, and do not use, a little past an array's end."""
        return [*self._parts, bytes(SLACK)]
