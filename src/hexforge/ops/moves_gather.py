# SPDX-License-Identifier: Apache-2.0
"""Gather and scatter ops. Indices may be any integer type; a negative one counts from the end of its axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array, Call, DType, Follows, Layout, Measure, Param, QuantRule, TensorType, Work, define
from hexforge.ops import rules
from hexforge.ops.moves_layout import define_move, moved_type
from hexforge.ops.pointwise_elementwise import same_dtype

SCATTER = QuantRule(data=(0, 2))


def check_indices(call: Call, input: int = 1) -> TensorType:
    """The type of an index input, which must be an integer type without encoding."""
    type = call.input(input)
    if not type.dtype.is_integer or type.encoding is not None:
        raise call.fail(f"indices must be integers, not {type.qnn_dtype}")
    return type


def _bounded(call: Call, indices: Array, size: int) -> Array:
    """Indices as intp, checked against an axis; they come with the run's data, so CallError if one is outside."""
    if indices.size and (indices.max() >= size or indices.min() < -size):
        bad = int(indices.max()) if indices.max() >= size else int(indices.min())
        raise CallError(f"{call.op.name}: index {bad} is outside an axis of {size} elements")
    return indices.astype(np.intp, copy=False)


def _infer_gather(call: Call) -> tuple[TensorType, ...]:
    shape, indices = call.input(0).shape, check_indices(call)
    axis = call.axis(call["axis"])
    return (moved_type(call, shape[:axis] + indices.shape + shape[axis + 1 :]),)


define_move(
    "Gather",
    "in indices",
    params=(Param("axis", "int32", default=0),),
    infer=_infer_gather,
    reference=lambda call, x, indices: np.take(x, _bounded(call, indices, x.shape[call["axis"]]), axis=call["axis"]),
    kind=Work.GATHER,
    quant=rules.SAME_FIRST,
    layout=Layout(free=True, params={"axis": Follows.AXIS}, flat=1),
    doc="Slices of the input along `axis`, those that `indices` name; the axis becomes the axes of `indices`.",
)


def _infer_gather_elements(call: Call) -> tuple[TensorType, ...]:
    shape, indices = call.input(0).shape, check_indices(call).shape
    axis = call.axis(call["axis"])
    if len(indices) != len(shape) or any(indices[a] > shape[a] for a in range(len(shape)) if a != axis):
        raise call.fail(f"indices of shape {list(indices)} do not fit in {list(shape)} outside axis {axis}")
    return (moved_type(call, indices),)


def _within(call: Call, indices: Array, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """The full index of the elements that `indices` name along `axis`, every other axis counting up."""
    grid: list[Array] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = _bounded(call, indices, shape[axis])
    return tuple(grid)


define_move(
    "GatherElements",
    "in indices",
    params=(Param("axis", "uint32", default=0),),
    infer=_infer_gather_elements,
    reference=lambda call, x, indices: x[_within(call, indices, x.shape, call["axis"] % x.ndim)],
    kind=Work.GATHER,
    quant=rules.SAME_FIRST,
    layout=Layout(free=True, params={"axis": Follows.AXIS}, together=True),
    doc="Elements of the input: along `axis` at the index, along the other axes at the place of the index itself.",
)


def _infer_gather_nd(call: Call) -> tuple[TensorType, ...]:
    shape, indices, batch = call.input(0).shape, check_indices(call).shape, call["batch_dims"]
    if not 0 <= batch < min(len(shape), len(indices)) or shape[:batch] != indices[:batch]:
        raise call.fail(f"batch_dims {batch} does not fit shapes {list(shape)} and {list(indices)}")
    if not 1 <= indices[-1] <= len(shape) - batch:
        raise call.fail(f"indices name {indices[-1]} axes of the {len(shape) - batch} there are")
    return (moved_type(call, indices[:-1] + shape[batch + indices[-1] :]),)


def _tuples(call: Call, indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Index arrays, one per axis of `shape` that the last axis of `indices` names."""
    return tuple(_bounded(call, indices[..., i], shape[i]) for i in range(indices.shape[-1]))


def _gather_nd(call: Call, x: Array, indices: Array) -> Array:
    batch = call["batch_dims"]
    outer = np.ogrid[tuple(slice(n) for n in x.shape[:batch])]
    rest = indices.ndim - 1 - batch
    grid = tuple(o.reshape(o.shape + (1,) * rest) for o in outer)
    return np.asarray(x[(*grid, *_tuples(call, indices, x.shape[batch:]))])


define_move(
    "GatherNd",
    "in indices",
    params=(Param("batch_dims", "uint32", default=0),),
    infer=_infer_gather_nd,
    reference=_gather_nd,
    kind=Work.GATHER,
    quant=rules.SAME_FIRST,
    doc="Slices of the input at the index tuples in the last axis of `indices`, after `batch_dims` common axes.",
)

_REDUCTION = {"NONE": 0, "ADD": 1, "MUL": 2, "MAX": 3, "MIN": 4}
_UFUNC: tuple[Any, ...] = (None, np.add, np.multiply, np.maximum, np.minimum)


def _scatter(call: Call, x: Array, where: tuple[Array, ...], updates: Array) -> Array:
    out, ufunc = x.copy(), _UFUNC[call["reduction"]]
    if ufunc is None:
        out[where] = updates
    else:
        ufunc.at(out, where, updates.astype(x.dtype, copy=False))
    return out


def _check_scatter(call: Call, updates: tuple[int, ...]) -> tuple[TensorType, ...]:
    if call["reduction"] not in _REDUCTION.values():
        raise call.fail(f"reduction {call['reduction']} is unknown; there are {_REDUCTION}")
    if call.input(2).shape != updates:
        raise call.fail(f"updates have shape {list(call.input(2).shape)}, not {list(updates)}")
    same_dtype(call, 0, 2)
    return (moved_type(call, call.input(0).shape),)


def _infer_scatter_elements(call: Call) -> tuple[TensorType, ...]:
    _infer_gather_elements(call)
    return _check_scatter(call, call.input(1).shape)


define_move(
    "ScatterElements",
    "in indices updates",
    params=(Param("axis", "uint32", default=0), Param("reduction", "uint32", default=0, choices=_REDUCTION)),
    infer=_infer_scatter_elements,
    reference=lambda call, x, indices, updates: _scatter(
        call, x, _within(call, indices, x.shape, call["axis"] % x.ndim), updates
    ),
    kind=Work.MOVE,
    quant=SCATTER,
    doc="The input with updates put in (or combined) where GatherElements would read them.",
)


def _infer_scatter_nd(call: Call) -> tuple[TensorType, ...]:
    shape, indices = call.input(0).shape, check_indices(call).shape
    if not indices or not 1 <= indices[-1] <= len(shape):
        raise call.fail(f"indices of shape {list(indices)} do not name axes of {list(shape)}")
    return _check_scatter(call, indices[:-1] + shape[indices[-1] :])


define_move(
    "ScatterNd",
    "in indices updates",
    params=(Param("reduction", "uint32", default=0, choices=_REDUCTION),),
    infer=_infer_scatter_nd,
    reference=lambda call, x, indices, updates: _scatter(call, x, _tuples(call, indices, x.shape), updates),
    kind=Work.MOVE,
    quant=SCATTER,
    doc="The input with slices of updates put in (or combined) at the index tuples in the last axis of `indices`.",
)


def _infer_one_hot(call: Call) -> tuple[TensorType, ...]:
    shape, depth = check_indices(call, 0).shape, call["depth"]
    axis = call.axis(call["axis"], len(shape) + 1)
    dtype = call.outs[0].dtype if call.outs else DType.FLOAT32
    return (TensorType(dtype, (*shape[:axis], depth, *shape[axis:])),)


def _one_hot(call: Call, indices: Array) -> Array:
    depth, rank = call["depth"], indices.ndim + 1
    axis = call["axis"] % rank
    classes = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)])
    index = np.expand_dims(indices.astype(np.int64), axis)
    hot = classes == np.where(index < 0, index + depth, index)
    return np.where(hot, np.float64(call["on_value"]), np.float64(call["off_value"]))


define_move(
    "OneHot",
    "in",
    params=(
        Param("depth", "uint32"),
        Param("axis", "int32", default=-1),
        Param("on_value", "float32", default=1.0),
        Param("off_value", "float32", default=0.0),
    ),
    infer=_infer_one_hot,
    reference=_one_hot,
    kind=Work.MOVE,
    quant=rules.OWN,
    doc="A new axis of `depth`: on_value at the index (a negative one counts from the end), off_value elsewhere.",
)


def _infer_top_k(call: Call) -> tuple[TensorType, ...]:
    shape, k = call.input(0).shape, call["k"]
    if not shape or not 0 <= k <= shape[-1]:
        raise call.fail(f"k {k} is not within the last axis of {list(shape)}")
    index = call.outs[1].dtype if len(call.outs) > 1 else DType.INT32
    return moved_type(call, (*shape[:-1], k)), TensorType(index, (*shape[:-1], k))


def _top_k(call: Call, x: Array) -> tuple[Array, Array]:
    k, size = call["k"], x.shape[-1]
    if call["largest"]:  # sort the reversed axis and reverse back: descending, equal elements in their own order
        order = size - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :k]
    else:
        order = np.argsort(x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order


define(
    "TopK",
    "in",
    "values indices",
    params=(Param("k", "uint32"), Param("largest", "bool", default=True)),
    infer=_infer_top_k,
    reference=_top_k,
    kind=Work.SEARCH,
    work=Measure(lanes=lambda call: call.input(0).size * max(1, call.input(0).shape[-1].bit_length())),
    quant=rules.SAME,
    doc="The k largest (or smallest) elements of the last axis, in order, and their indices; of equals the first.",
)


def _infer_non_zero(call: Call) -> tuple[TensorType, ...]:
    rank, out = len(call.input(0).shape), call.out()
    if len(out.shape) != 2 or out.shape[1] != rank or out.shape[0] > call.input(0).size:
        raise call.fail(f"the output {out} must be [count, {rank}], with a count up to {call.input(0).size}")
    return (TensorType(out.dtype, out.shape),)


def _non_zero(call: Call, x: Array) -> Array:
    positions = np.argwhere(x)
    if positions.shape != call.out().shape:
        raise CallError(
            f"NonZero: {len(positions)} elements are not zero; the graph was made for {call.out().shape[0]}"
        )
    return positions


define(
    "NonZero",
    "in",
    infer=_infer_non_zero,
    reference=_non_zero,
    kind=Work.OTHER,
    work=Measure(lanes=lambda call: call.input(0).size),
    quant=rules.NEVER,
    doc="Indices of the elements that are not zero, one row each; the declared output says how many there are.",
)
