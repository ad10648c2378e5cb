"""Gather and scatter ops. Indices may be any integer type; a negative one counts from the end of its axis."""

from __future__ import annotations

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array, Call, Param, QuantRule, TensorType, define, moves
from hexforge.ops import rules
from hexforge.ops.layout import moved

_SCATTER = QuantRule(data=(0, 2))


def check_indices(call: Call, input: int = 1) -> TensorType:
    """The type of an index input, which must be an integer type without encoding."""
    type = call.input(input)
    if not type.dtype.is_integer or type.encoding is not None:
        raise call.fail(f"indices must be integers, not {type.qnn_dtype}")
    return type


def _bounded(call: Call, indices: Array, size: int) -> Array:
    """Indices as intp, checked against an axis; they come with the run's data, so CallError if one is outside."""
    if indices.size and (indices.max() >= size or indices.min() < -size):
        bad = int(indices.max()) if indices.max() >= size else int(indices.min())
        raise CallError(f"{call.op.name}: index {bad} is outside an axis of {size} elements")
    return indices.astype(np.intp, copy=False)


def _infer_gather(call: Call) -> tuple[TensorType, ...]:
    shape, indices = call.input(0).shape, check_indices(call)
    axis = call.axis(call["axis"])
    return (moved(call, shape[:axis] + indices.shape + shape[axis + 1 :]),)


define(
    "Gather",
    "in indices",
    params=(Param("axis", "int32", default=0),),
    infer=_infer_gather,
    reference=lambda call, x, indices: np.take(x, _bounded(call, indices, x.shape[call["axis"]]), axis=call["axis"]),
    work=moves,
    quant=rules.SAME_FIRST,
    doc="Slices of the input along `axis`, those that `indices` name; the axis becomes the axes of `indices`.",
)
