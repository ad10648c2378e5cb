# SPDX-License-Identifier: Apache-2.0
"""Limits of reductions and normalizations."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits.limit import EpLimit, Evidence, Refuser, limit
from hexforge.frontends.onnx.ep_limits.subject import Subject

_REDUCE = "ReduceMax ReduceMin ReduceMean ReduceSum ReduceProd ReduceL2 ReduceLogSumExp"


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


LIMITS: tuple[EpLimit, ...] = (
    limit(
        "ArgMax ArgMin",
        lambda s: s.attr("select_last_index", 0) == 1,
        "select_last_index=1; use 0, or flip the axis first",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        _REDUCE,
        _no_op,
        "noop_with_empty_axes without axes; leave the node out",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "ReduceLogSumExp",
        lambda s: s.bits() > 0 or s.dequantized_bits(0) > 0,
        "a quantized input; leave this node in float",
        Refuser.BUILDER, Evidence.OBSERVED,
    ),
    limit(
        "ReduceMax ReduceMin",
        _several_of_five,
        "several axes of a tensor of 5 dimensions; reduce one axis at a time, or reshape to 4",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "ReduceL2",
        lambda s: s.rank() > 4 and s.attr("keepdims", 1) == 1,
        "more than 4 dimensions with keepdims=1; reshape to 4",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "LogSoftmax",
        _flattened,
        "more than 4 dimensions; reshape to 4",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "LayerNormalization",
        lambda s: len(s.outputs) > 1,
        "the outputs Mean and InvStdDev; declare Y alone",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LayerNormalization RMSNormalization",
        _not_last_axis,
        "an axis before the last; reshape so that only the last one is normalized",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LayerNormalization",
        _partial_scale,
        "a scale that is not of the last dimension's length; expand it",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "LayerNormalization",
        lambda s: s.bits(0) == 16 and s.bits(1) == 16 and s.computed(1) and not s.given(2),
        "16-bit data with a 16-bit scale computed at run time and no bias; make the scale a constant, or 8-bit",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "BatchNormalization",
        lambda s: len(s.outputs) > 1 or s.attr("training_mode", 0) == 1,
        "training mode; export the model for inference",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "BatchNormalization",
        lambda s: s.rank() > 4,
        "more than 4 dimensions; reshape to 4",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "BatchNormalization",
        lambda s: any(s.computed(i) for i in range(1, 5)),
        "scale, bias, mean or variance computed at run time; make them constants",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "InstanceNormalization",
        lambda s: s.attr("epsilon", 1e-5) <= 0,
        "an epsilon of 0; give one above 0",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LpNormalization",
        lambda s: s.attr("p", 2) != 2,
        "p other than 2; divide by ReduceSum of Abs for p=1",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LRN",
        lambda s: s.rank() not in (3, 4),
        "a rank other than 3 or 4; reshape to 4",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LRN",
        lambda s: s.attr("size", 1) % 2 == 0,
        "an even size; use an odd one",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LRN",
        lambda s: s.attr("alpha", 1e-4) <= 0 or s.attr("beta", 0.75) <= 0,
        "an alpha or beta of 0; give numbers above 0",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LRN",
        lambda s: s.bits() == 16,
        "16-bit data; quantize it to 8 bits, or leave it in float",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
)  # fmt: skip
