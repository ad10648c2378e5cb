# SPDX-License-Identifier: Apache-2.0
"""Arrays of programs in a context file: as they are, or in a form that takes less room and loses nothing.

Those of a form are made whole again when a program is loaded, once for all graphs that share them; others are used
where they lie.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from hexforge._native import widen_halves
from hexforge.backend import Get, Put
from hexforge.backends.htp.numbers.file_forms import FORMS, ROOM
from hexforge.formats.container import as_text, mappings_of, require_whole
from hexforge.ir import Array

LEAST_BYTES = 4096
"""Smaller arrays lie in the file as they are."""
_NAMES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
DTYPES: dict[str, np.dtype[Any]] = {spelt: d for d in map(np.dtype, _NAMES) for spelt in (d.name, d.str)}
"""Data types that tensors can have, by both of numpy's names."""


class WholeArray(np.ndarray[Any, Any]):
    """An array made of less, which it keeps: a file holds that, and graphs that share it share the array."""

    source: Any = None
    """The bytes in a file, or float16 numbers."""


def write_array(array: Array, put: Put, packing: bool) -> dict[str, Any]:
    """What a file holds of an array; its bytes are put elsewhere."""
    header: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if isinstance(array, WholeArray) and isinstance(array.source, np.ndarray):
        return {"at": list(put(array.source)), **header, "half": 1}
    if array.nbytes >= LEAST_BYTES:
        flat = np.ascontiguousarray(array).reshape(-1)
        for word, form in FORMS.items():
            if (packed := form.stored(flat, packing)) is not None:
                return {"at": list(put(packed[0])), **header, word: packed[1]}
    return {"at": list(put(array)), **header}


def read_array(value: dict[str, Any], get: Get) -> Array:
    """The array that `write_array` put; ValueError where the data are not one."""
    dtype, shape = dtype_of(value["dtype"]), numbers(value["shape"])
    offset, size = numbers(value["at"])
    count = math.prod(shape)
    words = [word for word in FORMS if word in value]
    if len(words) > 1:
        raise ValueError(f"an array has one form, not {' and '.join(words)}")
    if words:
        flat = _expand_array(words[0], value[words[0]], dtype, count, get(offset, size))
    elif count * dtype.itemsize != size:
        raise ValueError(f"{dtype.name}{list(shape)} has not {size} bytes")
    else:
        flat = np.frombuffer(get(offset, size), dtype)
    return flat if len(shape) == 1 else flat.reshape(shape)


def kept_halves(halves: Array) -> WholeArray:
    """Halves, given by their bits as float16, as float32 numbers that a file holds in half as many bytes."""
    whole = WholeArray(halves.shape, np.float32)
    widen_halves(np.ascontiguousarray(halves).reshape(-1).view(np.uint16), whole.reshape(-1).view(np.ndarray))
    whole.source = halves
    return whole


_WHOLE: weakref.WeakValueDictionary[tuple[Any, ...], WholeArray] = weakref.WeakValueDictionary()


def _expand_array(word: str, value: Any, dtype: np.dtype[Any], count: int, source: memoryview) -> Array:
    raw = np.frombuffer(source, np.uint8)
    form, form_data = FORMS[word], (1,) if value == 1 else numbers(value, LEAST)
    if not form.fits(form_data, raw.size, dtype, count):
        raise ValueError(f"{dtype.name}[{count}] cannot be made of {raw.size} bytes")
    key = raw.ctypes.data, raw.size, dtype.str, count, word, form_data
    whole = _WHOLE.get(key)
    if whole is None:
        whole = np.empty(count + -(-ROOM // dtype.itemsize), dtype).view(WholeArray)
        form.fill(form_data, raw, whole, count)
        require_whole(mappings_of([raw]))
        whole.flags.writeable = False
        whole.source = source
        _WHOLE[key] = whole
    part = whole[:count]
    part.source = whole.source  # type: ignore[attr-defined]
    return part


def dtype_of(name: Any) -> np.dtype[Any]:
    """A data type by its name; ValueError for one that no tensor has."""
    dtype = DTYPES.get(as_text(name))
    if dtype is None:
        raise ValueError(f"no tensor has the type {name!r}")
    return dtype


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
