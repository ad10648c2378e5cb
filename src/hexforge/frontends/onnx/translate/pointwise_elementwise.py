# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops, and random numbers in the shape of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir

from hexforge.frontends.onnx.translate.builder import Builder, binary, carried, cast, scaled_output, translates
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, ScaleOffset, TensorType, Value
from hexforge.ir.fixed_point import dequantize, quantized_range

Read = Callable[[Builder, Unit, int], Value]


@dataclass(frozen=True, slots=True)
class PlainOp:
    """An ONNX op that is one QNN op of the same inputs, with attributes as parameters."""

    qnn: str
    read: Read = carried
    """How inputs are read: fixed point where the output is, too, or whatever the output is."""
    attributes: Mapping[str, float | bool] = field(default_factory=dict)
    """Their defaults, of the type that the parameters have."""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Parameters that are always the same."""


_DETECT = {"detect_negative": True, "detect_positive": True}
PLAIN_OPS = {
    "Abs": PlainOp("ElementWiseAbs"),
    "Add": PlainOp("ElementWiseAdd"),
    "Asin": PlainOp("ElementWiseAsin"),
    "Atan": PlainOp("ElementWiseAtan"),
    "Ceil": PlainOp("ElementWiseCeil"),
    "Cos": PlainOp("ElementWiseCos"),
    "Div": PlainOp("ElementWiseDivide"),
    "Elu": PlainOp("Elu", attributes={"alpha": 1.0}),
    "Exp": PlainOp("ElementWiseExp"),
    "Floor": PlainOp("ElementWiseFloor"),
    "HardSigmoid": PlainOp("ElementWiseNeuron", attributes={"alpha": 0.2, "beta": 0.5}, fixed={"operation": 2}),
    "HardSwish": PlainOp("HardSwish"),
    "Log": PlainOp("ElementWiseLog"),
    "Mul": PlainOp("ElementWiseMultiply"),
    "Neg": PlainOp("ElementWiseNeg"),
    "PRelu": PlainOp("Prelu"),
    "Pow": PlainOp("ElementWisePower"),
    "Relu": PlainOp("Relu"),
    "Round": PlainOp("ElementWiseRound"),
    "Sigmoid": PlainOp("Sigmoid"),
    "Sign": PlainOp("ElementWiseSign"),
    "Sin": PlainOp("ElementWiseSin"),
    "Softplus": PlainOp("ElementWiseSoftplus"),
    "Sqrt": PlainOp("ElementWiseSquareRoot"),
    "Sub": PlainOp("ElementWiseSubtract"),
    "Tanh": PlainOp("Tanh"),
    # with boolean results, which compare fixed point by its real values
    "And": PlainOp("ElementWiseAnd", Builder.input),
    "Equal": PlainOp("ElementWiseEqual", Builder.input),
    "Greater": PlainOp("ElementWiseGreater", Builder.input),
    "GreaterOrEqual": PlainOp("ElementWiseGreaterEqual", Builder.input),
    "IsInf": PlainOp("IsInf", Builder.input, _DETECT),
    "IsNaN": PlainOp("IsNan", Builder.input),
    "Less": PlainOp("ElementWiseLess", Builder.input),
    "LessOrEqual": PlainOp("ElementWiseLessEqual", Builder.input),
    "Not": PlainOp("ElementWiseNot", Builder.input),
    "Or": PlainOp("ElementWiseOr", Builder.input),
    "Xor": PlainOp("ElementWiseXor", Builder.input),
}
"""ONNX op type -> what it is."""
_ADDED_ROWS = ("Concat", "ReduceSum", "Reshape")
_FOLDED = {"Max": "ElementWiseMaximum", "Min": "ElementWiseMinimum", "Sum": "ElementWiseAdd"}


def number(b: Builder, value: float, like: Value) -> Value:
    """A constant scalar of `like`'s data type (float32 where that is fixed point)."""
    dtype = DType.FLOAT32 if like.encoding is not None else like.dtype
    return b.static(np.asarray(value).astype(dtype.numpy))


@translates(*PLAIN_OPS, writes={op: row.qnn for op, row in PLAIN_OPS.items()})
def plain_op(b: Builder, u: Unit) -> None:
    """An op that is a row of the table."""
    row = PLAIN_OPS[u.target.op_type]
    inputs = [row.read(b, u, i) for i in range(len(u.inputs))]
    given = {name: type(default)(b.attr(u, name, default)) for name, default in row.attributes.items()}
    b.emit(row.qnn, inputs, b.output(u), **given, **row.fixed)


@translates("Max", writes=("ElementWiseMaximum",))
@translates("Min", writes=("ElementWiseMinimum",))
@translates("Sum", writes=("ElementWiseAdd", *_ADDED_ROWS))
@translates("Mean", writes=("ElementWiseAdd", "ElementWiseDivide", "ElementWiseMultiply", *_ADDED_ROWS))
def fold_inputs(b: Builder, u: Unit) -> None:
    """Ops of any number of inputs: two at a time, in real numbers where there are intermediates."""
    op, mean = _FOLDED.get(u.target.op_type, "ElementWiseAdd"), u.target.op_type == "Mean"
    count = len(u.inputs)
    if count == 2 and not mean:
        b.emit(op, [carried(b, u, 0), carried(b, u, 1)], b.output(u))
        return
    if _fold_fixed_point(b, u, op, count if mean else 1):
        return
    value = b.real(u, 0)
    for i in range(1, count):
        value = b.emit(op, [value, b.real(u, i)])
    b.finish(u, b.emit("ElementWiseDivide", [value, number(b, count, value)]) if mean else value)


def _fold_fixed_point(b: Builder, u: Unit, op: str, divisor: int) -> bool:
    """Compute it in fixed point where that loses less, and return True; else return False.

    Maxima and minima are rounded once, whatever the number of inputs: rounding keeps the order. So are sums of two, or
    of inputs of one type; a partial sum of others is rounded to 16 bits of its own range: real numbers have 11 here.
    """
    out, values = b.output(u), [b.input(u, i) for i in range(len(u.inputs))]
    encodings = [v.encoding for v in values]
    if not isinstance(out.encoding, ScaleOffset) or not all(isinstance(e, ScaleOffset) for e in encodings):
        return False
    if op != "ElementWiseAdd":
        value = values[0]
        for other in values[1:]:
            last = other is values[-1]
            value = b.emit(op, [value, other], out if last else out.type.with_shape(_together(value, other)))
        if len(values) == 1:
            b.finish(u, value)
        return True
    if len(values) > 2 and out.dtype.bits < 16:
        return False
    if len(values) > 2 and all(v.type == values[0].type for v in values):
        return scaled_output(b, u, 1 / divisor, lambda to: _sum_rounded_once(b, values, to))
    value = values[0]
    for other in values[1:-1]:
        shape = _together(value, other)
        value = b.emit(op, [value, other], TensorType(out.dtype, shape, _sum_encoding(value, other, out.dtype)))
    if len(values) == 1:
        return False
    return scaled_output(b, u, 1 / divisor, lambda to: b.emit(op, [value, values[-1]], to))


def _sum_rounded_once(b: Builder, values: Sequence[Value], to: Value | TensorType) -> Value:
    """The sum of values of one type, as rows under each other: added up as integers, and rounded once."""
    type = to if isinstance(to, TensorType) else to.type
    size = values[0].type.size
    rows = b.emit("Concat", [b.reshape(value, (1, size)) for value in values], axis=0)
    flat = b.emit("ReduceSum", [rows], type.with_shape((size,)), axes=(0,), keep_dims=False)
    return b.emit("Reshape", [flat], to)


def _together(x: Value, y: Value) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(x.shape, y.shape))


def _sum_encoding(x: Value, y: Value, dtype: DType) -> ScaleOffset:
    """The finest encoding that holds every sum of two fixed-point values."""
    low = high = 0.0
    for value in (x, y):
        assert value.encoding is not None
        ends = np.asarray(quantized_range(value.dtype, value.encoding), np.int64)
        least_real, most_real = dequantize(ends, value.type.with_shape((2,)))
        low, high = low + float(least_real), high + float(most_real)
    least, most = quantized_range(dtype, ScaleOffset(1.0))
    scale = (max(high, 0.0) - min(low, 0.0)) / (most - least) or 1.0
    return ScaleOffset(scale, -round(least - min(low, 0.0) / scale))


@translates("Mod", writes=("ElementWiseFmod", "ElementWiseMod"))
def mod(b: Builder, u: Unit) -> None:
    """Mod: sign of the divisor, or of the dividend with fmod=1."""
    op = "ElementWiseFmod" if b.attr(u, "fmod", 0) else "ElementWiseMod"
    b.emit(op, [carried(b, u, 0), carried(b, u, 1)], b.output(u))


@translates("Reciprocal", writes=("ElementWiseDivide",))
def reciprocal(b: Builder, u: Unit) -> None:
    """Reciprocal as one divided by the input."""
    x = carried(b, u)
    one = number(b, 1, x) if x.encoding is None else b.static(np.asarray(1).astype(x.dtype.numpy), ScaleOffset(1.0))
    b.emit("ElementWiseDivide", [one, x], b.output(u))


@translates("Tan", writes=("ElementWiseCos", "ElementWiseDivide", "ElementWiseSin"))
def tan(b: Builder, u: Unit) -> None:
    """Tan as sine over cosine, in real numbers."""
    x = b.real(u, 0)
    b.finish(u, b.emit("ElementWiseDivide", [b.emit("ElementWiseSin", [x]), b.emit("ElementWiseCos", [x])]))


@translates("Where", writes=("ElementWiseSelect",))
def where(b: Builder, u: Unit) -> None:
    """Where as Select."""
    b.emit("ElementWiseSelect", [b.input(u, 0), carried(b, u, 1), carried(b, u, 2)], b.output(u))


@translates("Identity", writes=("Reshape",))
def identity(b: Builder, u: Unit) -> None:
    """Identity: a Reshape to the same shape, which passes take out."""
    type = b.operand(u, 0).value.type
    if not isinstance(type, onnx_ir.TensorType):
        raise Refusal(f"Identity of {type}; QNN has tensors only")
    b.finish(u, b.input(u, 0))


@translates("Dropout", writes=("Reshape",))
def dropout(b: Builder, u: Unit) -> None:
    """Dropout in inference: the input, and a mask of trues."""
    training, ratio = b.constant(u, 2, "training_mode"), None
    if training is not None and training.any():
        ratio = b.constant(u, 1, "ratio")
        if ratio is None or ratio.any():
            raise Refusal("Dropout with training_mode true is random; export the model for inference")
    b.finish(u, b.input(u, 0))
    if b.wants(u, 1):
        mask = b.output(u, 1)
        b.finish(u, b.static(np.ones(mask.shape, mask.dtype.numpy)), 1)


# -- random numbers ----------------------------------------------------------------------------------------------------


def _seed(b: Builder, u: Unit) -> float:
    """The node's seed; QNN's 0 means fresh numbers on every run, so an explicit 0 becomes another number."""
    seed = b.attr(u, "seed", None)
    return 0.0 if seed is None else float(seed) or 0.5


def _draw(b: Builder, u: Unit, op: str, **params: float) -> Value:
    x = b.real(u, 0)
    out = b.output(u).dtype
    dtype = out if out.is_float else DType.FLOAT32
    return b.emit(op, [x], TensorType(dtype, x.shape), seed=_seed(b, u), **params)


@translates("RandomUniformLike", writes=("RandomUniformLike",))
def random_uniform_like(b: Builder, u: Unit) -> None:
    """Uniform numbers in [low, high)."""
    low, high = float(b.attr(u, "low", 0.0)), float(b.attr(u, "high", 1.0))
    b.finish(u, _draw(b, u, "RandomUniformLike", low=low, high=high))


@translates("RandomNormalLike", writes=("RandomNormalLike",))
def random_normal_like(b: Builder, u: Unit) -> None:
    """Normal numbers."""
    mean, scale = float(b.attr(u, "mean", 0.0)), float(b.attr(u, "scale", 1.0))
    if scale < 0:
        raise Refusal(f"scale {scale} is negative")
    b.finish(u, _draw(b, u, "RandomNormalLike", mean=mean, scale=scale))


@translates("Bernoulli", writes=("ElementWiseLess", "RandomUniformLike"))
def bernoulli(b: Builder, u: Unit) -> None:
    """1 with the probability each element gives: a uniform number is below it."""
    x = cast(b, b.real(u, 0), DType.FLOAT32)
    drawn = b.emit("RandomUniformLike", [x], x.type, seed=_seed(b, u))
    b.finish(u, binary(b, "Less", drawn, x))
