# SPDX-License-Identifier: Apache-2.0
"""Fusions into products: a convolution with what scales its channels after it, a matrix product with its bias, and a
Reshape before a Gemm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir

from hexforge.frontends.onnx.fusions.net import (
    Fusion,
    Net,
    attribute,
    constant_input,
    is_plain,
    operand_shape,
    other_input,
)
from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.translate.products.conv import conv
from hexforge.frontends.onnx.unit import Operand, Unit, UnitKind
from hexforge.ir import Array, ScaleOffset

_DQ = ("DequantizeLinear", "com.microsoft:DequantizeLinear")


def _source(net: Net, operand: Operand | None) -> Operand | None:
    """The constant behind an operand, also through its DQ; None where it is computed."""
    dq = net.before(operand, *_DQ)
    source = operand if dq is None else dq.inputs[0]
    return source if source is not None and source.value.const_value is not None else None


def _scaled_conv(net: Net, convolution: Unit) -> Unit | None:
    """A BatchNormalization, or a Mul or Add of constants of the channels, after a Conv: a Conv with other weights.

    onnxruntime does so before a provider sees the model.
    """
    after = net.reader(convolution, "BatchNormalization", "Mul", "Add")
    if after is None or not is_plain(convolution) or not is_plain(after):
        return None
    weight, bias, x = constant_input(convolution, 1), constant_input(convolution, 2), after.inputs[0]
    if weight is None or x is None or convolution.outputs[0] is None or x.value is not convolution.outputs[0].value:
        return None
    if bias is None and len(convolution.inputs) > 2 and convolution.inputs[2] is not None:
        return None
    affine = _normalizing(after) if after.target.op_type == "BatchNormalization" else _of_channels(after, weight)
    if affine is None:
        return None
    factor, shift = affine
    scaled = weight.astype(np.float64) * factor.reshape(-1, *[1] * (weight.ndim - 1))
    moved = np.zeros(weight.shape[0]) if bias is None else bias.astype(np.float64)
    moved = moved * factor + shift
    name = convolution.target.name
    folded = [_constant(f"{name}_weight", scaled, weight), _constant(f"{name}_bias", moved, weight)]
    whole = net.join(UnitKind.SCALED_CONV, [convolution, after], [convolution.inputs[0], *folded], after.outputs[:1])
    return None if whole is None else replace(whole, target=convolution.target)


def _normalizing(norm: Unit) -> tuple[Array, Array] | None:
    """Factor and shift of a normalization by constants."""
    parameters = [constant_input(norm, i) for i in range(1, 5)]
    if any(p is None for p in parameters) or attribute(norm, "training_mode", 0) or not attribute(norm, "spatial", 1):
        return None
    gamma, beta, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    factor = gamma / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
    return factor, beta - mean * factor


def _of_channels(unit: Unit, weight: Array) -> tuple[Array, Array] | None:
    """Factor and shift of a Mul or Add whose second input is a constant for each channel, as onnxruntime wants it."""
    constant, channels = constant_input(unit, 1), weight.shape[0]
    if constant is None:
        return None
    each = (channels, *[1] * (weight.ndim - 2))
    if constant.shape not in (each, (1, *each)) and (constant.ndim or unit.target.op_type == "Add"):
        return None
    values = np.broadcast_to(constant.astype(np.float64).reshape(-1), (channels,))
    return (values, np.zeros(channels)) if unit.target.op_type == "Mul" else (np.ones(channels), values)


def _constant(name: str, array: Array, like: Array) -> Operand:
    """A constant of numbers that are computed here, in another one's type."""
    tensor = onnx_ir.tensor(np.ascontiguousarray(array.astype(like.dtype)), name=name)
    type, shape = onnx_ir.TensorType(tensor.dtype), onnx_ir.Shape(array.shape)
    return Operand(onnx_ir.Value(name=name, shape=shape, type=type, const_value=tensor))


def _matmul_add(net: Net, matmul: Unit) -> Unit | None:
    """x B + c with a constant matrix B and a constant row c; with DQ before, [Relu] and Q after, all of it."""
    add = net.reader(matmul, "Add")
    if add is None or not is_plain(matmul) or not is_plain(add):
        return None
    index = other_input(add, matmul.outputs[0])
    if index is None:
        return None
    weight, bias = _source(net, matmul.inputs[1]), _source(net, add.inputs[index])
    x, matrix, row = operand_shape(matmul.inputs[0]), operand_shape(weight), operand_shape(bias)
    if x is None or matrix is None or row is None or len(x) < 2 or len(matrix) != 2:
        return None
    assert bias is not None
    flat = row[-1:] == (matrix[1],) and set(row[:-1]) <= {1}
    if not flat or (len(row) > 1 and bias.encoding is not None):
        return None
    if operand_shape(add.outputs[0]) != (*x[:-1], matrix[1]):
        return None
    whole = net.quantized(
        net.join(
            UnitKind.MATMUL_ADD, [matmul, add], [matmul.inputs[0], matmul.inputs[1], add.inputs[index]], add.outputs
        )
    )
    if whole is None or any(o is None or o.value.const_value is None for o in (whole.inputs[1], whole.inputs[2])):
        return None  # a DQ of the weight that cannot be taken in: the product stays a MatMul
    return whole


def _write_matmul_add(b: Builder, u: Unit) -> None:
    x, weight, bias = b.input(u, 0), b.transpose(b.input(u, 1), (1, 0)), b.input(u, 2)
    bias = b.reshape(bias, (weight.shape[0],))
    b.emit("FullyConnected", [x, weight, bias], b.output(u), keep_dims=len(x.shape) != 2)


def _reshape_gemm(net: Net, reshape: Unit) -> Unit | None:
    """FullyConnected flattens its input itself."""
    gemm = net.reader(reshape, "Gemm")
    if gemm is None or gemm.inputs[0] is None or reshape.outputs[0] is None or reshape.inputs[0] is None:
        return None
    source, flat = reshape.inputs[0], reshape.outputs[0]
    if gemm.inputs[0].value is not flat.value or source.encoding != flat.encoding:
        return None
    if not isinstance(source.encoding, ScaleOffset | None) or flat.encoding != gemm.inputs[0].encoding:
        return None
    if attribute(gemm, "transA", 0) or attribute(gemm, "alpha", 1.0) != 1.0 or attribute(gemm, "beta", 1.0) != 1.0:
        return None
    weight = gemm.inputs[1]
    size, rows = operand_shape(weight), operand_shape(flat)
    if weight is None or weight.value.const_value is None or size is None or rows is None or not operand_shape(source):
        return None
    n, k = size if attribute(gemm, "transB", 0) else size[::-1]
    bias = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    if rows[-1] != k or (bias is not None and (bias.value.const_value is None or operand_shape(bias) != (n,))):
        return None
    whole = net.join(UnitKind.RESHAPE_GEMM, [reshape, gemm], [source, weight, bias], gemm.outputs)
    return None if whole is None else replace(whole, clip=gemm.clip, dequantized=gemm.dequantized)


def _write_reshape_gemm(b: Builder, u: Unit) -> None:
    weight = b.input(u, 1)
    if not b.attr(u, "transB", 0):  # the Gemm is the target
        weight = b.transpose(weight, (1, 0))
    b.emit("FullyConnected", [b.input(u, 0), weight, b.optional(u, 2)], b.output(u))


FUSIONS: tuple[Fusion, ...] = (
    Fusion(UnitKind.SCALED_CONV, ("Conv",), _scaled_conv, conv, ("Conv2d", "Conv3d", "DepthWiseConv2d")),
    Fusion(UnitKind.MATMUL_ADD, ("MatMul",), _matmul_add, _write_matmul_add, ("FullyConnected",)),
    Fusion(UnitKind.RESHAPE_GEMM, ("Reshape",), _reshape_gemm, _write_reshape_gemm, ("FullyConnected",)),
)
