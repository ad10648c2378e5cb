# SPDX-License-Identifier: Apache-2.0
"""The lossless compact forms in which a context file stores arrays, as one table."""

from __future__ import annotations

import zlib
from typing import Any, Protocol

import numpy as np

from hexforge._native import narrow_halves, step_rooms, widen_halves
from hexforge.ir import Array

ROOM = max(step_rooms().values())
"""Bytes behind a tensor that kernels may read, and never use."""
VALUES = 16
"""Of 4 bits."""
TABLE = range(1 << 16, (1 << 16) + 65)
"""How many entries a table of 16 bits has, with what kernels read behind it."""
LEAST_TABLE_BYTES = 4096
"""What a table takes in a file at least, so that a file cannot make more than 32 times its size."""
_PIECE = 1 << 20


class FileForm(Protocol):
    """A form. `form_data` is what the file has under the form's `word`: integers in a tuple, already checked."""

    word: str

    def stored(self, flat: Array, packing: bool) -> tuple[Array, Any] | None:
        """The bytes and the form data that a file holds of an array; None where this form does not suit."""

    def fits(self, form_data: tuple[int, ...], size: int, dtype: np.dtype[Any], count: int) -> bool:
        """True where `size` bytes can hold `count` elements."""

    def fill(self, form_data: tuple[int, ...], raw: Array, whole: Array, count: int) -> None:
        """Write `count` elements into `whole`, which is longer; ValueError where the bytes are malformed."""


class _Half:
    """Floats that are all float16 numbers, as HTP's are: two bytes for four."""

    word = "half"

    def stored(self, flat: Array, packing: bool) -> tuple[Array, Any] | None:
        if flat.dtype != np.float32:
            return None
        halves, again = np.empty(flat.size, np.uint16), np.empty(min(flat.size, _PIECE), np.float32)
        for first in range(0, flat.size, _PIECE):
            part, half = flat[first : first + _PIECE], halves[first : first + _PIECE]
            narrow_halves(part, half)
            widen_halves(half, again[: part.size])
            if not np.array_equal(again[: part.size].view(np.uint32), part.view(np.uint32)):
                return None
        return halves.view(np.float16), 1

    def fits(self, form_data: tuple[int, ...], size: int, dtype: np.dtype[Any], count: int) -> bool:
        return dtype == np.float32 and size == count * 2

    def fill(self, form_data: tuple[int, ...], raw: Array, whole: Array, count: int) -> None:
        widen_halves(raw.view(np.uint16), whole[:count])


class _Values:
    """Integers of at most 16 different values, with weights packing: 4 bits each, the first in a byte's low bits."""

    word = "values"

    def stored(self, flat: Array, packing: bool) -> tuple[Array, Any] | None:
        if not packing or flat.dtype.kind not in "iu":
            return None
        for part in (flat[:4096], flat):
            values = np.unique(part)
            if len(values) > VALUES:
                return None
        packed = np.zeros(-(-flat.size // 2), np.uint8)
        for first in range(0, flat.size, 2 * _PIECE):
            part = np.searchsorted(values, flat[first : first + 2 * _PIECE]).astype(np.uint8)
            target = packed[first // 2 : first // 2 + _PIECE]
            target |= part[::2]
            target[: part.size // 2] |= part[1::2] << 4
        return packed, values.tolist()

    def fits(self, form_data: tuple[int, ...], size: int, dtype: np.dtype[Any], count: int) -> bool:
        if dtype.kind not in "iu" or not 0 < len(form_data) <= VALUES or size != -(-count // 2):
            return False
        return bool(np.iinfo(dtype).min <= min(form_data) <= max(form_data) <= np.iinfo(dtype).max)

    def fill(self, form_data: tuple[int, ...], raw: Array, whole: Array, count: int) -> None:
        table = np.resize(np.array(form_data, whole.dtype), VALUES)
        pairs = np.stack([table[np.arange(256) & 15], table[np.arange(256) >> 4]], axis=1)
        target = whole[:count]
        for first in range(0, count, 2 * _PIECE):
            part = pairs[raw[first // 2 : first // 2 + _PIECE]].reshape(-1)
            target[first : first + 2 * _PIECE] = part[: count - first]


class _Steps:
    """Tables that are looked up by 16 bits: the differences from each entry to the next, compressed."""

    word = "steps"

    def stored(self, flat: Array, packing: bool) -> tuple[Array, Any] | None:
        if not _is_table(flat.dtype, flat.size):
            return None
        entries = flat.view(f"u{flat.itemsize}")
        steps = entries.copy()
        steps[1:] -= entries[:-1]
        packed = zlib.compress(steps.data, 1)
        if len(packed) > 2 * LEAST_TABLE_BYTES:  # of most tables the quickest way leaves less than that
            packed = zlib.compress(steps.data, 6)
        table = np.frombuffer(packed.ljust(LEAST_TABLE_BYTES, b"\0"), np.uint8)
        return (table, 1) if table.nbytes <= flat.nbytes // 2 else None

    def fits(self, form_data: tuple[int, ...], size: int, dtype: np.dtype[Any], count: int) -> bool:
        return _is_table(dtype, count) and size >= LEAST_TABLE_BYTES

    def fill(self, form_data: tuple[int, ...], raw: Array, whole: Array, count: int) -> None:
        stream, wanted = zlib.decompressobj(), count * whole.itemsize
        try:
            steps = stream.decompress(raw.data, wanted)
            ended = stream.eof or (not stream.decompress(stream.unconsumed_tail, 1) and stream.eof)
        except zlib.error as problem:
            raise ValueError(f"a table's steps are damaged: {problem}") from None
        if not ended or len(steps) != wanted:
            raise ValueError(f"{whole.dtype.name}[{count}] is not what a table's steps make")
        entries = f"u{whole.itemsize}"
        whole[:count] = np.cumsum(np.frombuffer(steps, entries), dtype=entries).view(whole.dtype)


class _Bytes:
    """Integers of 16 bits that lie close together, as weights less their zero point do: bytes, and the least of them.

    Elements of 32 bits have those 16 in their lower half, as depthwise kernels read them.
    """

    word = "bytes"

    def stored(self, flat: Array, packing: bool) -> tuple[Array, Any] | None:
        if flat.dtype not in (np.int16, np.int32):
            return None
        numbers = flat if flat.dtype == np.int16 else flat.astype(np.int16)
        if flat.dtype == np.int32 and not np.array_equal(numbers.view(np.uint16), flat):
            return None
        least, most = int(numbers.min()), int(numbers.max())
        if most - least > 255:
            return None
        return (numbers - np.int16(least)).astype(np.uint8), [least]

    def fits(self, form_data: tuple[int, ...], size: int, dtype: np.dtype[Any], count: int) -> bool:
        near = len(form_data) == 1 and -(1 << 15) <= form_data[0] < 1 << 15
        return near and dtype in (np.int16, np.int32) and size == count

    def fill(self, form_data: tuple[int, ...], raw: Array, whole: Array, count: int) -> None:
        for first in range(0, count, _PIECE):
            part = (raw[first : first + _PIECE] + np.uint16(form_data[0] & 0xFFFF)).astype(np.uint16)
            whole[first : first + _PIECE][: part.size] = part if whole.dtype == np.int32 else part.view(np.int16)


def _is_table(dtype: np.dtype[Any], count: int) -> bool:
    """True for the size of a table that is looked up by 16 bits."""
    return dtype.kind in "iu" and dtype.itemsize <= 2 and count in TABLE


FORMS: dict[str, FileForm] = {form.word: form for form in (_Half(), _Values(), _Steps(), _Bytes())}
"""By the word that says so in a file, in the order in which they are tried."""
