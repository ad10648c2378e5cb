"""Normalizations: softmax, batch, layer, instance, group, RMS and L2 normalization, local response."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexforge.ir import Array, Call, Param, TensorType, Work, define

_EPSILON = Param("epsilon", "float32", default=1e-12)
_AXES = Param("axes", "uint32", rank=1)


def _infer_softmax(call: Call) -> tuple[TensorType, ...]:
    call.axis(call["axis"])
    return (TensorType(call.input(0).dtype, call.input(0).shape),)


def _shifted(call: Call, x: Array) -> Array:
    """beta * x less its maximum: exp cannot overflow."""
    scaled = x if call["beta"] == 1 else call["beta"] * x
    return np.asarray(scaled - scaled.max(axis=call["axis"], keepdims=True, initial=-np.inf))


def _softmax(call: Call, x: Array) -> Array:
    e = np.exp(_shifted(call, x))
    return np.asarray(e / e.sum(axis=call["axis"], keepdims=True))


def _log_softmax(call: Call, x: Array) -> Array:
    shifted = _shifted(call, x)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=call["axis"], keepdims=True)))


def _passes(lanes: int, lookups: int = 0) -> Callable[[Call], Work]:
    """Work of an op that goes over its input that many times."""
    return lambda call: Work(lanes=lanes * call.input(0).size, lookups=lookups * call.input(0).size)


for _name, _function, _doc in (
    ("Softmax", _softmax, "exp(beta x) divided by its sum along an axis."),
    ("LogSoftmax", _log_softmax, "Logarithm of Softmax, without computing it."),
):
    define(
        _name,
        "in",
        params=(Param("axis", "uint32"), Param("beta", "float32", default=1.0)),
        infer=_infer_softmax,
        reference=_function,
        work=_passes(4, 1),
        doc=_doc,
    )
