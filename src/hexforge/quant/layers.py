# SPDX-License-Identifier: Apache-2.0
"""Layers: the nodes that multiply by a constant matrix, seen alike: weight as [outputs, inputs...], bias, channels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.model.op_table import PRODUCTS
from hexforge.model.tensors import unrepeated
from hexforge.patterns.nodes import dims, float_constant, integer, ints, real, text


@dataclass(frozen=True, slots=True)
class Layer:
    """A Conv, ConvTranspose, Gemm or MatMul with a constant weight of float32."""

    node: onnx_ir.Node
    weight: onnx_ir.Value
    bias: onnx_ir.Value | None
    outputs: int
    group: int

    @property
    def data(self) -> onnx_ir.Value:
        """What it reads."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    @property
    def out(self) -> onnx_ir.Value:
        """What it makes."""
        return self.node.outputs[0]

    @property
    def channel_axis(self) -> int:
        """The axis of the output that is its channels: 1, or the last of a product."""
        shape = dims(self.out)
        assert shape is not None
        return len(shape) - 1 if self.node.op_type in ("Gemm", "MatMul") else 1

    @property
    def inputs(self) -> int:
        """How many channels it reads."""
        weight = self.weight.const_value
        assert weight is not None
        shape = tuple(weight.shape.numpy())
        match self.node.op_type:
            case "Conv":
                return int(shape[1]) * self.group
            case "ConvTranspose":
                return int(shape[0])
            case "Gemm":
                return int(shape[1 if integer(self.node, "transB", 0) else 0])
            case _:
                return int(shape[0])

    def matrix(self, weight: Array) -> Array:
        """The weight as [outputs, inputs of its group, window...]."""
        match self.node.op_type:
            case "Conv":
                return weight
            case "ConvTranspose":
                by_group = weight.reshape(self.group, weight.shape[0] // self.group, *weight.shape[1:])
                return np.moveaxis(by_group, 2, 1).reshape(self.outputs, -1, *weight.shape[2:])
            case "Gemm":
                return weight if integer(self.node, "transB", 0) else weight.T
            case _:
                return weight.T

    def stored(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        match self.node.op_type:
            case "Conv":
                return matrix
            case "ConvTranspose":
                by_group = matrix.reshape(self.group, self.outputs // self.group, *matrix.shape[1:])
                return np.moveaxis(by_group, 2, 1).reshape(-1, self.outputs // self.group, *matrix.shape[2:])
            case "Gemm":
                return matrix if integer(self.node, "transB", 0) else matrix.T
            case _:
                return matrix.T

    @property
    def output_axis(self) -> int:
        """The axis of the stored weight that runs over outputs."""
        match self.node.op_type:
            case "Conv":
                return 0
            case "ConvTranspose":
                return 1
            case "Gemm":
                return 0 if integer(self.node, "transB", 0) else 1
            case _:
                return 1

    def by_input(self, factors: Array) -> Array:
        """Factors of the input channels, shaped to multiply `matrix`."""
        size = self.inputs // self.group
        shape = (self.outputs, size, *[1] * (len(self.matrix_shape) - 2))
        per_group = np.repeat(factors.reshape(self.group, 1, size), self.outputs // self.group, axis=1)
        return per_group.reshape(shape)

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The shape of `matrix`."""
        assert self.weight.const_value is not None
        return self.matrix(np.broadcast_to(np.float32(0), tuple(self.weight.const_value.shape.numpy()))).shape

    @property
    def padded(self) -> bool:
        """True where zeros are added around the input."""
        if self.node.op_type in ("Gemm", "MatMul"):
            return False
        window = self.matrix_shape[2:]
        if math.prod(window) == 1 and "pads" not in self.node.attributes:
            return False
        automatic = text(self.node, "auto_pad", "NOTSET")
        return automatic not in ("NOTSET", "VALID") or any(ints(self.node, "pads", (0,)))


def layer(node: onnx_ir.Node) -> Layer | None:
    """The node as a layer; None where it does not multiply by a constant float32 weight."""
    if node.op_type not in PRODUCTS or node.domain not in ("", "ai.onnx") or dims(node.outputs[0]) is None:
        return None
    weight = float_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None or node.inputs[1] is None or node.inputs[0] is None or float_constant(node.inputs[0]) is not None:
        return None
    added = node.inputs[2] if len(node.inputs) > 2 else None
    bias = float_constant(added)
    if added is not None and bias is None:
        return None
    group = integer(node, "group", 1) if node.op_type.startswith("Conv") else 1
    match node.op_type:
        case "Conv":
            outputs = weight.shape[0]
        case "ConvTranspose":
            outputs = weight.shape[1] * group
        case "Gemm":
            if weight.ndim != 2 or real(node, "alpha", 1.0) != 1.0 or integer(node, "transA", 0):
                return None
            if added is not None and real(node, "beta", 1.0) != 1.0:
                return None
            outputs = weight.shape[0 if integer(node, "transB", 0) else 1]
        case _:
            if weight.ndim != 2:
                return None
            outputs = weight.shape[1]
    if bias is not None and bias.size != outputs:
        return None
    return Layer(node, node.inputs[1], added, outputs, group)


def per_channel(array: Array, channels: int, axis: int, rank: int) -> Array | None:
    """A constant that broadcasts along `axis` only (or is one number), as a row of `channels`."""
    if array.size == 1:
        return np.full(channels, array.reshape(-1)[0], np.float32)
    shape = (1,) * (rank - array.ndim) + array.shape
    if len(shape) != rank or any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] != channels:
        return None
    return array.reshape(-1)


def set_constant(node: onnx_ir.Node, index: int, array: Array, name: str) -> None:
    """Make input `index` of a node the constant `array`, of the old one's name if only this node reads that."""
    graph = node.graph
    assert isinstance(graph, onnx_ir.Graph)
    old = node.inputs[index] if index < len(node.inputs) else None
    repeats = unrepeated(array).size < array.size
    array = array.astype(np.float32, copy=False) if repeats else np.ascontiguousarray(array, np.float32)
    if old is not None and old.const_value is not None and len(old.uses()) == 1 and not old.is_graph_output():
        assert old.name is not None
        old.const_value = onnx_ir.Tensor(array, name=old.name)
        old.shape = onnx_ir.Shape(array.shape)
        return
    taken = set(graph.initializers) | {o.name for n in graph for o in n.outputs} | {v.name for v in graph.inputs}
    fresh = next(n for n in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if n not in taken)
    value = onnx_ir.Value(
        name=fresh,
        shape=onnx_ir.Shape(array.shape),
        type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
        const_value=onnx_ir.Tensor(array, name=fresh),
    )
    graph.register_initializer(value)
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, value)
