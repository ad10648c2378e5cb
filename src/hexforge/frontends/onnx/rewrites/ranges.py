"""Ranges: what whole numbers an input can be given."""

from __future__ import annotations

from onnx_ir import Value

from hexforge.frontends.onnx.rewrites.edit import integer, is_op, shape

SAME = ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice")
FLAGS = 2
"""Inputs that look nothing up are taken for masks and flags."""


def index_range(value: Value) -> int:
    """The smallest size that an input looks something up in: numbers below it are valid everywhere."""
    found = [
        shape(node.inputs[0])[integer(node, "axis", 0)] if index == 1 else FLAGS
        for node, index in value.uses()
        if is_op(node, "Gather", "GatherElements")
    ]
    for node, index in value.uses():
        if is_op(node, *SAME) and index == 0:
            below = index_range(node.outputs[0])
            found += [below] if below > FLAGS else []
    return max(1, min(found, default=FLAGS))
