# SPDX-License-Identifier: Apache-2.0
"""Graph facts: what the last nodes of a model tell of an output: the op that makes it, its channels, their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hexforge.patterns.nodes import dims as shape_of

PASSED = {
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Cast", "QuantizeLinear", "DequantizeLinear",
}  # fmt: skip
"""Ops that change no number."""
KEEP_SHAPE = {"Identity", "Cast", "QuantizeLinear", "DequantizeLinear"}
CHANNELS_FIRST = {
    "Conv", "ConvTranspose", "BatchNormalization", "MaxPool", "AveragePool", "Resize", "Upsample", "DepthToSpace",
    "InstanceNormalization", "GlobalAveragePool",
}  # fmt: skip
CHANNELS_LAST = {"MatMul", "Gemm", "LayerNormalization", "SkipLayerNormalization", "Gather"}
POINTWISE = {
    "Add", "Sub", "Mul", "Div", "Relu", "Sigmoid", "HardSigmoid", "Tanh", "Clip", "Exp", "LeakyRelu", "PRelu", "Sqrt",
    "Pow", "Neg",
}  # fmt: skip
MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """What the graph tells of an output."""

    last_op: str = ""
    """The op that makes the numbers; empty where it is not known."""
    axis: int | None = None
    """Where its channels lie, as far as its ops tell."""
    parts: tuple[int, ...] = ()
    """Channels of the tensors that are concatenated into it, in their order; empty where none are."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a graph tells of its outputs, and the size of the picture that goes in."""

    outputs: Mapping[str, OutputFacts]
    picture: tuple[int, int] | None = None
    """Height and width of the input, where it has the shape of a picture."""
    tokens: bool = False
    """True where all inputs are integers: the model reads symbols, as language models do."""
    batch: int = 1
    """Pictures that go in at a time."""

    def of(self, output: str) -> OutputFacts:
        """What is told of an output."""
        return self.outputs.get(output, OutputFacts())


NO_FACTS = ModelFacts({})


def model_facts(model: Any) -> ModelFacts:
    """The facts of a model: as it was read, its `ir`, or None."""
    ir = getattr(model, "ir", model)
    if ir is None:
        return NO_FACTS
    outputs = {str(value.name): _output_facts(value) for value in ir.graph.outputs}
    shapes = [shape for v in ir.graph.inputs if _picture_size(shape := shape_of(v))]
    picture = _picture_size(shapes[0]) if shapes else None
    inputs = [v.dtype for v in ir.graph.inputs]
    tokens = bool(inputs) and all(dtype is not None and dtype.is_integer() for dtype in inputs)
    batch = shapes[0][0] if shapes and shapes[0] is not None else 1
    return ModelFacts(outputs, picture, tokens and picture is None, batch)


def _picture_size(shape: tuple[int, ...] | None) -> tuple[int, int] | None:
    if shape is None or len(shape) != 4:
        return None
    if shape[1] in (1, 3, 4) and min(shape[2:]) >= 16:
        return shape[2], shape[3]
    return (shape[1], shape[2]) if shape[3] in (1, 3, 4) and min(shape[1:3]) >= 16 else None


def _output_facts(value: Any) -> OutputFacts:
    shape = shape_of(value)
    node, op = _maker(value), ""
    if node is not None:
        op = node.op_type
    axis = _channel_axis(value, shape)
    parts: tuple[int, ...] = ()
    if shape is not None:
        axes = range(1, len(shape)) if axis is None else (axis,)
        for candidate in axes:
            sizes = _parts(value, candidate)
            if len(sizes) > 1 and sum(sizes) == shape[candidate]:
                axis, parts = candidate, tuple(sizes)
                break
    return OutputFacts(op, axis, parts)


def _maker(value: Any) -> Any:
    """The node that makes a value's numbers."""
    node = value.producer()
    for _ in range(MOST_STEPS):
        if node is None or node.op_type not in PASSED or not node.inputs or node.inputs[0] is None:
            return node
        node = node.inputs[0].producer()
    return node


def _channel_axis(value: Any, shape: tuple[int, ...] | None) -> int | None:
    """Where channels lie, by the op that makes them; None where reshapes or unknown ops are in between."""
    if shape is None:
        return None
    order = list(range(len(shape)))  # which axis of the value that is looked at each axis of the output is
    node = value.producer()
    for _ in range(MOST_STEPS):
        if node is None:
            return None
        if node.op_type == "Transpose":
            perm = node.attributes.get("perm")
            axes = list(perm.as_ints()) if perm is not None else list(reversed(order))
            if len(axes) != len(order):
                return None
            order = [axes[i] for i in order]
        elif node.op_type in ("Softmax", "LogSoftmax", "Concat"):
            axis = node.attributes.get("axis")
            if node.op_type == "Concat" or axis is None or len(order) < 2:
                return None
            return order.index(axis.as_int() % len(order))
        elif node.op_type in CHANNELS_FIRST and len(order) > 1:
            return order.index(1)
        elif node.op_type in CHANNELS_LAST and order:
            return order.index(len(order) - 1)
        elif node.op_type not in KEEP_SHAPE and node.op_type not in POINTWISE:
            return None
        before = [v for v in node.inputs if v is not None and v.producer() is not None and v.const_value is None]
        known = [v for v in before if (s := shape_of(v)) is not None and len(s) == len(order)]
        if not known:
            return None
        node = known[0].producer()
    return None


def _parts(value: Any, axis: int) -> list[int]:
    """The sizes along an axis of what is concatenated into a value; one size where nothing is."""
    for _ in range(MOST_STEPS):
        shape, node = shape_of(value), value.producer()
        if shape is None:
            return []
        if node is None or not node.inputs or node.inputs[0] is None:
            return [shape[axis]]
        before = shape_of(node.inputs[0])
        if node.op_type == "Transpose":
            perm = node.attributes.get("perm")
            axis = perm.as_ints()[axis] if perm is not None else len(shape) - 1 - axis
        elif node.op_type == "Concat":
            along = node.attributes["axis"].as_int() % len(shape)
            if along == axis:
                parts = [_parts(v, axis) for v in node.inputs if v is not None]
                return [size for sizes in parts for size in sizes] if all(parts) else []
        elif node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            if axis != len(shape) - 1 or not before or before[-1] != shape[-1]:
                return [shape[axis]]
            axis = len(before) - 1
        elif node.op_type not in KEEP_SHAPE:
            return [shape[axis]]
        value = node.inputs[0]
    return []
