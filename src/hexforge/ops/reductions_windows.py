# SPDX-License-Identifier: Apache-2.0
"""Reductions along axes and in windows: sums, arg-reductions, running sums; maximum, average and Lp pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hexforge.ir import ALONG_AXIS, Array, Call, DType, Follows, Layout, Measure, Param, TensorType, Work, define
from hexforge.ops import rules
from hexforge.ops.pointwise_elementwise import divide
from hexforge.ops.products_conv import pads_param

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


_ONE_PASS = Measure(lanes=lambda call: max(call.input(0).size, call.out().size))


def _reduced(call: Call, axes: tuple[int, ...]) -> tuple[int, ...]:
    shape = call.input(0).shape
    if call["keep_dims"]:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def _infer_reduce(call: Call) -> tuple[TensorType, ...]:
    axes = tuple(call.axis(a, name="axes") for a in call["axes"])
    if len(set(axes)) != len(axes):
        raise call.fail(f"axes {list(call['axes'])} name an axis twice")
    return (TensorType(call.input(0).dtype, _reduced(call, axes)),)


def _lowest(dtype: np.dtype[Any]) -> Any:
    return False if dtype == np.bool_ else -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return True if dtype == np.bool_ else np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    if not np.issubdtype(x.dtype, np.integer):
        return np.asarray(np.mean(x, axis, keepdims=keepdims))
    count = int(np.prod([x.shape[a] for a in axis]))
    return divide(np.asarray(np.sum(x, axis, keepdims=keepdims, dtype=np.int64)), np.asarray(count, np.int64))


# On an empty set: 0, 1, the lowest and the highest value; the mean is NaN.
_REDUCE: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("Max", lambda x, axis, keepdims: np.max(x, axis, keepdims=keepdims, initial=_lowest(x.dtype))),
    ("Mean", _mean),
    ("Min", lambda x, axis, keepdims: np.min(x, axis, keepdims=keepdims, initial=_highest(x.dtype))),
    ("Prod", lambda x, axis, keepdims: np.prod(x, axis, keepdims=keepdims, dtype=x.dtype)),
    ("Sum", lambda x, axis, keepdims: np.sum(x, axis, keepdims=keepdims, dtype=x.dtype)),
    ("SumSquare", lambda x, axis, keepdims: np.sum(np.square(x), axis, keepdims=keepdims, dtype=x.dtype)),
)


def _reduce(function: Callable[..., Any]) -> Callable[..., Array]:
    def reference(call: Call, x: Array) -> Array:
        return np.asarray(function(x, tuple(call["axes"]), bool(call["keep_dims"])))

    return reference


for _name, _function in _REDUCE:
    define(
        f"Reduce{_name}",
        "in",
        params=(Param("axes", "uint32", 1), Param("keep_dims", "bool", default=False)),
        infer=_infer_reduce,
        reference=_reduce(_function),
        kind=Work.REDUCE,
        work=_ONE_PASS,
        quant=rules.OWN,
        layout=Layout(free=True, params={"axes": Follows.AXES}, keeps="keep_dims"),
        doc=f"{_name} of the elements along `axes`.",
    )


def _infer_arg(call: Call) -> tuple[TensorType, ...]:
    axis = call.axis(call["axis"])
    if not call.input(0).shape[axis]:
        raise call.fail(f"axis {axis} is empty")
    return (TensorType(call.outs[0].dtype if call.outs else DType.INT32, _reduced(call, (axis,))),)


def _arg(function: Callable[..., Any]) -> Callable[..., Array]:
    def reference(call: Call, x: Array) -> Array:
        return np.asarray(function(x, call["axis"], keepdims=bool(call["keep_dims"])))

    return reference


for _name, _function in (("Argmax", np.argmax), ("Argmin", np.argmin)):
    define(
        _name,
        "in",
        params=(Param("axis", "uint32"), Param("keep_dims", "bool", default=False)),
        infer=_infer_arg,
        reference=_arg(_function),
        kind=Work.SEARCH,
        work=_ONE_PASS,
        quant=rules.NEVER,
        layout=Layout(free=True, params={"axis": Follows.AXIS}, keeps="keep_dims"),
        doc=f"Index of the {'largest' if _name == 'Argmax' else 'smallest'} element along `axis`, the first of equals.",
    )


def _infer_cumulative_sum(call: Call) -> tuple[TensorType, ...]:
    call.axis(call["axis"])
    return (TensorType(call.input(0).dtype, call.input(0).shape),)


def _cumulative_sum(call: Call, x: Array) -> Array:
    axis = call["axis"] % x.ndim
    last_first = (slice(None),) * axis + (slice(None, None, -1),)
    y = x[last_first] if call["reverse"] else x
    total = np.cumsum(y, axis, dtype=y.dtype)
    if call["exclusive"]:  # shifted, not subtracted: infinities and rounding stay out
        shifted = np.zeros_like(total)
        before, after = (slice(None),) * axis + (slice(None, -1),), (slice(None),) * axis + (slice(1, None),)
        shifted[after] = total[before]
        total = shifted
    return total[last_first] if call["reverse"] else total


define(
    "CumulativeSum",
    "in",
    params=(
        Param("axis", "uint32"),
        Param("exclusive", "bool", default=False),
        Param("reverse", "bool", default=False),
    ),
    infer=_infer_cumulative_sum,
    reference=_cumulative_sum,
    kind=Work.OTHER,
    work=_ONE_PASS,
    quant=rules.OWN,
    layout=ALONG_AXIS,
    doc="Sum of the elements up to (exclusive: before) each one along `axis`, from the end where `reverse`.",
)
