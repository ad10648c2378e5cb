# SPDX-License-Identifier: Apache-2.0
"""softmax_* and normalize_*: exact integer sums by Python's integers, then float64 step by step."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.lower.adapt import exponentials
from tests.native.halves import every_half, half, patterns
from tests.native.kernels import FIXED, HOW, KIND, RANGE, assert_bits, fill, round_and_clamp, run

SEEDS = st.integers(0, 2**32 - 1)


def softmax(x: np.ndarray, table: np.ndarray, scale: float, zero: int, low: int, high: int, bits: int) -> np.ndarray:
    out = []
    for row in x.tolist():
        terms = [int(table[max(row) - q]) for q in row]
        factor = scale / float(sum(terms))
        out.append(round_and_clamp(np.array([t * factor for t in terms], np.float64), zero, low, high, bits))
    return np.array(out)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS, rows=st.integers(1, 11), n=st.just(16) | st.integers(1, 150), how=st.sampled_from(HOW),
    step=st.sampled_from([1e-6, 1e-3, 0.01, 0.1, 1.0]),
)  # fmt: skip
def test_softmax(bits: int, seed: int, rows: int, n: int, how: str, step: float) -> None:
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    x = fill(rng, (rows, n), low, high, how)
    table = exponentials(step, 1 << bits)
    zero = low if seed % 2 else int(rng.integers(low, high + 1))
    scale = float(rng.choice([high - low + 1.0, 100.0, 1e6]))
    want = softmax(x, table, scale, zero, low, high, bits)
    attributes = {"rows": rows, "n": n, "table": table, "scale": scale, "zero_point": zero, "low": low, "high": high}
    got = run(f"softmax_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros((rows, n), FIXED[bits]), attributes)
    assert_bits(got, want)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=30, deadline=None)
@given(
    seed=SEEDS, rows=st.integers(1, 7), n=st.integers(1, 150), how=st.sampled_from(HOW),
    mask_bits=st.sampled_from([8, 16]), share=st.sampled_from([0.0, 0.1, 0.5, 1.0]), keep_zero=st.booleans(),
)  # fmt: skip
def test_masked_softmax(
    bits: int, seed: int, rows: int, n: int, how: str, mask_bits: int, share: float, keep_zero: bool
) -> None:
    """What is kept is a softmax of its own, the rest is the zero point; a mask may serve several rows."""
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    x = fill(rng, (rows, n), low, high, how)
    table = exponentials(0.02, 1 << bits)
    zero = low if seed % 2 else int(rng.integers(low, high + 1))
    masks, code = int(rng.integers(1, rows + 1)), int(rng.integers(0, 1 << mask_bits))
    kept = rng.random((masks, n)) < share
    if seed % 3 == 0:  # one stretch, as a causal mask has it
        kept = np.sort(kept, axis=1)[:, :: rng.choice([-1, 1])]
    other = (code + rng.integers(1, 1 << mask_bits, kept.shape)) % (1 << mask_bits)
    mask = np.where(kept == keep_zero, code, other).astype(f"u{mask_bits // 8}")
    of_row = rng.integers(0, masks, rows)
    want = np.full((rows, n), zero, FIXED[bits])
    for row in range(rows):
        chosen = kept[of_row[row]]
        if chosen.any():
            want[row, chosen] = softmax(x[row : row + 1, chosen], table, 300.0, zero, low, high, bits)[0]
    attributes = {
        "rows": rows, "n": n, "table": table, "scale": 300.0, "zero_point": zero, "low": low, "high": high,
        "mask_bytes": mask_bits // 8, "mask_zero": code, "keep_zero": int(keep_zero), "mask_at": of_row * n,
    }  # fmt: skip
    ins = [x.astype(FIXED[bits]), mask]
    assert_bits(run(f"masked_softmax_{KIND[bits]}", ins, np.zeros((rows, n), FIXED[bits]), attributes), want)


@pytest.mark.parametrize("bits", [8, 16])
def test_softmax_error_is_within_the_bound(bits: int) -> None:
    """The fraction before its rounding is within (1 + p * (n - 1)) * 2^-32 of the exact softmax (docs/numerics.md)."""
    rng = np.random.default_rng(9)
    for step in (1e-4, 1e-3, 0.02, 0.3):
        table = exponentials(step, 1 << bits)
        assert int(table[0]) == 2**31
        for n in (2, 10, 100, 1000):
            d = rng.integers(0, (1 << bits) - 1, n)
            d[0] = 0
            exact = np.exp(-d.astype(np.longdouble) * np.longdouble(step))
            exact /= exact.sum()
            total = int(table[d].astype(object).sum())
            for q, p in zip(d.tolist(), exact.tolist(), strict=True):
                error = abs(float(Fraction(int(table[q]), total)) - float(p))
                assert error <= (1 + float(p) * (n - 1)) * 2.0**-32 * 1.001 + 1e-15


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 20), n=st.integers(1, 300), beta=st.sampled_from([1.0, 0.5, 2.0]))
def test_softmax_float(seed: int, rows: int, n: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    x = half(rng.standard_normal((rows, n)).astype(np.float32) * np.float32(rng.choice([0.1, 3, 50])))
    with np.errstate(over="ignore", invalid="ignore"):
        table = np.exp(beta * every_half().astype(np.float64)).astype(np.float32)
    terms = table[patterns(half(x - x.max(1, keepdims=True)))]
    want = np.empty((rows, n), np.float32)
    for r in range(rows):
        total = 0.0
        for term in terms[r].tolist():
            total += term
        want[r] = (terms[r].astype(np.float64) / total).astype(np.float32)
    got = run("softmax_f32", [x], np.zeros((rows, n), np.float32), {"rows": rows, "n": n, "table": table})
    assert_bits(got, half(want))
    exact = np.exp(beta * x.astype(np.float64) - beta * x.astype(np.float64).max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    # each exponential's argument is rounded to float16: relative error beta * d * 2^-11, then one rounding
    distance = beta * (x.max(1, keepdims=True) - x).astype(np.float64)
    worst = (distance + (exact * distance).sum(1, keepdims=True)) * 2.0**-11
    assert (np.abs(got - exact) <= exact * (worst * 1.1 + 2.0**-10) + 2.0**-24).all()


def normalize(
    x: np.ndarray, kind: int, zero_x: int, scale: float, epsilon: float, gamma: np.ndarray, beta: np.ndarray
) -> np.ndarray:
    """Steps of [outer, spatial, groups, channels] before rounding; gamma and beta are [groups, channels]."""
    out = np.empty(x.shape, np.float64)
    for o, g in np.ndindex(x.shape[0], x.shape[2]):
        values = [int(v) for v in x[o, :, g].ravel()]
        n, s = len(values), sum(values)
        if kind == 0:
            center = float(s) / float(n)
            spread = float(n * sum(v * v for v in values) - s * s) / (float(n) * float(n))
        else:
            center = float(zero_x)
            spread = float(sum((v - zero_x) ** 2 for v in values))
            spread = spread / float(n) if kind == 1 else spread
        power = spread * scale * scale
        divisor = max(math.sqrt(power), epsilon) if kind == 2 else math.sqrt(power + epsilon)
        factor = scale / divisor if divisor > 0 else 0.0
        out[o, :, g] = (x[o, :, g].astype(np.float64) - center) * factor * gamma[g] + beta[g]
    return out


def check_normalize(
    bits: int, rng: np.random.Generator, shape: tuple[int, ...], kind: int, how: str, epsilon: float
) -> None:
    low, high = RANGE[bits]
    x = fill(rng, shape, low, high, how)
    zero_x, zero = (int(fill(rng, (), low, high, str(rng.choice(HOW)))) for _ in range(2))
    scale = float(np.float32(rng.uniform(1e-4, 0.2)))
    gamma = rng.standard_normal(shape[2:]) * (high - low) / 8
    beta = rng.standard_normal(shape[2:]) * 20
    want = round_and_clamp(normalize(x, kind, zero_x, scale, epsilon, gamma, beta), zero, low, high, bits)
    attributes: dict[str, Any] = {
        "outer": shape[0], "spatial": shape[1], "groups": shape[2], "channels": shape[3], "kind": kind,
        "zero_a": zero_x, "scale_x": scale, "epsilon": epsilon, "gamma": gamma, "beta": beta, "zero_point": zero,
        "low": low, "high": high,
    }  # fmt: skip
    got = run(f"normalize_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(shape, FIXED[bits]), attributes)
    assert_bits(got, want)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS, outer=st.integers(1, 3), spatial=st.integers(1, 12), groups=st.integers(1, 5),
    channels=st.integers(1, 70), kind=st.integers(0, 2), how=st.sampled_from(HOW),
    epsilon=st.sampled_from([1e-12, 1e-5, 0.1]),
)  # fmt: skip
def test_normalize(
    bits: int, seed: int, outer: int, spatial: int, groups: int, channels: int, kind: int, how: str, epsilon: float
) -> None:
    check_normalize(bits, np.random.default_rng(seed), (outer, spatial, groups, channels), kind, how, epsilon)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_normalize_without_epsilon(bits: int, kind: int) -> None:
    """A row of equal values (or zeros) has no direction: the factor is 0, the result beta."""
    for how in ("low", "high", "random"):
        check_normalize(bits, np.random.default_rng(kind), (3, 1, 1, 9), kind, how, 0.0)
    check_normalize(bits, np.random.default_rng(3), (40, 30, 1, 70), kind, "random", 0.0)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 20), n=st.integers(1, 300), kind=st.integers(0, 2))
def test_normalize_float(seed: int, rows: int, n: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    x = half((rng.standard_normal((rows, n)) * rng.choice([0.01, 1, 100]) + rng.standard_normal()).astype(np.float32))
    gamma, beta = (half(rng.standard_normal(n).astype(np.float32)) for _ in range(2))
    epsilon = 1e-5
    want = np.empty((rows, n), np.float32)
    for r in range(rows):
        row = [float(v) for v in x[r]]
        mean = power = 0.0
        if kind == 0:
            for v in row:
                mean += v
            mean /= float(n)
        for v in row:
            power += (v - mean) * (v - mean)
        power = power if kind == 2 else power / float(n)
        divisor = max(math.sqrt(power), epsilon) if kind == 2 else math.sqrt(power + epsilon)
        wide = (x[r].astype(np.float64) - mean) * (1.0 / divisor)
        want[r] = (wide * gamma.astype(np.float64) + beta.astype(np.float64)).astype(np.float32)
    attributes = {"rows": rows, "n": n, "kind": kind, "epsilon": epsilon, "gamma": gamma, "beta": beta}
    assert_bits(run("normalize_f32", [x], np.zeros((rows, n), np.float32), attributes), half(want))
