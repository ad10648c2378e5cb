# SPDX-License-Identifier: Apache-2.0
"""Graph facts: what the last nodes of a model tell of an output: the op that makes it, and where its channels lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hexforge.patterns.nodes import dims as shape_of

PASSED = {
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Cast", "QuantizeLinear", "DequantizeLinear",
}  # fmt: skip
"""Ops that change no number."""
PROBABILITY_OPS = ("Softmax", "LogSoftmax")
MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """What the graph tells of an output."""

    last_op: str = ""
    """The op that makes the numbers; empty where it is not known."""
    axis: int | None = None
    """Where the scores lie that a last Softmax chooses from, which are its channels."""


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
    given: frozenset[tuple[int, ...]] = frozenset()
    """Shapes of the inputs: an output of such a shape may be a state that is given back."""

    def of(self, output: str) -> OutputFacts:
        """What is told of an output."""
        return self.outputs.get(output, OutputFacts())


NO_FACTS = ModelFacts({})


def model_facts(model: Any) -> ModelFacts:
    """The facts of a model: as it was read, its `ir`, or None."""
    ir = getattr(model, "ir", model)
    if ir is None:
        return NO_FACTS
    outputs = {str(v.name): OutputFacts(_last_op(v), _channel_axis(v, shape_of(v))) for v in ir.graph.outputs}
    shapes = [shape for v in ir.graph.inputs if _picture_size(shape := shape_of(v))]
    picture = _picture_size(shapes[0]) if shapes else None
    inputs = [v.dtype for v in ir.graph.inputs]
    tokens = bool(inputs) and all(dtype is not None and dtype.is_integer() for dtype in inputs)
    batch = shapes[0][0] if shapes and shapes[0] is not None else 1
    given = frozenset(shape for value in ir.graph.inputs if (shape := shape_of(value)) is not None)
    return ModelFacts(outputs, picture, tokens and picture is None, batch, given)


def _picture_size(shape: tuple[int, ...] | None) -> tuple[int, int] | None:
    if shape is None or len(shape) != 4:
        return None
    if shape[1] in (1, 3, 4) and min(shape[2:]) >= 16:
        return shape[2], shape[3]
    return (shape[1], shape[2]) if shape[3] in (1, 3, 4) and min(shape[1:3]) >= 16 else None


def _makers(value: Any) -> Iterator[Any]:
    """The nodes that make a value, the last first, by the first input of each."""
    for _ in range(MOST_STEPS):
        if value is None or (node := value.producer()) is None:
            return
        yield node
        value = node.inputs[0] if node.inputs else None


def _last_op(value: Any) -> str:
    """The op that makes a value's numbers; empty where none does."""
    return next((str(node.op_type) for node in _makers(value) if node.op_type not in PASSED), "")


def _channel_axis(value: Any, shape: tuple[int, ...] | None) -> int | None:
    """Where the scores lie that a last Softmax chooses from; None where there is none, or reshapes are in between."""
    order = list(range(len(shape or ())))  # which axis of the value that is looked at each axis of the output is
    for node in _makers(value) if order else ():
        if node.op_type in PROBABILITY_OPS:
            axis = node.attributes.get("axis")
            return order.index(-1 % len(order) if axis is None else axis.as_int() % len(order))
        if node.op_type == "Transpose" and (perm := node.attributes.get("perm")) is not None:
            order = [perm.as_ints()[i] for i in order]
        elif node.op_type not in ("Identity", "Cast", "QuantizeLinear", "DequantizeLinear"):
            return None
    return None
