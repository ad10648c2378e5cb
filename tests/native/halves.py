# SPDX-License-Identifier: Apache-2.0
"""The chip's halves in integer arithmetic, as docs/numerics.md defines them: what kernels are held against."""

from __future__ import annotations

import numpy as np


def half(x: np.ndarray) -> np.ndarray:
    """Rounded as the vector unit does: ties away from zero, saturating at 131008; NaN is 131008."""
    return _rounded(x, away=True, overflow=131040.0, largest=131008.0)


def matrix_half(x: np.ndarray) -> np.ndarray:
    """Rounded as the matrix unit does: ties to even, from 65520 on 65536; NaN is 65536."""
    return _rounded(x, away=False, overflow=65520.0, largest=65536.0)


def patterns(x: np.ndarray) -> np.ndarray:
    """The bits of halves: sign, 5 bits of exponent, 10 of fraction."""
    magnitude = np.abs(np.asarray(x, np.float64))
    _, exponent = np.frexp(magnitude)
    exponent = np.where(
        magnitude < 2.0**-14, 1, exponent + 14
    )  # that of the smallest normal number, and of all below it, is 1
    steps = np.ldexp(magnitude, 25 - exponent).astype(np.int64)  # of 11 bits
    bits = steps + (exponent.astype(np.int64) - 1) * 1024
    return (bits | np.signbit(x).astype(np.int64) << 15).astype(np.uint16)


def every_half() -> np.ndarray:
    """Every half, by its bits."""
    bits = np.arange(65536, dtype=np.int64)
    exponent, fraction = bits >> 10 & 31, bits & 1023
    steps = np.where(exponent > 0, 1024 + fraction, fraction)
    magnitude = np.ldexp(steps.astype(np.float64), np.maximum(exponent, 1) - 25)
    return np.where(bits >> 15 == 1, -magnitude, magnitude).astype(np.float32)


def _rounded(x: np.ndarray, away: bool, overflow: float, largest: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        real = np.asarray(x, np.float64)
    magnitude = np.where(np.isfinite(real), np.abs(real), 2.0**100)
    fraction, exponent = np.frexp(magnitude)
    significand = np.ldexp(fraction, 53).astype(np.int64)
    step = np.maximum(exponent - 11, -24)
    shift = np.minimum(step - exponent + 53, 62).astype(np.int64)
    up = np.int64(1) << (shift - 1) if away else (np.int64(1) << (shift - 1)) - 1 + (significand >> shift & 1)
    near = np.ldexp(((significand + up) >> shift).astype(np.float64), step)
    near = np.where(magnitude >= overflow, largest, near)
    return np.copysign(near, np.where(np.isnan(real), 1.0, real)).astype(np.float32)
