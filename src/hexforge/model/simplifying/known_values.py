# SPDX-License-Identifier: Apache-2.0
"""Known values: what the values of a graph are known to be, and the nodes that stand in for others."""

from __future__ import annotations

from collections.abc import Sequence
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


# -- making nodes -----------------------------------------------------------------------------------------------


def replaced_by(op_type: str, inputs: Sequence[Value | None], **attributes: Any) -> Replacement:
    """One new node in place of the old one."""
    new = onnx_ir.node(op_type, inputs, attributes)
    return Replacement(new.outputs, (new,))


def same_as(value: Value | None) -> Replacement:
    """A node that passes a value on."""
    return replaced_by("Identity", (value,))


def numbers_node(value: Sequence[int] | int) -> Replacement:
    """A constant of whole numbers."""
    tensor = onnx_ir.Tensor(np.array(value, np.int64))
    new = Node("", "Constant", (), (onnx_ir.AttrTensor("value", tensor),))
    return Replacement(new.outputs, (new,))


def integer_or_none(node: Node, name: str, default: int | None = None) -> int | None:
    """A whole number among the attributes, the default where it is absent, None where it is something else."""
    attribute = node.attributes.get(name)
    if attribute is None:
        return default
    return attribute.value if isinstance(attribute.value, int) else None


def truth_of(value: Value | None) -> bool | None:
    """The boolean that a constant is."""
    array = constant_array(value)
    return bool(array.item()) if array is not None and array.size == 1 and array.dtype == bool else None


def all_sizes(shape: Sequence[int | onnx_ir.SymbolicDim]) -> list[int] | None:
    """The sizes of a shape, None where one is not known."""
    sizes = [d for d in shape if isinstance(d, int)]
    return sizes if len(sizes) == len(shape) else None
