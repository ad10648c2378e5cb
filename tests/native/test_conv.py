# SPDX-License-Identifier: Apache-2.0
"""conv_u8, conv_s16 and conv_f32 against sums of Python-sized integers and float32 sums in their defined order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.lower.products.weights import flush_interval
from tests.native.halves import matrix_half, patterns
from tests.native.kernels import (
    FIXED,
    HOW,
    KIND,
    RANGE,
    assert_bits,
    fill,
    fma,
    packed_conv,
    round_and_clamp,
    run,
    spread,
)
from tests.native.windows import Geometry, geometries

SEEDS = st.integers(0, 2**32 - 1)
POINT = Geometry(1, (1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1))


def row(length: int) -> Geometry:
    """Pixels side by side, each by itself: a matrix product."""
    return Geometry(1, (1, 1, length), (1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1))


def sums(g: Geometry, x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """int64 sums of centered inputs [n, d, h, w, c] times weights [kd, kh, kw, c per group, out]."""
    inputs, outputs = w.shape[3], w.shape[4] // groups
    out = np.zeros((g.batch, *g.outs, w.shape[4]), np.int64)
    for k, seen in g.taps(x):
        for group in range(groups):
            part = seen[..., group * inputs : (group + 1) * inputs] @ w[k][:, group * outputs : (group + 1) * outputs]
            out[..., group * outputs : (group + 1) * outputs] += part
    return out


def check_integer(
    bits: int, g: Geometry, rng: np.random.Generator, *, inputs: int, outputs: int, groups: int = 1,
    how: str = "random", weights: np.ndarray | None = None, offset: int = 0, table: bool = False,
    extra: tuple[int, int] = (0, 0),
    flush: int | None = None, reach: float = 1.0, x: np.ndarray | None = None,
) -> None:  # fmt: skip
    """One convolution. `extra` channels lie around those read and written; `reach` scales the outputs."""
    low, high = RANGE[bits]
    zero_x = int(fill(rng, (), low, high, how))
    whole = inputs * groups + 2 * extra[0]
    if x is None:
        x = fill(rng, (g.batch, *g.ins, whole), low, high, how)
    if weights is None:
        weights = fill(rng, (*g.kernel, inputs, outputs * groups), -128, 127, how)
    total = outputs * groups
    # real weights are weights - offset
    acc = sums(g, x[..., extra[0] : extra[0] + inputs * groups] - zero_x, weights - offset, groups)
    bias = rng.integers(-30000, 30000, total)
    multiplier = rng.uniform(0.5, 1, total) * reach / max(1, float(np.abs(acc).max()) / (high - low))
    multiplier[rng.integers(0, total)] = 1.0  # halves do not occur, but everything saturates
    if total > 1:
        multiplier[rng.integers(0, total)] = 0.5  # ties
    zero, bounds = int(rng.integers(low, high + 1)), sorted(int(v) for v in rng.integers(low, high + 1, 2))
    if rng.integers(0, 2):
        bounds = [low, high]
    if bits == 8:
        steps = (acc + bias).astype(np.float32) * multiplier.astype(np.float32)
    else:
        steps = (acc + bias).astype(np.float64) * multiplier  # type: ignore[assignment]
    want = round_and_clamp(steps, zero, bounds[0], bounds[1], bits)
    row_taps = groups == 1 and extra[0] == 0 and g.dilation[2] == 1 and bool(rng.integers(0, 4))
    terms = int(np.prod(weights.shape[:4]))
    folded = bias - zero_x * weights.sum((0, 1, 2, 3)) + terms * zero_x * offset
    attributes: dict[str, Any] = {
        **g.attributes(), "channels": inputs, "out_channels": outputs, "groups": groups, "x_stride": whole,
        "y_stride": total + 2 * extra[1], "x_offset": extra[0], "y_offset": extra[1], "row_taps": row_taps,
        "weight_offset": -offset, "zero_point": zero, "low": bounds[0], "high": bounds[1],
        "weights": packed_conv(weights, bits, groups, row_taps),
        "pad_row": np.full(-(-weights.shape[2] * inputs // 4) * 4 + 8, zero_x, FIXED[bits]),
    }  # fmt: skip
    if bits == 8:
        attributes |= {
            "bias32": spread(folded, groups, np.int32),
            "multiplier32": spread(multiplier, groups, np.float32),
        }
    else:
        attributes |= {"bias": spread(folded, groups, np.int64), "multiplier": spread(multiplier, groups, np.float64)}
        attributes["flush"] = flush_interval(weights, row_taps) if flush is None else flush
    if table:
        attributes["table"] = rng.integers(0, 256, 256).astype(np.uint8)
        want = attributes["table"][want]
    start = rng.integers(low, high + 1, (g.batch, *g.outs, total + 2 * extra[1])).astype(FIXED[bits])
    expected = start.copy()
    expected[..., extra[1] : extra[1] + total] = want
    assert_bits(run(f"conv_{KIND[bits]}", [x.astype(FIXED[bits])], start, attributes), expected)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=30, deadline=None)
@given(
    seed=SEEDS, g=geometries(), inputs=st.integers(1, 70), outputs=st.integers(1, 70), groups=st.integers(1, 3),
    how=st.sampled_from(HOW), offset=st.integers(-255, 255), table=st.booleans(),
    extra=st.sampled_from([(0, 0), (0, 0), (3, 0), (0, 5), (2, 7)]), reach=st.sampled_from([0.3, 1.0, 1.0, 40.0]),
)  # fmt: skip
def test_integer(
    bits: int, seed: int, g: Geometry, inputs: int, outputs: int, groups: int, how: str, offset: int, table: bool,
    extra: tuple[int, int], reach: float,
) -> None:  # fmt: skip
    check_integer(
        bits, g, np.random.default_rng(seed), inputs=inputs, outputs=outputs, groups=groups, how=how,
        offset=offset if bits == 8 and seed % 2 else 0, table=table and bits == 8, extra=extra, reach=reach,
    )  # fmt: skip


def test_float32_requantization_is_within_its_bound() -> None:
    """docs/numerics.md: what is rounded is within 4.6e-5 steps of the exact number, so no result is farther off."""
    rng = np.random.default_rng(4)
    acc = rng.integers(-(2**31), 2**31, 2_000_000)
    wanted = rng.uniform(-255, 255, acc.size)
    multiplier = np.abs(wanted / np.where(acc == 0, 1, acc))
    steps = acc.astype(np.float32) * multiplier.astype(np.float32)
    exact = acc * multiplier
    assert np.abs(steps - exact).max() < 4.6e-5
    assert np.abs(np.rint(steps) - exact).max() <= 0.5 + 4.6e-5


@pytest.mark.parametrize("bits", [8, 16])
def test_every_number_of_channels(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for count in range(1, 151):
        check_integer(bits, row(17), rng, inputs=count, outputs=151 - count, offset=(count % 3) * 5 if bits == 8 else 0)
        check_integer(bits, row(count), rng, inputs=5, outputs=count, table=bits == 8 and count % 2 == 0)


@pytest.mark.parametrize("bits", [8, 16])
def test_many_pixels_are_shared_by_the_threads(bits: int) -> None:
    g = Geometry(2, (1, 23, 29), (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    check_integer(bits, g, np.random.default_rng(5), inputs=4, outputs=70)
    check_integer(bits, g, np.random.default_rng(6), inputs=2, outputs=3, groups=3)


@pytest.mark.parametrize("how", ["ends", "low", "high"])
def test_the_largest_8_bit_sums(how: str) -> None:
    # 255 * 255 * 33,000 is just below 2^31; uint8 weights as w - 128 with zero point 0
    rng, length = np.random.default_rng(1), 33000
    x = fill(rng, (1, 1, 1, 2, length), 0, 255, how)
    w = fill(rng, (1, 1, 1, length, 3), -128, 127, how)
    zero_x, offset = 0, -128
    acc = sums(row(2), x, w - offset, 1)
    multiplier = np.full(3, np.float32(200 / max(1, np.abs(acc).max())))
    want = round_and_clamp(acc.astype(np.float32) * multiplier, 9, 0, 255, 8)
    attributes = {
        **row(2).attributes(), "channels": length, "out_channels": 3, "x_stride": length, "y_stride": 3,
        "row_taps": 1, "weight_offset": -offset, "zero_point": 9, "low": 0, "high": 255,
        "weights": packed_conv(w, 8, 1, True), "pad_row": np.full(length, zero_x, np.uint8),
        "bias32": spread(np.zeros(3), 1, np.int32), "multiplier32": spread(multiplier, 1, np.float32),
    }  # fmt: skip
    assert_bits(run("conv_u8", [x.astype(np.uint8)], np.zeros(want.shape, np.uint8), attributes), want)


@settings(max_examples=25, deadline=None)
@given(
    seed=SEEDS, inputs=st.integers(500, 1200), outputs=st.integers(1, 20), magnitude=st.integers(200, 255),
    how=st.sampled_from(["ends", "low", "high", "random"]),
)  # fmt: skip
def test_16_bit_sums_beyond_32_bits(seed: int, inputs: int, outputs: int, magnitude: int, how: str) -> None:
    rng = np.random.default_rng(seed)
    w = fill(rng, (1, 1, 1, inputs, outputs), magnitude // 2, magnitude, how)
    w[..., ::2] *= -1
    x = fill(rng, (1, 1, 1, 3, inputs), -32768, 32767, how)
    # adversarial: every product of output 0 has the same sign
    x[0, 0, 0, 0] = np.where(w[0, 0, 0, :, 0] > 0, 32767, -32768)
    interval = flush_interval(w, True)
    if inputs * magnitude > 4 * 65535:
        assert interval, "the sums must be emptied"
    check_integer(16, row(3), rng, inputs=inputs, outputs=outputs, weights=w, x=x)
    if interval:
        for other in {max(1, interval // 2), max(1, interval // 3), 1}:
            check_integer(16, row(3), rng, inputs=inputs, outputs=outputs, weights=w, x=x, flush=other)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, g=geometries(), inputs=st.integers(40, 120), how=st.sampled_from(["ends", "high", "random"]))
def test_16_bit_sums_are_emptied_across_kernel_positions(seed: int, g: Geometry, inputs: int, how: str) -> None:
    rng = np.random.default_rng(seed)
    w = fill(rng, (*g.kernel, inputs, 5), -255, 255, how)
    check_integer(16, g, rng, inputs=inputs, outputs=5, weights=w, how=how)
    check_integer(16, g, rng, inputs=inputs, outputs=5, weights=w, how=how, flush=int(rng.integers(1, 60)))


def ordered(g: Geometry, x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """float32 sums, one fused product after the other: kernel position by position, channel by channel."""
    inputs, outputs = w.shape[3], w.shape[4] // groups
    out = np.zeros((g.batch, *g.outs, w.shape[4]), np.float32)
    for k, seen in g.taps(x):
        for c in range(inputs):
            values = np.repeat(seen[..., c::inputs][..., :groups], outputs, axis=-1)
            out = fma(values, np.broadcast_to(w[k][c], values.shape), out)
    return out


@settings(max_examples=20, deadline=None)
@given(
    seed=SEEDS, g=geometries(most=6), inputs=st.integers(1, 20), outputs=st.integers(1, 70), groups=st.integers(1, 3),
    rounded=st.booleans(), size=st.sampled_from([1e-6, 1.0, 1.0, 200.0]),
)  # fmt: skip
def test_float(seed: int, g: Geometry, inputs: int, outputs: int, groups: int, rounded: bool, size: float) -> None:
    check_float(seed, g, inputs, outputs, groups, rounded, size)


@pytest.mark.parametrize(("kernel", "inputs"), [((1, 1, 1), 1531), ((1, 3, 3), 130), ((1, 5, 5), 50), ((1, 9, 9), 13)])
def test_float_sums_of_many_products_wait_between_parts(kernel: tuple[int, int, int], inputs: int) -> None:
    for seed in range(4):
        pad = (0, kernel[1] // 2, kernel[2] // 2)
        g = Geometry(1, (1, 5 + seed, 6), kernel, (1, 1, 1), pad, pad, (1, 1, 1))
        check_float(seed, g, inputs, (17, 64, 100, 200)[seed], 1, bool(seed % 2), 1.0)


def test_a_float_convolution_of_no_pixels() -> None:
    g = Geometry(1, (1, 4, 4), (1, 5, 5), (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1))
    check_float(0, g, 3, 5, 1, True, 1.0)


def check_float(seed: int, g: Geometry, inputs: int, outputs: int, groups: int, rounded: bool, size: float) -> None:
    """Compare a convolution with float32 sums in their order."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((g.batch, *g.ins, inputs * groups)).astype(np.float32) * np.float32(size)
    w = rng.standard_normal((*g.kernel, inputs, outputs * groups)).astype(np.float32) * np.float32(size)
    if rounded:
        x, w = matrix_half(x), matrix_half(w)
    bias = matrix_half(rng.standard_normal(outputs * groups).astype(np.float32))
    bounds = (-np.inf, np.inf) if seed % 2 else (0.0, 6.0)
    acc = ordered(g, x, w, groups)
    if rounded:  # products of float16 values are float32 values: fused or not is the same
        plain = np.zeros_like(acc)
        for k, seen in g.taps(x):
            for c in range(inputs):
                values = np.repeat(seen[..., c::inputs][..., :groups], outputs, axis=-1)
                plain = plain + values * w[k][c]
        assert_bits(plain, acc)
    want = np.minimum(np.maximum(acc + bias, np.float32(bounds[0])), np.float32(bounds[1]))
    want = matrix_half(want) if rounded else want
    row_taps = groups == 1 and g.dilation[2] == 1 and bool(rng.integers(0, 2))
    attributes: dict[str, Any] = {
        **g.attributes(), "channels": inputs, "out_channels": outputs, "groups": groups, "x_stride": inputs * groups,
        "y_stride": outputs * groups, "row_taps": row_taps, "low": bounds[0], "high": bounds[1], "half": rounded,
        "weights": packed_conv(w, 32, groups, row_taps), "bias_f32": spread(bias, groups, np.float32),
        "pad_row": np.zeros(g.kernel[2] * inputs, np.float32),
    }  # fmt: skip
    got = run("conv_f32", [x], np.zeros(want.shape, np.float32), attributes)
    assert_bits(got + np.float32(0), want + np.float32(0))  # the sign of a zero that was clamped is not looked at


def test_float_overflow_is_65536() -> None:
    x = np.array(
        [[60000, 60000], [60000, -60000], [-60000, -60000], [65504, 15], [65504, 16], [131008, -65536]], np.float32
    )
    w = np.ones((1, 1, 1, 2, 1), np.float32)
    attributes = {
        **row(6).attributes(), "channels": 2, "out_channels": 1, "x_stride": 2, "y_stride": 1, "row_taps": 1,
        "low": -np.inf, "high": np.inf, "half": 1, "weights": packed_conv(w, 32, 1, True),
        "bias_f32": spread(np.zeros(1), 1, np.float32), "pad_row": np.zeros(2, np.float32),
    }  # fmt: skip
    got = run("conv_f32", [x], np.zeros(6, np.float32), attributes)
    assert_bits(got, np.array([65536, 0, -65536, 65504, 65536, 65472], np.float32))
    assert_bits(
        run("conv_f32", [x], np.zeros(6, np.float32), attributes | {"low": 0.0, "high": 6.0}),
        np.array([6, 0, 0, 6, 6, 6], np.float32),
    )
    table = np.arange(65536).astype(np.float32)
    found = run("conv_f32", [x], np.zeros(6, np.float32), attributes | {"table": table})
    assert_bits(found, patterns(got).astype(np.float32))
    other = np.array([-3e4, 1, 3e4, 64, -65536, 2e4], np.float32)
    summed = run("conv_f32", [x, other], np.zeros(6, np.float32), attributes | {"residual": 1})
    assert_bits(summed, matrix_half(got + other))
