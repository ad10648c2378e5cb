# SPDX-License-Identifier: Apache-2.0
"""Node keys: what a node computes with, to remember its result by: layers repeat, and so do small computations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import onnx_ir

from hexforge.ir import Array

MOST_BYTES = 4096
"""Of a constant in a key; a node that reads a larger one is not remembered."""
_PLAIN = frozenset(
    {
        onnx_ir.AttributeType.FLOAT, onnx_ir.AttributeType.INT, onnx_ir.AttributeType.STRING,
        onnx_ir.AttributeType.FLOATS, onnx_ir.AttributeType.INTS, onnx_ir.AttributeType.STRINGS,
    }
)  # fmt: skip

Key: TypeAlias = tuple[Hashable, ...]


def op_key(node: onnx_ir.Node) -> Key | None:
    """The op with its attributes; None where one of these holds a large tensor or a graph."""
    attributes: list[Key] = []
    for name, attribute in node.attributes.items():
        value = attribute.value
        if attribute.type is onnx_ir.AttributeType.TENSOR and isinstance(value, onnx_ir.Tensor):
            held = _tensor_key(value)
            if held is None:
                return None
            attributes.append((name, attribute.type, value.dtype, held))
            continue
        if attribute.type not in _PLAIN or attribute.is_ref():
            return None
        # repr tells -0.0 from 0.0 and 1 from 1.0
        attributes.append((name, attribute.type, repr(tuple(value) if isinstance(value, list) else value)))
    return node.domain, node.op_type, node.version, len(node.outputs), *attributes


def _tensor_key(tensor: onnx_ir.TensorProtocol) -> Key | None:
    return None if tensor.dtype is onnx_ir.DataType.STRING else array_key(tensor.numpy())


def array_key(array: Array | None) -> Key | None:
    """An array by its numbers; None where it is large or holds objects."""
    if array is None:
        return ()
    if array.nbytes > MOST_BYTES or array.dtype.hasobject:
        return None
    return array.dtype, array.shape, array.tobytes()


def computation_key(node: onnx_ir.Node, opset: int, arrays: Sequence[Array | None]) -> Key | None:
    """A node and the numbers that it reads; None where they are too many."""
    op = op_key(node)
    if op is None:
        return None
    read = [array_key(array) for array in arrays]
    return None if None in read else (op, opset, *read)


def inference_key(node: onnx_ir.Node, opset: int, most_data: int) -> Key | None:
    """A node, the types and shapes that it reads, and its constants of at most so many elements."""
    op = op_key(node)
    if op is None or not all(value.name for value in node.outputs):
        return None
    read: list[Hashable] = []
    for value in node.inputs:
        if value is None:
            read.append(None)
            continue
        if type(value.type) is not onnx_ir.TensorType:
            return None
        sizes = None if value.shape is None else tuple(d if isinstance(d, int) else (d.value,) for d in value.shape)
        tensor = value.const_value
        data: Key | None = ()
        if tensor is not None and tensor.size <= most_data:
            data = None if tensor.dtype is onnx_ir.DataType.STRING else array_key(tensor.numpy())
            if data is None:
                return None
        read.append((value.type.dtype, sizes, data))
    return op, opset, len({value for value in node.inputs if value is not None}), *read
