# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's file of a program's tensors (.ptd), read as names and bytes.

    bytes 0..8    offset of the root table, "FT01"
    byte 8        header: "FH01", its length, where the flatbuffer begins and its size, where segments begin, their size
    flatbuffer    names, segments, element types and sizes (ExecuTorch's schema flat_tensor.fbs)
    segments      the tensors

The file is untrusted: every offset, index and size in it is checked before it is used.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hexforge.errors import FormatError
from hexforge.formats.container import map_file
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable

MAGIC = b"FT01"
_HEADER = struct.Struct("<4sIQQQQ")
_HEADER_AT = 8


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """Bytes under a name; where they are a tensor, its element type (ExecuTorch's number) and sizes."""

    data: memoryview
    scalar_type: int | None = None
    sizes: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()


def read_ptd(source: str | os.PathLike[str] | bytes | memoryview, where: str = "") -> dict[str, NamedTensor]:
    """Everything in a .ptd by its name, a path mapped, not read; FormatError where it is damaged, or another file."""
    if isinstance(source, bytes | memoryview):
        data, where = memoryview(source).cast("B"), where or "tensors"
    else:
        data, where = memoryview(map_file(Path(source)) or b""), where or os.fspath(source)
    if bytes(data[4:8]) != MAGIC:
        raise FormatError(f"{where}: is not a file of tensors for ExecuTorch (.ptd, {MAGIC.decode()!r})", 4)
    if len(data) < _HEADER_AT + _HEADER.size:
        raise FormatError(f"{where}: ends within the header", len(data))
    magic, length, _, _, base, size = _HEADER.unpack_from(data, _HEADER_AT)
    if magic != b"FH01" or length < _HEADER.size:
        raise FormatError(f"{where}: has no header where one must be", _HEADER_AT)
    if base + size > len(data):
        raise FormatError(f"{where}: is cut short: it has {len(data)} bytes, it should have {base + size}", 32)
    root = Flatbuffer(data[: base or len(data)], where).root()
    if version := root.integer(0, "I"):
        raise FormatError(f"{where}: is of schema version {version}; versions up to 0 are read")
    segments = [_segment(table, data[base : base + size]) for table in root.tables(1)]
    return {table.text(0) or "": _named(table, segments) for table in root.tables(2)}


def read_all(sources: tuple[str | os.PathLike[str] | bytes, ...]) -> Mapping[str, NamedTensor]:
    """The tensors of several files; FormatError where two have one name."""
    tensors: dict[str, NamedTensor] = {}
    for source in sources:
        own = read_ptd(source)
        if twice := sorted(tensors.keys() & own.keys()):
            raise FormatError(f"tensor {twice[0]!r} is in two of the .ptd files that were given")
        tensors |= own
    return tensors


def _segment(table: FlatTable, data: memoryview) -> memoryview:
    first, size = table.integer(0, "Q"), table.integer(1, "Q")
    if first + size > len(data):
        raise table.fault(f"has a segment from {first} to {first + size}; its segments have {len(data)} bytes")
    return data[first : first + size]


def _named(table: FlatTable, segments: list[memoryview]) -> NamedTensor:
    index, layout = table.integer(1, "I"), table.table(2)
    if index >= len(segments):
        raise table.fault(f"refers to segment {index} of {len(segments)}")
    if layout is None:
        return NamedTensor(segments[index])
    return NamedTensor(segments[index], layout.integer(0, "b"), layout.numbers(1, "i"), layout.numbers(2, "B"))
