# SPDX-License-Identifier: Apache-2.0
"""The chip's half: 11 bits of significand, neither infinity nor NaN, rounded as the vector or the matrix unit does.

Exponent 31 is an ordinary exponent. The vector unit rounds ties away from zero and saturates at 131008; the matrix unit
rounds ties to even, and from 65520 on gives the pattern of infinity, which is 65536 here. docs/numerics.md has the
evidence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from hexforge._native import narrow_halves, narrow_matrix_halves, widen_halves
from hexforge.ir import Array

LARGEST_FLOAT16, MATRIX_LIMIT, LARGEST = 65504.0, 65536.0, 131008.0
"""The largest number of float16, what the matrix unit's overflow reads as, and the largest number of all."""


def vector_half(array: Array) -> Array:
    """Numbers rounded as the vector unit does, as float32."""
    return widened(vector_patterns(array))


def matrix_half(array: Array) -> Array:
    """Numbers rounded as the matrix unit does, and as constants are, as float32."""
    return widened(matrix_patterns(array))


def vector_patterns(array: Array) -> Array:
    """The bits, as float16, of numbers rounded as the vector unit does; numpy takes what is beyond 65504 for NaN."""
    return _patterns(array, narrow_halves)


def matrix_patterns(array: Array) -> Array:
    """The bits, as float16, of numbers rounded as the matrix unit does: IEEE 754's, but for NaN."""
    return _patterns(array, narrow_matrix_halves)


def widened(patterns: Array) -> Array:
    """The float32 numbers that patterns of float16 are on the chip."""
    bits = np.ascontiguousarray(patterns).view(np.uint16)
    wide = np.empty(patterns.shape, np.float32)
    widen_halves(bits.reshape(-1), wide.reshape(-1))
    return wide


@functools.cache
def every_half() -> Array:
    """Every half, by its bits."""
    halves = widened(np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16))
    halves.flags.writeable = False
    return halves


def _patterns(array: Array, narrow: Callable[[Array, Array], None]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        given = np.ascontiguousarray(array, np.float32)
    halves = np.empty(np.shape(array), np.float16)
    narrow(given.reshape(-1), halves.reshape(-1).view(np.uint16))
    return halves
