# SPDX-License-Identifier: Apache-2.0
"""Layers: the nodes that multiply by a constant matrix, seen alike: weight as [outputs, inputs...], bias, channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.patterns.nodes import data, dims, float_constant, integer, ints, real, text

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, slots=True)
class Layer:
    """A Conv, ConvTranspose, Gemm or MatMul with a constant weight."""

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
    def numbers(self) -> tuple[Array, Array]:
        """The weight, and the bias of each output, in their own type."""
        weight, bias = data(self.weight), data(self.bias)
        assert weight is not None
        return weight, np.zeros(self.outputs, weight.dtype) if bias is None else bias.reshape(-1)

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


def layer(
    node: onnx_ir.Node, constant: Callable[[onnx_ir.Value | None], Array | None] = float_constant
) -> Layer | None:
    """The node as a layer; None where it does not multiply by a constant weight, float32 unless told otherwise."""
    if node.op_type not in LAYERS or node.domain not in ("", "ai.onnx") or dims(node.outputs[0]) is None:
        return None
    weight = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None or node.inputs[1] is None or node.inputs[0] is None or constant(node.inputs[0]) is not None:
        return None
    added = node.inputs[2] if len(node.inputs) > 2 else None
    bias = constant(added)
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
