# SPDX-License-Identifier: Apache-2.0
"""depthwise_u8, depthwise_s16 and depthwise_f32 against exact sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.halves import matrix_half
from tests.native.kernels import (
    BLOCK,
    FIXED,
    HOW,
    KIND,
    RANGE,
    assert_bits,
    fill,
    fma,
    packed_depthwise,
    round_and_clamp,
    run,
    spread,
)
from tests.native.windows import Geometry, geometries


def check(
    bits: int, g: Geometry, rng: np.random.Generator, channels: int, how: str = "random", table: bool = False
) -> None:
    low, high = RANGE[bits]
    zero_x = int(fill(rng, (), low, high, how))
    x = fill(rng, (g.batch, *g.ins, channels), low, high, how)
    w = fill(rng, (*g.kernel, channels), -255, 255, how)
    acc = sum((seen * w[k] for k, seen in g.taps(x - zero_x)), np.zeros((), np.int64))
    bias = rng.integers(-30000, 30000, channels)
    multiplier = rng.uniform(0.5, 1.5, channels) / max(1, float(np.abs(acc).max()) / (high - low))
    multiplier[rng.integers(0, channels)] = 0.5
    zero = int(rng.integers(low, high + 1))
    if bits == 8:
        want = round_and_clamp((acc + bias).astype(np.float32) * multiplier.astype(np.float32), zero, low, high, bits)
    else:
        want = round_and_clamp((acc + bias).astype(np.float64) * multiplier, zero, low, high, bits)
    folded = bias - zero_x * w.sum((0, 1, 2))
    attributes: dict[str, Any] = {
        **g.attributes(), "channels": channels, "out_channels": channels, "x_stride": channels, "y_stride": channels,
        "zero_point": zero, "low": low, "high": high, "weights": packed_depthwise(w, bits),
        "pad_row": np.full(-(-channels // BLOCK) * BLOCK, zero_x, FIXED[bits]),
    }  # fmt: skip
    if bits == 8:
        attributes |= {"bias32": spread(folded, 1, np.int32), "multiplier32": spread(multiplier, 1, np.float32)}
    else:
        attributes |= {"bias": spread(folded, 1, np.int64), "multiplier": spread(multiplier, 1, np.float64)}
    if table:
        attributes["table"] = rng.integers(0, 256, 256).astype(np.uint8)
        want = attributes["table"][want]
    got = run(f"depthwise_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(want.shape, FIXED[bits]), attributes)
    assert_bits(got, want)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), g=geometries(most=14, kernel=5), channels=st.integers(1, 150),
    how=st.sampled_from(HOW), table=st.booleans(),
)  # fmt: skip
def test_integer(bits: int, seed: int, g: Geometry, channels: int, how: str, table: bool) -> None:
    check(bits, g, np.random.default_rng(seed), channels, how, table and bits == 8)


@pytest.mark.parametrize("bits", [8, 16])
def test_every_number_of_channels_and_columns(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for count in range(1, 151):
        width = 1 + count % 40
        g = Geometry(1, (1, 2, width), (1, 2, 3), (1, 1, 1 + count % 2), (0, 1, 1), (0, 0, 1), (1, 1, 1))
        check(bits, g, rng, count, table=bits == 8 and count % 2 == 0)


@pytest.mark.parametrize("bits", [8, 16])
def test_many_pixels_are_shared_by_the_threads(bits: int) -> None:
    g = Geometry(2, (1, 23, 29), (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    check(bits, g, np.random.default_rng(5), 37)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2), (4, 1), (7, 3)])
def test_every_width_of_the_tiles(kernel: int, stride: int) -> None:
    for width in range(1, 20):
        pad = (0, 1, width % kernel)
        g = Geometry(1, (1, 3, max(width, kernel - 2 * pad[2])), (1, 3, kernel), (1, 1, stride), pad, pad, (1, 1, 1))
        check(16, g, np.random.default_rng(width), 1 + 7 * width, "random" if width % 2 else "ends")
        check_float(width, g, 1 + 7 * width, True)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), g=geometries(kernel=5), channels=st.integers(1, 100), rounded=st.booleans())
def test_float(seed: int, g: Geometry, channels: int, rounded: bool) -> None:
    check_float(seed, g, channels, rounded)


def check_float(seed: int, g: Geometry, channels: int, rounded: bool) -> None:
    """Compare with float32 sums in the order of the taps."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((g.batch, *g.ins, channels)).astype(np.float32)
    w = rng.standard_normal((*g.kernel, channels)).astype(np.float32)
    bias = matrix_half(rng.standard_normal(channels).astype(np.float32))
    if rounded:
        x, w = matrix_half(x), matrix_half(w)
    acc = np.zeros((g.batch, *g.outs, channels), np.float32)
    for k, seen in g.taps(x):
        acc = fma(seen, np.broadcast_to(w[k], seen.shape), acc)
    want = matrix_half(acc + bias) if rounded else acc + bias
    attributes: dict[str, Any] = {
        **g.attributes(), "channels": channels, "out_channels": channels, "x_stride": channels, "y_stride": channels,
        "low": -np.inf, "high": np.inf, "half": rounded, "weights": packed_depthwise(w, 32),
        "bias_f32": spread(bias, 1, np.float32), "pad_row": np.zeros(-(-channels // BLOCK) * BLOCK, np.float32),
    }  # fmt: skip
    assert_bits(run("depthwise_f32", [x], np.zeros(want.shape, np.float32), attributes), want)
