# SPDX-License-Identifier: Apache-2.0
"""Convolutions against naive loops over every output element, and what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import ModelError
from hexforge.ir import AxisScaleOffset, Call, DType, ScaleOffset, TensorType, lookup
from hexforge.ir.fixed_point import dequantize, quantize
from hexforge.ops import products_conv as conv_module
from hexforge.ops.evaluate import evaluate


def _call(op: str, arrays: list[np.ndarray], params: dict[str, Any]) -> Call:
    ins = tuple(TensorType(DType.of(a.dtype), a.shape) for a in arrays)
    found = lookup(op)
    full = found.complete(params)
    return Call(found, ins, found.infer(Call(found, ins, (), full)), full)


def _naive(
    x: np.ndarray, w: np.ndarray, stride: tuple[int, ...], pads: tuple[tuple[int, int], ...], dilation: tuple[int, ...],
    group: int,
) -> np.ndarray:  # fmt: skip
    dims = x.ndim - 2
    padded = np.pad(x, ((0, 0), *pads, (0, 0)))
    kernel, cin, cout = w.shape[:dims], w.shape[-2], w.shape[-1]
    size = [(padded.shape[i + 1] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(dims)]
    out = np.zeros((x.shape[0], *size, cout))
    for n, *position in itertools.product(range(x.shape[0]), *map(range, size)):
        for tap in itertools.product(*map(range, kernel)):
            at = tuple(p * s + t * d for p, s, t, d in zip(position, stride, tap, dilation, strict=True))
            for c in range(cout):
                g = c // (cout // group)
                out[(n, *position, c)] += padded[(n, *at)][g * cin : (g + 1) * cin] @ w[(*tap, slice(None), c)]  # type: ignore[arg-type]
    return out


def _naive_transposed(
    x: np.ndarray, w: np.ndarray, stride: tuple[int, ...], pads: tuple[tuple[int, int], ...], extra: tuple[int, ...],
    group: int,
) -> np.ndarray:  # fmt: skip
    dims = x.ndim - 2
    kernel, per_group = w.shape[:dims], w.shape[-1]
    size = [stride[i] * (x.shape[i + 1] - 1) + kernel[i] + extra[i] for i in range(dims)]
    out = np.zeros((x.shape[0], *size, per_group * group))
    for n, *position in itertools.product(range(x.shape[0]), *map(range, x.shape[1:-1])):
        for tap in itertools.product(*map(range, kernel)):
            at = tuple(p * s + t for p, s, t in zip(position, stride, tap, strict=True))
            for c in range(x.shape[-1]):
                g = c // (x.shape[-1] // group)
                out[(n, *at)][g * per_group : (g + 1) * per_group] += x[(n, *position, c)] * w[(*tap, c)]
    cut = tuple(slice(a, n - b) for n, (a, b) in zip(size, pads, strict=True))
    return out[(slice(None), *cut)]


@st.composite
def _cases(draw: st.DrawFn) -> dict[str, Any]:
    dims = draw(st.sampled_from([2, 2, 3]))
    small = st.integers(1, 3)
    each = st.tuples(*[small] * dims)
    return {
        "dims": dims, "kernel": draw(each), "stride": draw(each),
        "dilation": draw(st.tuples(*[st.integers(1, 2)] * dims)),
        "pads": draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * dims)),
        "group": draw(small), "cin": draw(small), "cout": draw(small), "batch": draw(st.integers(1, 2)),
        "size": draw(st.tuples(*[st.integers(5, 7)] * dims)), "seed": draw(st.integers(0, 99)),
        "scratch": draw(st.sampled_from([1, 2000, 1 << 22])),
    }  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(_cases())
def test_conv_is_the_sum_over_its_window(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    x = rng.normal(size=(case["batch"], *case["size"], case["cin"] * case["group"]))
    w = rng.normal(size=(*case["kernel"], case["cin"], case["cout"] * case["group"]))
    bias = rng.normal(size=w.shape[-1]).astype(np.float32)  # type: ignore[attr-defined]
    params = {k: case[k] for k in ("stride", "group", "dilation")} | {"pad_amount": case["pads"]}
    op = f"Conv{case['dims']}d"
    call = _call(op, [x.astype(np.float32), w.astype(np.float32), bias], params)
    want = _naive(x, w, case["stride"], case["pads"], case["dilation"], case["group"]) + bias
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_module, "_SCRATCH_BYTES", case["scratch"])
        np.testing.assert_allclose(call.op.reference(call, x, w, bias), want, rtol=1e-10, atol=1e-10)
        single = call.op.reference(call, x.astype(np.float32), w.astype(np.float32), bias)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, want, rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(_cases())
def test_depthwise_is_a_conv_of_one_channel_groups(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    channels = case["cin"] * case["group"]
    kernel, stride, dilation = case["kernel"][:2], case["stride"][:2], case["dilation"][:2]
    x = rng.normal(size=(case["batch"], *case["size"][:2], channels))
    w = rng.normal(size=(*kernel, 1, case["cout"] * channels))
    params = {"stride": stride, "pad_amount": case["pads"][:2], "dilation": dilation}
    call = _call("DepthWiseConv2d", [x.astype(np.float32), w.astype(np.float32)], params)
    want = _naive(x, w, stride, case["pads"][:2], dilation, channels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_module, "_BLOCK_BYTES", case["scratch"])
        np.testing.assert_allclose(call.op.reference(call, x, w), want, rtol=1e-10, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(_cases(), st.tuples(*[st.integers(0, 1)] * 3))
def test_transposed_conv_adds_every_input_position(case: dict[str, Any], extra: tuple[int, ...]) -> None:
    rng = np.random.default_rng(case["seed"])
    dims, extra = case["dims"], extra[: case["dims"]]
    x = rng.normal(size=(case["batch"], *(s - 3 for s in case["size"]), case["cin"] * case["group"]))
    w = rng.normal(size=(*case["kernel"], case["cin"] * case["group"], case["cout"]))
    params = {"stride": case["stride"], "pad_amount": case["pads"], "group": case["group"], "output_padding": extra}
    want = _naive_transposed(x, w, case["stride"], case["pads"], extra, case["group"])
    arrays = [x.astype(np.float32), w.astype(np.float32)]
    if min(want.shape) < 1:
        with pytest.raises(ModelError, match="leaves nothing"):
            _call(f"TransposeConv{dims}d", arrays, params)
        return
    call = _call(f"TransposeConv{dims}d", arrays, params)
    assert call.out().shape == want.shape
    np.testing.assert_allclose(call.op.reference(call, x, w), want, rtol=1e-10, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([DType.UINT8, DType.INT8, DType.UINT16, DType.INT16]),
    st.sampled_from([DType.INT8, DType.INT4, DType.UINT8]),
    st.booleans(),
    st.integers(0, 99),
)
def test_quantized_conv_is_exact_up_to_one_rounding(activation: DType, weight: DType, axis: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = activation.range
    x_type = TensorType(activation, (1, 5, 4, 3), ScaleOffset(0.02, -int(rng.integers(low, high + 1))))
    scales = tuple(float(s) for s in rng.uniform(0.01, 0.1, 4))
    w_encoding = AxisScaleOffset(3, scales, (0,) * 4) if axis else ScaleOffset(scales[0], 0)
    w_type = TensorType(weight, (3, 3, 3, 4), w_encoding)
    y_type = TensorType(activation, (1, 5, 4, 4), ScaleOffset(0.05, -int(rng.integers(low, high + 1))))
    bias_type = TensorType(DType.INT32, (4,), AxisScaleOffset(0, tuple(0.02 * s for s in scales), (0,) * 4))
    arrays = [
        rng.integers(low, high + 1, x_type.shape).astype(activation.numpy),
        rng.integers(weight.range[0], weight.range[1] + 1, w_type.shape).astype(weight.numpy),
        rng.integers(-500, 500, 4).astype(np.int32),
    ]
    op = lookup("Conv2d")
    params = op.complete({"stride": (1, 1), "pad_amount": ((1, 1), (1, 1))})
    call = Call(op, (x_type, w_type, bias_type), (y_type,), params)
    assert op.infer(call)[0].shape == y_type.shape
    real = [dequantize(a, t) for a, t in zip(arrays, call.ins, strict=True)]  # type: ignore[arg-type]
    want = quantize(_naive(real[0], real[1], (1, 1), ((1, 1), (1, 1)), (1, 1), 1) + real[2], y_type)
    got = evaluate(call, arrays)[0]
    assert got.dtype == y_type.dtype.numpy
    assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= 1


def test_integers_stay_exact() -> None:
    x = np.full((1, 3, 3, 8), 1 << 20, np.int32)
    w = np.full((3, 3, 8, 1), 3, np.int32)
    call = _call("Conv2d", [x, w], {"stride": (1, 1), "pad_amount": ((0, 0), (0, 0))})
    assert evaluate(call, [x, w])[0].tolist() == [[[[72 * 3 << 20]]]]


@pytest.mark.parametrize(
    ("op", "shapes", "params", "message"),
    [
        ("Conv2d", [(1, 4, 4, 3), (3, 3, 2, 4)], {}, "does not fit the input"),
        ("Conv2d", [(1, 4, 4), (3, 3, 2)], {}, "must have 4 dimensions"),
        ("Conv2d", [(1, 4, 4, 3), (5, 5, 3, 4)], {}, "does not fit the padded input"),
        ("Conv2d", [(1, 4, 4, 3), (3, 3, 3, 4), (3,)], {}, "bias"),
        ("Conv2d", [(1, 4, 4, 3), (3, 3, 3, 4)], {"stride": (0, 1)}, "stride"),
        ("Conv2d", [(1, 4, 4, 3), (3, 3, 3, 4)], {"pad_amount": ((1,), (1, 1))}, "pad_amount"),
        ("DepthWiseConv2d", [(1, 4, 4, 3), (3, 3, 1, 4)], {}, "multiple of 3"),
        ("TransposeConv2d", [(1, 4, 4, 3), (3, 3, 2, 4)], {}, "does not fit the input"),
    ],
)
def test_misfits_are_named(op: str, shapes: list[tuple[int, ...]], params: dict[str, Any], message: str) -> None:
    arrays = [np.zeros(s, np.float32) for s in shapes]
    with pytest.raises(ModelError, match=message):
        _call(op, arrays, {"stride": (1, 1), "pad_amount": ((0, 0), (0, 0)), **params})
