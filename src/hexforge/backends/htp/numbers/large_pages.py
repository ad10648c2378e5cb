# SPDX-License-Identifier: Apache-2.0
"""Large pages: the weights of a program lie one after the other in memory that the system may give large pages.

A run reads every weight once; with a page for every 4096 bytes, finding them takes a fiftieth of ResNet50's time. What
programs of a mapped file read is copied by native code (native/context/large_pages.cpp).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

LEAST_ARRAY, MOST_ARRAY = 1 << 14, 1 << 25
"""Bytes of an array that is moved: larger ones fill pages of their own."""
LEAST_BLOCK = 1 << 22
"""Bytes of all of them: numpy asks for large pages from there on."""
_PAGE, _LINE = 1 << 21, 64


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
        old = each[name]
        moved = block[at : at + old.nbytes].view(old.dtype).reshape(old.shape)
        moved[...] = old
        del old
        for each, name in uses:
            each[name] = moved  # nobody else keeps the old one, so that its memory is free again
        at += size


def _whole_lines(size: int) -> int:
    """So many bytes, and a line of the cache behind them that kernels may read."""
    return -(-size // _LINE) * _LINE + _LINE
