# SPDX-License-Identifier: Apache-2.0
"""Binaries: what a loader reads of a library: its machine, its bits, how its segments are aligned, what it needs.

Only headers that the ELF and PE formats publish are read, as `readelf -lhd` does; no code and no data of a library is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 164: "Hexagon", 183: "ARM64", 243: "RISC-V"}
PE_MACHINES = {0x14C: "x86", 0x1C4: "ARM", 0x8664: "x86-64", 0xAA64: "ARM64", 0xA641: "ARM64EC", 0xA64E: "ARM64X"}
HEAD = 2 << 20
"""Bytes of a library that are read: its headers, and the names of what it needs, which linkers put first."""
_LOAD, _DYNAMIC, _MOST_HEADERS, _MOST_NEEDED = 1, 2, 128, 256
_NEEDED, _STRTAB = 1, 5


@dataclass(frozen=True, slots=True)
class LibraryHeader:
    """A library as a loader sees it."""

    format: str
    """ELF or PE."""
    bits: int
    machine: str
    page_bytes: int = 0
    """The least alignment of what is loaded of it; 0 where nothing is."""
    needed: tuple[str, ...] = ()
    """The libraries it asks for by name, as far as they are named in its first bytes."""
    fault: str = ""
    """Why it cannot be loaded anywhere."""


def read_binary(head: bytes, size: int) -> LibraryHeader | None:
    """What the first bytes of a file of some size say; None where it is no library."""
    try:
        if head[:4] == b"\x7fELF":
            return _elf(head, size)
        if head[:2] == b"MZ":
            return _pe(head)
    except (struct.error, IndexError):
        return LibraryHeader("ELF" if head[:4] == b"\x7fELF" else "PE", 0, "", fault="its headers end in the middle")
    return None


def _elf(head: bytes, size: int) -> LibraryHeader:
    bits = {1: 32, 2: 64}.get(head[4], 0)
    if not bits or head[5] not in (1, 2):
        return LibraryHeader("ELF", 0, "", fault="its class or byte order is none that exists")
    order = "<" if head[5] == 1 else ">"
    (machine,) = struct.unpack_from(f"{order}H", head, 18)
    name = MACHINES.get(machine, f"machine {machine}")
    offset, entry, count = _program_headers(head, bits, order)
    if count and (entry < (56 if bits == 64 else 32) or offset + entry * count > size):
        return LibraryHeader("ELF", bits, name, fault="its program headers are outside of the file")
    if not count:
        return LibraryHeader("ELF", bits, name, fault="it has no program headers: it is no library that a loader takes")
    segments = [_segment(head, offset + i * entry, bits, order) for i in range(min(count, _MOST_HEADERS))]
    loads = [segment for segment in segments if segment.kind == _LOAD]
    needed = next((_needed(head, s, loads, bits, order) for s in segments if s.kind == _DYNAMIC), ())
    ends = max((s.offset + s.bytes for s in loads), default=0)
    fault = f"it ends after {size:,} of {ends:,} bytes" if ends > size else ""
    return LibraryHeader("ELF", bits, name, min((s.align for s in loads), default=0), needed, fault)


def _program_headers(head: bytes, bits: int, order: str) -> tuple[int, int, int]:
    """Where they begin, the bytes of one, and how many there are."""
    (offset,) = struct.unpack_from(f"{order}{'Q' if bits == 64 else 'I'}", head, 32 if bits == 64 else 28)
    entry, count = struct.unpack_from(f"{order}HH", head, 54 if bits == 64 else 42)
    return offset, entry, count


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    bytes: int
    align: int


def _segment(head: bytes, at: int, bits: int, order: str) -> _Segment:
    if bits == 64:
        kind, _, offset, address, _, in_file, _, align = struct.unpack_from(f"{order}IIQQQQQQ", head, at)
    else:
        kind, offset, address, _, in_file, _, _, align = struct.unpack_from(f"{order}IIIIIIII", head, at)
    return _Segment(kind, offset, address, in_file, align)


def _needed(head: bytes, dynamic: _Segment, loads: list[_Segment], bits: int, order: str) -> tuple[str, ...]:
    """Names of the libraries it asks for; none where they are not in the bytes at hand."""
    width, code = (16, f"{order}qQ") if bits == 64 else (8, f"{order}iI")
    names: list[int] = []
    table = None
    for at in range(dynamic.offset, min(dynamic.offset + dynamic.bytes, len(head) - width), width):
        tag, value = struct.unpack_from(code, head, at)
        if tag == _NEEDED and len(names) < _MOST_NEEDED:
            names.append(value)
        elif tag == _STRTAB:
            table = next(
                (value - s.address + s.offset for s in loads if s.address <= value < s.address + s.bytes), None
            )
    if table is None:
        return ()
    texts = (head[table + name :].partition(b"\0")[0][:256] for name in names if table + name < len(head))
    return tuple(text.decode("ascii", "replace") for text in texts if text)


def _pe(head: bytes) -> LibraryHeader:
    (at,) = struct.unpack_from("<I", head, 60)
    if head[at : at + 4] != b"PE\0\0":
        return LibraryHeader("PE", 0, "", fault="its PE header is not where it says")
    machine, _ = struct.unpack_from("<HH", head, at + 4)
    name = PE_MACHINES.get(machine, f"machine {machine:#x}")
    return LibraryHeader("PE", 32 if name in ("x86", "ARM") else 64, name)
