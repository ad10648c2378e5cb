# SPDX-License-Identifier: Apache-2.0
"""Known values: what is known of a node's results without computing them, one rule for each op.

A rule reads a node and either notes what its result is known to be (another value, a list of values, the numbers of a
shape), or gives what stands in for the node, or both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir
from onnx_ir import Node, Shape, Value

from hexforge.ir import Array

Meaning = Value | list[Value | None] | Shape
"""The same as another value, a sequence of values, or the numbers of a shape (whose dimensions are not negative)."""
LONGEST_SHAPE = 10
"""Constants up to this many numbers are looked at as shapes."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What stands in for a node: values for its outputs, and the new nodes that write them."""

    outputs: Sequence[Value]
    nodes: Sequence[Node]


@dataclass(slots=True)
class KnownValues:
    """What the values of one graph are known to be."""

    meanings: dict[Value, Meaning] = field(default_factory=dict)

    def of(self, value: Value | None) -> Meaning | None:
        """What a value is known to be, if anything."""
        return None if value is None else self.meanings.get(value)

    def note(self, value: Value, meaning: Meaning) -> None:
        """Remember what a value is."""
        self.meanings[value] = meaning

    def shape_in(self, value: Value | None) -> Shape | None:
        """The numbers of a one-dimensional int64 value, as a shape."""
        tensor = None if value is None else value.const_value
        if tensor is not None and tensor.dtype is onnx_ir.DataType.INT64 and tensor.size <= LONGEST_SHAPE:
            numbers = constant_array(value)
            if numbers is not None:
                return Shape(numbers.tolist()) if numbers.ndim == 1 else None
        meaning = self.of(value)
        return meaning if isinstance(meaning, Shape) else None


def constant_array(value: Value | None) -> Array | None:
    """The numbers of a constant, None for what is no constant or lies in a file that is not there."""
    if value is None or value.const_value is None:
        return None
    tensor = value.const_value
    try:
        array = tensor.numpy()
    except FileNotFoundError:
        return None
    return array if tensor.dtype is onnx_ir.DataType.STRING else array.view(tensor.dtype.numpy())


def read_constant(node: Node) -> None:
    """Give the output of a Constant node its tensor, type and shape."""
    if len(node.attributes) != 1 or len(node.outputs) != 1:
        return
    name, attribute = next(iter(node.attributes.items()))
    content, value = attribute.value, node.outputs[0]
    tensor: onnx_ir.TensorProtocol
    if content is None:
        return
    if name in ("value_float", "value_floats"):
        tensor = onnx_ir.Tensor(np.array(content, np.float32), name=value.name)
    elif name in ("value_int", "value_ints"):
        tensor = onnx_ir.Tensor(np.array(content, np.int64), name=value.name)
    elif name in ("value_string", "value_strings"):
        tensor = onnx_ir.StringTensor(np.array(content, np.bytes_), name=value.name)
    elif name == "value":
        tensor = attribute.as_tensor()
    else:
        return
    value.const_value = tensor
    value.shape = Shape(tensor.shape.numpy())
    value.dtype = tensor.dtype


def known(node: Node, values: KnownValues, opset: int) -> Replacement | None:
    """Apply the rule of a node's op: what stands in for the node, or None where it stays."""
    rule = None if node.domain else _RULES.get(node.op_type)
    if rule is None or (node.op_type == "Dropout" and opset < 12):
        return None
    return rule(node, values)


# -- making nodes -----------------------------------------------------------------------------------------------


def _instead(op_type: str, inputs: Sequence[Value | None], **attributes: Any) -> Replacement:
    """One new node in place of the old one."""
    new = onnx_ir.node(op_type, inputs, attributes)
    return Replacement(new.outputs, (new,))


def _same_as(value: Value | None) -> Replacement:
    return _instead("Identity", (value,))


def _numbers(value: Sequence[int] | int) -> Replacement:
    return _instead("Constant", (), **{"value_int" if isinstance(value, int) else "value_ints": value})


def _input(node: Node, index: int) -> Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _integer(node: Node, name: str, default: int | None = None) -> int | None:
    attribute = node.attributes.get(name)
    if attribute is None:
        return default
    return attribute.value if isinstance(attribute.value, int) else None


def _truth(value: Value | None) -> bool | None:
    array = constant_array(value)
    return bool(array.item()) if array is not None and array.size == 1 and array.dtype == bool else None


def _all_sizes(shape: Sequence[int | onnx_ir.SymbolicDim]) -> list[int] | None:
    sizes = [d for d in shape if isinstance(d, int)]
    return sizes if len(sizes) == len(shape) else None


# -- numbers of shapes ------------------------------------------------------------------------------------------


def _shape(node: Node, values: KnownValues) -> Replacement | None:
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    part = source.shape[_integer(node, "start", 0) : _integer(node, "end")]
    values.note(node.outputs[0], Shape(part))
    sizes = _all_sizes(part)
    return None if sizes is None else _numbers(onnx_ir.AttrInt64s("value_ints", sizes).as_ints())


def _size(node: Node, values: KnownValues) -> Replacement | None:
    source = _input(node, 0)
    sizes = None if source is None or source.shape is None else _all_sizes(source.shape.dims)
    return None if sizes is None else _numbers(math.prod(sizes))


def _gather(node: Node, values: KnownValues) -> Replacement | None:
    """A Gather out of a shape."""
    numbers, indices = values.shape_in(_input(node, 0)), constant_array(_input(node, 1))
    if numbers is None or indices is None or indices.ndim != 1 or _integer(node, "axis") != 0:
        return None
    taken = [numbers[int(i)] for i in indices]
    values.note(node.outputs[0], Shape(taken))
    sizes = _all_sizes(taken)
    return None if sizes is None else _numbers(sizes)


def _add(node: Node, values: KnownValues) -> None:
    """The sum of two single dimensions."""
    dims = []
    for index in (0, 1):
        numbers = values.shape_in(_input(node, index))
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
    numbers = values.shape_in(_input(node, 0))
    if numbers is None or any(isinstance(d, int) and d < 0 for d in numbers):
        return None
    return _same_as(node.inputs[0])


def _keep_numbers(node: Node, values: KnownValues) -> None:
    numbers = values.shape_in(_input(node, 0))
    if numbers is not None:
        values.note(node.outputs[0], numbers)


def _is_known_same(first: Shape, second: Shape) -> bool:
    return all(isinstance(d, int) or d.value is not None for d in first) and first.dims == second.dims


def _reshape(node: Node, values: KnownValues) -> Replacement | None:
    source, target = _input(node, 0), _input(node, 1)
    if source is None or target is None:
        return None
    new_shape = values.shape_in(target)
    if new_shape is not None and source.shape is not None and _is_known_same(source.shape, new_shape):
        return _same_as(source)
    _keep_numbers(node, values)
    return None


def _expand(node: Node, values: KnownValues) -> Replacement | None:
    source = _input(node, 0)
    if len(node.inputs) != 2 or source is None or source.shape is None:
        return None
    sizes = constant_array(node.inputs[1])
    if sizes is None:
        new_shape = values.shape_in(node.inputs[1])
        return _same_as(source) if new_shape is not None and _is_known_same(source.shape, new_shape) else None
    return _same_as(source) if sizes.ndim == 1 and source.shape.dims == tuple(sizes.tolist()) else None


def _concat(node: Node, values: KnownValues) -> Replacement | None:
    inputs, axis = node.inputs, _integer(node, "axis")
    if len(inputs) == 1:
        return _same_as(inputs[0])
    if axis is None:
        return None
    filled = [v for v in inputs if not _is_empty(v, axis)]
    if len(filled) != len(inputs):
        return _instead("Concat", filled, axis=axis) if filled else _same_as(inputs[0])
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
    source, to = _input(node, 0), _integer(node, "to")
    if source is None or to is None:
        return None
    if _type_of(source) == to:
        return _same_as(source)
    node.outputs[0].type = onnx_ir.TensorType(onnx_ir.DataType(to))
    return None


def _cast_like(node: Node, values: KnownValues) -> Replacement | None:
    source, to = node.inputs[0], _type_of(_input(node, 1))
    if to == onnx_ir.DataType.UNDEFINED:
        return None
    return _same_as(source) if _type_of(source) == to else _instead("Cast", (source,), to=to)


def _type_of(value: Value | None) -> int:
    return int(onnx_ir.DataType.UNDEFINED if value is None or value.type is None else value.type.dtype)


def _dropout(node: Node, values: KnownValues) -> Replacement | None:
    """A Dropout that does nothing: not training, or a ratio of 0."""
    training = _input(node, 2)
    if training is not None and _truth(training) is not False:
        ratio = constant_array(_input(node, 1))
        if ratio is None or ratio.size != 1 or ratio.item() != 0:
            return None
    source = node.inputs[0]
    if len(node.outputs) == 1:
        return _same_as(source)
    result = onnx_ir.node("Identity", (source,))
    sizes = onnx_ir.node("Shape", (source,))
    mask = onnx_ir.node("ConstantOfShape", sizes.outputs, {"value": onnx_ir.tensor([True])})
    return Replacement((result.outputs[0], mask.outputs[0]), (result, sizes, mask))


# -- branches and sequences -------------------------------------------------------------------------------------


def _if(node: Node, values: KnownValues) -> Replacement | None:
    """The branch that a constant condition takes, moved out of its body."""
    condition = _truth(_input(node, 0))
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


def _sequence_construct(node: Node, values: KnownValues) -> None:
    values.note(node.outputs[0], list(node.inputs))


def _sequence_at(node: Node, values: KnownValues) -> Replacement | None:
    items, position = values.of(node.inputs[0]), constant_array(node.inputs[1])
    if not isinstance(items, list) or position is None or position.size != 1:
        return None
    index = position.item()
    if not -len(items) <= index < len(items):
        return None
    item = items[index]
    assert item is not None
    values.note(node.outputs[0], item)
    return _same_as(item)


def _concat_from_sequence(node: Node, values: KnownValues) -> Replacement | None:
    items, axis, is_new = values.of(node.inputs[0]), _integer(node, "axis"), _integer(node, "new_axis", 0)
    if not isinstance(items, list) or any(item is None for item in items) or axis is None or is_new not in (0, 1):
        return None
    if not is_new:
        return _instead("Concat", items, axis=axis)
    place = onnx_ir.node("Constant", (), {"value_int": axis})
    unsqueezed = [
        onnx_ir.node("Unsqueeze", (item, place.outputs[0]), outputs=[Value(name=f"{item.name}_unsqueeze")])
        for item in items
        if item is not None
    ]
    joined = onnx_ir.node("Concat", [n.outputs[0] for n in unsqueezed], {"axis": axis})
    return Replacement(joined.outputs, (place, *unsqueezed, joined))


def _split_to_sequence(node: Node, values: KnownValues) -> Replacement | None:
    """A Split and a SequenceConstruct, where the number of parts is known."""
    source, split, result = node.inputs[0], _input(node, 1), node.outputs[0]
    axis, keepdims = _integer(node, "axis", 0), _integer(node, "keepdims", 1)
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


_RULES: dict[str, Callable[[Node, KnownValues], Replacement | None]] = {
    "Abs": _abs,
    "Add": _add,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _concat,
    "ConcatFromSequence": _concat_from_sequence,
    "Dropout": _dropout,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": _identity,
    "If": _if,
    "Reshape": _reshape,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _sequence_construct,
    "Shape": _shape,
    "Size": _size,
    "SplitToSequence": _split_to_sequence,
    "Squeeze": _keep_numbers,
}
