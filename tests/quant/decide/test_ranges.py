# SPDX-License-Identifier: Apache-2.0
"""Ranges and encodings: what each method promises."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hexforge import _native
from hexforge.errors import CallError
from hexforge.ir import AxisScaleOffset, BlockwiseExpansion, DType, Encoding, ScaleOffset, TensorType
from hexforge.ir.fixed_point import dequantize, encoding_fault, quantize
from hexforge.quant.data.observe import TensorStatistics
from hexforge.quant.decide.ranges import METHODS, encoding, expected_errors, range_of, weight_encoding

Array = np.ndarray[Any, Any]

TYPES = [DType.UINT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16]
floats = st.floats(-(2.0**40), 2.0**40, width=32)
tensors = arrays.arrays(np.float32, st.integers(1, 60), elements=floats)


def seen(*parts: Array) -> TensorStatistics:
    """Statistics of arrays."""
    found = TensorStatistics()
    for part in parts:
        found.update(part)
    return found


def error(array: Array, dtype: DType, chosen: Encoding) -> float:
    """Mean squared error of quantizing."""
    type = TensorType(dtype, array.shape, chosen)
    assert encoding_fault(type) is None
    real = array.astype(np.float64)
    return float(np.mean((dequantize(quantize(real, type), type) - real) ** 2))


def distributions() -> dict[str, Array]:
    """Shapes of activations as networks have them."""
    random = np.random.default_rng(0)
    normal = random.standard_normal(20_000)
    outliers = normal.copy()
    outliers[::5000] *= 40
    return {
        name: array.astype(np.float32)
        for name, array in {
            "normal": normal,
            "relu": np.maximum(normal, 0),
            "silu": normal * 3 / (1 + np.exp(-normal * 3)),
            "laplace": random.laplace(size=20_000),
            "outliers": outliers,
            "away from zero": 5 + random.random(20_000),
            "negative": -np.abs(normal) - 0.1,
            "constant": np.full(100, 3.25),
            "zeros": np.zeros(10),
        }.items()
    }


@given(tensors, st.sampled_from(METHODS), st.sampled_from(TYPES), st.booleans())
@settings(max_examples=40, deadline=None)
def test_ranges_lie_within_the_extremes(array: Array, method: str, dtype: DType, symmetric: bool) -> None:
    found = seen(array)
    low, high = range_of(found, method, dtype, symmetric)
    if symmetric:
        assert low == -high
        assert high <= max(-found.minimum, found.maximum, 0)
    else:
        assert found.minimum <= low <= high <= found.maximum
    assert encoding_fault(TensorType(dtype, (), encoding(low, high, dtype, symmetric))) is None


@given(floats, floats, st.sampled_from([*TYPES, DType.INT4, DType.INT32]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_zero_is_exact_and_the_range_is_covered(a: float, b: float, dtype: DType, symmetric: bool) -> None:
    low, high = min(a, b), max(a, b)
    chosen = encoding(low, high, dtype, symmetric)
    type = TensorType(dtype, (3,), chosen)
    assert encoding_fault(type) is None
    assert chosen.scale == float(np.float32(chosen.scale))
    real = np.array([0.0, low, high])
    back = dequantize(quantize(real, type), type)
    assert back[0] == 0.0
    # Half a step of rounding, and as much again for the zero point that was rounded.
    assert np.abs(back - real).max() <= chosen.scale * 1.01 + 1e-6 * max(abs(low), abs(high))


def test_a_wider_percentile_is_a_wider_range() -> None:
    for array in distributions().values():
        found = seen(array)
        for symmetric in (False, True):
            ranges = [range_of(found, f"percentile={p}", DType.UINT8, symmetric) for p in (90, 99, 99.9, 99.99, 100)]
            assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(ranges))
            assert ranges[-1] == pytest.approx(range_of(found, "minmax", DType.UINT8, symmetric), rel=1e-6, abs=1e-12)


def test_a_percentile_keeps_its_share_of_the_values() -> None:
    array = distributions()["laplace"]
    low, high = range_of(seen(array), "percentile=99", DType.UINT8, False)
    assert np.mean(array < low) == pytest.approx(0.005, abs=0.001)
    assert np.mean(array > high) == pytest.approx(0.005, abs=0.001)
    _, bound = range_of(seen(array), "percentile=99", DType.INT8, True)
    assert np.mean(np.abs(array) > bound) == pytest.approx(0.01, abs=0.001)


def test_the_moving_average_is_of_samples() -> None:
    found = seen(np.array([-1, 3], np.float32), np.array([-3, 1], np.float32))
    assert range_of(found, "moving_average", DType.UINT8, False) == (-2, 2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", distributions())
def test_mse_is_no_worse_than_minmax(name: str, dtype: DType) -> None:
    array, symmetric = distributions()[name], dtype.is_signed
    found = seen(array)
    wide = range_of(found, "minmax", dtype, symmetric)
    best = range_of(found, "mse", dtype, symmetric)
    expected = expected_errors(found, *np.array([wide, best]).T, dtype, symmetric)  # type: ignore[call-arg]
    assert expected[1] <= expected[0]
    plain, better = (error(array, dtype, encoding(*r, dtype, symmetric)) for r in (wide, best))
    assert better <= plain * 1.02 + 1e-12


def test_the_best_range_is_found() -> None:
    """Against all ranges of a fine grid, on the values themselves."""
    array = distributions()["silu"]
    found = range_of(seen(array), "mse", DType.UINT4, False)
    grid = [(a, b) for a in np.linspace(array.min(), 0, 12) for b in np.linspace(1, array.max(), 60)]
    best = min(error(array, DType.UINT4, encoding(*r, DType.UINT4)) for r in grid)
    assert error(array, DType.UINT4, encoding(*found, DType.UINT4)) <= best * 1.01


@pytest.mark.parametrize("level", _native.levels())
@pytest.mark.parametrize("name", ["normal", "relu", "laplace", "away from zero"])
def test_the_expected_error_is_what_quantizing_costs(level: str, name: str) -> None:
    array, before = distributions()[name], _native.level()
    try:
        _native.set_level(level)
        found = seen(array)
        for dtype in (DType.UINT4, DType.UINT8, DType.UINT16):
            for low, high in ((found.minimum, found.maximum), (found.minimum / 3, found.maximum / 2)):
                expected = expected_errors(found, np.array(low), np.array(high), dtype, False)[0]
                assert expected == pytest.approx(error(array, dtype, encoding(low, high, dtype)), rel=0.08)
    finally:
        _native.set_level(before)


def test_entropy_cuts_off_outliers_and_beats_a_plain_computation() -> None:
    array = distributions()["outliers"]
    found = seen(array)
    low, high = range_of(found, "entropy", DType.UINT4, False)
    assert high < found.maximum / 2
    assert low > found.minimum / 2
    # 16 bits have more levels than there are bins, so nothing is cut off.
    assert range_of(found, "entropy", DType.UINT16, False) == (found.minimum, found.maximum)


def test_divergence_by_definition() -> None:
    """The running sums against distributions written out in full."""
    random = np.random.default_rng(3)
    counts = np.floor(random.exponential(5, 64))
    counts[3::7] = 0
    first, last, levels = 11, 52, 8
    p = counts[first:last].copy()
    p[0] += counts[:first].sum()
    p[-1] += counts[last:].sum()
    q = np.zeros(last - first)
    for level in range(levels):
        part = slice(level * len(q) // levels, (level + 1) * len(q) // levels)
        inside = counts[first:last][part]
        q[part] = np.where(inside > 0, inside.sum() / max((inside > 0).sum(), 1), 0)
    assert (q[p > 0] > 0).all()
    p, q = p / p.sum(), q / q.sum()
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
    sums = [np.append(0.0, np.cumsum(v)) for v in (counts, counts > 0, counts * np.log(np.maximum(counts, 1)))]
    out = np.empty(1)
    _native.divergences(counts, *sums, np.array([first]), np.array([last]), levels, out)  # type: ignore[arg-type, call-arg]
    assert out[0] == pytest.approx(expected)


@pytest.mark.parametrize("method", METHODS)
def test_degenerate_tensors_have_encodings(method: str) -> None:
    cases = {
        "nothing": np.zeros(0, np.float32),
        "zeros": np.zeros(9, np.float32),
        "constant": np.full(9, -4.5, np.float32),
        "denormal": np.array([1e-44, -1e-45], np.float32),
        "huge": np.array([1e30, -1e30, 3.0], np.float32),
    }
    for name, array in cases.items():
        found = seen(array)
        chosen = encoding(*range_of(found, method, DType.UINT8, False), DType.UINT8)
        assert encoding_fault(TensorType(DType.UINT8, (), chosen)) is None
        assert chosen.scale >= np.float32(1e-4 / 255)
        if name == "constant":
            assert error(array, DType.UINT8, chosen) <= chosen.scale**2 / 4


def test_wrong_calls() -> None:
    found = seen(np.ones(3))
    for method, said in (("mime", "did you mean mse|there are"), ("percentile=x", "99.9"), ("minmax=3", "percentile")):
        with pytest.raises(CallError, match=said):
            range_of(found, method, DType.UINT8, False)
    plain = TensorStatistics(histogram=False)
    plain.update(np.ones(3))
    assert range_of(plain, "minmax", DType.UINT8, False) == (1, 1)
    with pytest.raises(CallError, match="histogram=True"):
        range_of(plain, "mse", DType.UINT8, False)
    with pytest.raises(CallError, match="finite"):
        encoding(0.0, math.inf, DType.UINT8)
    with pytest.raises(CallError, match="float16 has no encodings"):
        encoding(0.0, 1.0, DType.FLOAT16)


# -- weights ----------------------------------------------------------------------------------------------------


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.floats(-9, 9, width=32)),
    st.sampled_from([DType.INT4, DType.INT8, DType.UINT8, DType.INT16]),
    st.sampled_from([None, 0, 1]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_weights_lose_at_most_half_a_step(weight: Array, dtype: DType, axis: int | None, symmetric: bool) -> None:
    chosen = weight_encoding(weight, dtype, symmetric, axis)
    type = TensorType(dtype, weight.shape, chosen)
    assert encoding_fault(type) is None
    integers = quantize(weight.astype(np.float64), type)
    lost = np.abs(dequantize(integers, type) - weight)
    scales = np.asarray(chosen.scale if isinstance(chosen, ScaleOffset) else chosen.scales)
    steps = scales if axis is None else np.expand_dims(scales, 1 - axis)
    # A rounded zero point moves the range by up to half a step more.
    assert (lost <= steps * (0.5 if symmetric else 1.0) * 1.001 + 1e-7).all()
    if dtype is DType.INT16:
        assert integers.min() >= -0x8000
        assert integers.max() <= 0x7F7F
    if symmetric and dtype.is_signed:
        assert not np.any(chosen.offset if isinstance(chosen, ScaleOffset) else chosen.offsets)


@pytest.mark.parametrize("level", _native.levels())
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_mse_of_weights_is_no_worse(level: str, axis: int | None, symmetric: bool) -> None:
    weight = np.random.default_rng(4).standard_t(3, (37, 53)).astype(np.float32)
    before = _native.level()
    try:
        _native.set_level(level)
        best = weight_encoding(weight, DType.INT4, symmetric, axis, "mse")
    finally:
        _native.set_level(before)
    plain = weight_encoding(weight, DType.INT4, symmetric, axis)
    assert error(weight, DType.INT4, best) < (0.9 if symmetric else 0.99) * error(weight, DType.INT4, plain)
    assert best == weight_encoding(weight, DType.INT4, symmetric, axis, "mse")


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(6, 64), (6, 64, 3, 3)])
def test_blocks_are_finer_than_channels(shape: tuple[int, ...], axis: int) -> None:
    weight = np.random.default_rng(5).standard_t(3, shape).astype(np.float32)
    weight = weight if axis == 0 else np.ascontiguousarray(np.swapaxes(weight, 0, 1))
    block = weight_encoding(weight, DType.INT4, axis=axis, block=16)
    best = weight_encoding(weight, DType.INT4, axis=axis, block=16, method="mse")
    channel = weight_encoding(weight, DType.INT4, axis=axis)
    assert isinstance(block, BlockwiseExpansion)
    assert isinstance(channel, AxisScaleOffset)
    assert (block.axis, block.block_axis, len(block.block_scales)) == (axis, 1 - axis, 6 * 4)
    assert min(block.block_scales) >= 1
    assert max(block.block_scales) == 16
    assert error(weight, DType.INT4, best) <= error(weight, DType.INT4, block) < error(weight, DType.INT4, channel)
    # no value is cut off: half a step of its block is the most that is lost
    type = TensorType(DType.INT4, weight.shape, block)
    assert np.abs(dequantize(quantize(weight.astype(np.float64), type), type) - weight).max() <= max(block.scales) * 8.1


def test_empty_channels_take_a_scale_near_the_others() -> None:
    weight = np.zeros((3, 8), np.float32)
    weight[1] = np.linspace(-1, 1, 8)
    chosen = weight_encoding(weight, DType.INT8, axis=0)
    assert isinstance(chosen, AxisScaleOffset)
    assert min(chosen.scales) > chosen.scales[1] * 2.0**-21
    alone = weight_encoding(np.zeros((2, 2), np.float32), DType.INT8)
    assert encoding_fault(TensorType(DType.INT8, (2, 2), alone)) is None


def test_wrong_weights() -> None:
    weight = np.ones((4, 6), np.float32)
    for call, said in (
        (lambda: weight_encoding(weight, DType.INT8, method="entropy"), "minmax and mse"),
        (lambda: weight_encoding(weight, DType.INT4, axis=0, block=4), "do not divide"),
        (lambda: weight_encoding(weight[0], DType.INT4, axis=0, block=2), "matrix"),
        (lambda: weight_encoding(np.array([np.inf], np.float32), DType.INT8), "NaN"),
        (lambda: weight_encoding(np.array(3, np.float32), DType.INT8, axis=0), "0 dimensions"),
    ):
        with pytest.raises(CallError, match=said):
            call()
