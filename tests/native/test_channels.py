# SPDX-License-Identifier: Apache-2.0
"""affine_*, log_softmax_*, normalize_groups_f32, lrn_* along rows of channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.lower.adapt import exponentials, half_table
from tests.native.halves import half, patterns
from tests.native.kernels import FIXED, HOW, KIND, RANGE, assert_bits, fill, round_and_clamp, run
from tests.native.several import halves

EXAMPLES = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
ROWS = st.tuples(st.integers(1, 70), st.sampled_from([1, 3, 16, 17, 64, 100, 700]))


@EXAMPLES
@given(ROWS, st.sampled_from([8, 16, 32]), st.sampled_from(HOW), SEEDS)
def test_affine(shape: tuple[int, int], bits: int, how: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    attributes: dict[str, Any] = {"rows": shape[0], "n": shape[1]}
    if bits == 32:
        x, gamma, beta = halves(rng, shape), halves(rng, shape[1:]), halves(rng, shape[1:])
        total = x.astype(np.float64) * gamma + beta
        got = run("affine_f32", [x], np.zeros(shape, np.float32), attributes | {"gamma": gamma, "beta": beta})
        assert np.array_equal(got, half(total.astype(np.float32)))
        return
    low, high = RANGE[bits]
    x = fill(rng, shape, low, high, how)
    zero_a, zero = (int(v) for v in rng.integers(low, high + 1, 2))
    gamma, beta = rng.uniform(-2, 2, shape[1]), rng.uniform(-50, 50, shape[1])
    attributes |= {"gamma": gamma, "beta": beta, "zero_a": zero_a, "zero_point": zero, "low": low, "high": high}
    got = run(f"affine_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(shape, FIXED[bits]), attributes)
    assert_bits(got, round_and_clamp((x - zero_a) * gamma + beta, zero, low, high, bits))


@EXAMPLES
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 80)), st.sampled_from([8, 16]), st.sampled_from(HOW),
    st.sampled_from([1e-4, 0.01, 0.2]), SEEDS,
)  # fmt: skip
def test_log_softmax(shape: tuple[int, int], bits: int, how: str, step: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    x = fill(rng, shape, low, high, how)
    table = exponentials(step, 1 << bits)
    want = np.empty(shape)
    for r, row in enumerate(x.tolist()):
        most = max(row)
        logarithm = math.log(sum(int(table[most - q]) for q in row) * 2.0**-31)
        want[r] = [((q - most) * step - logarithm) * 7.0 for q in row]
    attributes = {"rows": shape[0], "n": shape[1], "step": step, "scale": 7.0, "table": table}
    attributes |= {"zero_point": high, "low": low, "high": high}
    got = run(f"log_softmax_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(shape, FIXED[bits]), attributes)
    assert_bits(got, round_and_clamp(want, high, low, high, bits))


@EXAMPLES
@given(st.tuples(st.integers(1, 9), st.integers(1, 80)), st.sampled_from([1.0, 0.5]), SEEDS)
def test_log_softmax_float(shape: tuple[int, int], beta: float, seed: int) -> None:
    x = halves(np.random.default_rng(seed), shape)
    table = half_table("exp", beta)
    want = np.empty(shape, np.float32)
    for r, row in enumerate(x):
        total = 0.0
        for e in table[patterns(half(row - row.max()))]:
            total += float(e)
        want[r] = beta * (row.astype(np.float64) - row.max()) - math.log(total)
    attributes = {"rows": shape[0], "n": shape[1], "beta": beta, "table": table}
    got = run("log_softmax_f32", [x], np.zeros(shape, np.float32), attributes)
    assert np.array_equal(got, half(want))


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 20), st.integers(1, 4), st.integers(1, 9), st.integers(0, 3), SEEDS)
def test_normalize_groups(outer: int, spatial: int, groups: int, channels: int, kind: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = halves(rng, (outer, spatial, groups, channels))
    width = groups * channels
    gamma, beta, epsilon = halves(rng, (width,)), halves(rng, (width,)), 1e-5

    def totals(values: np.ndarray) -> np.ndarray:
        """Channel by channel over space, then the channels of a group, each in order."""
        per_channel = np.zeros((outer, groups, channels))
        for s in range(spatial):
            per_channel = per_channel + values[:, s]
        total = np.zeros((outer, groups))
        for c in range(channels):
            total = total + per_channel[:, :, c]
        return total[:, None, :, None]

    wide, count = x.astype(np.float64), float(spatial * channels)
    mean = totals(wide) / count if kind in (0, 3) else np.zeros((outer, 1, groups, 1))
    squares = totals((wide - mean) ** 2)
    divisor = np.maximum(np.sqrt(squares), epsilon) if kind == 2 else np.sqrt(squares / count + epsilon)
    factor = np.ones_like(mean) if kind == 3 else 1.0 / divisor
    scaled = (wide - mean) * factor * gamma.reshape(groups, channels) + beta.reshape(groups, channels)
    attributes = {"outer": outer, "spatial": spatial, "groups": groups, "channels": channels, "kind": kind}
    attributes |= {"epsilon": epsilon, "gamma": gamma, "beta": beta}  # type: ignore[dict-item]
    got = run("normalize_groups_f32", [x], np.zeros(x.shape, np.float32), attributes)
    assert np.array_equal(got, half(scaled.astype(np.float32)))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("radius", [0, 1, 5, 40])
def test_lrn(bits: int, radius: int) -> None:
    rng = np.random.default_rng(bits + radius)
    shape = (6, 30)
    attributes: dict[str, Any] = {"rows": 6, "n": 30, "radius": radius, "alpha": 1e-2, "beta": 0.75, "bias": 1.0}
    low, high = RANGE.get(bits, (0, 0))
    x = halves(rng, shape) if bits == 32 else rng.integers(low, high + 1, shape)
    real = x.astype(np.float64) if bits == 32 else (x - 3) * 0.01
    want = np.empty(shape)
    for r, c in np.ndindex(shape):
        total = 0.0
        for k in range(max(0, c - radius), min(29, c + radius) + 1):
            total += float(real[r, k]) * float(real[r, k])
        want[r, c] = float(real[r, c]) / math.pow(1.0 + 1e-2 * total, 0.75)
    if bits == 32:
        got = run("lrn_f32", [x], np.zeros(shape, np.float32), attributes)
        assert np.array_equal(got, half(want.astype(np.float32)))
        return
    attributes |= {"zero_a": 3, "scale_x": 0.01, "scale": 90.0, "zero_point": 5, "low": low, "high": high}
    got = run(f"lrn_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(shape, FIXED[bits]), attributes)
    assert_bits(got, round_and_clamp(want * 90.0, 5, low, high, bits))
