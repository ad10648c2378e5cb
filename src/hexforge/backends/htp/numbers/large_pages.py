# SPDX-License-Identifier: Apache-2.0
"""Large pages: the weights of a program lie one after the other in memory that the system may give large pages.

A run reads every weight once; with a page for every 4096 bytes, finding them takes a fiftieth of ResNet50's time, and a
third of the time in which a token reads a language model's packed weights. Those of a mapped file are copied, once for
all graphs that share them, and the file's own pages can leave memory.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hexforge.formats.container import mappings_of, require_whole
from hexforge.ir import Array

LEAST_ARRAY, MOST_ARRAY = 1 << 14, 1 << 25
"""Bytes of an array that is moved: larger ones fill pages of their own."""
LEAST_BLOCK = 1 << 22
"""Bytes of all of them: numpy asks for large pages from there on."""
LEAST_SHARED = 1 << 25
"""Bytes of a program's packed weights that are worth a copy."""
_PAGE, _LINE = 1 << 21, 64


class SharedBlock(np.ndarray[Any, Any]):
    """Copies of arrays of a mapped file, which it keeps mapped: no other array can be where they are."""

    sources: Sequence[Array] = ()


_copies: dict[tuple[int, int], tuple[weakref.ref[SharedBlock], int]] = {}
"""Where the copy of each array is, by its address and bytes: the block, and the place in it."""


def gather(attributes: Iterable[dict[str, Any]]) -> None:
    """Move the arrays among the attributes of steps into one block of memory, where they are enough to fill pages."""
    places: dict[int, list[tuple[dict[str, Any], str]]] = defaultdict(list)
    for each in attributes:
        for name, value in each.items():
            if isinstance(value, np.ndarray) and value.flags.owndata and LEAST_ARRAY <= value.nbytes <= MOST_ARRAY:
                places[id(value)].append((each, name))
    sizes = [_whole_lines(each[name].nbytes) for (each, name), *_ in places.values()]
    if sum(sizes) < LEAST_BLOCK:
        return
    block = np.empty(sum(sizes) + _PAGE, np.uint8)
    at = -block.ctypes.data % _PAGE
    for uses, size in zip(places.values(), sizes, strict=True):
        each, name = uses[0]
        moved = _copied(each[name], block[at : at + size])
        for each, name in uses:
            each[name] = moved  # nobody else keeps the old one, so that its memory is free again
        at += size


def share(packed: Iterable[dict[str, Any]], others: Iterable[dict[str, Any]]) -> dict[int, Array]:
    """Copies of the arrays of a mapped file among the attributes of steps, by the id of each; none of few bytes.

    Of other steps than those with packed weights small arrays are copied, because the system brings many pages of the
    file with each. Graphs that have arrays in common have their copies in common.
    """
    arrays = _mapped(packed, math.inf)
    if sum(array.nbytes for array in arrays.values()) < LEAST_SHARED:
        return {}
    arrays |= _mapped(others, LEAST_ARRAY)
    for key in [key for key, (block, _) in _copies.items() if block() is None]:
        del _copies[key]
    new = [array for array in arrays.values() if _place(array) not in _copies]
    if new:
        made = SharedBlock((sum(_whole_lines(array.nbytes) for array in new) + _PAGE,), np.uint8)
        made.sources = new  # every view of the block keeps it, and it keeps these
        at = -made.ctypes.data % _PAGE
        for array in new:
            _copied(array, made[at:].view(np.ndarray))
            _copies[_place(array)] = weakref.ref(made), at
            at += _whole_lines(array.nbytes)
        require_whole(mappings_of(new))
        made.flags.writeable = False
    return {key: _copy_of(array) for key, array in arrays.items()}


def _mapped(attributes: Iterable[dict[str, Any]], most: float) -> dict[int, Array]:
    """Arrays of a mapped file among the attributes of steps, of at most so many bytes, by the id of each."""
    return {
        id(value): value
        for each in attributes
        for value in each.values()
        if isinstance(value, np.ndarray) and 0 < value.nbytes <= most and mappings_of([value])
    }


def _place(array: Array) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def _copy_of(array: Array) -> Array:
    reference, at = _copies[_place(array)]
    block = reference()
    assert block is not None  # it is made, or was seen to be there, just before
    copy: Array = block[at : at + array.nbytes].view(np.ndarray).view(array.dtype).reshape(array.shape)
    return copy


def _whole_lines(size: int) -> int:
    """So many bytes, and a line of the cache behind them that kernels may read."""
    return -(-size // _LINE) * _LINE + _LINE


def _copied(array: Array, memory: Array) -> Array:
    """The array in other memory."""
    copy = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
