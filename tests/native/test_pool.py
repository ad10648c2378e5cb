# SPDX-License-Identifier: Apache-2.0
"""pool_max_* and pool_mean_* against plain windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.halves import half
from tests.native.kernels import FIXED, HOW, KIND, RANGE, assert_bits, fill, round_and_clamp, run
from tests.native.windows import Geometry, geometries

SEEDS = st.integers(0, 2**32 - 1)


def attributes(g: Geometry, channels: int) -> dict[str, Any]:
    return {**g.attributes(), "pad_after": g.pad_after, "channels": channels}


def inside(g: Geometry) -> np.ndarray:
    """How many positions of each window lie in the image: [n, d, h, w, 1]."""
    ones = np.ones((g.batch, *g.ins, 1), np.int64)
    return sum((seen for _, seen in g.taps(ones)), np.zeros((), np.int64))


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, g=geometries(kernel=4), channels=st.integers(1, 150), how=st.sampled_from(HOW))
def test_max(bits: int, seed: int, g: Geometry, channels: int, how: str) -> None:
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    x = fill(rng, (g.batch, *g.ins, channels), low, high, how)
    lowest = int(rng.integers(low, high + 1))
    want = np.max([seen for _, seen in g.taps(x, low - 1)], axis=0)
    want = np.where(want < low, lowest, want).astype(FIXED[bits])  # windows that lie wholly in the padding
    got = run(
        f"pool_max_{KIND[bits]}",
        [x.astype(FIXED[bits])],
        np.zeros(want.shape, FIXED[bits]),
        attributes(g, channels) | {"lowest": lowest},
    )
    assert_bits(got, want)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, g=geometries(kernel=4), channels=st.integers(1, 40))
def test_max_float(seed: int, g: Geometry, channels: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((g.batch, *g.ins, channels)).astype(np.float32)
    x[rng.random(x.shape) < 0.02] = np.nan
    x[rng.random(x.shape) < 0.02] = -np.inf
    want = np.max([seen for _, seen in g.taps(x, -np.inf)], axis=0)
    got = run("pool_max_f32", [x], np.zeros(want.shape, np.float32), attributes(g, channels))
    assert_bits(got, want)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS, g=geometries(kernel=4), channels=st.integers(1, 300), how=st.sampled_from(HOW), count_pad=st.booleans()
)
def test_mean(bits: int, seed: int, g: Geometry, channels: int, how: str, count_pad: bool) -> None:
    check_mean(bits, np.random.default_rng(seed), g, channels, how, count_pad)


def check_mean(bits: int, rng: np.random.Generator, g: Geometry, channels: int, how: str, count_pad: bool) -> None:
    low, high = RANGE[bits]
    x = fill(rng, (g.batch, *g.ins, channels), low, high, how)
    zero_x, zero = (int(fill(rng, (), low, high, str(rng.choice(HOW)))) for _ in range(2))
    total = sum((seen for _, seen in g.taps(x - zero_x)), np.zeros((), np.int64))
    # geometries() never lets a window leave the padding, so all of it counts
    divisor = np.full_like(inside(g), np.prod(g.kernel)) if count_pad else inside(g)
    scale = float(rng.choice([0.5, 1.0, 2.0, 40.0, 1e-3, *rng.uniform(0.1, 2, 4)]))
    with np.errstate(divide="ignore"):
        factor = np.where(divisor == 0, 0.0, scale / divisor.astype(np.float64))
    real = np.float32 if bits == 8 else np.float64
    want = round_and_clamp(total.astype(real) * factor.astype(real), zero, low, high, bits)
    got = run(
        f"pool_mean_{KIND[bits]}",
        [x.astype(FIXED[bits])],
        np.zeros(want.shape, FIXED[bits]),
        attributes(g, channels)
        | {"count_pad": count_pad, "scale": scale, "zero_a": zero_x, "zero_point": zero, "low": low, "high": high},
    )
    assert_bits(got, want)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("how", ["low", "high", "random"])
def test_the_largest_windows(bits: int, how: str) -> None:
    rng = np.random.default_rng(1)
    low, high = RANGE[bits]
    g = Geometry(1, (1, 1, 32767), (1, 1, 32767), (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1))
    x = fill(rng, (32767, 2), low, high, how)
    real = np.float32 if bits == 8 else np.float64
    for zero_x in (low, high):
        total = (x - zero_x).sum(0)
        want = round_and_clamp(total.astype(real) * real(0.75 / 32767), 1, low, high, bits)
        more = {"scale": 0.75, "zero_a": zero_x, "zero_point": 1, "low": low, "high": high}
        got = run(f"pool_mean_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(2, FIXED[bits]), attributes(g, 2) | more)
        assert_bits(got, want)


@pytest.mark.parametrize("bits", [8, 16])
def test_many_pixels_are_shared_by_the_threads(bits: int) -> None:
    g = Geometry(2, (1, 40, 40), (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    check_mean(bits, np.random.default_rng(1), g, 33, "random", False)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, g=geometries(kernel=4), channels=st.integers(1, 40), count_pad=st.booleans())
def test_mean_float(seed: int, g: Geometry, channels: int, count_pad: bool) -> None:
    rng = np.random.default_rng(seed)
    x = half(rng.standard_normal((g.batch, *g.ins, channels)).astype(np.float32))
    total = np.zeros((g.batch, *g.outs, channels), np.float32)
    for _, seen in g.taps(x):  # adding 0 where the image ends changes nothing
        total = total + seen
    divisor = np.full_like(inside(g), np.prod(g.kernel)) if count_pad else np.maximum(inside(g), 1)
    want = half(total / divisor.astype(np.float32))
    got = run(
        "pool_mean_f32", [x], np.zeros(want.shape, np.float32), attributes(g, channels) | {"count_pad": count_pad}
    )
    assert_bits(got, want)


def test_windows_beyond_the_padding_count_only_what_is_padded() -> None:
    x = np.array([10, 20, 30, 40], np.uint8).reshape(1, 1, 1, 4, 1)
    three = {"in": (1, 1, 4), "out": (1, 1, 2), "kernel": (1, 1, 3), "stride": (1, 1, 3), "pad": (0, 0, 1)}
    ones = {"dilation": (1, 1, 1), "batch": 1, "channels": 1, "zero_a": 0, "zero_point": 0, "low": 0, "high": 255}
    for after, second in ((0, 35), (1, 23)):  # columns 2, 3 and the padded 4: it counts where there is padding for it
        more = {"pad_after": (0, 0, after), "count_pad": 1, "scale": 1.0}
        got = run("pool_mean_u8", [x], np.zeros(2, np.uint8), three | ones | more)
        assert_bits(got, np.array([10, second], np.uint8))
