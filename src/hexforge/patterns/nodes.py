# SPDX-License-Identifier: Apache-2.0
"""Nodes: what is asked of an ONNX model's nodes and values: constants, shapes, attributes, who writes and reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir
from onnx_ir import Node, Value

from hexforge.ir import Array

FLOATS = {onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.DOUBLE}


def dims(value: Value | None) -> tuple[int, ...] | None:
    """The static shape of a value, None where it is not known."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(d for d in value.shape if isinstance(d, int))


def shape(value: Value | None) -> tuple[int, ...]:
    """The static shape of a value; (-1,) where it is not known, which fits nothing."""
    known = dims(value)
    return (-1,) if known is None else known


def is_float(value: Value | None) -> bool:
    """True for a tensor of floating-point numbers."""
    return value is not None and value.dtype in FLOATS


def data(value: Value | None) -> Array | None:
    """A constant's numbers, None where the value is computed."""
    return None if value is None or value.const_value is None else value.const_value.numpy()


def number(value: Value | None) -> float | None:
    """A constant of one element."""
    array = data(value)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def float_constant(value: Value | None) -> Array | None:
    """The numbers of a float32 constant that nobody can feed, None for anything else."""
    array = None if value is None or value.is_graph_input() else data(value)
    return array if array is not None and array.dtype == np.float32 else None


def source(node: Node, index: int = 0) -> Node | None:
    """The node that writes an input."""
    value = operand(node, index)
    return None if value is None else value.producer()


def operand(node: Node, index: int) -> Value | None:
    """An input, None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def is_op(node: Node | None, *ops: str) -> bool:
    """True for a node of ONNX's own domain that is one of these ops."""
    return node is not None and node.domain == "" and node.op_type in ops


def is_clamp(node: Node) -> bool:
    """True for a Relu, or a Clip with constant bounds."""
    clamps = node.op_type in ("Relu", "Clip") and node.domain in ("", "ai.onnx")
    return clamps and all(v is None or v.const_value is not None for v in node.inputs[1:])


def dequantizes(node: Node | None) -> bool:
    """True for a DequantizeLinear; com.microsoft's takes 16-bit codes before opset 21."""
    return node is not None and node.op_type == "DequantizeLinear" and node.domain in ("", "com.microsoft")


def is_quantized(node: Node) -> bool:
    """True for a node between codes: it reads what was dequantized, or what it writes is quantized."""
    if any(v is not None and dequantizes(v.producer()) for v in node.inputs):
        return True
    return any(user.op_type == "QuantizeLinear" for v in node.outputs for user, _ in v.uses())


def reader(value: Value | None) -> Node | None:
    """The only node that reads a value; None where there are more, or where it leaves the graph."""
    if value is None or value.is_graph_output():
        return None
    readers = {node for node, _ in value.uses()}
    return next(iter(readers)) if len(readers) == 1 else None


def only_reader(value: Value) -> Node | None:
    """The node that reads a value once, where nothing else does."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def ints(node: Node, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """An attribute of whole numbers."""
    attribute = node.attributes.get(name)
    return tuple(default) if attribute is None else tuple(attribute.as_ints())


def integer(node: Node, name: str, default: int) -> int:
    """An attribute of one whole number."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def real(node: Node, name: str, default: float) -> float:
    """An attribute of one number."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_float()


def text(node: Node, name: str, default: str) -> str:
    """An attribute of letters."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def attributes(node: Node) -> dict[str, Any]:
    """All attributes of a node as Python values."""
    return {attribute.name: attribute.value for attribute in node.attributes.values()}


def split_constant(node: Node) -> tuple[Value, Value, int] | None:
    """The computed operand of a node of two, the constant one, and which of them comes first (0: the computed)."""
    if len(node.inputs) != 2 or any(v is None for v in node.inputs):
        return None
    for index in (0, 1):
        x, c = node.inputs[index], node.inputs[1 - index]
        assert x is not None
        assert c is not None
        if c.const_value is not None and x.const_value is None:
            return x, c, index
    return None


def other(node: Node, value: Value) -> Value | None:
    """The input of a two-input node beside `value`; None where neither or both inputs are `value`."""
    if len(node.inputs) != 2 or (node.inputs[0] is value) == (node.inputs[1] is value):
        return None
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]


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


def reduced_axes(node: Node) -> tuple[int, ...] | None:
    """The axes that a reduction goes over, in order; None where they are computed, or where none means none."""
    rank = len(shape(node.inputs[0]))
    given = operand(node, 1)
    axes = ints(node, "axes", ()) if given is None else data(given)
    if axes is None or shape(node.inputs[0]) == (-1,):
        return None
    if not len(axes):
        return None if integer(node, "noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({int(axis) % rank for axis in np.ravel(axes)}))


def sliced_ranges(node: Node) -> dict[int, tuple[int, int, int]] | None:
    """Start, end and step of a Slice by axis, within the sizes of what it reads; None where they are computed."""
    sizes = shape(operand(node, 0))
    starts, ends, axes, steps = (data(operand(node, index)) for index in range(1, 5))
    if sizes == (-1,) or starts is None or ends is None:
        return None
    if (operand(node, 3) is not None and axes is None) or (operand(node, 4) is not None and steps is None):
        return None
    axes = np.arange(starts.size) if axes is None else axes.ravel() % len(sizes)
    steps = np.ones(starts.size, np.int64) if steps is None else steps.ravel()
    spans = zip(starts.ravel().tolist(), ends.ravel().tolist(), steps.tolist(), strict=True)
    return {axis: slice(*span).indices(sizes[axis]) for axis, span in zip(axes.tolist(), spans, strict=True)}


def captured(node: Node) -> list[Value]:
    """Values from outside that the graphs inside a node read."""
    outer: dict[Value, None] = {}
    for item in node.attributes.values():
        graphs = [item.value] if item.type is onnx_ir.AttributeType.GRAPH else []
        graphs = list(item.value) if item.type is onnx_ir.AttributeType.GRAPHS else graphs
        for graph in graphs:
            inner = [*graph.all_nodes()]
            inside = {o for n in inner for o in n.outputs} | {v for g in (graph, *graph.subgraphs()) for v in g.inputs}
            inside |= {v for g in (graph, *graph.subgraphs()) for v in g.initializers.values()}
            read = [v for n in inner for v in n.inputs] + list(graph.outputs)
            outer.update(dict.fromkeys(v for v in read if v is not None and v not in inside))
    return list(outer)


def reads(node: Node) -> list[Value]:
    """Everything a node reads, each once."""
    return list(dict.fromkeys(v for v in (*node.inputs, *captured(node)) if v is not None))


class _OnnxNodes:
    """The nodes of an ONNX model as the graph that patterns are found in."""

    def writer(self, value: Value) -> Node | None:
        """The node that writes a value."""
        return value.producer()

    def readers(self, value: Value) -> Sequence[Node]:
        """The nodes that read a value."""
        return value.consumers()

    def op(self, node: Node) -> str:
        """`domain:Type`, the domain left out where it is ai.onnx."""
        return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"

    def inputs(self, node: Node) -> Sequence[Value | None]:
        """What a node reads."""
        return node.inputs

    def outputs(self, node: Node) -> Sequence[Value | None]:
        """What a node writes."""
        return node.outputs

    def is_constant(self, value: Value) -> bool:
        """True where the numbers of a value are known."""
        return value.const_value is not None

    def constant(self, value: Value) -> Array | None:
        """The numbers of a constant."""
        return data(value)

    def closed(self, nodes: Sequence[Node]) -> bool:
        """True where the nodes are in one graph and only the last of them is read by others."""
        inside = set(nodes)
        inner = [value for node in nodes[:-1] for value in node.outputs]
        if any(value.is_graph_output() or not inside.issuperset(value.consumers()) for value in inner):
            return False
        return len({node.graph for node in nodes}) == 1


ONNX = _OnnxNodes()
"""Patterns are found in the nodes of a model by asking this."""
