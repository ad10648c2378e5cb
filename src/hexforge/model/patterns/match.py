# SPDX-License-Identifier: Apache-2.0
"""Match: nodes that together compute one function, and the steps that every matcher takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnx_ir import Node, Value

from hexforge.patterns.nodes import data, dims, integer, ints, is_op, number, operand, reader, real

TOLERANCE = 1e-5
"""How far a constant may be from the number it stands for, relatively: models write sixths and roots in few digits."""


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Nodes that compute one function. Only the output of the last one is read from outside."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value | None, ...]

    @property
    def last(self) -> Node:
        """The node that writes the result."""
        return self.nodes[-1]


def near(value: float | None, target: float, tolerance: float = TOLERANCE) -> bool:
    """True where a constant is `target` up to a relative error of `tolerance`."""
    return value is not None and abs(value - target) <= tolerance * abs(target)


def is_closed(nodes: Sequence[Node]) -> bool:
    """True where only the last of some nodes of one graph is read by others."""
    inside = set(nodes)
    inner = [value for node in nodes[:-1] for value in node.outputs]
    if any(value.is_graph_output() or not inside.issuperset(value.consumers()) for value in inner):
        return False
    return len({node.graph for node in nodes}) == 1


def keeps_shape(x: Value | None, nodes: Sequence[Node]) -> bool:
    """True where the last node writes the shape of `x`: a constant of more dimensions would add some."""
    return dims(x) == dims(nodes[-1].outputs[0])


def reader_of(node: Node, *ops: str) -> Node | None:
    """The only node that reads a node's only output, if it is one of these ops."""
    following = reader(node.outputs[0]) if len(node.outputs) == 1 else None
    return following if is_op(following, *ops) else None


def factor_of(node: Node | None, value: Value) -> float | None:
    """The number that a Mul or Div by a constant multiplies `value` by."""
    if node is None or not is_op(node, "Mul", "Div") or len(node.inputs) != 2:
        return None
    index = 1 if node.inputs[0] is value else 0
    constant = number(node.inputs[index]) if node.inputs[1 - index] is value else None
    if constant is None or node.op_type == "Mul":
        return constant
    return 1 / constant if index == 1 and constant else None


def clamp_bounds(node: Node | None) -> tuple[float, float] | None:
    """The bounds of a Relu, or of a Clip with constant bounds."""
    if is_op(node, "Relu"):
        return 0.0, math.inf
    if node is None or not is_op(node, "Clip"):
        return None
    if "min" in node.attributes or "max" in node.attributes:
        return real(node, "min", -math.inf), real(node, "max", math.inf)
    low, high = number(operand(node, 1)), number(operand(node, 2))
    if (low is None and operand(node, 1) is not None) or (high is None and operand(node, 2) is not None):
        return None
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def kept_axes(node: Node) -> tuple[int, ...] | None:
    """Axes of a reduction with keepdims=1, counted from the front; None where they are not known."""
    size = dims(operand(node, 0))
    if size is None or integer(node, "keepdims", 1) != 1:
        return None
    second_input = data(operand(node, 1))
    axes = ints(node, "axes", () if second_input is None else second_input.ravel().tolist())
    return tuple(sorted(int(axis) % len(size) for axis in axes)) or None
