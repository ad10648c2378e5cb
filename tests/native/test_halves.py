# SPDX-License-Identifier: Apache-2.0
"""The chip's halves as float32 and back, on every instruction set, against integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge import _native
from tests.native.halves import every_half, half, matrix_half, patterns
from tests.native.kernels import LEVELS


@pytest.mark.parametrize("level", LEVELS)
def test_every_half_becomes_itself(level: str) -> None:
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    wide = np.empty(65536, np.float32)
    before = _native.level()
    _native.set_level(level)
    try:
        _native.widen_halves(bits, wide)
        _native.widen_halves(bits[:5], wide[:5])
        back = np.empty(65536, np.uint16)
        _native.narrow_halves(wide, back)
    finally:
        _native.set_level(before)
    np.testing.assert_array_equal(wide.view(np.uint32), every_half().view(np.uint32))
    np.testing.assert_array_equal(back, bits)
    ordinary = (bits & 0x7C00) != 0x7C00
    np.testing.assert_array_equal(wide[ordinary], bits.view(np.float16)[ordinary].astype(np.float32))


@pytest.mark.parametrize("level", LEVELS)
def test_float32_numbers_become_the_nearest_half(level: str) -> None:
    halves = every_half()
    between = halves.view(np.uint32)[:, None] + np.arange(-0x1001, 0x1002, 0x801, np.int64)
    some = np.random.default_rng(4).integers(0, 2**32, 100_003, np.uint32)
    wide = np.concatenate([halves, between.astype(np.uint32).ravel().view(np.float32), some.view(np.float32)])
    before = _native.level()
    _native.set_level(level)
    try:
        for narrow, rounded in ((_native.narrow_halves, half), (_native.narrow_matrix_halves, matrix_half)):
            bits = np.empty(wide.size, np.uint16)
            narrow(wide, bits)
            np.testing.assert_array_equal(bits, patterns(rounded(wide)))
    finally:
        _native.set_level(before)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("channels", "outputs"), [(1, 1), (3, 16), (2, 63), (4, 64), (5, 65), (3, 130)])
def test_cells_are_exact_sums_rounded_once(level: str, channels: int, outputs: int) -> None:
    weights = np.random.default_rng(outputs).standard_normal((3, 3, channels, outputs)).astype(np.float16)
    weights.reshape(-1)[::7] *= np.float16(2**-12)
    cells = np.zeros(-(-outputs // 64) * 64 * 16 * channels, np.float32)
    before = _native.level()
    _native.set_level(level)
    try:
        _native.winograd_cells(weights.view(np.uint16), cells)
    finally:
        _native.set_level(before)
    rows = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    want = np.einsum("ik,jl,klco->ijco", rows, rows, weights.astype(np.float64)).astype(np.float32)
    want = want.reshape(16, channels, outputs)
    for block in range(-(-outputs // 64)):
        first, count = 64 * block, min(64, outputs - 64 * block)
        lanes = -(-count // 16) * 16
        at = block * 16 * channels * 64
        got = cells[at : at + 16 * channels * lanes].reshape(16, channels, lanes)
        np.testing.assert_array_equal(got[:, :, :count], want[:, :, first : first + count])
        assert not got[:, :, count:].any()


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="sizes do not agree"):
        _native.winograd_cells(np.zeros((3, 3, 2, 2), np.uint16), np.zeros(100, np.float32))
    with pytest.raises(ValueError, match="sizes do not agree"):
        _native.widen_halves(np.zeros(3, np.uint16), np.zeros(4, np.float32))
    for narrow in (_native.narrow_halves, _native.narrow_matrix_halves):
        with pytest.raises(ValueError, match="sizes do not agree"):
            narrow(np.zeros(3, np.float32), np.zeros(4, np.uint16))
