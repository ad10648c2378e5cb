# SPDX-License-Identifier: Apache-2.0
"""Arrays of programs in a context file: as they are, or smaller where that loses nothing.

Floats that are all float16 numbers, as HTP's are, lie there in float16; with weights packing integers of at most 16
different values lie there in 4 bits. Of Winograd's cells of 3x3 weights, 16 numbers for 9, a file holds the weights,
and of a table of 16 bits the steps from each entry to the next, compressed. Such arrays are made whole again when a
program is loaded, others are used where they lie.
"""

from __future__ import annotations

import math
import weakref
import zlib
from typing import Any

import numpy as np

from hexforge._native import widen_halves, winograd_cells
from hexforge.backend import Get, Put
from hexforge.formats.container import as_text, mappings_of, require_whole
from hexforge.ir import Array

LEAST_BYTES = 4096
"""Smaller arrays lie in the file as they are."""
ROOM = 64
"""Bytes behind a tensor that kernels may read, and never use."""
VALUES = 16
"""Of 4 bits."""
MOST_SLACK = 1 << 16
"""Elements behind the cells of weights."""
TABLE = range(1 << 16, (1 << 16) + 65)
"""How many entries a table of 16 bits has, with what kernels read behind it."""
LEAST_TABLE_BYTES = 4096
"""What a table takes in a file at least, so that a file cannot make more than 32 times its size."""
_PIECE = 1 << 20
_NAMES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
DTYPES: dict[str, np.dtype[Any]] = {spelt: d for d in map(np.dtype, _NAMES) for spelt in (d.name, d.str)}
"""Data types that tensors can have, by both of numpy's names."""


class WholeArray(np.ndarray[Any, Any]):
    """An array made of less, which it keeps: a file holds that, and graphs that share it share the array."""

    source: Any
    """The bytes in a file, the [3, 3, in, out] weights that Winograd's cells are made of, or float16 numbers."""
    taps: tuple[int, int] | None = None
    """Input and output channels of such weights."""


def write_array(array: Array, put: Put, packing: bool) -> dict[str, Any]:
    """What a file holds of an array; its bytes are put elsewhere."""
    said: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if isinstance(array, WholeArray):
        if array.taps is not None:
            return {"at": list(put(_halves(array.source))), **said, "winograd": list(array.taps)}
        if isinstance(halves := getattr(array, "source", None), np.ndarray):
            return {"at": list(put(halves)), **said, "half": 1}
    if array.nbytes >= LEAST_BYTES:
        flat = np.ascontiguousarray(array).reshape(-1)
        if array.dtype == np.float32 and (halves := _in_float16(flat)) is not None:
            return {"at": list(put(halves)), **said, "half": 1}
        if packing and array.dtype.kind in "iu" and (values := _few_values(flat)) is not None:
            return {"at": list(put(_nibbles(flat, values))), **said, "values": values.tolist()}
        if _is_table(array.dtype, array.size) and len(steps := _steps(flat)) <= array.nbytes // 2:
            return {"at": list(put(np.frombuffer(steps, np.uint8))), **said, "steps": 1}
    return {"at": list(put(array)), **said}


def read_array(value: dict[str, Any], get: Get) -> Array:
    """The array that `write_array` put; ValueError where the data are not one."""
    dtype, shape = dtype_of(value["dtype"]), numbers(value["shape"])
    offset, size = numbers(value["at"])
    count = math.prod(shape)
    if any(made_of in value for made_of in ("half", "values", "winograd", "steps")):
        flat = _made_whole(value, dtype, count, get(offset, size))
    elif count * dtype.itemsize != size:
        raise ValueError(f"{dtype.name}{list(shape)} has not {size} bytes")
    else:
        flat = np.frombuffer(get(offset, size), dtype)
    return flat if len(shape) == 1 else flat.reshape(shape)


def cells_of(weights: Array, slack: int) -> WholeArray:
    """[3, 3, in, out] weights as Winograd's 4 x 4 cells of them in float16, with `slack` zeros behind."""
    channels, outputs = weights.shape[2:]
    whole = np.zeros(_cells(channels, outputs) + slack, np.float32).view(WholeArray)
    winograd_cells(_halves(weights).view(np.uint16), whole)
    whole.source, whole.taps = weights, (channels, outputs)
    return whole


def widened(halves: Array) -> WholeArray:
    """Numbers of float16 as float32."""
    whole = WholeArray(halves.shape, np.float32)
    whole[...] = halves
    whole.source = halves
    return whole


def _cells(channels: int, outputs: int) -> int:
    """How many there are, in blocks of 64 outputs."""
    return -(-outputs // 64) * 64 * 16 * channels


def _halves(weights: Any) -> Array:
    """Weights in float16, from what a `WholeArray` keeps."""
    if isinstance(weights, memoryview):
        return np.frombuffer(weights, np.float16)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(weights, np.float16)


_WHOLE: weakref.WeakValueDictionary[tuple[Any, ...], WholeArray] = weakref.WeakValueDictionary()


def _made_whole(value: dict[str, Any], dtype: np.dtype[Any], count: int, source: memoryview) -> Array:
    raw = np.frombuffer(source, np.uint8)
    taps = numbers(value["winograd"], 1) if "winograd" in value else None
    values = numbers(value["values"], LEAST) if "values" in value else None
    steps = "steps" in value
    _check(raw.size, dtype, count, taps, values, steps)
    key = raw.ctypes.data, raw.size, dtype.str, count, taps, values, steps
    whole = _WHOLE.get(key)
    if whole is None:
        whole = np.empty(count + -(-ROOM // dtype.itemsize), dtype).view(WholeArray)
        if taps is not None:
            winograd_cells(raw.view(np.uint16).reshape(3, 3, *taps), _zeroed(whole, *taps))
            whole.taps = (taps[0], taps[1])
        elif steps:
            whole[:count] = _summed(raw, dtype, count)
        elif values is None:
            widen_halves(raw.view(np.uint16), whole[:count])
        else:
            _spread(raw, np.array(values, dtype), whole[:count])
        require_whole(mappings_of([raw]))
        whole.flags.writeable = False
        whole.source = source
        _WHOLE[key] = whole
    found = whole[:count]
    found.source, found.taps = whole.source, whole.taps  # type: ignore[attr-defined]
    return found


def _zeroed(whole: Array, channels: int, outputs: int) -> Array:
    """The array with zeros where the cells of 64 outputs end before they do, and behind them."""
    last = -(-outputs // 64) * 64 - 64
    whole[last * 16 * channels :] = 0
    return whole


def _check(size: int, dtype: np.dtype[Any], count: int, taps: Any, values: Any, steps: bool) -> None:
    """ValueError unless so many bytes make so many elements."""
    if steps:
        fits = _is_table(dtype, count) and size >= LEAST_TABLE_BYTES
    elif taps is not None:
        fits = len(taps) == 2 and dtype == np.float32 and size == 18 * math.prod(taps)
        fits = fits and _cells(*taps) <= count <= _cells(*taps) + MOST_SLACK
    elif values is None:
        fits = dtype == np.float32 and size == count * 2
    else:
        fits = dtype.kind in "iu" and 0 < len(values) <= VALUES and size == -(-count // 2)
        fits = fits and np.iinfo(dtype).min <= min(values) <= max(values) <= np.iinfo(dtype).max
    if not fits:
        raise ValueError(f"{dtype.name}[{count}] cannot be made of {size} bytes")


def _spread(packed: Array, values: Array, target: Array) -> None:
    """Write what every 4 bits stand for."""
    table = np.resize(values, VALUES)
    pairs = np.stack([table[np.arange(256) & 15], table[np.arange(256) >> 4]], axis=1)
    for first in range(0, target.size, 2 * _PIECE):
        part = pairs[packed[first // 2 : first // 2 + _PIECE]].reshape(-1)
        target[first : first + 2 * _PIECE] = part[: target.size - first]


def _is_table(dtype: np.dtype[Any], count: int) -> bool:
    """True for the size of a table that is looked up by 16 bits."""
    return dtype.kind in "iu" and dtype.itemsize <= 2 and count in TABLE


def _steps(table: Array) -> bytes:
    """The differences between the entries of a table, compressed, and zeros behind."""
    entries = table.view(f"u{table.itemsize}")
    steps = entries.copy()
    steps[1:] -= entries[:-1]
    packed = zlib.compress(steps.data, 1)
    if len(packed) > 2 * LEAST_TABLE_BYTES:  # of most tables the quickest way leaves less than that
        packed = zlib.compress(steps.data, 6)
    return packed.ljust(LEAST_TABLE_BYTES, b"\0")


def _summed(raw: Array, dtype: np.dtype[Any], count: int) -> Array:
    """The table that such differences make; ValueError where they are not those of one."""
    stream = zlib.decompressobj()
    try:
        steps = stream.decompress(raw.data, count * dtype.itemsize)
        ended = stream.eof or (not stream.decompress(stream.unconsumed_tail, 1) and stream.eof)
    except zlib.error as problem:
        raise ValueError(f"a table's steps are damaged: {problem}") from None
    if not ended or len(steps) != count * dtype.itemsize:
        raise ValueError(f"{dtype.name}[{count}] is not what a table's steps make")
    entries = f"u{dtype.itemsize}"
    return np.cumsum(np.frombuffer(steps, entries), dtype=entries).view(dtype)


def _in_float16(flat: Array) -> Array | None:
    """Floats as float16; None where one of them is not."""
    halves = np.empty(flat.size, np.float16)
    for first in range(0, flat.size, _PIECE):
        part, half = flat[first : first + _PIECE], halves[first : first + _PIECE]
        with np.errstate(over="ignore"):
            half[...] = part
        if not np.array_equal(half.astype(np.float32).view(np.uint32), part.view(np.uint32)):
            return None
    return halves


def _few_values(flat: Array) -> Array | None:
    """The different integers of an array; None where they are more than 16."""
    for part in (flat[:LEAST_BYTES], flat):
        values = np.unique(part)
        if len(values) > VALUES:
            return None
    return values.astype(np.int64)


def _nibbles(flat: Array, values: Array) -> Array:
    """Where in `values` each integer is, two to a byte, the first in the low bits."""
    packed = np.zeros(-(-flat.size // 2), np.uint8)
    for first in range(0, flat.size, 2 * _PIECE):
        part = np.searchsorted(values, flat[first : first + 2 * _PIECE]).astype(np.uint8)
        target = packed[first // 2 : first // 2 + _PIECE]
        target |= part[::2]
        target[: part.size // 2] |= part[1::2] << 4
    return packed


def dtype_of(name: Any) -> np.dtype[Any]:
    """A data type by its name; ValueError for one that no tensor has."""
    found = DTYPES.get(as_text(name))
    if found is None:
        raise ValueError(f"no tensor has the type {name!r}")
    return found


LEAST, MOST = -(1 << 63), (1 << 63) - 1


def number(value: Any, least: int = 0) -> int:
    """An integer of a file; ValueError for what is none, or too small or large."""
    if type(value) is not int or not least <= value <= MOST:
        raise ValueError(f"{value!r} is not a number that can be here")
    return value


def numbers(values: Any, least: int = 0, most: int = MOST) -> tuple[int, ...]:
    """Integers of a file; ValueError for what are none, or too small or large."""
    if not isinstance(values, list) or any(type(v) is not int for v in values):
        raise ValueError(f"{values!r} is not a list of numbers")
    if values and not (least <= min(values) and max(values) <= most):
        raise ValueError(f"{values!r} has numbers that cannot be here")
    return tuple(values)
