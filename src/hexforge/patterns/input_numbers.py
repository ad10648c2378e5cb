# SPDX-License-Identifier: Apache-2.0
"""Input numbers: which an input can be given, which inputs may be settings, and how finely an output is quantized."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import onnx_ir
from onnx_ir import Node, Value

from hexforge.patterns.nodes import data, integer, is_op, operand, reads, shape

SAME = ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice")
REORDERED = ("TopK", "Gather", "GatherElements")
"""Ops through which lengths of sequences go in another order: packed sequences are sorted by them."""
RECURRENT = ("LSTM", "GRU", "RNN")
SEQUENCE_LENS = 4
"""Which input of those says how long each sequence is."""
FEW_ELEMENTS = 16
"""Inputs of floats with at most so many elements may be settings that never change."""
FLAGS = 2
"""Inputs that look nothing up are taken for masks and flags."""


def index_range(value: Value) -> int:
    """The smallest size that an input looks something up in: numbers below it are valid everywhere."""
    ranges = [
        shape(node.inputs[0])[integer(node, "axis", 0)] if index == 1 else FLAGS
        for node, index in value.uses()
        if is_op(node, "Gather", "GatherElements")
    ]
    for node, index in value.uses():
        if is_op(node, *SAME) and index == 0:
            below = index_range(node.outputs[0])
            ranges += [below] if below > FLAGS else []
    return max(1, min(ranges, default=FLAGS))


def sequence_length(value: Value) -> int | None:
    """The number of time steps of the LSTM, GRU or RNN that a value gives the lengths of; None where it does not."""
    for node, index in value.uses():
        if is_op(node, *RECURRENT) and index == SEQUENCE_LENS:
            return shape(node.inputs[0])[integer(node, "layout", 0)]
        if is_op(node, *SAME, *REORDERED) and index == 0 and (below := sequence_length(node.outputs[0])) is not None:
            return below
    return None


def output_step(value: Value) -> float:
    """The distance of neighbouring numbers a quantized output can take; 0 for one that is not quantized."""
    node = value.producer()
    if node is None or not is_op(node, "DequantizeLinear"):
        return 0.0
    scale = data(operand(node, 1))
    return 0.0 if scale is None else float(scale.max())


def setting_values(model: onnx_ir.Model, dependents: Collection[str]) -> dict[str, int | float | bool]:
    """Inputs that may have one value for good and that some nodes depend on, each with a value to try."""
    reached = _ancestors([node for node in model.graph if (node.name or "") in dependents])
    trials = {value.name or "": _trial_value(value) for value in model.graph.inputs if value in reached}
    return {name: value for name, value in trials.items() if value is not None}


def _ancestors(nodes: Sequence[Node]) -> set[Value]:
    """Every value that nodes depend on."""
    known: set[Value] = set()
    waiting = [value for node in nodes for value in reads(node)]
    while waiting:
        value = waiting.pop()
        if value in known:
            continue
        known.add(value)
        node = value.producer()
        waiting += reads(node) if node is not None else []
    return known


def _trial_value(value: Value) -> int | float | bool | None:
    """A value that an input may always have: its full length, what it is compared with, or one; None for data."""
    if value.dtype is None or shape(value) == (-1,):
        return None
    if (steps := sequence_length(value)) is not None:
        return steps
    for node, _ in value.uses():
        if is_op(node, "Equal") and (number := _compared_with(node, value)) is not None:
            return number
    kind = value.dtype.numpy().kind
    if kind == "b":
        return True
    if kind in "iu":
        return 1 if index_range(value) <= FLAGS else None
    return 1.0 if kind == "f" and math.prod(shape(value)) <= FEW_ELEMENTS else None


def _compared_with(node: Node, value: Value) -> int | float | None:
    """The constant that a value is compared with."""
    for index in (0, 1):
        array = data(operand(node, index)) if operand(node, index) is not value else None
        if array is not None and array.size == 1 and array.dtype.kind in "iuf":
            number: int | float = array.reshape(()).item()
            return number
    return None
