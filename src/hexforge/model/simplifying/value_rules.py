# SPDX-License-Identifier: Apache-2.0
"""Value rules: what is known of a node's results without computing them, one rule for each op.

A rule reads a node and either notes what its result is known to be (another value, a list of values, the numbers of a
shape), or gives what stands in for the node, or both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir
from onnx_ir import Node, Shape, Value

from hexforge.model.simplifying.known_values import (
    KnownValues,
    Replacement,
    all_sizes,
    constant_array,
    integer_or_none,
    numbers_node,
    replaced_by,
    same_as,
    truth_of,
)
from hexforge.model.simplifying.sequence_rules import (
    concat_from_sequence,
    sequence_at,
    sequence_construct,
    split_to_sequence,
)
from hexforge.patterns.nodes import operand


def apply_rule(node: Node, values: KnownValues, opset: int) -> Replacement | None:
    """Apply the rule of a node's op: what stands in for the node, or None where it stays."""
    rule = None if node.domain else _RULES.get(node.op_type)
    if rule is None or (node.op_type == "Dropout" and opset < 12):
        return None
    return rule(node, values)


# -- numbers of shapes ------------------------------------------------------------------------------------------


def _shape(node: Node, values: KnownValues) -> Replacement | None:
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    part = source.shape[integer_or_none(node, "start", 0) : integer_or_none(node, "end")]
    values.note(node.outputs[0], Shape(part))
    sizes = all_sizes(part)
    return None if sizes is None else numbers_node(onnx_ir.AttrInt64s("value_ints", sizes).as_ints())


def _size(node: Node, values: KnownValues) -> Replacement | None:
    source = operand(node, 0)
    sizes = None if source is None or source.shape is None else all_sizes(source.shape.dims)
    return None if sizes is None else numbers_node(math.prod(sizes))


def _gather(node: Node, values: KnownValues) -> Replacement | None:
    """A Gather out of a shape."""
    numbers, indices = values.shape_in(operand(node, 0)), constant_array(operand(node, 1))
    if numbers is None or indices is None or indices.ndim != 1 or integer_or_none(node, "axis") != 0:
        return None
    taken = [numbers[int(i)] for i in indices]
    values.note(node.outputs[0], Shape(taken))
    sizes = all_sizes(taken)
    return None if sizes is None else numbers_node(sizes)


def _add(node: Node, values: KnownValues) -> None:
    """The sum of two single dimensions."""
    dims = []
    for index in (0, 1):
        numbers = values.shape_in(operand(node, index))
        if numbers is None or len(numbers) != 1:
            return
        dim = numbers[0]
        dims.append(dim if isinstance(dim, int) else dim.value)
    first, second = dims
    if isinstance(first, int) and isinstance(second, int):
        values.note(node.outputs[0], Shape([first + second]))
    elif first is not None and second is not None:
        values.note(node.outputs[0], Shape([onnx_ir.SymbolicDim(f"{first}+{second}")]))


def _abs(node: Node, values: KnownValues) -> Replacement | None:
    numbers = values.shape_in(operand(node, 0))
    if numbers is None or any(isinstance(d, int) and d < 0 for d in numbers):
        return None
    return same_as(node.inputs[0])


def _keep_numbers(node: Node, values: KnownValues) -> None:
    numbers = values.shape_in(operand(node, 0))
    if numbers is not None:
        values.note(node.outputs[0], numbers)


def _is_known_same(first: Shape, second: Shape) -> bool:
    return all(isinstance(d, int) or d.value is not None for d in first) and first.dims == second.dims


def _reshape(node: Node, values: KnownValues) -> Replacement | None:
    source, target = operand(node, 0), operand(node, 1)
    if source is None or target is None:
        return None
    new_shape = values.shape_in(target)
    if new_shape is not None and source.shape is not None and _is_known_same(source.shape, new_shape):
        return same_as(source)
    _keep_numbers(node, values)
    return None


def _expand(node: Node, values: KnownValues) -> Replacement | None:
    source = operand(node, 0)
    if len(node.inputs) != 2 or source is None or source.shape is None:
        return None
    sizes = constant_array(node.inputs[1])
    if sizes is None:
        new_shape = values.shape_in(node.inputs[1])
        return same_as(source) if new_shape is not None and _is_known_same(source.shape, new_shape) else None
    return same_as(source) if sizes.ndim == 1 and source.shape.dims == tuple(sizes.tolist()) else None


def _concat(node: Node, values: KnownValues) -> Replacement | None:
    inputs, axis = node.inputs, integer_or_none(node, "axis")
    if len(inputs) == 1:
        return same_as(inputs[0])
    if axis is None:
        return None
    filled = [v for v in inputs if not _is_empty(v, axis)]
    if len(filled) != len(inputs):
        return replaced_by("Concat", filled, axis=axis) if filled else same_as(inputs[0])
    parts = [values.shape_in(v) for v in inputs] if axis == 0 else [None]
    if all(part is not None for part in parts):
        values.note(node.outputs[0], Shape(d for part in parts if part is not None for d in part.dims))
    return None


def _is_empty(value: Value | None, axis: int) -> bool:
    if value is None or value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return False
    return bool(value.shape[axis] == 0)


# -- the same value, the same type ------------------------------------------------------------------------------


def _identity(node: Node, values: KnownValues) -> None:
    source, result = node.inputs[0], node.outputs[0]
    if source is None:
        return
    if source.shape is None or result.shape is None:
        source.shape = source.shape or result.shape
    elif len(source.shape) == len(result.shape):
        source.shape = Shape([_clearer(a, b) for a, b in zip(source.shape, result.shape, strict=True)])
    if source.type is None:
        source.type = result.type
    values.note(result, source)


def _clearer(first: int | onnx_ir.SymbolicDim, second: int | onnx_ir.SymbolicDim) -> int | onnx_ir.SymbolicDim:
    """The number of two dimensions, else the named one, else the first."""
    if isinstance(first, int):
        return first
    return second if isinstance(second, int) or first.value is None else first


def _cast(node: Node, values: KnownValues) -> Replacement | None:
    source, to = operand(node, 0), integer_or_none(node, "to")
    if source is None or to is None:
        return None
    if _type_of(source) == to:
        return same_as(source)
    node.outputs[0].type = onnx_ir.TensorType(onnx_ir.DataType(to))
    return None


def _cast_like(node: Node, values: KnownValues) -> Replacement | None:
    source, to = node.inputs[0], _type_of(operand(node, 1))
    if to == onnx_ir.DataType.UNDEFINED:
        return None
    return same_as(source) if _type_of(source) == to else replaced_by("Cast", (source,), to=to)


def _type_of(value: Value | None) -> int:
    return int(onnx_ir.DataType.UNDEFINED if value is None or value.type is None else value.type.dtype)


def _dropout(node: Node, values: KnownValues) -> Replacement | None:
    """A Dropout that does nothing: not training, or a ratio of 0."""
    training = operand(node, 2)
    if training is not None and truth_of(training) is not False:
        ratio = constant_array(operand(node, 1))
        if ratio is None or ratio.size != 1 or ratio.item() != 0:
            return None
    source = node.inputs[0]
    if len(node.outputs) == 1:
        return same_as(source)
    result = onnx_ir.node("Identity", (source,))
    sizes = onnx_ir.node("Shape", (source,))
    mask = onnx_ir.node("ConstantOfShape", sizes.outputs, {"value": onnx_ir.tensor([True])})
    return Replacement((result.outputs[0], mask.outputs[0]), (result, sizes, mask))


# -- branches ---------------------------------------------------------------------------------------------------


def _if(node: Node, values: KnownValues) -> Replacement | None:
    """The branch that a constant condition takes, moved out of its body."""
    condition = truth_of(operand(node, 0))
    branch = node.attributes.get("then_branch" if condition else "else_branch")
    if condition is None or branch is None or branch.type is not onnx_ir.AttributeType.GRAPH:
        return None
    body = branch.as_graph()
    results, nodes = list(body.outputs), list(body)
    names = {inner.name: outer.name for inner, outer in zip(results, node.outputs, strict=False)}
    body.outputs.clear()
    body.remove(nodes)
    for inner_node in nodes:
        for value in inner_node.outputs:
            value.name = names.get(value.name, value.name)
        inner_node.name = f"{node.name}_{inner_node.name}"
    if node.graph is not None:
        _move_constants(body, node.graph)
    return Replacement(results, nodes)


def _move_constants(source: onnx_ir.Graph, target: Any) -> None:
    for name in list(source.initializers):
        value, number, free = source.initializers.pop(name), 0, name
        while free in target.initializers:
            number += 1
            free = f"{name}_{number}"
        if free != name:
            value.name = free
        target.register_initializer(value)


_RULES: dict[str, Callable[[Node, KnownValues], Replacement | None]] = {
    "Abs": _abs,
    "Add": _add,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _concat,
    "ConcatFromSequence": concat_from_sequence,
    "Dropout": _dropout,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": _identity,
    "If": _if,
    "Reshape": _reshape,
    "SequenceAt": sequence_at,
    "SequenceConstruct": sequence_construct,
    "Shape": _shape,
    "Size": _size,
    "SplitToSequence": split_to_sequence,
    "Squeeze": _keep_numbers,
}
