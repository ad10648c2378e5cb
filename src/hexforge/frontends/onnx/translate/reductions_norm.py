# SPDX-License-Identifier: Apache-2.0
"""Normalizations: batch, layer, RMS, instance, group, Lp, local response; reductions, arg-reductions, running sums."""

from __future__ import annotations

import math

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, binary, carried, cast, reduce, scalar, translates, unary
from hexforge.frontends.onnx.translate.moves_layout import axes_of, normal_axis
from hexforge.frontends.onnx.translate.pointwise_elementwise import number
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, DType, TensorType, Value


def _vector(b: Builder, array: Array, x: Value) -> Value:
    """Constants of a normalization in its input's float type; float32 beside fixed point."""
    return b.static(array.astype(x.dtype.numpy if x.dtype.is_float else np.float32))


@translates(
    "BatchNormalization",
    writes=(
        "Batchnorm", "ElementWiseAdd", "ElementWiseMultiply", "ElementWiseRsqrt", "ElementWiseSquaredDifference",
        "ElementWiseSubtract", "ReduceMean",
    ),
)  # fmt: skip
def batch_normalization(b: Builder, u: Unit) -> None:
    """Inference is Batchnorm with folded constants; run-time statistics and training mode are composed."""
    if not int(b.attr(u, "spatial", 1)):
        raise Refusal("spatial=0 has a mean per element; use spatial=1")
    training = bool(b.attr(u, "training_mode", 0))
    if not training and any(b.wants(u, i) for i in range(1, len(u.outputs))):
        raise Refusal("running mean and variance are asked for without training_mode; drop those outputs")
    epsilon = float(b.attr(u, "epsilon", 1e-5))
    if len(b.type_of(b.operand(u, 0)).shape) < 2:
        raise Refusal("the input has no channel axis; give it at least 2 dimensions")
    if training:
        _train(b, u, epsilon)
        return
    if not all(b.is_constant(u, i) for i in range(1, 5)):
        x = b.real(u, 0)
        scale, bias, mean, variance = (_column(b, b.real(u, i), len(x.shape)) for i in range(1, 5))
        b.finish(u, _normalized(b, x, mean, variance, epsilon, scale, bias))
        return
    gamma, beta, center, spread = (np.asarray(b.constant(u, i)).astype(np.float64) for i in range(1, 5))
    weight = gamma / np.sqrt(spread + epsilon)
    x, out = b.to_channel_last(b.input(u, 0)), b.output(u)
    inputs = [x, _vector(b, weight, x), _vector(b, beta - center * weight, x)]
    b.to_channel_first(b.emit("Batchnorm", inputs, out.type.with_shape(x.shape)), out)


def _column(b: Builder, vector: Value, rank: int) -> Value:
    """One number per channel, to broadcast along axis 1."""
    return b.reshape(vector, (1, vector.type.size, *[1] * (rank - 2)))


def _normalized(b: Builder, x: Value, mean: Value, variance: Value, epsilon: float, scale: Value, bias: Value) -> Value:
    centered = binary(b, "Subtract", x, cast(b, mean, x.dtype))
    factor = unary(b, "Rsqrt", binary(b, "Add", cast(b, variance, x.dtype), epsilon))
    factor = binary(b, "Multiply", factor, cast(b, scale, x.dtype))
    return binary(b, "Add", binary(b, "Multiply", centered, factor), cast(b, bias, x.dtype))


def _train(b: Builder, u: Unit, epsilon: float) -> None:
    """Normalize by the batch's own statistics, and move the running ones towards them."""
    x, momentum = b.real(u, 0), float(b.attr(u, "momentum", 0.9))
    rank = len(x.shape)
    axes = (0, *range(2, rank))
    mean = reduce(b, "Mean", x, axes)
    variance = reduce(b, "Mean", binary(b, "SquaredDifference", x, mean), axes)
    scale, bias = (_column(b, b.real(u, i), rank) for i in (1, 2))
    b.finish(u, _normalized(b, x, mean, variance, epsilon, scale, bias))
    for index, current in ((1, mean), (2, variance)):
        if b.wants(u, index):
            running = b.real(u, index + 2)
            current = cast(b, b.reshape(current, running.shape), running.dtype)
            moved = binary(b, "Multiply", running, momentum)
            b.finish(u, binary(b, "Add", moved, binary(b, "Multiply", current, 1 - momentum)), index)


def _spread(b: Builder, u: Unit, index: int, sizes: tuple[int, ...]) -> Value | None:
    """A weight or bias in the normalized axes' shape; None where only broadcasting at run time would do."""
    value = b.input(u, index)
    if value.shape == sizes:
        return value
    if value.type.size == int(np.prod(sizes)) and not hasattr(value.encoding, "axis"):
        return b.reshape(value, sizes)
    if value.data is not None and not hasattr(value.encoding, "axis") and len(value.shape) <= len(sizes):
        return b.static(np.broadcast_to(value.data, sizes), value.encoding, f"{value.name}_spread")
    return None


@translates(
    "LayerNormalization",
    writes=(
        "ElementWiseAdd", "ElementWiseMultiply", "ElementWiseRsqrt", "ElementWiseSquaredDifference", "LayerNorm",
        "ReduceMean",
    ),
)  # fmt: skip
def layer_normalization(b: Builder, u: Unit) -> None:
    """LayerNorm over the axes from `axis` on; mean and inverse deviation where they are asked for."""
    axes = _normalize(b, u, "LayerNorm")
    if b.wants(u, 1) or b.wants(u, 2):
        x = cast(b, b.real(u, 0), DType.FLOAT32)
        mean = reduce(b, "Mean", x, axes)
        if b.wants(u, 2):
            variance = reduce(b, "Mean", binary(b, "SquaredDifference", x, mean), axes)
            b.finish(u, _inverse_deviation(b, u, variance), 2)
        if b.wants(u, 1):
            b.finish(u, mean, 1)


def _inverse_deviation(b: Builder, u: Unit, variance: Value) -> Value:
    return unary(b, "Rsqrt", binary(b, "Add", variance, float(b.attr(u, "epsilon", 1e-5))))


@translates("RMSNormalization", writes=("ElementWiseMultiply", "RmsNorm"))
@translates(
    "SimplifiedLayerNormalization",
    "com.microsoft:SimplifiedLayerNormalization",
    writes=("ElementWiseAdd", "ElementWiseMultiply", "ElementWiseRsqrt", "ReduceMean", "RmsNorm"),
)
def rms_normalization(b: Builder, u: Unit) -> None:
    """RmsNorm over the axes from `axis` on."""
    axes = _normalize(b, u, "RmsNorm")
    if b.wants(u, 1):
        x = cast(b, b.real(u, 0), DType.FLOAT32)
        b.finish(u, _inverse_deviation(b, u, reduce(b, "Mean", binary(b, "Multiply", x, x), axes)), 1)


def _normalize(b: Builder, u: Unit, op: str) -> tuple[int, ...]:
    """Write the op and return its axes. A weight that broadcasts at run time is multiplied in afterwards."""
    x, out = b.input(u, 0), b.output(u)
    rank, axis = len(x.shape), int(b.attr(u, "axis", -1))
    if not -rank <= axis < rank:
        raise Refusal(f"axis {axis} is outside a tensor of {rank} dimensions")
    axes = tuple(range(axis % rank, rank))
    epsilon, sizes = float(b.attr(u, "epsilon", 1e-5)), x.shape[axes[0] :]
    given = [i for i in (1, 2) if b.has(u, i)]
    spread = {i: _spread(b, u, i, sizes) for i in given}
    if all(spread[i] is not None for i in given):
        b.emit(op, [x, spread.get(1), spread.get(2)], out, axes=axes, epsilon=epsilon)
        return axes
    value = b.emit(op, [b.real(u, 0)], axes=axes, epsilon=epsilon)
    for i, step in ((1, "Multiply"), (2, "Add")):
        if b.has(u, i):
            value = binary(b, step, value, cast(b, b.real(u, i), value.dtype))
    b.finish(u, value)
    return axes


@translates("InstanceNormalization", writes=("InstanceNorm",))
def instance_normalization(b: Builder, u: Unit) -> None:
    """InstanceNorm over the spatial axes."""
    x, out = b.to_channel_last(b.input(u, 0)), b.output(u)
    if len(x.shape) < 3:
        raise Refusal("the input has no spatial axes; give it at least 3 dimensions")
    inputs = [x, b.input(u, 1), b.input(u, 2)]
    y = b.emit("InstanceNorm", inputs, out.type.with_shape(x.shape), epsilon=float(b.attr(u, "epsilon", 1e-5)))
    b.to_channel_first(y, out)


@translates("GroupNormalization", writes=("GroupNorm", "Tile"))
def group_normalization(b: Builder, u: Unit) -> None:
    """GroupNorm; before opset 21 weight and bias are per group and are repeated per channel."""
    x, out, group = b.to_channel_last(b.input(u, 0)), b.output(u), int(b.attr(u, "num_groups", 1))
    channels = x.shape[-1]
    if group < 1 or channels % group:
        raise Refusal(f"{channels} channels do not divide into {group} groups")
    inputs = [x]
    for i in (1, 2):
        value = b.input(u, i)
        if value.shape != (channels,):
            if value.shape != (group,):
                raise Refusal(f"input {i} has shape {list(value.shape)}, not [{channels}] or [{group}]")
            value = _repeated(b, b.real(u, i), channels // group)
        inputs.append(value)
    epsilon = float(b.attr(u, "epsilon", 1e-5))
    y = b.emit("GroupNorm", inputs, out.type.with_shape(x.shape), group=group, epsilon=epsilon)
    b.to_channel_first(y, out)


def _repeated(b: Builder, vector: Value, times: int) -> Value:
    """Each element `times` times in a row."""
    if vector.data is not None:
        return b.static(np.repeat(vector.data, times))
    tiled = b.emit("Tile", [b.reshape(vector, (vector.type.size, 1))], multiples=(1, times))
    return b.reshape(tiled, (tiled.type.size,))


@translates(
    "LpNormalization",
    writes=(
        "ElementWiseAbs", "ElementWiseDivide", "ElementWiseEqual", "ElementWiseSelect", "L2Norm", "ReduceSum",
    ),
)  # fmt: skip
def lp_normalization(b: Builder, u: Unit) -> None:
    """L2Norm for p = 2; division by the sum of magnitudes for p = 1. A zero norm gives zeros."""
    rank, axis, p = len(b.type_of(b.operand(u, 0)).shape), int(b.attr(u, "axis", -1)), int(b.attr(u, "p", 2))
    if not -rank <= axis < rank:
        raise Refusal(f"axis {axis} is outside a tensor of {rank} dimensions")
    axes = (axis % rank,)
    if p == 2:
        b.emit("L2Norm", [b.input(u, 0)], b.output(u), axes=axes, epsilon=1e-20)
        return
    if p != 1:
        raise Refusal(f"p = {p}; 1 and 2 are defined")
    x = b.real(u, 0)
    norm = reduce(b, "Sum", unary(b, "Abs", x), axes)
    empty = binary(b, "Equal", norm, 0.0)
    b.finish(u, binary(b, "Divide", x, b.emit("ElementWiseSelect", [empty, scalar(b, 1.0, x), norm])))


@translates(
    "LRN",
    writes=(
        "ElementWiseAdd", "ElementWiseDivide", "ElementWiseMultiply", "ElementWisePower", "FullyConnected", "Lrn",
    ),
)  # fmt: skip
def lrn(b: Builder, u: Unit) -> None:
    """Lrn across channels; an even window is not centred and becomes a product with a band matrix."""
    size, alpha = int(b.attr(u, "size", 1)), float(b.attr(u, "alpha", 1e-4))
    beta, bias = float(b.attr(u, "beta", 0.75)), float(b.attr(u, "bias", 1.0))
    if size < 1 or len(b.type_of(b.operand(u, 0)).shape) < 2:
        raise Refusal(f"size {size} of a window along the channels; it must be positive")
    if size % 2:
        x, out = b.to_channel_last(b.input(u, 0)), b.output(u)
        params = {"alpha": alpha / size, "beta": beta, "bias": bias, "radius": size // 2}
        b.to_channel_first(b.emit("Lrn", [x], out.type.with_shape(x.shape), **params), out)
        return
    x = b.to_channel_last(b.real(u, 0))
    channel = np.arange(x.shape[-1])
    distance = channel[None, :] - channel[:, None]  # [weight row: output channel, column: input channel]
    band = (distance >= -((size - 1) // 2)) & (distance <= size // 2)
    window = b.static((band * (alpha / size)).astype(x.dtype.numpy))
    total = b.emit("FullyConnected", [binary(b, "Multiply", x, x), window], keep_dims=True)
    y = binary(b, "Divide", x, binary(b, "Power", binary(b, "Add", total, bias), beta))
    b.finish(u, b.to_channel_first(y))


def _axes(b: Builder, u: Unit) -> tuple[int, ...]:
    """The axes to reduce: all where none are named, unless noop_with_empty_axes says none."""
    rank = len(b.input(u, 0).shape)
    axes = axes_of(b, u, rank)
    if axes:
        return tuple(sorted(set(axes)))
    return () if b.attr(u, "noop_with_empty_axes", 0) else tuple(range(rank))


_REDUCTIONS = {name: name for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")}


@translates(*_REDUCTIONS, writes=_REDUCTIONS)
def translate_reduction(b: Builder, u: Unit) -> None:
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
