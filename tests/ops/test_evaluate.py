# SPDX-License-Identifier: Apache-2.0
"""Fixed-point evaluation against Python's integers: accumulators, ties, saturation, and every kind of encoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir import (
    AxisScaleOffset,
    Block,
    BlockwiseExpansion,
    Call,
    DType,
    Encoding,
    ScaleOffset,
    TensorType,
    lookup,
)
from hexforge.ir.fixed_point import dequantize, quantize, quantized_range
from hexforge.ops.evaluate import PreparedCall, evaluate, requantize, requantize_numpy

ACTIVATIONS = (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)
SCALES = st.floats(1e-4, 1.0)


def random_integers(rng: np.random.Generator, type: TensorType) -> np.ndarray:
    """Integers over the whole range of a fixed-point type."""
    assert type.encoding is not None
    low, high = quantized_range(type.dtype, type.encoding)
    return rng.integers(low, high + 1, type.shape).astype(type.dtype.numpy)


def matmul(x: TensorType, w: TensorType, y: TensorType, bias: TensorType | None = None, **params: Any) -> Call:
    """A MatMul of those types."""
    op = lookup("MatMul")
    return Call(op, (x, w) if bias is None else (x, w, bias), (y,), op.complete(params))


@st.composite
def scale_offsets(draw: Any, dtype: DType, bitwidth: int = 0) -> ScaleOffset:
    low, high = quantized_range(dtype, ScaleOffset(1.0, 0, bitwidth))
    return ScaleOffset(draw(SCALES), -draw(st.integers(low, high)), bitwidth)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bilinear_is_the_rounded_integer_accumulator(data: Any) -> None:
    draw = data.draw
    x_dtype, y_dtype = draw(st.sampled_from(ACTIVATIONS)), draw(st.sampled_from(ACTIVATIONS))
    w_dtype = draw(st.sampled_from([DType.INT8, DType.UINT8, DType.INT4, DType.UINT4, DType.INT16]))
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    x = TensorType(x_dtype, (m, k), draw(scale_offsets(x_dtype)))
    per_axis, flipped = draw(st.booleans()), draw(st.booleans())
    low, high = w_dtype.range
    if per_axis:
        many = {"min_size": n, "max_size": n}
        offsets = draw(st.lists(st.integers(-high, -low), **many))
        encoding: Encoding = AxisScaleOffset(0 if flipped else 1, tuple(draw(st.lists(SCALES, **many))), tuple(offsets))
    else:
        encoding = draw(scale_offsets(w_dtype))
    w = TensorType(w_dtype, (n, k) if flipped else (k, n), encoding)
    y = TensorType(y_dtype, (m, n), draw(scale_offsets(y_dtype, draw(st.sampled_from([0, 0, 4])))))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    xq, wq = random_integers(rng, x), random_integers(rng, w)
    w_scales = encoding.scales if isinstance(encoding, AxisScaleOffset) else (encoding.scale,) * n
    w_offsets = encoding.offsets if isinstance(encoding, AxisScaleOffset) else (encoding.offset,) * n
    has_bias = draw(st.booleans())
    product = tuple(x.encoding.scale * s for s in w_scales)
    bias_encoding = AxisScaleOffset(0, product, (0,) * n)
    bias = TensorType(DType.INT32, (n,), bias_encoding) if has_bias else None
    bq = rng.integers(-1000, 1000, n).astype(np.int32)

    call = matmul(x, w, y, bias, transpose_in1=flipped)
    arrays = [xq, wq, bq] if has_bias else [xq, wq]
    (got,) = evaluate(call, arrays)
    (prepared,) = PreparedCall(call, [None, *arrays[1:]])(arrays)
    np.testing.assert_array_equal(prepared, got)

    low, high = quantized_range(y_dtype, y.encoding)  # type: ignore[arg-type]
    for i in range(m):
        for j in range(n):
            weights = [int(wq[j, t] if flipped else wq[t, j]) + w_offsets[j] for t in range(k)]
            accumulator = sum((int(xq[i, t]) + x.encoding.offset) * weights[t] for t in range(k))  # type: ignore[misc]
            accumulator += int(bq[j]) if has_bias else 0
            steps = round(float(accumulator) * (product[j] / y.encoding.scale)) - y.encoding.offset
            assert int(got[i, j]) == min(max(steps, low), high)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_native_requantize_is_the_numpy_formula(data: Any) -> None:
    dtype = data.draw(st.sampled_from(ACTIVATIONS))
    type = TensorType(dtype, (), data.draw(scale_offsets(dtype, data.draw(st.sampled_from([0, 4])))))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=3)))
    accumulators = rng.integers(-(1 << 40), 1 << 40, shape) // (1 << rng.integers(0, 40, shape))
    accumulators = accumulators.astype(np.float64)
    channels = shape[-1] if shape else 1
    multipliers = rng.choice([0.5, 0.25, 1.0, 0.1, 1e-9, 1e300], channels)
    if data.draw(st.booleans()):
        multipliers = multipliers[:1].reshape(()) if channels else np.asarray(0.5)
    multipliers = multipliers.reshape(()) if not shape and multipliers.size else multipliers
    got = requantize(accumulators, multipliers, type)
    want = requantize_numpy(accumulators, multipliers, type)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_ties_go_to_even_and_results_saturate() -> None:
    type = TensorType(DType.UINT8, (8,), ScaleOffset(1.0, -10))
    accumulators = np.array([1, 3, 5, -1, -3, 1000, -1000, 2], np.float64)
    got = requantize(accumulators.reshape(-1, 1), np.asarray(0.5), type).ravel()
    np.testing.assert_array_equal(got, [10, 12, 12, 10, 8, 255, 0, 11])
    real = np.array([0.5, 1.5, 2.5, -0.5, 300.0, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(quantize(real, type), [10, 12, 12, 10, 255, 255, 0, 0])


def test_a_bias_in_other_units_is_rounded_with_the_sum() -> None:
    x, w = (TensorType(DType.UINT8, (1, 1), ScaleOffset(0.5)) for _ in range(2))
    y = TensorType(DType.UINT8, (1, 1), ScaleOffset(1.0))
    arrays = [np.full((1, 1), 3, np.uint8), np.full((1, 1), 2, np.uint8)]  # 1.5
    call = matmul(x, w, y, TensorType(DType.FLOAT32, (1,)))
    assert evaluate(call, [*arrays, np.array([0.9], np.float32)])[0].item() == 2  # 2.4
    coarse = TensorType(DType.INT32, (1,), ScaleOffset(0.3))
    assert evaluate(matmul(x, w, y, coarse), [*arrays, np.array([5], np.int32)])[0].item() == 3


def test_bit_width_encodings_saturate_early() -> None:
    type = TensorType(DType.INT8, (4,), ScaleOffset(1.0, 0, bitwidth=4))
    np.testing.assert_array_equal(quantize(np.array([-100.0, -8.0, 7.0, 100.0]), type), [-8, -8, 7, 7])
    narrow = TensorType(DType.INT8, (4,), ScaleOffset(1.0, 0, bitwidth=2))
    np.testing.assert_array_equal(quantize(np.array([-100.0, -1.0, 1.0, 100.0]), narrow), [-2, -1, 1, 1])


def test_blockwise_expansion_is_scale_times_block_scale() -> None:
    encoding = BlockwiseExpansion(
        axis=1, block_axis=0, scales=(0.5, 0.25), offsets=(0, 1), block_scales=(1, 2, 3, 4), bitwidth=4
    )
    type = TensorType(DType.INT4, (4, 2), encoding)
    q = np.array([[1, 1], [2, 2], [3, 3], [4, 4]]).astype(DType.INT4.numpy)
    expected = [[0.5 * 1 * 1, 0.25 * 3 * 2], [0.5 * 1 * 2, 0.25 * 3 * 3], [0.5 * 2 * 3, 0.25 * 4 * 4],
                [0.5 * 2 * 4, 0.25 * 4 * 5]]  # fmt: skip
    np.testing.assert_array_equal(dequantize(q, type), expected)


def test_block_scales_are_row_major() -> None:
    type = TensorType(DType.UINT8, (2, 4), Block((1, 2), (1.0, 2.0, 3.0, 4.0), (0, -1, 0, -2)))
    q = np.full((2, 4), 5, np.uint8)
    np.testing.assert_array_equal(dequantize(q, type), [[5, 5, 8, 8], [15, 15, 12, 12]])


@pytest.mark.parametrize(
    "encoding",
    [
        BlockwiseExpansion(1, 0, (0.5, 0.25), (0, 0), (1, 2, 3, 4)),
        Block((2, 1), (0.5, 0.25, 0.125, 1.0), (0, 0, 0, 0)),
        AxisScaleOffset(0, (0.5, 0.25, 0.125, 1.0), (0, 0, 0, 0)),
    ],
    ids=["blockwise", "block", "summed axis"],
)
def test_scales_along_the_sum_are_dequantized(encoding: Encoding) -> None:
    x = TensorType(DType.UINT8, (1, 4), ScaleOffset(0.5, -2))
    w, y = TensorType(DType.INT4, (4, 2), encoding), TensorType(DType.UINT8, (1, 2), ScaleOffset(0.125, -100))
    xq, wq = np.array([[1, 2, 3, 4]], np.uint8), np.array([[1, -2], [3, -4], [5, -6], [7, -8]]).astype(w.dtype.numpy)
    real = (xq.astype(np.float64) - 2) * 0.5 @ dequantize(wq, w)
    (got,) = evaluate(matmul(x, w, y), [xq, wq])
    np.testing.assert_array_equal(got, np.clip(np.rint(real / 0.125) + 100, 0, 255))


def test_long_sums_leave_float32_and_stay_exact() -> None:
    rng = np.random.default_rng(0)
    x = TensorType(DType.UINT16, (2, 3000), ScaleOffset(1e-3, -7))
    w = TensorType(DType.INT8, (3000, 2), ScaleOffset(1e-3))
    y = TensorType(DType.UINT16, (2, 2), ScaleOffset(0.01, -30000))
    xq, wq = random_integers(rng, x), random_integers(rng, w)
    accumulators = (xq.astype(np.int64) - 7) @ wq.astype(np.int64)
    expected = np.clip(np.rint(accumulators * (1e-3 * 1e-3 / 0.01)) + 30000, 0, 65535)
    (got,) = PreparedCall(matmul(x, w, y), [None, wq])([xq, wq])
    np.testing.assert_array_equal(got, expected)


def test_movement_moves_integers_or_requantizes() -> None:
    op = lookup("Reshape")
    x = TensorType(DType.UINT8, (2,), ScaleOffset(0.5, -4))
    q = np.array([5, 255], np.uint8)
    (same,) = evaluate(Call(op, (x,), (x.with_shape((1, 2)),), {}), [q])
    np.testing.assert_array_equal(same, [[5, 255]])
    other = TensorType(DType.UINT8, (1, 2), ScaleOffset(1.0, 0))
    (moved,) = evaluate(Call(op, (x,), (other,), {}), [q])
    np.testing.assert_array_equal(moved, [[0, 126]])  # 0.5 and 125.5, ties to even


@pytest.mark.parametrize("dtype", ACTIVATIONS, ids=lambda d: d.value)
@pytest.mark.parametrize("op", ["Sigmoid", "Relu", "HardSwish", "Dequantize"])
def test_a_table_is_the_same_function(op: str, dtype: DType) -> None:
    low, high = dtype.range
    x = TensorType(dtype, (2, (high - low) // 2 + 3), ScaleOffset(0.0625, -(low + high) // 2))
    out = TensorType(DType.FLOAT32, x.shape) if op == "Dequantize" else x
    call = Call(lookup(op), (x,), (out,), {})
    array = random_integers(np.random.default_rng(0), x)
    prepared = PreparedCall(call, [None])
    assert prepared.prepared_bytes > 0
    (got,), (want,) = prepared([array]), evaluate(call, [array])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(prepared([array.T])[0], want.T)  # whatever the strides


def test_constants_without_axes_keep_none() -> None:
    x = TensorType(DType.UINT8, (), ScaleOffset(0.5, -4))
    coefficient = TensorType(DType.UINT8, (), ScaleOffset(0.01, 0))
    call = Call(lookup("Prelu"), (x, coefficient), (x,), {})
    (got,) = PreparedCall(call, [None, np.array(50, np.uint8)])([np.array(0, np.uint8), np.array(50, np.uint8)])
    assert (got.shape, int(got)) == ((), 2)  # -2 times a half
