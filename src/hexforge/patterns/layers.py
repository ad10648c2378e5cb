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
    def multiplies_rows(self) -> bool:
        """True for a product of matrices, whose channels are last; a convolution's are second."""
        return self.node.op_type in ("Gemm", "MatMul")

    @property
    def channel_axis(self) -> int:
        """The axis of the output that is its channels."""
        shape = dims(self.out)
        assert shape is not None
        return len(shape) - 1 if self.multiplies_rows else 1

    @property
    def output_axis(self) -> int:
        """The axis of the stored weight that runs over outputs."""
        return 0 if self.node.op_type == "Conv" or integer(self.node, "transB", 0) else 1

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the stored weight."""
        assert self.weight.const_value is not None
        return tuple(int(size) for size in self.weight.const_value.shape.numpy())

    @property
    def outputs(self) -> int:
        """How many channels it makes."""
        size = self.weight_shape[self.output_axis]
        return size * self.group if self.node.op_type == "ConvTranspose" else size

    @property
    def inputs(self) -> int:
        """How many channels it reads."""
        size = self.weight_shape[1 - self.output_axis]
        return size * self.group if self.node.op_type == "Conv" else size

    def matrix(self, weight: Array) -> Array:
        """The weight as [outputs, inputs of its group, window...]."""
        if self.node.op_type == "ConvTranspose":
            by_group = weight.reshape(self.group, weight.shape[0] // self.group, *weight.shape[1:])
            return np.moveaxis(by_group, 2, 1).reshape(self.outputs, -1, *weight.shape[2:])
        return weight.T if self.output_axis else weight

    def stored(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        if self.node.op_type == "ConvTranspose":
            by_group = matrix.reshape(self.group, self.outputs // self.group, *matrix.shape[1:])
            return np.moveaxis(by_group, 2, 1).reshape(-1, self.outputs // self.group, *matrix.shape[2:])
        return matrix.T if self.output_axis else matrix

    def by_input(self, factors: Array) -> Array:
        """Factors of the input channels, shaped to multiply `matrix`."""
        outputs, size, *window = self.matrix_shape
        per_group = np.repeat(factors.reshape(self.group, 1, size), outputs // self.group, axis=1)
        return per_group.reshape(outputs, size, *[1] * len(window))

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The shape of `matrix`."""
        return self.outputs, self.inputs // self.group, *self.weight_shape[2:]

    @property
    def padded(self) -> bool:
        """True where zeros are added around the input."""
        if self.multiplies_rows:
            return False
        if math.prod(self.weight_shape[2:]) == 1 and "pads" not in self.node.attributes:
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
    if node.op_type in ("Gemm", "MatMul") and weight.ndim != 2:
        return None
    if node.op_type == "Gemm" and (real(node, "alpha", 1.0) != 1.0 or integer(node, "transA", 0)):
        return None
    if node.op_type == "Gemm" and added is not None and real(node, "beta", 1.0) != 1.0:
        return None
    found = Layer(node, node.inputs[1], added, group)
    return None if bias is not None and bias.size != found.outputs else found
