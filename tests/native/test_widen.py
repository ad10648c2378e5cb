# SPDX-License-Identifier: Apache-2.0
"""float16 numbers as float32: every pattern, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge import _native
from tests.native.kernels import LEVELS


@pytest.mark.parametrize("level", LEVELS)
def test_every_float16_number_becomes_itself(level: str) -> None:
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    wide = np.empty(65536, np.float32)
    before = _native.level()
    _native.set_level(level)
    try:
        _native.widen_halves(bits, wide)
        _native.widen_halves(bits[:5], wide[:5])
    finally:
        _native.set_level(before)
    want = bits.view(np.float16).astype(np.float32)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(wide[numbers].view(np.uint32), want[numbers].view(np.uint32))
    assert np.isnan(wide[~numbers]).all()


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="sizes do not agree"):
        _native.widen_halves(np.zeros(3, np.uint16), np.zeros(4, np.float32))
