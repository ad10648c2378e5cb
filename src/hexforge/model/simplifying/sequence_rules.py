# SPDX-License-Identifier: Apache-2.0
"""Sequence rules: what is known of sequences of values, so that the ops that make and read them go."""

from __future__ import annotations

import math

import onnx_ir
from onnx_ir import Node, Value

from hexforge.model.simplifying.known_values import (
    KnownValues,
    Replacement,
    constant_array,
    integer_or_none,
    replaced_by,
    same_as,
)
from hexforge.patterns.nodes import operand


def sequence_construct(node: Node, values: KnownValues) -> None:
    """Note the values that a sequence is made of."""
    values.note(node.outputs[0], list(node.inputs))


def sequence_at(node: Node, values: KnownValues) -> Replacement | None:
    """The value at a constant place of a known sequence."""
    items, position = values.of(node.inputs[0]), constant_array(node.inputs[1])
    if not isinstance(items, list) or position is None or position.size != 1:
        return None
    index = position.item()
    if not -len(items) <= index < len(items):
        return None
    item = items[index]
    assert item is not None
    values.note(node.outputs[0], item)
    return same_as(item)


def concat_from_sequence(node: Node, values: KnownValues) -> Replacement | None:
    """A Concat of the values of a known sequence."""
    items, axis, is_new = values.of(node.inputs[0]), integer_or_none(node, "axis"), integer_or_none(node, "new_axis", 0)
    if not isinstance(items, list) or any(item is None for item in items) or axis is None or is_new not in (0, 1):
        return None
    if not is_new:
        return replaced_by("Concat", items, axis=axis)
    place = onnx_ir.node("Constant", (), {"value_int": axis})
    unsqueezed = [
        onnx_ir.node("Unsqueeze", (item, place.outputs[0]), outputs=[Value(name=f"{item.name}_unsqueeze")])
        for item in items
        if item is not None
    ]
    joined = onnx_ir.node("Concat", [n.outputs[0] for n in unsqueezed], {"axis": axis})
    return Replacement(joined.outputs, (place, *unsqueezed, joined))


def split_to_sequence(node: Node, values: KnownValues) -> Replacement | None:
    """A Split and a SequenceConstruct, where the number of parts is known."""
    source, split, result = node.inputs[0], operand(node, 1), node.outputs[0]
    axis, keepdims = integer_or_none(node, "axis", 0), integer_or_none(node, "keepdims", 1)
    if source is None or split is None or source.shape is None or axis is None or keepdims is None:
        return None
    rank = len(source.shape)
    if not -rank <= axis < rank:
        return None
    axis %= rank
    parts = _parts(source.shape[axis], split, f"{result.name}_split_sizes")
    if parts is None:
        return None
    count, nodes, sizes = parts
    cut = onnx_ir.node(
        "Split",
        (source,) if sizes is None else (source, sizes),
        {"axis": axis} | ({"num_outputs": count} if sizes is None else {}),
        outputs=[Value(name=f"{result.name}_split_{i}") for i in range(count)],
    )
    nodes.append(cut)
    items = list(cut.outputs)
    if keepdims == 0:
        place = onnx_ir.node("Constant", (), {"value_ints": [axis]}, outputs=[Value(name=f"{result.name}_axis")])
        squeezed = [
            onnx_ir.node("Squeeze", (item, place.outputs[0]), outputs=[Value(name=f"{item.name}_squeeze")])
            for item in items
        ]
        nodes += [place, *squeezed]
        items = [n.outputs[0] for n in squeezed]
    sequence = onnx_ir.node("SequenceConstruct", items)
    return Replacement(sequence.outputs, (*nodes, sequence))


def _parts(dim: int | onnx_ir.SymbolicDim, split: Value, name: str) -> tuple[int, list[Node], Value | None] | None:
    """How many parts a split makes, new nodes for their sizes, and the sizes (None where all are the same)."""
    if split.shape is not None and split.shape.is_static() and len(split.shape) == 1:
        return split.shape.numpy()[0], [], split
    sizes = constant_array(split)
    if sizes is None or sizes.ndim > 1:
        return None
    if sizes.ndim == 1:
        return sizes.size, [], split
    size = int(sizes.item())
    if not isinstance(dim, int) or size <= 0:
        return None
    count = math.ceil(dim / size)
    if dim % size == 0:
        return count, [], None
    part_sizes = [size] * (count - 1) + [dim - (count - 1) * size]
    constant = onnx_ir.node("Constant", (), {"value_ints": part_sizes}, outputs=[Value(name=name)])
    return count, [constant], constant.outputs[0]
