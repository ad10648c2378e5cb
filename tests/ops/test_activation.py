# SPDX-License-Identifier: Apache-2.0
"""The error function against the C library's, and its special values."""

from __future__ import annotations

import math

import numpy as np

from hexforge.ops.pointwise_activation import erf


def test_erf_matches_the_c_library() -> None:
    x = np.concatenate([np.linspace(-7, 7, 40001), [0.46875, -0.46875, 4, -4, 1e-300, 0.0]])
    expected = np.array([math.erf(v) for v in x])
    assert np.abs(erf(x) - expected).max() < 1e-15
    assert np.abs(erf(x.astype(np.float32)) - expected).max() < 3e-7
    assert erf(x.astype(np.float32)).dtype == np.float32


def test_erf_special_values() -> None:
    got = erf(np.array([[np.inf, -np.inf], [np.nan, -0.0]]))
    assert got[0].tolist() == [1, -1]
    assert np.isnan(got[1, 0])
    assert np.signbit(got[1, 1])
    assert erf(np.empty((0, 3))).shape == (0, 3)
