# SPDX-License-Identifier: Apache-2.0
"""Fusions into products: a convolution with what scales its channels after it, a matrix product with its bias, and a
Reshape before a Gemm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir

from hexforge.frontends.onnx.fusions.net import Fusion, Net, attribute, is_plain, operand_shape
from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.translate.products_conv import conv
from hexforge.frontends.onnx.unit import Operand, Unit, UnitKind
from hexforge.ir import Array, ScaleOffset
from hexforge.patterns.affine import NORMALIZATION, affine, is_taken_into_conv
from hexforge.patterns.language import anything, find_at, op
from hexforge.patterns.layers import layer
from hexforge.patterns.nodes import data

_DQ = ("DequantizeLinear", "com.microsoft:DequantizeLinear")

CONV = op("Conv", where=is_plain)
SCALED_CONV = op(
    f"{NORMALIZATION} Mul Add", CONV, where=lambda unit: is_plain(unit) and is_taken_into_conv(unit.target)
)
BIAS, MATMUL = anything(), op("MatMul", where=is_plain)
MATMUL_ADD = op("Add", MATMUL, BIAS, where=is_plain)
RESHAPE = op("Reshape")
RESHAPE_GEMM = op("Gemm", RESHAPE)


def _source(net: Net, operand: Operand | None) -> Operand | None:
    """The constant behind an operand, also through its DQ; None where it is computed."""
    dq = net.before(operand, *_DQ)
    source = operand if dq is None else dq.inputs[0]
    return source if source is not None and source.value.const_value is not None else None


def _scaled_conv(net: Net, convolution: Unit) -> Unit | None:
    """A BatchNormalization, or a Mul or Add of constants of the channels, after a Conv: a Conv with other weights.

    onnxruntime does so before a provider sees the model.
    """
    match = find_at(SCALED_CONV, (CONV,), net, convolution)
    if match is None:
        return None
    product, scaled = layer(convolution.target, data), affine(match.last.target)
    if product is None or scaled is None:
        return None
    weight, bias = product.numbers
    name, (scaled_weight, moved) = convolution.target.name, scaled.after(weight, bias)
    folded = [_constant(f"{name}_weight", scaled_weight, weight), _constant(f"{name}_bias", moved, weight)]
    whole = net.join(UnitKind.SCALED_CONV, match.nodes, [convolution.inputs[0], *folded], match.last.outputs[:1])
    return None if whole is None else replace(whole, target=convolution.target)


def _constant(name: str, array: Array, like: Array) -> Operand:
    """A constant of numbers that are computed here, in another one's type."""
    tensor = onnx_ir.tensor(np.ascontiguousarray(array.astype(like.dtype)), name=name)
    type, shape = onnx_ir.TensorType(tensor.dtype), onnx_ir.Shape(array.shape)
    return Operand(onnx_ir.Value(name=name, shape=shape, type=type, const_value=tensor))


def _matmul_add(net: Net, matmul: Unit) -> Unit | None:
    """x B + c with a constant matrix B and a constant row c; with DQ before, [Relu] and Q after, all of it."""
    match = find_at(MATMUL_ADD, (MATMUL,), net, matmul)
    if match is None:
        return None
    added, outputs = Operand(match[BIAS]), match.last.outputs
    weight, bias = _source(net, matmul.inputs[1]), _source(net, added)
    x, matrix, row = operand_shape(matmul.inputs[0]), operand_shape(weight), operand_shape(bias)
    if x is None or matrix is None or row is None or bias is None or len(x) < 2 or len(matrix) != 2:
        return None
    flat = row[-1:] == (matrix[1],) and set(row[:-1]) <= {1}
    if not flat or (len(row) > 1 and bias.encoding is not None):
        return None
    if operand_shape(outputs[0]) != (*x[:-1], matrix[1]):
        return None
    whole = net.quantized(net.join(UnitKind.MATMUL_ADD, match.nodes, [*matmul.inputs, added], outputs))
    if whole is None or any(o is None or o.value.const_value is None for o in (whole.inputs[1], whole.inputs[2])):
        return None  # a DQ of the weight that cannot be taken in: the product stays a MatMul
    return whole


def _write_matmul_add(b: Builder, u: Unit) -> None:
    x, weight, bias = b.input(u, 0), b.transpose(b.input(u, 1), (1, 0)), b.input(u, 2)
    bias = b.reshape(bias, (weight.shape[0],))
    b.emit("FullyConnected", [x, weight, bias], b.output(u), keep_dims=len(x.shape) != 2)


def _reshape_gemm(net: Net, reshape: Unit) -> Unit | None:
    """FullyConnected flattens its input itself."""
    match = find_at(RESHAPE_GEMM, (RESHAPE,), net, reshape)
    if match is None:
        return None
    gemm, source, flat = match.last, reshape.inputs[0], reshape.outputs[0]
    weight, bias = gemm.inputs[1], gemm.inputs[2] if len(gemm.inputs) > 2 else None
    encodings = {None if operand is None else operand.encoding for operand in (source, flat, gemm.inputs[0])}
    if len(encodings) != 1 or not isinstance(encodings.pop(), ScaleOffset | None):
        return None
    if attribute(gemm, "transA", 0) or attribute(gemm, "alpha", 1.0) != 1.0 or attribute(gemm, "beta", 1.0) != 1.0:
        return None
    size, rows = operand_shape(weight), operand_shape(flat)
    if weight is None or weight.value.const_value is None or size is None or rows is None or not operand_shape(source):
        return None
    n, k = size if attribute(gemm, "transB", 0) else size[::-1]
    if rows[-1] != k or (bias is not None and (bias.value.const_value is None or operand_shape(bias) != (n,))):
        return None
    whole = net.join(UnitKind.RESHAPE_GEMM, match.nodes, [source, weight, bias], gemm.outputs)
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
