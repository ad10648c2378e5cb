# SPDX-License-Identifier: Apache-2.0
"""Arrays of programs on their way into a context file: as they are, or in a lossless form that takes less room.

Native code reads them (native/context/arrays.cpp): those of a form are made whole again when a program is loaded, once
for all graphs that share them; others are used where they lie.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from hexforge._native import narrow_halves, widen_halves
from hexforge.backend import Put
from hexforge.ir import Array

LEAST_BYTES = 4096
"""Smaller arrays lie in the file as they are."""
VALUES = 16
"""Of 4 bits."""
TABLE = range(1 << 16, (1 << 16) + 65)
"""How many entries a table of 16 bits has, with what kernels read behind it."""
LEAST_TABLE_BYTES = 4096
"""What a table takes in a file at least, so that a file cannot make more than 32 times its size."""
_PIECE = 1 << 20

Stored = tuple[Array, Any] | None
"""The bytes that a file holds of an array, and what it says of the form; None where the form does not suit."""


class KeptHalves(np.ndarray[Any, Any]):
    """Float32 numbers beside the float16 numbers that they were made of, which a file holds."""

    source: Array | None = None


def kept_halves(halves: Array) -> KeptHalves:
    """Halves, given by their bits as float16, as float32 numbers that a file holds in half as many bytes."""
    whole = KeptHalves(halves.shape, np.float32)
    widen_halves(np.ascontiguousarray(halves).reshape(-1).view(np.uint16), whole.reshape(-1).view(np.ndarray))
    whole.source = halves
    return whole


def write_array(array: Array, put: Put, packing: bool) -> dict[str, Any]:
    """What a file holds of an array; its bytes are put elsewhere."""
    header: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if isinstance(array, KeptHalves) and array.source is not None:
        return {"at": list(put(array.source)), **header, "half": 1}
    if array.nbytes >= LEAST_BYTES:
        flat = np.ascontiguousarray(array).reshape(-1)
        for word, form in FORMS.items():
            if (word != "values" or packing) and (stored := form(flat)) is not None:
                return {"at": list(put(stored[0])), **header, word: stored[1]}
    return {"at": list(put(array)), **header}


def put_again(data: Any, put: Put, read: Callable[[int, int], Any]) -> Any:
    """What a file holds of arrays, and what is around them, with the arrays put into another file as they lie."""
    if isinstance(data, list):
        return [put_again(item, put, read) for item in data]
    if not isinstance(data, dict):
        return data
    return {key: list(put(read(*value))) if key == "at" else put_again(value, put, read) for key, value in data.items()}


def _half(flat: Array) -> Stored:
    """Floats that are all float16 numbers, as HTP's are: two bytes for four."""
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


def _values(flat: Array) -> Stored:
    """Integers of at most 16 different values, with weights packing: 4 bits each, the first in a byte's low bits."""
    if flat.dtype.kind not in "iu":
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


def _steps(flat: Array) -> Stored:
    """Tables that are looked up by 16 bits: the differences from each entry to the next, compressed."""
    if flat.dtype.kind not in "iu" or flat.itemsize > 2 or flat.size not in TABLE:
        return None
    entries = flat.view(f"u{flat.itemsize}")
    steps = entries.copy()
    steps[1:] -= entries[:-1]
    packed = zlib.compress(steps.data, 1)
    if len(packed) > 2 * LEAST_TABLE_BYTES:  # of most tables the quickest way leaves less than that
        packed = zlib.compress(steps.data, 6)
    table = np.frombuffer(packed.ljust(LEAST_TABLE_BYTES, b"\0"), np.uint8)
    return (table, 1) if table.nbytes <= flat.nbytes // 2 else None


def _bytes(flat: Array) -> Stored:
    """Integers of 16 bits that lie close together, as weights less their zero point do: bytes, and the least of them.

    Elements of 32 bits have those 16 in their lower half, as depthwise kernels read them.
    """
    if flat.dtype not in (np.int16, np.int32):
        return None
    numbers = flat if flat.dtype == np.int16 else flat.astype(np.int16)
    if flat.dtype == np.int32 and not np.array_equal(numbers.view(np.uint16), flat):
        return None
    least, most = int(numbers.min()), int(numbers.max())
    if most - least > 255:
        return None
    return (numbers - np.int16(least)).astype(np.uint8), [least]


FORMS: dict[str, Callable[[Array], Stored]] = {"half": _half, "values": _values, "steps": _steps, "bytes": _bytes}
"""By the word that says so in a file, in the order in which they are tried."""
