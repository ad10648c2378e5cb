# SPDX-License-Identifier: Apache-2.0
"""Flatbuffer: tables, vectors and strings of untrusted bytes. Nothing is read beyond them, and nothing without end.

A table's fields are asked for by their number in the schema; what is absent has the schema's default. Offsets of a
flatbuffer may point to one place many times over, so that a small file could describe a huge tree: all that is read is
counted against a budget of a few times the file's size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hexforge.errors import FormatError

_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_SCALARS = {code: struct.Struct(f"<{code}") for code in "?bBhHiIqQfd"}
_MOST_FIELDS = 64
"""Bytes of offsets that are read of a table: no schema here has as many fields."""
_BUDGET = 4
"""How many times its size may be read of a file; writers share vectors and strings now and then."""
_LEAST_BUDGET = 4096


class Flatbuffer:
    """The bytes of a flatbuffer; `where` names them in errors, `origin` is their place in the file."""

    def __init__(self, data: memoryview, where: str, origin: int = 0) -> None:
        self.data = data
        self.where = where
        self.origin = origin
        self._budget = _BUDGET * len(data) + _LEAST_BUDGET

    def fault(self, message: str, at: int) -> FormatError:
        """The error that something is wrong at a place."""
        return FormatError(f"{self.where}: {message}", self.origin + at)

    def unpack(self, how: struct.Struct, at: int) -> int | float | bool:
        """One number."""
        if not 0 <= at <= len(self.data) - how.size:
            raise self.fault(f"points outside its {len(self.data)} bytes", at)
        number: int | float | bool = how.unpack_from(self.data, at)[0]
        return number

    def spend(self, count: int, at: int) -> None:
        """Count what is read."""
        self._budget -= count
        if self._budget < 0:
            raise self.fault("refers to the same bytes again and again, more than a sound file does", at)

    def follow(self, at: int) -> int:
        """Where an offset points to."""
        return at + int(self.unpack(_U32, at))

    def root(self) -> FlatTable:
        """The outermost table."""
        return FlatTable(self, self.follow(0))

    def span(self, at: int, width: int) -> tuple[int, int]:
        """First byte and count of a vector's items."""
        count = int(self.unpack(_U32, at))
        if at + 4 + count * width > len(self.data):
            raise self.fault(f"has a vector of {count} items that ends outside its {len(self.data)} bytes", at)
        self.spend(4 + count * width, at)
        return at + 4, count


class FlatTable:
    """A table: fields by number."""

    __slots__ = ("_at", "_buffer", "_offsets", "_size")

    def __init__(self, buffer: Flatbuffer, at: int) -> None:
        self._buffer, self._at = buffer, at
        buffer.spend(4, at)
        vtable = at - int(buffer.unpack(_I32, at))
        fields = int(buffer.unpack(_U16, vtable))
        self._size = int(buffer.unpack(_U16, vtable + 2))
        if fields < 4 or vtable + fields > len(buffer.data) or at + self._size > len(buffer.data):
            raise buffer.fault("has a malformed table", at)
        count = min(fields - 4, _MOST_FIELDS) // 2
        self._offsets = struct.unpack_from(f"<{count}H", buffer.data, vtable + 4)

    def fault(self, message: str) -> FormatError:
        """The error that something is wrong with this table."""
        return self._buffer.fault(message, self._at)

    def _field(self, number: int) -> int:
        """Where a field is, 0 where it is absent."""
        if number >= len(self._offsets):
            return 0
        offset = self._offsets[number]
        if offset and not 4 <= offset < self._size:
            raise self.fault(f"has a table whose field {number} is outside of it")
        return self._at + offset if offset else 0

    def integer(self, number: int, code: str, default: int = 0) -> int:
        """An integer; `code` is struct's for its width."""
        at = self._field(number)
        return int(self._buffer.unpack(_SCALARS[code], at)) if at else default

    def real(self, number: int) -> float:
        """A double."""
        at = self._field(number)
        return float(self._buffer.unpack(_SCALARS["d"], at)) if at else 0.0

    def single(self, number: int, default: float = 0.0) -> float:
        """A float of 32 bits."""
        at = self._field(number)
        return float(self._buffer.unpack(_SCALARS["f"], at)) if at else default

    def flag(self, number: int, default: bool = False) -> bool:
        """A bool."""
        return self.integer(number, "B", int(default)) != 0

    def text(self, number: int) -> str | None:
        """A string; None where it is absent."""
        raw = self.raw(number)
        try:
            return None if raw is None else bytes(raw).decode()
        except UnicodeDecodeError:
            raise self.fault(f"has a string (field {number}) that is not UTF-8") from None

    def raw(self, number: int) -> memoryview | None:
        """A vector of bytes, not copied; None where it is absent."""
        at = self._field(number)
        if not at:
            return None
        first, count = self._buffer.span(self._buffer.follow(at), 1)
        return self._buffer.data[first : first + count]

    def numbers(self, number: int, code: str) -> tuple[int, ...]:
        """A vector of integers."""
        return self._vector(number, code)

    def reals(self, number: int) -> tuple[float, ...]:
        """A vector of doubles."""
        return self._vector(number, "d")

    def _vector(self, number: int, code: str) -> tuple[int, ...]:
        at = self._field(number)
        if not at:
            return ()
        first, count = self._buffer.span(self._buffer.follow(at), _SCALARS[code].size)
        return struct.unpack_from(f"<{count}{code}", self._buffer.data, first)

    def table(self, number: int) -> FlatTable | None:
        """A table; None where it is absent."""
        at = self._field(number)
        return FlatTable(self._buffer, self._buffer.follow(at)) if at else None

    def tables(self, number: int) -> Iterator[FlatTable]:
        """A vector of tables."""
        at = self._field(number)
        if at:
            first, count = self._buffer.span(self._buffer.follow(at), 4)
            for i in range(count):
                yield FlatTable(self._buffer, self._buffer.follow(first + 4 * i))

    def union(self, number: int) -> tuple[int, FlatTable]:
        """The kind and the table of a union whose type field is `number`."""
        kind = self.integer(number, "B")
        table = self.table(number + 1)
        if table is None:
            raise self.fault(f"has a union of kind {kind} without its table")
        return kind, table
