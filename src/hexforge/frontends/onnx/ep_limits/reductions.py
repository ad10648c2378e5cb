# SPDX-License-Identifier: Apache-2.0
"""Limits of reductions, normalizations and pools."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits.subject import EpRule, Evidence, Subject, builder, validation

_REDUCE = "ReduceMax ReduceMin ReduceMean ReduceSum ReduceProd ReduceL2 ReduceLogSumExp"
_POOLS = "AveragePool MaxPool LpPool"


def _axes(subject: Subject) -> tuple[int, ...]:
    """The axes of a reduction, all where none are given."""
    constant = subject.numbers(1)
    axes = subject.attr("axes") if constant is None else constant.ravel().tolist()
    rank = subject.rank()
    return tuple(sorted(int(a) % rank for a in axes)) if axes and rank else tuple(range(rank))


def _no_op(subject: Subject) -> bool:
    axes = subject.numbers(1)
    if subject.attr("noop_with_empty_axes", 0) != 1:
        return False
    return subject.op != "ReduceLogSumExp" if not subject.given(1) else axes is not None and not axes.size


def _several_of_five(subject: Subject) -> bool:
    """Rank 5 over several axes: never in float; in fixed point the chip's Max can, with conditions."""
    axes = _axes(subject)
    if subject.rank() < 5 or len(axes) < 2:
        return False
    if not subject.bits() or subject.op == "ReduceMin":
        return True
    return subject.bits() == 8 and len(axes) < subject.rank()


def _not_last_axis(subject: Subject) -> bool:
    return bool(subject.attr("axis", -1) % max(subject.rank(), 1) != subject.rank() - 1)


def _flattened(subject: Subject) -> bool:
    """Before opset 13 softmax flattens to a matrix, unless it is over the last axis anyway."""
    if subject.rank() < 5:
        return False
    return subject.opset >= 13 or subject.attr("axis", 1) % subject.rank() == subject.rank() - 1


def _partial_scale(subject: Subject) -> bool:
    return subject.shape(1) != subject.shape(0)[-1:]


def _shortened(subject: Subject) -> bool:
    """ceil_mode where ONNX drops a last window that starts in the padding, and QNN counts it."""
    shape, out = subject.shape()[2:], subject.out_shape()[2:]
    if subject.attr("ceil_mode", 0) != 1 or subject.attr("auto_pad", "NOTSET") != "NOTSET":
        return False
    spatial = len(shape)
    kernel = subject.attr("kernel_shape")
    strides = subject.attr("strides", [1] * spatial)
    pads = subject.attr("pads", [0] * 2 * spatial)
    counted = [-(-(n + pads[i] + pads[i + spatial] - kernel[i]) // strides[i]) + 1 for i, n in enumerate(shape)]
    return any(there < size for there, size in zip(out, counted, strict=False))


LIMITS: tuple[EpRule, ...] = (
    builder(
        "ArgMax ArgMin",
        lambda s: s.attr("select_last_index", 0) == 1,
        "select_last_index=1; use 0, or flip the axis first",
    ),
    builder(_REDUCE, _no_op, "noop_with_empty_axes without axes; leave the node out"),
    builder(
        "ReduceLogSumExp",
        lambda s: s.bits() > 0 or s.dequantized_bits(0) > 0,
        "a quantized input; leave this node in float",
        Evidence.OBSERVED,
    ),
    validation(
        "ReduceMax ReduceMin",
        _several_of_five,
        "several axes of a tensor of 5 dimensions; reduce one axis at a time, or reshape to 4",
    ),
    validation(
        "ReduceL2",
        lambda s: s.rank() > 4 and s.attr("keepdims", 1) == 1,
        "more than 4 dimensions with keepdims=1; reshape to 4",
    ),
    validation("LogSoftmax", _flattened, "more than 4 dimensions; reshape to 4"),
    builder("LayerNormalization", lambda s: len(s.outputs) > 1, "the outputs Mean and InvStdDev; declare Y alone"),
    builder(
        "LayerNormalization RMSNormalization",
        _not_last_axis,
        "an axis before the last; reshape so that only the last one is normalized",
    ),
    validation("LayerNormalization", _partial_scale, "a scale that is not of the last dimension's length; expand it"),
    validation(
        "LayerNormalization",
        lambda s: s.bits(0) == 16 and s.bits(1) == 16 and s.computed(1) and not s.given(2),
        "16-bit data with a 16-bit scale computed at run time and no bias; make the scale a constant, or 8-bit",
    ),
    builder(
        "BatchNormalization",
        lambda s: len(s.outputs) > 1 or s.attr("training_mode", 0) == 1,
        "training mode; export the model for inference",
    ),
    builder("BatchNormalization", lambda s: s.rank() > 4, "more than 4 dimensions; reshape to 4"),
    builder(
        "BatchNormalization",
        lambda s: any(s.computed(i) for i in range(1, 5)),
        "scale, bias, mean or variance computed at run time; make them constants",
    ),
    builder("InstanceNormalization", lambda s: s.attr("epsilon", 1e-5) <= 0, "an epsilon of 0; give one above 0"),
    builder("LpNormalization", lambda s: s.attr("p", 2) != 2, "p other than 2; divide by ReduceSum of Abs for p=1"),
    builder("LRN", lambda s: s.rank() not in (3, 4), "a rank other than 3 or 4; reshape to 4"),
    builder("LRN", lambda s: s.attr("size", 1) % 2 == 0, "an even size; use an odd one"),
    builder(
        "LRN",
        lambda s: s.attr("alpha", 1e-4) <= 0 or s.attr("beta", 0.75) <= 0,
        "an alpha or beta of 0; give numbers above 0",
    ),
    validation("LRN", lambda s: s.bits() == 16, "16-bit data; quantize it to 8 bits, or leave it in float"),
    builder(_POOLS, lambda s: s.dilated, "dilations; use dilations of 1"),
    builder("MaxPool", lambda s: len(s.outputs) > 1, "the output Indices; declare Y alone"),
    validation(
        "AveragePool MaxPool",
        _shortened,
        "ceil_mode with a last window that starts in the padding; use ceil_mode=0 with pads that fit",
    ),
    builder(
        "LpPool",
        lambda s: s.attr("p", 2) not in (1, 2),
        "p other than 1 or 2; use AveragePool of powers",
        Evidence.DOCUMENTED,
    ),
    builder(
        "LpPool",
        lambda s: s.attr("ceil_mode", 0) == 1,
        "ceil_mode=1; use ceil_mode=0 with pads that fit",
        Evidence.OBSERVED,
    ),
    builder("LpPool", lambda s: s.rank() > 4, "three spatial dimensions; reshape to two", Evidence.DOCUMENTED),
)
