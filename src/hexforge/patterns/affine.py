# SPDX-License-Identifier: Apache-2.0
"""Affine nodes: factor * x + shift with constants for each channel, and what becomes of it in the layer beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.patterns.language import Term, constant, one_of, op
from hexforge.patterns.nodes import data, integer, is_float, is_op, operand, real, shape, split_constant

NORMALIZATION = "BatchNormalization"


@dataclass(frozen=True, slots=True)
class Affine:
    """A node that computes factor * x + shift; both in float64, of one element or of one for each channel."""

    x: Value
    factor: Array
    shift: Array

    def rows(self, channels: int) -> tuple[Array, Array]:
        """Factor and shift of each channel."""
        return np.broadcast_to(self.factor, (channels,)), np.broadcast_to(self.shift, (channels,))

    def after(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """Weight [outputs, ...] and bias of a layer whose result the node scales, with the node in them."""
        factor, shift = self.rows(len(bias))
        scaled = weight.astype(np.float64) * factor.reshape(-1, *[1] * (weight.ndim - 1))
        return scaled, bias.astype(np.float64) * factor + shift

    def before(self, weight: Array, bias: Array, group: int) -> tuple[Array, Array]:
        """Weight [outputs, inputs of a group, ...] and bias of a layer that reads the node, with the node in them.

        What is padded with zeros behind the node is not shifted: then the shift must be nothing.
        """
        outputs, inputs = weight.shape[:2]
        window = [1] * (weight.ndim - 2)
        factor, shift = (row.reshape(group, 1, inputs, *window) for row in self.rows(group * inputs))
        grouped = weight.astype(np.float64).reshape(group, outputs // group, *weight.shape[1:])
        moved = (grouped * shift).reshape(outputs, -1).sum(1)
        return (grouped * factor).reshape(weight.shape), bias + moved


def affine_of(x: Term) -> Term:
    """What an affine node makes of a value, whichever it may be; `affine` says what it computes."""
    return one_of(op("Add Sub Mul Div", x, constant()), op("Sub", constant(), x), op(NORMALIZATION, x))


def affine(node: Node, axis: int = 1) -> Affine | None:
    """A node that scales and shifts what it reads by constants that run along an axis; None for any other."""
    if not is_float(node.outputs[0] if node.outputs else None):
        return None
    if is_op(node, NORMALIZATION):
        return _normalization(node) if axis == 1 else None
    split = split_constant(node) if is_op(node, "Add", "Sub", "Mul", "Div") else None
    if split is None or (split[2] and is_op(node, "Div")):
        return None
    x, held, index = split
    array, rank = data(held), len(shape(x))
    assert array is not None
    if shape(x) != shape(node.outputs[0]) or rank < 2:
        return None
    sizes = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for at, size in enumerate(sizes) if at != axis % rank):
        return None
    row, ones, zeros = array.astype(np.float64).reshape(-1), np.ones(1), np.zeros(1)
    match node.op_type:
        case "Mul":
            return Affine(x, row, zeros)
        case "Div":
            return Affine(x, 1 / row, zeros) if np.all(row) else None
        case "Add":
            return Affine(x, ones, row)
        case _:
            return Affine(x, ones, -row) if index == 0 else Affine(x, -ones, row)


def _normalization(node: Node) -> Affine | None:
    parameters = [data(operand(node, i)) for i in range(1, 5)]
    trains = integer(node, "training_mode", 0) or any(value.uses() for value in node.outputs[1:])
    x = operand(node, 0)
    if x is None or any(array is None for array in parameters) or trains:
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in parameters)
    factor = scale / np.sqrt(variance + real(node, "epsilon", 1e-5))
    return Affine(x, factor, bias - mean * factor)


def is_taken_into_conv(node: Node) -> bool:
    """True for what onnxruntime makes part of the convolution before it: constants for each channel, read second."""
    if is_op(node, NORMALIZATION):
        return bool(integer(node, "spatial", 1))
    array, sizes = data(operand(node, 1)) if is_op(node, "Mul", "Add") else None, shape(node.outputs[0])
    if array is None or len(sizes) < 3:
        return False
    each = (sizes[1], *[1] * (len(sizes) - 2))
    return array.shape in (each, (1, *each)) or (not array.ndim and is_op(node, "Mul"))
