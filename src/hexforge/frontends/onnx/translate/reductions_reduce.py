# SPDX-License-Identifier: Apache-2.0
"""Reductions, arg-reductions, running sums."""

from __future__ import annotations

import math

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, carried, translates
from hexforge.frontends.onnx.translate.moves_layout import axes_of, normal_axis
from hexforge.frontends.onnx.translate.pointwise_elementwise import number
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, TensorType, Value


def _axes(b: Builder, u: Unit) -> tuple[int, ...]:
    """The axes to reduce: all where none are named, unless noop_with_empty_axes says none."""
    rank = len(b.input(u, 0).shape)
    axes = axes_of(b, u, rank)
    if axes:
        return tuple(sorted(set(axes)))
    return () if b.attr(u, "noop_with_empty_axes", 0) else tuple(range(rank))


_REDUCTIONS = {name: name for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")}


@translates(*_REDUCTIONS, writes=_REDUCTIONS)
def reduce(b: Builder, u: Unit) -> None:
    """Reductions that are one QNN op."""
    keep = bool(b.attr(u, "keepdims", 1))
    b.emit(_REDUCTIONS[u.target.op_type], [carried(b, u)], b.output(u), axes=_axes(b, u), keep_dims=keep)


def _float(b: Builder, u: Unit) -> Value:
    """Input 0 as floats: of an integer tensor too."""
    x = b.real(u, 0)
    return x if x.dtype.is_float else b.emit("Cast", [x], TensorType(DType.FLOAT32, x.shape))


def _as_pool(b: Builder, u: Unit) -> bool:
    """ReduceL2 of fixed point as one pool over the axes, rounded once; False where they are not side by side."""
    x, axes = b.input(u, 0), _axes(b, u)
    if x.encoding is None or not axes or not x.type.size or axes != tuple(range(axes[0], axes[-1] + 1)):
        return False
    outer, n, inner = (
        math.prod(part) for part in (x.shape[: axes[0]], x.shape[axes[0] : axes[-1] + 1], x.shape[axes[-1] + 1 :])
    )
    pads = ((0, 0), (0, 0))
    rows = b.reshape(x, (outer, 1, n, inner))
    type = b.output(u).type.with_shape((outer, 1, 1, inner))
    b.finish(u, b.emit("L2Pool2d", [rows], type, filter_size=(1, n), stride=(1, n), pad_amount=pads, p=2))
    return True


@translates("ReduceL2", writes=("ElementWiseSquareRoot", "L2Pool2d", "ReduceSumSquare"))
def reduce_l2(b: Builder, u: Unit) -> None:
    """ReduceL2 as the square root of the sum of squares."""
    if b.output(u).encoding is not None and _as_pool(b, u):
        return
    keep = bool(b.attr(u, "keepdims", 1))
    squares = b.emit("ReduceSumSquare", [_float(b, u)], axes=_axes(b, u), keep_dims=keep)
    b.finish(u, b.emit("ElementWiseSquareRoot", [squares]))


@translates(
    "ReduceLogSumExp",
    writes=(
        "ElementWiseAdd", "ElementWiseExp", "ElementWiseLog", "ElementWiseMaximum", "ElementWiseMinimum",
        "ElementWiseSubtract", "ReduceMax", "ReduceSum",
    ),
)  # fmt: skip
def reduce_log_sum_exp(b: Builder, u: Unit) -> None:
    """ReduceLogSumExp, with the largest element taken out so that nothing overflows."""
    x, axes = _float(b, u), _axes(b, u)
    largest = b.emit("ReduceMax", [x], axes=axes, keep_dims=True)
    limit = float(np.finfo(np.float16 if x.dtype is DType.FLOAT16 else np.float32).max)
    limit = limit if x.dtype is not DType.BFLOAT16 else 3.38e38
    # finite, as infinity minus infinity is no number
    largest = b.emit("ElementWiseMaximum", [largest, number(b, -limit, x)])
    largest = b.emit("ElementWiseMinimum", [largest, number(b, limit, x)])
    powers = b.emit("ElementWiseExp", [b.emit("ElementWiseSubtract", [x, largest])])
    logs = b.emit("ElementWiseLog", [b.emit("ReduceSum", [powers], axes=axes, keep_dims=True)])
    b.finish(u, b.emit("ElementWiseAdd", [logs, largest]))


@translates("ArgMax", writes=("Argmax", "ElementWiseSubtract", "StridedSlice"))
@translates("ArgMin", writes=("Argmin", "ElementWiseSubtract", "StridedSlice"))
def arg(b: Builder, u: Unit) -> None:
    """ArgMax and ArgMin; the last of equals is the first of the axis reversed."""
    x = b.input(u, 0)
    op, keep = u.target.op_type.replace("M", "m"), bool(b.attr(u, "keepdims", 1))
    axis = normal_axis(b.attr(u, "axis", 0), len(x.shape))
    if not b.attr(u, "select_last_index", 0):
        b.emit(op, [x], b.output(u), axis=axis, keep_dims=keep)
        return
    size = x.shape[axis]
    ranges = [(size - 1, -1, -1) if i == axis else (0, n, 1) for i, n in enumerate(x.shape)]
    backwards = b.emit("StridedSlice", [x], ranges=ranges)
    out = b.output(u)
    position = b.emit(op, [backwards], TensorType(out.dtype, out.shape), axis=axis, keep_dims=keep)
    b.emit("ElementWiseSubtract", [number(b, size - 1, position), position], out)


@translates("CumSum", writes=("CumulativeSum",))
def cumulative_sum(b: Builder, u: Unit) -> None:
    """CumSum along a constant axis."""
    x, axis = carried(b, u), b.constant(u, 1, "axis")
    if axis is None:
        raise Refusal("the axis is missing")
    flags = {name: bool(b.attr(u, name, 0)) for name in ("exclusive", "reverse")}
    b.emit("CumulativeSum", [x], b.output(u), axis=normal_axis(np.ravel(axis)[0], len(x.shape)), **flags)
