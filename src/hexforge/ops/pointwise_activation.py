# SPDX-License-Identifier: Apache-2.0
"""Activations, rows of a table; conversions between data types and encodings; random numbers.

The input is what QNN has, the output's sizes as a constant (uint32), or, as in ONNX, a tensor of that shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hexforge.ir import POINTWISE, Array, Call, DType, Param, QuantRule, TensorType, Work, define, per_element
from hexforge.ops import rules
from hexforge.ops.pointwise_elementwise import broadcast

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


def cast(array: Array, dtype: DType) -> Array:
    """`array` as `dtype`: integers wrap, anything not 0 is true, floats truncate.

    A float outside the range, which ONNX leaves open (its own cases for 4 bits wrap), saturates to 32 and 64 bits and
    wraps from there to fewer; NaN becomes 0.
    """
    if dtype is DType.BOOL:
        return np.asarray(array != 0)
    if dtype.is_float or array.dtype == np.bool_:
        return array.astype(dtype.numpy)
    if not np.issubdtype(array.dtype, np.integer):
        array = _whole(array, dtype if dtype.bits >= 32 else DType.INT32)
    if dtype.bits == 4:
        low_bits = array.astype(np.int64).astype(np.int8) & 15
        array = (low_bits ^ 8) - 8 if dtype.is_signed else low_bits
    return array.astype(dtype.numpy)


def _whole(array: Array, dtype: DType) -> Array:
    """Floats truncated and saturated to an integer type of 32 or 64 bits."""
    low, high = dtype.range
    whole = np.trunc(np.where(np.isnan(array), 0, array))
    inside = (whole >= low) & (whole < float(high + 1))
    if inside.all():
        return whole.astype(dtype.numpy)
    limits = np.where(whole < 0, dtype.numpy.type(low), dtype.numpy.type(high))
    return np.where(inside, np.where(inside, whole, 0).astype(dtype.numpy), limits)


def _infer_cast(call: Call) -> tuple[TensorType, ...]:
    if call.out().shape != call.input(0).shape:
        raise call.fail(f"shape {list(call.input(0).shape)} cannot become {list(call.out().shape)}")
    return (call.out(),)


define(
    "Cast",
    "in",
    infer=_infer_cast,
    reference=lambda call, x: cast(x, call.out().dtype) if call.out().encoding is None else x,
    kind=Work.CONVERT,
    work=per_element(),
    quant=rules.NEVER,
    layout=POINTWISE,
    doc="Each element in the declared data type: floats truncate to integers, integers wrap; fixed point rounds.",
)


def _infer_conversion(call: Call) -> tuple[TensorType, ...]:
    name, source, target = call.op.name, call.input(0), call.out()
    if name != "Quantize" and source.encoding is None and not (name == "Convert" and source.dtype.is_float):
        raise call.fail(f"the input is {source.qnn_dtype}, not fixed point")
    if name == "Quantize" and not source.dtype.is_float:
        raise call.fail(f"the input is {source.qnn_dtype}, not a float")
    if name == "Quantize" and target.encoding is None:
        raise call.fail(f"the output is {target.qnn_dtype}, not fixed point")
    if name == "Dequantize" and not target.dtype.is_float:
        raise call.fail(f"the output is {target.qnn_dtype}, not a float")
    return _infer_cast(call)


# The numbers do not change, only how they are written: evaluate() does that for every op.
for _name, _doc in (
    ("Quantize", "A float tensor in the fixed point of the declared output."),
    ("Dequantize", "A fixed-point tensor as the declared float type."),
    ("Convert", "A fixed-point (or float) tensor in the data type and encoding of the declared output."),
):
    define(
        _name,
        "in",
        infer=_infer_conversion,
        reference=lambda call, x: x,
        kind=Work.CONVERT,
        work=per_element(),
        quant=rules.OWN,
        layout=POINTWISE,
        doc=_doc,
    )


_SEED = Param("seed", "float32", default=0.0)


def _infer_like(call: Call) -> tuple[TensorType, ...]:
    out, given = call.out(), call.input(0)
    sizes = given.dtype is DType.UINT32 and given.shape == (len(out.shape),)
    if not sizes and out.shape != given.shape:
        raise call.fail(f"the output is declared {list(out.shape)}, the input is {list(given.shape)}")
    if not out.dtype.is_float and out.encoding is None:
        raise call.fail(f"the output is declared {out.dtype.value}, not a float type")
    return (out,)


def _generator(call: Call) -> np.random.Generator:
    seed = float(call["seed"])
    return np.random.default_rng(None if seed == 0 else int(np.float64(seed).view(np.uint64)))


def _uniform(call: Call, x: Array) -> Array:
    return _generator(call).uniform(call["low"], call["high"], call.out().shape)


def _normal(call: Call, x: Array) -> Array:
    return _generator(call).normal(call["mean"], call["scale"], call.out().shape)


_RANDOM_OPS: tuple[tuple[str, tuple[str, str], Callable[[Call, Array], Array], str], ...] = (
    ("RandomUniformLike", ("low", "high"), _uniform, "Uniform random numbers in [low, high)."),
    ("RandomNormalLike", ("mean", "scale"), _normal, "Normal random numbers of a mean and standard deviation."),
)
for _name, _bounds, _function, _doc in _RANDOM_OPS:
    define(
        _name,
        "in",
        params=(Param(_bounds[0], "float32", default=0.0), Param(_bounds[1], "float32", default=1.0), _SEED),
        infer=_infer_like,
        reference=_function,
        kind=Work.RANDOM,
        work=per_element(lanes=4),
        quant=QuantRule(data=()),
        doc=f"{_doc} The input gives only the shape.",
    )
