# SPDX-License-Identifier: Apache-2.0
"""Casts, and QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear standing alone."""

from __future__ import annotations

from dataclasses import replace

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.pointwise_elementwise import number
from hexforge.frontends.onnx.unit import Operand, Refusal, Unit, onnx_dtype, onnx_shape
from hexforge.frontends.onnx.unit_encodings import encoding_of
from hexforge.ir import DType, Encoding, TensorType


@translates("Cast", "CastLike", writes=("Cast",))
def cast(b: Builder, u: Unit) -> None:
    """Cast to the output's type."""
    b.emit("Cast", [b.real(u, 0)], b.output(u))


def _encoding(b: Builder, u: Unit, operand: Operand) -> Encoding:
    """The encoding that the scale and zero-point inputs of a Q or DQ node give `operand`."""
    if u.refusal is not None:
        raise Refusal(u.refusal)
    if operand.encoding is not None:
        return operand.encoding
    scale, zero_point = b.constant(u, 1, "the scale"), b.constant(u, 2, "the zero point")
    if scale is None:
        raise Refusal("the scale is missing")
    axis, block = int(b.attr(u, "axis", 1)), int(b.attr(u, "block_size", 0))
    return encoding_of(scale, zero_point, axis, block, onnx_shape(operand.value), onnx_dtype(operand.value))


@translates("QuantizeLinear", "com.microsoft:QuantizeLinear", writes=("Quantize",))
def quantize_linear(b: Builder, u: Unit) -> None:
    """QuantizeLinear with constant scale and zero point: the output becomes fixed point."""
    out = u.outputs[0]
    if out is None:
        raise Refusal("output 0 is missing")
    encoded = replace(u, outputs=(Operand(out.value, _encoding(b, u, out)),))
    x = b.input(u, 0)
    if not x.dtype.is_float:  # int32 is read as a number
        x = b.emit("Cast", [x], TensorType(DType.FLOAT32, x.shape))
    b.emit("Quantize", [x], b.output(encoded))


@translates("DequantizeLinear", "com.microsoft:DequantizeLinear", writes=("Dequantize",))
def dequantize_linear(b: Builder, u: Unit) -> None:
    """DequantizeLinear with constant scale and zero point: the input is read as fixed point."""
    x = b.operand(u, 0)
    value = b.bind(Operand(x.value, _encoding(b, u, x)))
    b.emit("Dequantize", [value], b.output(u))


@translates(
    "DynamicQuantizeLinear",
    writes=(
        "ElementWiseAdd", "ElementWiseDivide", "ElementWiseEqual", "ElementWiseMaximum", "ElementWiseMinimum",
        "ElementWiseRound", "ElementWiseSelect", "ElementWiseSubtract", "ReduceMax", "ReduceMin",
    ),
)  # fmt: skip
def dynamic_quantize_linear(b: Builder, u: Unit) -> None:
    """DynamicQuantizeLinear, composed as ONNX defines it; an all-zero input has scale 1."""
    x = b.real(u, 0)
    axes = tuple(range(len(x.shape)))
    zero = number(b, 0, x)
    low = b.emit("ElementWiseMinimum", [b.emit("ReduceMin", [x], axes=axes), zero])
    high = b.emit("ElementWiseMaximum", [b.emit("ReduceMax", [x], axes=axes), zero])
    step = b.emit("ElementWiseDivide", [b.emit("ElementWiseSubtract", [high, low]), number(b, 255, x)])
    flat = b.emit("ElementWiseEqual", [step, zero])
    scale = b.emit("ElementWiseSelect", [flat, number(b, 1, x), step])
    top = number(b, 255, x)
    place = b.emit("ElementWiseSubtract", [zero, b.emit("ElementWiseDivide", [low, scale])])
    place = b.emit("ElementWiseMinimum", [b.emit("ElementWiseMaximum", [place, zero]), top])
    zero_point = b.emit("ElementWiseRound", [place])
    steps = b.emit("ElementWiseRound", [b.emit("ElementWiseDivide", [x, scale])])
    steps = b.emit("ElementWiseAdd", [steps, zero_point])
    steps = b.emit("ElementWiseMinimum", [b.emit("ElementWiseMaximum", [steps, zero]), top])
    for i, value in enumerate((steps, scale, zero_point)):
        if b.wants(u, i):
            b.finish(u, value, i)
