# SPDX-License-Identifier: Apache-2.0
"""Activations that are no single QNN op of the same inputs; casts; and QuantizeLinear and its kin standing alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hexforge.frontends.onnx.translate.builder import (
    Builder,
    binary,
    carried,
    cast,
    exact_scalar,
    scaled_output,
    translates,
)
from hexforge.frontends.onnx.translate.pointwise_elementwise import number
from hexforge.frontends.onnx.unit import Operand, Refusal, Unit, onnx_dtype, onnx_shape
from hexforge.frontends.onnx.unit_encodings import encoding_of
from hexforge.ir import DType, Encoding, ScaleOffset, TensorType, Value


def wide(b: Builder, u: Unit, index: int = 0) -> Value:
    """An input as float32, so that intermediate results are not rounded to fixed point or 16 bits."""
    return cast(b, b.real(u, index), DType.FLOAT32)


@translates("LeakyRelu", writes=("Prelu",))
def leaky_relu(b: Builder, u: Unit) -> None:
    """LeakyRelu as Prelu with one coefficient."""
    x = carried(b, u)
    b.emit("Prelu", [x, exact_scalar(b, float(b.attr(u, "alpha", 0.01)), x)], b.output(u))


@translates("Gelu", writes=("ElementWiseAdd", "ElementWiseMultiply", "Gelu", "Tanh"))
@translates("com.microsoft:Gelu", writes=("Gelu",))
def gelu(b: Builder, u: Unit) -> None:
    """Gelu, exact as one op, or its tanh approximation composed."""
    approximate = b.attr(u, "approximate", "none")
    if approximate == "none":
        b.emit("Gelu", [carried(b, u)], b.output(u))
        return
    if approximate != "tanh":
        raise Refusal(f"approximate {approximate!r} is unknown; use none or tanh")
    x = wide(b, u)
    cube = binary(b, "Multiply", binary(b, "Multiply", binary(b, "Multiply", x, x), x), 0.044715)
    inner = b.emit("Tanh", [binary(b, "Multiply", binary(b, "Add", cube, x), math.sqrt(2 / math.pi))])
    b.finish(u, binary(b, "Multiply", binary(b, "Multiply", x, 0.5), binary(b, "Add", inner, 1.0)))


@translates("Mish", writes=("ElementWiseMultiply", "ElementWiseSoftplus", "Tanh"))
def mish(b: Builder, u: Unit) -> None:
    """x tanh(softplus(x)), as ONNX defines it by other ops, and as the EP takes it."""
    x = wide(b, u)
    b.finish(u, binary(b, "Multiply", x, b.emit("Tanh", [b.emit("ElementWiseSoftplus", [x])])))


@translates("Swish", "com.microsoft:QuickGelu", writes=("ElementWiseMultiply", "Sigmoid"))
def swish(b: Builder, u: Unit) -> None:
    """x sigmoid(alpha x)."""
    alpha = float(b.attr(u, "alpha", 1.0 if u.target.op_type == "Swish" else 1.702))
    x = wide(b, u)
    gate = b.emit("Sigmoid", [binary(b, "Multiply", x, alpha) if alpha != 1 else x])
    b.finish(u, binary(b, "Multiply", x, gate))


@translates("Selu", writes=("ElementWiseMultiply", "Elu"))
def selu(b: Builder, u: Unit) -> None:
    """gamma times Elu."""
    alpha, gamma = float(b.attr(u, "alpha", 1.6732632)), float(b.attr(u, "gamma", 1.0507010))
    if scaled_output(b, u, gamma, lambda out: b.emit("Elu", [b.input(u, 0)], out, alpha=alpha)):
        return
    b.finish(u, binary(b, "Multiply", b.emit("Elu", [wide(b, u)], alpha=alpha), gamma))


@translates("ThresholdedRelu", writes=("ElementWiseGreater", "ElementWiseSelect"))
def thresholded_relu(b: Builder, u: Unit) -> None:
    """x where it is above alpha, else 0."""
    x, alpha = carried(b, u), float(b.attr(u, "alpha", 1.0))
    above = b.emit("ElementWiseGreater", [x, exact_scalar(b, alpha, x)])
    zero = exact_scalar(b, 0, x)
    if isinstance(x.encoding, ScaleOffset):
        zero = b.static(np.full(zero.shape, -x.encoding.offset).astype(x.dtype.numpy), x.encoding)
    b.finish(u, b.emit("ElementWiseSelect", [above, x, zero], x.type))


@translates("Clip", writes=("ElementWiseMaximum", "ElementWiseMinimum", "ReluMinMax"))
def clip(b: Builder, u: Unit) -> None:
    """ReluMinMax with constant bounds on real numbers; else Maximum and Minimum."""
    x = carried(b, u)
    given = [b.has(u, i) or b.attr(u, name) is not None for i, name in ((1, "min"), (2, "max"))]
    steady = all(b.is_constant(u, i) for i in (1, 2) if b.has(u, i))
    if not any(given):
        b.finish(u, b.input(u, 0))
        return
    if steady and (x.encoding is not None or x.dtype.is_float):
        bounds = [_bound(b, u, 1, "min", -math.inf), _bound(b, u, 2, "max", math.inf)]
        b.emit("ReluMinMax", [x], b.output(u), min_value=bounds[0], max_value=bounds[1])
        return
    value = b.real(u, 0)
    for index, name, op in ((1, "min", "Maximum"), (2, "max", "Minimum")):
        if b.has(u, index):
            value = binary(b, op, value, b.real(u, index))
        elif b.attr(u, name) is not None:
            value = binary(b, op, value, float(b.attr(u, name)))
    b.finish(u, value)


def _bound(b: Builder, u: Unit, index: int, name: str, default: float) -> float:
    bound = b.constant(u, index, name)
    if bound is None:
        return float(b.attr(u, name, default))
    if bound.size != 1:
        raise Refusal(f"{name} has {bound.size} elements; it must be one number")
    return float(bound.reshape(()))


@translates("Cast", "CastLike", writes=("Cast",))
def translate_cast(b: Builder, u: Unit) -> None:
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
