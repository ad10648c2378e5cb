# SPDX-License-Identifier: Apache-2.0
"""Reductions along axes, arg-reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hexforge.ir import ALONG_AXIS, Array, Call, DType, Follows, Layout, Measure, Param, TensorType, Work, define
from hexforge.ops import rules
from hexforge.ops.pointwise.elementwise import divide

_ONE_PASS = Measure(lanes=lambda call: max(call.input(0).size, call.out().size))


def _reduced(call: Call, axes: tuple[int, ...]) -> tuple[int, ...]:
    shape = call.input(0).shape
    if call["keep_dims"]:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def _infer_reduce(call: Call) -> tuple[TensorType, ...]:
    axes = tuple(call.axis(a, name="axes") for a in call["axes"])
    if len(set(axes)) != len(axes):
        raise call.fail(f"axes {list(call['axes'])} name an axis twice")
    return (TensorType(call.input(0).dtype, _reduced(call, axes)),)


def _lowest(dtype: np.dtype[Any]) -> Any:
    return False if dtype == np.bool_ else -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return True if dtype == np.bool_ else np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    if not np.issubdtype(x.dtype, np.integer):
        return np.asarray(np.mean(x, axis, keepdims=keepdims))
    count = int(np.prod([x.shape[a] for a in axis]))
    return divide(np.asarray(np.sum(x, axis, keepdims=keepdims, dtype=np.int64)), np.asarray(count, np.int64))


# On an empty set: 0, 1, the lowest and the highest value; the mean is NaN.
_REDUCE: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("Max", lambda x, axis, keepdims: np.max(x, axis, keepdims=keepdims, initial=_lowest(x.dtype))),
    ("Mean", _mean),
    ("Min", lambda x, axis, keepdims: np.min(x, axis, keepdims=keepdims, initial=_highest(x.dtype))),
    ("Prod", lambda x, axis, keepdims: np.prod(x, axis, keepdims=keepdims, dtype=x.dtype)),
    ("Sum", lambda x, axis, keepdims: np.sum(x, axis, keepdims=keepdims, dtype=x.dtype)),
    ("SumSquare", lambda x, axis, keepdims: np.sum(np.square(x), axis, keepdims=keepdims, dtype=x.dtype)),
)


def _reduce(function: Callable[..., Any]) -> Callable[..., Array]:
    def reference(call: Call, x: Array) -> Array:
        return np.asarray(function(x, tuple(call["axes"]), bool(call["keep_dims"])))

    return reference


for _name, _function in _REDUCE:
    define(
        f"Reduce{_name}",
        "in",
        params=(Param("axes", "uint32", 1), Param("keep_dims", "bool", default=False)),
        infer=_infer_reduce,
        reference=_reduce(_function),
        kind=Work.REDUCE,
        work=_ONE_PASS,
        quant=rules.OWN,
        layout=Layout(free=True, params={"axes": Follows.AXES}, keeps="keep_dims"),
        doc=f"{_name} of the elements along `axes`.",
    )


def _infer_arg(call: Call) -> tuple[TensorType, ...]:
    axis = call.axis(call["axis"])
    if not call.input(0).shape[axis]:
        raise call.fail(f"axis {axis} is empty")
    return (TensorType(call.outs[0].dtype if call.outs else DType.INT32, _reduced(call, (axis,))),)


def _arg(function: Callable[..., Any]) -> Callable[..., Array]:
    def reference(call: Call, x: Array) -> Array:
        return np.asarray(function(x, call["axis"], keepdims=bool(call["keep_dims"])))

    return reference


for _name, _function in (("Argmax", np.argmax), ("Argmin", np.argmin)):
    define(
        _name,
        "in",
        params=(Param("axis", "uint32"), Param("keep_dims", "bool", default=False)),
        infer=_infer_arg,
        reference=_arg(_function),
        kind=Work.SEARCH,
        work=_ONE_PASS,
        quant=rules.NEVER,
        layout=Layout(free=True, params={"axis": Follows.AXIS}, keeps="keep_dims"),
        doc=f"Index of the {'largest' if _name == 'Argmax' else 'smallest'} element along `axis`, the first of equals.",
    )


def _infer_cumulative_sum(call: Call) -> tuple[TensorType, ...]:
    call.axis(call["axis"])
    return (TensorType(call.input(0).dtype, call.input(0).shape),)


def _cumulative_sum(call: Call, x: Array) -> Array:
    axis = call["axis"] % x.ndim
    last_first = (slice(None),) * axis + (slice(None, None, -1),)
    y = x[last_first] if call["reverse"] else x
    total = np.cumsum(y, axis, dtype=y.dtype)
    if call["exclusive"]:  # shifted, not subtracted: infinities and rounding stay out
        shifted = np.zeros_like(total)
        before, after = (slice(None),) * axis + (slice(None, -1),), (slice(None),) * axis + (slice(1, None),)
        shifted[after] = total[before]
        total = shifted
    return total[last_first] if call["reverse"] else total


define(
    "CumulativeSum",
    "in",
    params=(
        Param("axis", "uint32"),
        Param("exclusive", "bool", default=False),
        Param("reverse", "bool", default=False),
    ),
    infer=_infer_cumulative_sum,
    reference=_cumulative_sum,
    kind=Work.OTHER,
    work=_ONE_PASS,
    quant=rules.OWN,
    layout=ALONG_AXIS,
    doc="Sum of the elements up to (exclusive: before) each one along `axis`, from the end where `reverse`.",
)
