# SPDX-License-Identifier: Apache-2.0
"""Matrix ops against loops over elements, float and fixed point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import ModelError
from hexforge.ir import AxisScaleOffset, Call, DType, ScaleOffset, TensorType, lookup
from hexforge.ir.fixed_point import dequantize, quantize
from hexforge.ops.evaluate import evaluate

_SIZE = st.integers(1, 5)


def _call(op: str, ins: list[TensorType], out: TensorType | None = None, **params: bool) -> Call:
    found = lookup(op)
    full = found.complete(params)
    inferred = found.infer(Call(found, tuple(ins), (), full))
    return Call(found, tuple(ins), inferred if out is None else (out,), full)


@settings(max_examples=40, deadline=None)
@given(m=_SIZE, k=_SIZE, n=_SIZE, batch=st.lists(_SIZE, max_size=2), flips=st.tuples(st.booleans(), st.booleans()))
def test_matmul(m: int, k: int, n: int, batch: list[int], flips: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(m * 100 + k * 10 + n)
    a, b = rng.standard_normal((*batch, m, k)), rng.standard_normal((k, n))
    left = (np.swapaxes(a, -1, -2) if flips[0] else a).astype(np.float32)
    right = (b.T if flips[1] else b).astype(np.float32)
    types = [TensorType(DType.FLOAT32, x.shape) for x in (left, right)]
    call = _call("MatMul", types, transpose_in0=flips[0], transpose_in1=flips[1])
    want = (a[..., :, None, :] * b.T).sum(axis=-1)
    assert call.out().shape == want.shape
    np.testing.assert_allclose(evaluate(call, [left, right])[0], want, rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(_SIZE, min_size=1, max_size=3), out=_SIZE, per_axis=st.booleans(), bias=st.booleans(),
    activation=st.sampled_from([DType.UINT8, DType.INT8, DType.UINT16, DType.INT16]),
    weight=st.sampled_from([DType.INT8, DType.INT4]), seed=st.integers(0, 99),
)  # fmt: skip
def test_quantized_fully_connected_rounds_the_exact_result_once(
    shape: list[int], out: int, per_axis: bool, bias: bool, activation: DType, weight: DType, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scales = tuple(float(s) for s in rng.uniform(0.01, 0.1, out))
    x = TensorType(activation, tuple(shape), ScaleOffset(0.03, -min(5, activation.range[1])))
    encoding = AxisScaleOffset(0, scales, (0,) * out) if per_axis else ScaleOffset(scales[0])
    w = TensorType(weight, (out, shape[-1]), encoding)
    scale = 0.03 * np.asarray(scales if per_axis else [scales[0]] * out)
    c = TensorType(DType.INT32, (out,), AxisScaleOffset(0, tuple(float(s) for s in scale), (0,) * out))
    y = TensorType(activation, (*shape[:-1], out), ScaleOffset(0.5, 0 if activation.is_signed else -100))
    arrays = [rng.integers(t.dtype.range[0], t.dtype.range[1], t.shape).astype(t.dtype.numpy) for t in (x, w)]
    arrays.append(rng.integers(-1000, 1000, (out,)).astype(np.int32))
    ins = [x, w, c] if bias else [x, w]
    real = [dequantize(a, t) for a, t in zip(arrays, ins, strict=False)]
    exact = (real[0][..., None, :] * real[1]).sum(axis=-1) + (real[2] if bias else 0)
    got = evaluate(_call("FullyConnected", ins, y, keep_dims=True), arrays[: len(ins)])[0]
    steps = exact / 0.5 + (0 if activation.is_signed else 100)
    near_tie = np.abs(steps - np.floor(steps) - 0.5) < 1e-9
    want = quantize(exact, y)
    assert ((got == want) | near_tie).all()


def test_scales_along_the_summed_axis_are_refused() -> None:
    x = TensorType(DType.UINT8, (2, 3), ScaleOffset(0.1))
    w = TensorType(DType.INT8, (3, 3), AxisScaleOffset(1, (0.1,) * 3, (0,) * 3))
    with pytest.raises(ModelError, match="summed"):
        _call("MatMul", [x, w], transpose_in1=True)


def test_integers_are_exact() -> None:
    a = np.array([[(1 << 31) - 1, -(1 << 31)]], np.int32)
    types = [TensorType(DType.INT64, (1, 2)), TensorType(DType.INT64, (2, 1))]
    got = evaluate(_call("MatMul", types), [a.astype(np.int64), a.astype(np.int64).T])[0]
    assert int(got[0, 0]) == ((1 << 31) - 1) ** 2 + (1 << 62)


def test_a_singular_matrix_does_not_spoil_the_batch() -> None:
    x = np.array([[[1, 1], [1, 1]], [[2, 0], [0, 2]]], np.float32)
    got = evaluate(_call("Inverse", [TensorType(DType.FLOAT32, x.shape)]), [x])[0]
    assert np.isnan(got[0]).all()
    np.testing.assert_array_equal(got[1], [[0.5, 0], [0, 0.5]])


@pytest.mark.parametrize(
    ("op", "shapes", "words"),
    [
        ("MatMul", [(2, 3), (2, 3)], "cannot multiply"),
        ("MatMul", [(3,), (3, 2)], "2 dimensions"),
        ("FullyConnected", [(2, 3), (4, 5)], "flatten"),
        ("FullyConnected", [(2, 3), (4, 3), (3,)], "bias"),
        ("Inverse", [(2, 3)], "square"),
    ],
)
def test_shapes_that_do_not_fit(op: str, shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        _call(op, [TensorType(DType.FLOAT32, s) for s in shapes])
