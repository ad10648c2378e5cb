# SPDX-License-Identifier: Apache-2.0
"""Activations: rectifiers, sigmoid, tanh, GELU and their kin, rows of a table; and the error function."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hexforge.ir import POINTWISE, Array, Call, Param, QuantRule, TensorType, Work, define, per_element
from hexforge.ops import rules
from hexforge.ops.pointwise.elementwise import broadcast

# Rational Chebyshev approximations of erf and erfc: W. J. Cody, Math. Comp. 23 (1969), 631-637.
_SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)  # fmt: skip
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
_LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip
_ERF_BLOCK = 1 << 15  # elements worked on at a time, so that temporaries stay in the cache


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    top, bottom = (np.full_like(x, c[0]) for c in coefficients)
    for a, b in zip(coefficients[0][1:], coefficients[1][1:], strict=True):
        top *= x
        top += a
        bottom *= x
        bottom += b
    return np.asarray(top / bottom)


def _erf_block(x: Array) -> Array:
    size = np.abs(x)
    out = np.where(np.isnan(x), x, np.asarray(1, x.dtype))
    small = size <= 0.46875
    near = size[small]
    out[small] = near * _ratio(_SMALL, near * near)
    middle = (size > 0.46875) & (size <= 4)
    near = size[middle]
    out[middle] = 1 - np.exp(-near * near) * _ratio(_MIDDLE, near)
    large = (size > 4) & (size < 6)  # erf is 1 to double precision from 5.93 on
    if large.any():
        near = size[large]
        inverse = 1 / (near * near)
        tail = (1 / math.sqrt(math.pi) - inverse * _ratio(_LARGE, inverse)) / near
        out[large] = 1 - np.exp(-near * near) * tail
    return np.copysign(out, x)


def erf(x: Array) -> Array:
    """The error function in the precision of `x` (absolute error below 1e-15 in float64)."""
    flat = np.ravel(x)
    out = np.empty_like(flat)
    for start in range(0, flat.size, _ERF_BLOCK):
        out[start : start + _ERF_BLOCK] = _erf_block(flat[start : start + _ERF_BLOCK])
    return out.reshape(x.shape)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow: exp is only taken of negative numbers."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def gelu(x: Array) -> Array:
    """x times the normal distribution function of x."""
    return x * (0.5 * (1 + erf(x * math.sqrt(0.5))))


def _infer(call: Call) -> tuple[TensorType, ...]:
    return (TensorType(call.input(0).dtype, call.input(0).shape),)


def _elu(call: Call, x: Array) -> Array:
    return np.where(x > 0, x, call["alpha"] * np.expm1(np.minimum(x, 0)))


def _relu_min_max(call: Call, x: Array) -> Array:
    return np.minimum(np.maximum(x, call["min_value"]), call["max_value"])


def _hard_swish(call: Call, x: Array) -> Array:
    return x * np.clip(x / 6 + 0.5, 0, 1)


_ALPHA = Param("alpha", "float32", default=1.0)
_BOUNDS = (Param("min_value", "float32"), Param("max_value", "float32"))

# name, parameters, reference, kind of work, table look-ups per element (0: a plain vector operation), rule, doc
_ROWS: tuple[tuple[str, tuple[Param, ...], Callable[[Call, Array], Array], Work, int, QuantRule, str], ...] = (
    ("Relu", (), lambda call, x: np.maximum(x, 0), Work.CLAMP, 0, rules.OWN, "max(x, 0)."),
    ("Relu1", (), lambda call, x: np.clip(x, -1, 1), Work.CLAMP, 0, rules.OWN, "x limited to -1..1."),
    ("Relu6", (), lambda call, x: np.clip(x, 0, 6), Work.CLAMP, 0, rules.OWN, "x limited to 0..6."),
    ("ReluMinMax", _BOUNDS, _relu_min_max, Work.CLAMP, 0, rules.OWN, "x limited to min_value..max_value."),
    ("Sigmoid", (), lambda call, x: sigmoid(x), Work.LOOKUP, 1, rules.SIGMOID, "1 / (1 + exp(-x))."),
    ("Tanh", (), lambda call, x: np.tanh(x), Work.LOOKUP, 1, rules.TANH, "Hyperbolic tangent."),
    ("Elu", (_ALPHA,), _elu, Work.LOOKUP, 1, rules.OWN, "x where positive, else alpha (exp(x) - 1)."),
    ("Gelu", (), lambda call, x: gelu(x), Work.LOOKUP, 1, rules.OWN, "x (1 + erf(x / sqrt 2)) / 2."),
    ("HardSwish", (), _hard_swish, Work.LOOKUP, 0, rules.OWN, "x clip(x / 6 + 1/2, 0, 1)."),
)
for _name, _params, _reference, _kind, _lookups, _rule, _doc in _ROWS:
    define(
        _name,
        "in",
        params=_params,
        infer=_infer,
        reference=_reference,
        kind=_kind,
        work=per_element(lanes=1 - _lookups, lookups=_lookups),
        quant=_rule,
        layout=POINTWISE,
        doc=_doc,
    )


def _infer_prelu(call: Call) -> tuple[TensorType, ...]:
    shape = call.input(0).shape
    if broadcast(call, shape, call.input(1).shape) != shape:
        raise call.fail(f"coefficients {list(call.input(1).shape)} do not broadcast to the input {list(shape)}")
    return (TensorType(call.input(0).dtype, shape),)


define(
    "Prelu",
    "in coeff",
    infer=_infer_prelu,
    reference=lambda call, x, coeff: np.where(x >= 0, x, coeff * x),
    kind=Work.PRELU,
    work=per_element(lanes=2),
    quant=rules.OWN,
    layout=POINTWISE,
    doc="x where not negative, else coeff x; coeff broadcasts.",
)
