# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops: unary, binary, comparison, logical and select, rows of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hexforge.errors import ModelError
from hexforge.ir import POINTWISE, Array, Call, DType, Param, TensorType, Work, define, per_element
from hexforge.ops import rules


def broadcast(call: Call, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The numpy-broadcast of shapes; ModelError naming them if they do not fit."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise call.fail(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast") from None


def same_dtype(call: Call, *indices: int) -> DType:
    """The one data type of the given inputs; fixed-point inputs may differ among themselves."""
    types = [call.input(i) for i in indices]
    plain = {t.dtype for t in types if t.encoding is None}
    if len(plain) > 1:
        raise call.fail(f"inputs have different data types: {', '.join(sorted(d.value for d in plain))}")
    return types[0].dtype if not plain else plain.pop()


def _infer_unary(call: Call) -> tuple[TensorType, ...]:
    return (TensorType(call.input(0).dtype, call.input(0).shape),)


def _infer_binary(call: Call) -> tuple[TensorType, ...]:
    return (TensorType(same_dtype(call, 0, 1), broadcast(call, call.input(0).shape, call.input(1).shape)),)


def _infer_predicate(call: Call) -> tuple[TensorType, ...]:
    return (TensorType(DType.BOOL, _infer_binary(call)[0].shape),)


def _infer_logic(call: Call) -> tuple[TensorType, ...]:
    for index, type in enumerate(call.ins):
        if type is not None and type.dtype is not DType.BOOL:
            raise call.fail(f"input {index} is {type.dtype.value}; it combines booleans, not the bits of numbers")
    return (TensorType(DType.BOOL, broadcast(call, *(t.shape for t in call.ins if t is not None))),)


def _wrap(function: Callable[..., Any]) -> Callable[..., Array]:
    def reference(call: Call, *arrays: Array) -> Array:
        return np.asarray(function(*arrays))

    return reference


def trunc_mod(a: Array, b: Array) -> Array:
    """C's remainder: sign of the dividend."""
    return np.fmod(a, b)


def divide(a: Array, b: Array) -> Array:
    """Division; integers truncate towards zero, and x / 0 is 0 there."""
    if not np.issubdtype(a.dtype, np.integer):
        return np.divide(a, b)
    safe = np.where(b == 0, 1, b)
    quotient = a // safe
    toward_zero = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, 0, toward_zero)


def power(a: Array, b: Array) -> Array:
    """a to the power of b in a's type; negative integer exponents go through float64."""
    if np.issubdtype(a.dtype, np.integer):
        if np.issubdtype(b.dtype, np.integer) and (b >= 0).all():
            return np.asarray(np.power(a, b.astype(a.dtype)))
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    # an exponent of 2 in fixed point is 2 only as a float32, which is what DequantizeLinear gives
    return np.asarray(np.power(a, b.astype(np.float32).astype(a.dtype)))


def _infer_power(call: Call) -> tuple[TensorType, ...]:
    return (TensorType(call.input(0).dtype, broadcast(call, call.input(0).shape, call.input(1).shape)),)


# name, function, kind of work
_UNARY: tuple[tuple[str, Callable[..., Any], Work], ...] = (
    ("Abs", np.abs, Work.ADD),
    ("Asin", np.arcsin, Work.LOOKUP),
    ("Atan", np.arctan, Work.LOOKUP),
    ("Ceil", np.ceil, Work.ADD),
    ("Cos", np.cos, Work.LOOKUP),
    ("Exp", np.exp, Work.LOOKUP),
    ("Floor", np.floor, Work.ADD),
    ("Log", np.log, Work.LOOKUP),
    ("Neg", np.negative, Work.ADD),
    ("Not", np.logical_not, Work.LOGIC),
    ("Round", np.rint, Work.ADD),
    ("Rsqrt", lambda x: 1 / np.sqrt(x), Work.LOOKUP),
    ("Sign", np.sign, Work.ADD),
    ("Sin", np.sin, Work.LOOKUP),
    ("SquareRoot", np.sqrt, Work.LOOKUP),
    ("Softplus", lambda x: np.logaddexp(x, 0), Work.LOOKUP),
)
for _name, _function, _kind in _UNARY:
    _lookups = int(_kind is Work.LOOKUP)
    define(
        f"ElementWise{_name}",
        "in",
        infer=_infer_logic if _name == "Not" else _infer_unary,
        reference=_wrap(_function),
        kind=_kind,
        work=per_element(lanes=1 - _lookups, lookups=_lookups),
        quant=rules.NEVER if _name == "Not" else rules.OWN,
        layout=POINTWISE,
        doc=f"{_name} of each element.",
    )

# name, function, kind of work
_BINARY: tuple[tuple[str, Callable[..., Any], Work], ...] = (
    ("Add", np.add, Work.ADD),
    ("Subtract", np.subtract, Work.ADD),
    ("Multiply", np.multiply, Work.ADD),
    ("Divide", divide, Work.DIVIDE),
    ("FloorDiv", np.floor_divide, Work.OTHER),
    ("Fmod", trunc_mod, Work.OTHER),
    ("Mod", np.mod, Work.OTHER),
    ("Maximum", np.maximum, Work.ADD),
    ("Minimum", np.minimum, Work.ADD),
    ("Power", power, Work.LOOKUP),
    ("SquaredDifference", lambda a, b: np.square(a - b), Work.ADD),
)
for _name, _function, _kind in _BINARY:
    define(
        f"ElementWise{_name}",
        "in0 in1",
        infer=_infer_power if _name == "Power" else _infer_binary,
        reference=_wrap(_function),
        kind=_kind,
        work=per_element(lookups=int(_kind in (Work.LOOKUP, Work.DIVIDE))),
        quant=rules.OWN,
        layout=POINTWISE,
        doc=f"{_name} of two broadcast tensors.",
    )

_PREDICATE: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("Equal", np.equal),
    ("NotEqual", np.not_equal),
    ("Greater", np.greater),
    ("GreaterEqual", np.greater_equal),
    ("Less", np.less),
    ("LessEqual", np.less_equal),
    ("And", np.logical_and),
    ("Or", np.logical_or),
    ("Xor", np.logical_xor),
)
for _name, _function in _PREDICATE:
    define(
        f"ElementWise{_name}",
        "in0 in1",
        infer=_infer_logic if _name in ("And", "Or", "Xor") else _infer_predicate,
        reference=_wrap(_function),
        kind=Work.LOGIC,
        work=per_element(),
        quant=rules.NEVER,
        layout=POINTWISE,
        doc=f"{_name} of two broadcast tensors, as booleans.",
    )


def _infer_select(call: Call) -> tuple[TensorType, ...]:
    if call.input(0).dtype is not DType.BOOL:
        raise ModelError(f"ElementWiseSelect: the condition is {call.input(0).dtype.value}, not bool")
    shapes = (call.input(i).shape for i in range(3))
    return (TensorType(same_dtype(call, 1, 2), broadcast(call, *shapes)),)


define(
    "ElementWiseSelect",
    "in0 in1 in2",
    infer=_infer_select,
    reference=lambda call, condition, a, b: np.where(condition, a, b),
    kind=Work.LOGIC,
    work=per_element(),
    quant=rules.SELECT,
    layout=POINTWISE,
    doc="in1 where in0 is true, else in2, broadcast.",
)


def _infer_test(call: Call) -> tuple[TensorType, ...]:
    return (TensorType(DType.BOOL, call.input(0).shape),)


def _is_inf(call: Call, x: Array) -> Array:
    infinite = np.isinf(x)
    positive = infinite & (x > 0) if call["detect_positive"] else np.zeros(x.shape, np.bool_)
    return np.asarray(positive | (infinite & (x < 0)) if call["detect_negative"] else positive)


define(
    "IsInf",
    "in",
    params=(Param("detect_negative", "bool", default=True), Param("detect_positive", "bool", default=True)),
    infer=_infer_test,
    reference=_is_inf,
    kind=Work.LOGIC,
    work=per_element(),
    quant=rules.NEVER,
    layout=POINTWISE,
    doc="True where the element is an infinity of a sign that is looked for.",
)
define(
    "IsNan",
    "in",
    infer=_infer_test,
    reference=_wrap(np.isnan),
    kind=Work.LOGIC,
    work=per_element(),
    quant=rules.NEVER,
    layout=POINTWISE,
    doc="True where the element is not a number.",
)

_UNARY_OPERATIONS = ("ABS ASIN ATAN CEIL COS EXP FLOOR LOG NEG NOT RECIPROCAL ROUND RSQRT SIGN SIN SQRT").split()


def _reciprocal(call: Call, x: Array) -> Array:
    if call["operation"] != _UNARY_OPERATIONS.index("RECIPROCAL"):
        raise call.fail(f"operation {call['operation']} has an op of its own")
    with np.errstate(divide="ignore"):
        return np.asarray(1 / x)


define(
    "ElementWiseUnary",
    "in",
    params=(Param("operation", "uint32", choices={name: i for i, name in enumerate(_UNARY_OPERATIONS)}),),
    infer=_infer_unary,
    reference=_reciprocal,
    kind=Work.LOOKUP,
    work=per_element(lanes=0, lookups=1),
    quant=rules.OWN,
    layout=POINTWISE,
    doc="A function chosen by `operation`: RECIPROCAL, 1 / x; the others are ops of their own.",
)

_NEURON = {
    "ELU": 0, "GELU": 1, "HARD_SIGMOID": 2, "HARD_SWISH": 3, "RELU": 4, "RELU_MIN_MAX": 5, "SIGMOID": 6,
    "SOFTPLUS": 7, "TANH": 8,
}  # fmt: skip


def _neuron(call: Call, x: Array) -> Array:
    match call["operation"]:
        case 0:
            return np.where(x > 0, x, call["alpha"] * np.expm1(np.minimum(x, 0)))
        case 2:
            return np.asarray(np.clip(call["alpha"] * x + call["beta"], 0, 1))
        case 7:
            return np.asarray(np.logaddexp(call["beta"] * x, 0) / call["beta"])
        case other:
            raise call.fail(f"operation {other} has an op of its own")


define(
    "ElementWiseNeuron",
    "in",
    params=(
        Param("operation", "uint32", choices=_NEURON),
        Param("alpha", "float32", default=1.0),
        Param("beta", "float32", default=1.0),
    ),
    infer=_infer_unary,
    reference=_neuron,
    kind=Work.LOOKUP,
    work=per_element(lanes=0, lookups=1),
    quant=rules.OWN,
    layout=POINTWISE,
    doc="An activation chosen by `operation`: ELU, HARD_SIGMOID (clip(alpha x + beta)), SOFTPLUS.",
)
