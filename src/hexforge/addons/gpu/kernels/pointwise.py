# SPDX-License-Identifier: Apache-2.0
"""Pointwise ops as C expressions: one row for each op of the table, for floats (of any width) and for integers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hexforge.addons.gpu.kernels.code import literal

Params = Mapping[str, Any]
_FLOAT_LITERAL = re.compile(r"(?<![\w.])(\d+\.?\d*(?:e[+-]?\d+)?)f\b")
_Row = Callable[[tuple[str, ...], Params, str], str]


def _f(value: float) -> str:
    return literal(value, "float")


def _text(template: str) -> _Row:
    """A row from a template: {0}, {1} are the inputs, {T} the type computed in."""

    def row(arguments: tuple[str, ...], params: Params, type: str) -> str:
        return template.format(*arguments, T=type)

    return row


def _clamp(low: float, high: float) -> _Row:
    """Limited from below, then from above; written so that NaN stays NaN."""
    least, below, above = _f(min(low, high)), _f(low), _f(high)
    return _text(f"({{0}} < {below} ? ({{T}})({least}) : ({{0}} > {above} ? ({{T}})({above}) : {{0}}))")


def _elu(arguments: tuple[str, ...], params: Params, type: str) -> str:
    (x,) = arguments
    return f"({x} > 0.0f ? {x} : ({type})({_f(params['alpha'])}) * expm1({x}))"


def _relu_min_max(arguments: tuple[str, ...], params: Params, type: str) -> str:
    return _clamp(params["min_value"], params["max_value"])(arguments, params, type)


def _neuron(arguments: tuple[str, ...], params: Params, type: str) -> str:
    (x,), alpha, beta = arguments, _f(params["alpha"]), _f(params["beta"])
    if params["operation"] == 0:
        return _elu(arguments, params, type)
    if params["operation"] == 2:
        return _clamp(0.0, 1.0)((f"({alpha} * {x} + {beta})",), params, type)
    return f"(softplus_{type}({beta} * {x}) / {beta})"


FLOAT: dict[str, _Row] = {
    "ElementWiseAbs": _text("fabs({0})"),
    "ElementWiseAsin": _text("asin({0})"),
    "ElementWiseAtan": _text("atan({0})"),
    "ElementWiseCeil": _text("ceil({0})"),
    "ElementWiseCos": _text("cos({0})"),
    "ElementWiseExp": _text("exp({0})"),
    "ElementWiseFloor": _text("floor({0})"),
    "ElementWiseLog": _text("log({0})"),
    "ElementWiseNeg": _text("(-{0})"),
    "ElementWiseRound": _text("rint({0})"),
    "ElementWiseRsqrt": _text("(1.0f / sqrt({0}))"),
    "ElementWiseSign": _text("(({0} > 0.0f || {0} < 0.0f) ? sign({0}) : ({0} == 0.0f ? ({T})(0.0f) : {0}))"),
    "ElementWiseSin": _text("sin({0})"),
    "ElementWiseSquareRoot": _text("sqrt({0})"),
    "ElementWiseSoftplus": _text("softplus_{T}({0})"),
    "ElementWiseAdd": _text("({0} + {1})"),
    "ElementWiseSubtract": _text("({0} - {1})"),
    "ElementWiseMultiply": _text("({0} * {1})"),
    "ElementWiseDivide": _text("({0} / {1})"),
    "ElementWiseFloorDiv": _text("floor({0} / {1})"),
    "ElementWiseFmod": _text("fmod({0}, {1})"),
    "ElementWiseMod": _text("float_mod({0}, {1})"),
    "ElementWiseMaximum": _text("(({0} >= {1} || {0} != {0}) ? ({T})({0}) : ({T})({1}))"),
    "ElementWiseMinimum": _text("(({0} <= {1} || {0} != {0}) ? ({T})({0}) : ({T})({1}))"),
    "ElementWisePower": _text("pow({0}, ({T})({1}))"),
    "ElementWiseSquaredDifference": _text("(({0} - {1}) * ({0} - {1}))"),
    "ElementWiseNeuron": _neuron,
    "Relu": _text("({0} < 0.0f ? ({T})(0.0f) : {0})"),
    "Relu1": _clamp(-1.0, 1.0),
    "Relu6": _clamp(0.0, 6.0),
    "ReluMinMax": _relu_min_max,
    "Sigmoid": _text("(1.0f / (1.0f + exp(-{0})))"),
    "Tanh": _text("tanh({0})"),
    "Elu": _elu,
    "Gelu": _text("({0} * (0.5f * (1.0f + erf({0} * 0.707106781f))))"),
    "HardSwish": _text("({0} * clamp({0} / 6.0f + 0.5f, 0.0f, 1.0f))"),
    "Prelu": _text("({0} >= 0.0f ? {0} : ({T})({1} * {0}))"),
}
"""Ops on floats; most are written for vectors too."""


HALF: dict[str, _Row] = {
    "Gelu": _text("({0} * (0.5f * erfc(-{0} * 0.707106781f)))"),
    "HardSwish": _text("({0} * (clamp({0} + 3.0f, ({T})(0.0f), ({T})(6.0f)) / 6.0f))"),
}
"""Ops that in half are written so that nothing is lost where they come near 0."""


def real_row(name: str, arguments: tuple[str, ...], params: Params, type: str) -> str:
    """An op on floats, in a type that may be half: constants and functions of a row are then half too."""
    if not type.startswith("half"):
        return FLOAT[name](arguments, params, type)
    names = tuple(f"{{{i}}}" for i in range(len(arguments)))
    row = HALF.get(name, FLOAT[name])
    text = _FLOAT_LITERAL.sub(r"((half)\1f)", row(names, params, type))
    text = text.replace("float_mod(", "half_mod(")
    for i, argument in enumerate(arguments):
        text = text.replace(f"{{{i}}}", argument)
    return text


SCALAR_ONLY = frozenset({"ElementWiseSign", "ElementWiseMaximum", "ElementWiseMinimum", "ElementWiseMod"})
"""Ops whose rows join conditions, which vectors cannot."""

INTEGER: dict[str, _Row] = {
    "ElementWiseAbs": _text("({0} < 0 ? -{0} : {0})"),
    "ElementWiseNeg": _text("(-{0})"),
    "ElementWiseSign": _text("(({0} > 0) - ({0} < 0))"),
    "ElementWiseAdd": _text("({0} + {1})"),
    "ElementWiseSubtract": _text("({0} - {1})"),
    "ElementWiseMultiply": _text("({0} * {1})"),
    "ElementWiseDivide": _text("({1} == 0 ? 0 : {0} / {1})"),
    "ElementWiseFloorDiv": _text("int_floor_div({0}, {1})"),
    "ElementWiseFmod": _text("({1} == 0 ? 0 : {0} % {1})"),
    "ElementWiseMod": _text("int_mod({0}, {1})"),
    "ElementWiseMaximum": _text("({0} > {1} ? {0} : {1})"),
    "ElementWiseMinimum": _text("({0} < {1} ? {0} : {1})"),
    "ElementWisePower": _text("int_pow({0}, {1})"),
    "ElementWiseSquaredDifference": _text("(({0} - {1}) * ({0} - {1}))"),
    "Relu": _text("({0} < 0 ? 0 : {0})"),
    "ElementWiseRound": _text("{0}"),
    "ElementWiseCeil": _text("{0}"),
    "ElementWiseFloor": _text("{0}"),
    "Relu6": _text("clamp({0}, ({T})0, ({T})6)"),
    "ElementWiseNot": _text("({0} == 0)"),
}
"""Ops on integers and booleans."""

PREDICATE: dict[str, _Row] = {
    "ElementWiseEqual": _text("({0} == {1})"),
    "ElementWiseNotEqual": _text("({0} != {1})"),
    "ElementWiseGreater": _text("({0} > {1})"),
    "ElementWiseGreaterEqual": _text("({0} >= {1})"),
    "ElementWiseLess": _text("({0} < {1})"),
    "ElementWiseLessEqual": _text("({0} <= {1})"),
    "ElementWiseAnd": _text("({0} != 0 && {1} != 0)"),
    "ElementWiseOr": _text("({0} != 0 || {1} != 0)"),
    "ElementWiseXor": _text("(({0} != 0) != ({1} != 0))"),
    "IsNan": _text("isnan({0})"),
}
"""Ops that give booleans, on inputs of any type."""

PREAMBLE = """
float float_mod(float a, float b) { float r = fmod(a, b); return (r != 0.0f && (r < 0.0f) != (b < 0.0f)) ? r + b : r; }
long int_floor_div(long a, long b) {
  if (b == 0) return 0;
  long q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
long int_mod(long a, long b) {
  if (b == 0) return 0;
  long r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}
long int_pow(long a, long b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) ? -1 : 1) : 0;
  long r = 1;
  while (b > 0) { if (b & 1) r *= a; a *= a; b >>= 1; }
  return r;
}
"""
"""Functions that the rows call."""


HALF_PREAMBLE = """
half half_mod(half a, half b) {
  const half zero = (half)0.0f, r = fmod(a, b);
  return (r != zero && (r < zero) != (b < zero)) ? r + b : r;
}
"""


def softplus(type: str) -> str:
    """The softplus function of a type; each has its own name, for a kernel may compute in several."""
    zero = "(half)0.0f" if type.startswith("half") else "0.0f"
    return f"{type} softplus_{type}({type} x) {{ return fmax(x, ({type})({zero})) + log1p(exp(-fabs(x))); }}"


def is_inf(x: str, params: Params) -> str:
    """IsInf by its parameters."""
    tests = [f"{x} == INFINITY"] * bool(params["detect_positive"])
    tests += [f"{x} == -INFINITY"] * bool(params["detect_negative"])
    return f"({' || '.join(tests) or '0'})"


def cast(x: str, source: str, target: str, to_bool: bool) -> str:
    """An element in another type: floats truncate and saturate, integers wrap, anything not 0 is true."""
    if to_bool:
        return f"({x} != 0)"
    if target in ("float", "half") or source not in ("float", "half"):
        return f"(({target}){x})"
    wide = target if target in ("int", "uint", "long") else "int"
    return f"(({target})(isnan({x}) ? 0 : convert_{wide}_sat_rtz({x})))"
