# SPDX-License-Identifier: Apache-2.0
"""Ranges: what whole numbers an input can be given, and how finely an output is quantized."""

from __future__ import annotations

from onnx_ir import Value

from hexforge.model.nodes import data, integer, is_op, operand, shape

SAME = ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice")
RECURRENT = ("LSTM", "GRU", "RNN")
SEQUENCE_LENS = 4
"""Which input of those says how long each sequence is."""
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
        if is_op(node, *SAME) and index == 0 and (below := sequence_length(node.outputs[0])) is not None:
            return below
    return None


def output_step(value: Value) -> float:
    """The distance of neighbouring numbers a quantized output can take; 0 for one that is not quantized."""
    node = value.producer()
    if node is None or not is_op(node, "DequantizeLinear"):
        return 0.0
    scale = data(operand(node, 1))
    return 0.0 if scale is None else float(scale.max())
