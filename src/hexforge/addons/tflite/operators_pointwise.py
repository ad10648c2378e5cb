# SPDX-License-Identifier: Apache-2.0
"""Pointwise: operators that compute each element from those at its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from hexforge.addons.tflite.model_file import TYPES
from hexforge.addons.tflite.operator_call import OperatorCall, Translation

Formula = Callable[..., str]
"""From a call and the values of its inputs to the value of its output."""


def elementwise(call: OperatorCall, formula: Formula) -> None:
    """Inputs broadcast against each other, in the layout that they are in, and a formula over them."""
    first = call.prefers_first()
    rank = max((call.rank(place) for place in range(len(call.inputs)) if call.has(place)), default=0)
    values = [call.aligned(place, first, rank) for place in range(len(call.inputs)) if call.has(place)]
    value = formula(call, *values)
    if "activation" in call.options:
        value = call.activated(value)
    call.write(value, first=first)


def _row(formula: Formula | str, options: str = "") -> Translation:
    return Translation(partial(elementwise, formula=_op(formula) if isinstance(formula, str) else formula), options)


def _op(op_type: str) -> Formula:
    return lambda call, *values: call.node(op_type, *values)


def _clip(low: float, high: float) -> Formula:
    return lambda call, x: call.node("Clip", x, call.like(low), call.like(high))


def _add_n(call: OperatorCall, *values: str) -> str:
    return reduce(partial(call.node, "Add"), values)


def _floor_div(call: OperatorCall, x: str, y: str) -> str:
    if call.dtype().kind == "f":
        return call.node("Floor", call.node("Div", x, y))
    return call.node("Div", call.node("Sub", x, call.node("Mod", x, y)), y)


def _floor_mod(call: OperatorCall, x: str, y: str) -> str:
    if call.dtype().kind != "f":
        return call.node("Mod", x, y)
    rest, zero = call.node("Mod", x, y, fmod=1), call.like(0)
    signs = call.node("Xor", call.node("Less", rest, zero), call.node("Less", y, zero))
    wrong = call.node("And", signs, call.node("Not", call.node("Equal", rest, zero)))
    return call.node("Where", wrong, call.node("Add", rest, y), rest)


def _atan2(call: OperatorCall, y: str, x: str) -> str:
    zero = call.like(0)
    turn = call.node("Where", call.node("Less", y, zero), call.like(-np.pi), call.like(np.pi))
    by_ratio = call.node("Atan", call.node("Div", y, x))
    left = call.node("Where", call.node("Less", x, zero), call.node("Add", by_ratio, turn), by_ratio)
    upright = call.node("Mul", call.node("Sign", y), call.like(np.pi / 2))
    return call.node("Where", call.node("Equal", x, zero), upright, left)


def _squared_difference(call: OperatorCall, x: str, y: str) -> str:
    difference = call.node("Sub", x, y)
    return call.node("Mul", difference, difference)


def _leaky_relu(call: OperatorCall, x: str) -> str:
    return call.node("LeakyRelu", x, alpha=call.options["alpha"])


def _gelu(call: OperatorCall, x: str) -> str:
    return call.node("Gelu", x, approximate="tanh" if call.options["approximate"] else "none")


def _not_equal(call: OperatorCall, x: str, y: str) -> str:
    return call.node("Not", call.node("Equal", x, y))


def _cast(call: OperatorCall, x: str) -> str:
    wanted = call.result_dtype()
    if wanted.kind in "iu" and call.dtype().kind == "f":
        x = call.cast(x, np.int64)  # cut off towards zero, whatever the width
    return call.cast(x, wanted)


def _right_shift(call: OperatorCall, x: str, y: str) -> str:
    if call.dtype().kind == "u":
        return call.node("BitShift", x, y, direction="RIGHT")
    power = call.node("Pow", call.array(2, np.float64), call.cast(y, np.float64))
    return call.cast(call.node("Floor", call.node("Div", call.cast(x, np.float64), power)), call.dtype())


def _fake_quant(call: OperatorCall, x: str) -> str:
    low, high, bits = call.options["min"], call.options["max"], call.options["bits"]
    least, most = int(call.options["narrow"]), (1 << bits) - 1
    if not 2 <= bits <= 16 or not low < high:
        raise call.refuse(f"its range {low} to {high} with {bits} bits is none")
    scale = np.float32((high - low) / (most - least))
    zero = int(np.clip(round(least - low / scale), least, most))
    shifted = call.node("Round", call.node("Div", x, call.like(scale)))
    held = call.node("Clip", shifted, call.like(least - zero), call.like(most - zero))
    return call.node("Mul", held, call.like(scale))


def _select(call: OperatorCall) -> None:
    """Where; the condition of the older operator may have one dimension, which then is the first."""
    condition = call.read(0)
    if call.operator.name == "SELECT" and call.rank(0) == 1 and call.rank(1) > 1:
        condition = call.reshape(condition, [-1] + [1] * (call.rank(1) - 1))
    call.write(call.node("Where", condition, call.read(1), call.read(2)))


def _requantize(call: OperatorCall) -> None:
    """To other integers, from integers or real numbers: the scales are those of the tensors."""
    first = call.prefers_first()
    if (values := call.constant(0)) is not None and not call.is_quantized():
        call.write(call.array(values.astype(np.float32)))
    else:
        call.write(call.node("Identity", call.read(0, first)), first=first)


def _dequantize(call: OperatorCall) -> None:
    """Real numbers of integers or of 16-bit floats; constants are made so now, as weights need to be known."""
    wanted, first = call.result_dtype(), call.prefers_first()
    values = call.writer.real(call.inputs[0]) if call.has(0) else None
    if values is not None and not call.is_quantized():
        call.make_known(values)
        return
    value = call.read(0, first)
    call.write(value if call.dtype() == wanted else call.cast(value, wanted), first=first)


def _densify(call: OperatorCall) -> None:
    call.make_known(call.fixed(0, "sparse tensor"))


def _fill(call: OperatorCall) -> None:
    if (shape := call.constant(0)) is not None and (value := call.constant(1)) is not None and not call.is_quantized(1):
        call.write(call.node("Expand", call.array(value), call.array(shape, np.int64)))
        return
    call.write(call.node("Expand", call.read(1), call.wide(0)))


def _zeros_like(call: OperatorCall) -> None:
    call.write(call.node("Expand", call.like(0), call.node("Shape", call.read(0))))


def _bitcast(call: OperatorCall) -> None:
    if TYPES.get(call.tensor(0).type) != TYPES.get(call.result().type):
        raise call.refuse("bits are not read as another type in ONNX; compute the value before it in that type")
    call.write(call.node("Identity", call.read(0)))


_ACTIVATION = "activation:b"
_OF_STABLEHLO = """
    ABS:Abs ADD:Add AND:And COSINE:Cos DIVIDE:Div EXPONENTIAL:Exp FLOOR:Floor LOG:Log LOGISTIC:Sigmoid MAXIMUM:Max
    MINIMUM:Min MULTIPLY:Mul NEGATE:Neg OR:Or POWER:Pow SELECT:Where SUBTRACT:Sub TANH:Tanh
"""
"""Operators of StableHLO, and the op of ONNX that each is."""
POINTWISE = {
    "ABS": _row("Abs"),
    "ADD": _row("Add", _ACTIVATION),
    "ADD_N": _row(_add_n),
    "ATAN2": _row(_atan2),
    "BITCAST": Translation(_bitcast),
    "BITWISE_XOR": _row("BitwiseXor"),
    "CAST": _row(_cast),
    "CEIL": _row("Ceil"),
    "COS": _row("Cos"),
    "DENSIFY": Translation(_densify),
    "DEQUANTIZE": Translation(_dequantize),
    "DIV": _row("Div", _ACTIVATION),
    "ELU": _row("Elu"),
    "EQUAL": _row("Equal"),
    "EXP": _row("Exp"),
    "FAKE_QUANT": _row(_fake_quant, "min:f max:f bits:i narrow:?"),
    "FILL": Translation(_fill),
    "FLOOR": _row("Floor"),
    "FLOOR_DIV": _row(_floor_div),
    "FLOOR_MOD": _row(_floor_mod),
    "GELU": _row(_gelu, "approximate:?"),
    "GREATER": _row("Greater"),
    "GREATER_EQUAL": _row("GreaterOrEqual"),
    "HARD_SWISH": _row("HardSwish"),
    "LEAKY_RELU": _row(_leaky_relu, "alpha:f"),
    "LESS": _row("Less"),
    "LESS_EQUAL": _row("LessOrEqual"),
    "LOG": _row("Log"),
    "LOGICAL_AND": _row("And"),
    "LOGICAL_NOT": _row("Not"),
    "LOGICAL_OR": _row("Or"),
    "LOGISTIC": _row("Sigmoid"),
    "MAXIMUM": _row("Max"),
    "MINIMUM": _row("Min"),
    "MUL": _row("Mul", _ACTIVATION),
    "NEG": _row("Neg"),
    "NOT_EQUAL": _row(_not_equal),
    "POW": _row("Pow"),
    "PRELU": _row("PRelu"),
    "QUANTIZE": Translation(_requantize),
    "RELU": _row("Relu"),
    "RELU6": _row(_clip(0, 6)),
    "RELU_0_TO_1": _row(_clip(0, 1)),
    "RELU_N1_TO_1": _row(_clip(-1, 1)),
    "RIGHT_SHIFT": _row(_right_shift),
    "ROUND": _row("Round"),
    "RSQRT": _row(lambda call, x: call.node("Reciprocal", call.node("Sqrt", x))),
    "SELECT": Translation(_select),
    "SELECT_V2": Translation(_select),
    "SIGN": _row("Sign"),
    "SIN": _row("Sin"),
    "SQRT": _row("Sqrt"),
    "SQUARE": _row(lambda call, x: call.node("Mul", x, x)),
    "SQUARED_DIFFERENCE": _row(_squared_difference),
    "SUB": _row("Sub", _ACTIVATION),
    "TANH": _row("Tanh"),
    "ZEROS_LIKE": Translation(_zeros_like),
    "STABLEHLO_CONVERT": _row(_cast),
    **{f"STABLEHLO_{name}": _row(op) for name, op in (pair.split(":") for pair in _OF_STABLEHLO.split())},
}
