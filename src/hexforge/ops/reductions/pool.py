# SPDX-License-Identifier: Apache-2.0
"""Pooling, channel-last: maximum, average and Lp norm of windows over two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from hexforge.ir import Array, Call, Measure, Param, TensorType, Work, define
from hexforge.ops import rules
from hexforge.ops.products.conv import pads_param

_Spatial = tuple[int, ...]


def _sizes(call: Call, dims: int) -> tuple[_Spatial, _Spatial]:
    kernel, stride = (tuple(int(v) for v in call[name]) for name in ("filter_size", "stride"))
    for name, value in (("filter_size", kernel), ("stride", stride)):
        if len(value) != dims or min(value) < 1:
            raise call.fail(f"{name} {list(value)} must be {dims} numbers of at least 1")
    return kernel, stride


def _out_shape(call: Call, dims: int) -> tuple[int, ...]:
    shape = call.input(0).shape
    if len(shape) != dims + 2:
        raise call.fail(f"input {list(shape)} must have {dims + 2} dimensions")
    kernel, stride = _sizes(call, dims)
    pads, up = pads_param(call, dims), call.params.get("rounding_mode", 0) == 1
    out = []
    for n, k, s, (a, b) in zip(shape[1:-1], kernel, stride, pads, strict=True):
        room = n + a + b - k
        if room < 0:
            raise call.fail(f"filter_size {list(kernel)} does not fit the padded input {list(shape)}")
        out.append((-(-room // s) if up else room // s) + 1)
        if a >= k or (out[-1] - 1) * s - a >= n:
            raise call.fail(f"pad_amount {pads} makes windows that see only padding")
    return (shape[0], *out, shape[-1])


def _infer_same(dims: int) -> Callable[[Call], tuple[TensorType, ...]]:
    return lambda call: (call.input(0).with_shape(_out_shape(call, dims)),)


def _infer_own(dims: int) -> Callable[[Call], tuple[TensorType, ...]]:
    return lambda call: (TensorType(call.input(0).dtype, _out_shape(call, dims)),)


def _taps(size: int, out: int, kernel: int, stride: int, pad: int) -> Iterator[tuple[slice, slice]]:
    """For each tap of a window: the outputs for which it lies inside the input, and the inputs it reads there."""
    for tap in range(kernel):
        first = max(0, -(-(pad - tap) // stride))
        last = min(out, (size - 1 + pad - tap) // stride + 1)
        if first < last:
            start = first * stride - pad + tap
            yield slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)


def _window_reduce(call: Call, x: Array, combine: np.ufunc, start: float | int) -> Array:
    """`combine` over each window, axis by axis: every combination here is separable."""
    dims = x.ndim - 2
    kernel, stride = _sizes(call, dims)
    pads = pads_param(call, dims)
    for axis in range(1, dims + 1):
        size, out_size = x.shape[axis], call.out().shape[axis]
        k, s, pad = kernel[axis - 1], stride[axis - 1], pads[axis - 1][0]
        if k == size and out_size == 1 and pad == 0:
            x = combine.reduce(x, axis=axis, keepdims=True)
            continue
        out = np.full((*x.shape[:axis], out_size, *x.shape[axis + 1 :]), start, x.dtype)
        before = (slice(None),) * axis
        for outputs, inputs in _taps(size, out_size, k, s, pad):
            target = out[(*before, outputs)]
            combine(target, x[(*before, inputs)], out=target)
        x = out
    return x


def _counts(call: Call, with_pads: bool) -> Array:
    """How many elements each window averages, as [1, out, 1]; what lies beyond the pads never counts."""
    shape, out = call.input(0).shape[1:-1], call.out().shape[1:-1]
    kernel, stride = _sizes(call, len(shape))
    count = np.ones((1,) * (len(shape) + 2), np.int64)
    for axis, (n, o, k, s, (a, b)) in enumerate(
        zip(shape, out, kernel, stride, pads_param(call, len(shape)), strict=True), 1
    ):
        begin = np.arange(o) * s - a
        low, high = (-a, n + b) if with_pads else (0, n)
        inside = np.minimum(begin + k, high) - np.maximum(begin, low)
        count = count * inside.reshape([-1 if i == axis else 1 for i in range(len(shape) + 2)])
    return count


def _max(call: Call, x: Array) -> Array:
    lowest = -np.inf if x.dtype.kind == "f" else False if x.dtype == bool else np.iinfo(x.dtype).min
    return _window_reduce(call, x, np.maximum, lowest)


def _average(call: Call, x: Array) -> Array:
    total = _window_reduce(call, x if x.dtype.kind == "f" else x.astype(np.float64), np.add, 0)
    return np.asarray(total / _counts(call, bool(call["count_pad_for_edges"])).astype(total.dtype))


def _norm(call: Call, x: Array) -> Array:
    p = int(call["p"])
    if p < 1:
        raise call.fail(f"p {p} must be at least 1")
    size = np.abs(x)
    total = _window_reduce(call, size if p == 1 else np.power(size, p), np.add, 0)
    return np.asarray(np.sqrt(total) if p == 2 else np.power(total, 1 / p))


def _work(lanes: int, lookups: int) -> Measure:
    return Measure(
        lanes=lambda call: call.out().size * math.prod(call["filter_size"]) * lanes,
        lookups=(lambda call: call.out().size * lookups) if lookups else None,
    )


_ROUNDING = Param("rounding_mode", "uint32", default=0, choices={"FLOOR": 0, "CEIL": 1})
for _dims in (2, 3):
    _common = (
        Param("filter_size", "uint32", rank=1),
        Param("stride", "uint32", rank=1),
        Param("pad_amount", "uint32", rank=2),
    )
    define(
        f"PoolMax{_dims}d",
        "in",
        params=(*_common, _ROUNDING),
        infer=_infer_same(_dims),
        reference=_max,
        kind=Work.POOL,
        work=_work(1, 0),
        quant=rules.SAME,
        doc=f"Maximum of each window over {_dims} spatial axes; padding never wins.",
    )
    define(
        f"PoolAvg{_dims}d",
        "in",
        params=(*_common, _ROUNDING, Param("count_pad_for_edges", "bool", default=False)),
        infer=_infer_own(_dims),
        reference=_average,
        kind=Work.POOL,
        work=_work(1, 0),
        quant=rules.OWN,
        doc=f"Mean of each window over {_dims} spatial axes; padding counts as zeros where count_pad_for_edges is set.",
    )
define(
    "L2Pool2d",
    "in",
    params=(
        Param("filter_size", "uint32", rank=1),
        Param("stride", "uint32", rank=1),
        Param("pad_amount", "uint32", rank=2),
        Param("p", "uint32", default=2),
    ),
    infer=_infer_own(2),
    reference=_norm,
    kind=Work.OTHER,  # powers and roots, beyond what a pool of maxima or means is
    work=_work(2, 1),
    quant=rules.OWN,
    doc="The p-norm of each window over two spatial axes.",
)
