# SPDX-License-Identifier: Apache-2.0
"""Layout ops: the same elements in another order or shape. References are views where numpy has one."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hexforge.ir import (
    ALONG_AXIS,
    Array,
    Call,
    DType,
    Follows,
    Layout,
    Param,
    ScaleOffset,
    TensorType,
    Work,
    define,
    moves,
)
from hexforge.ir.fixed_point import permute_type, quantize
from hexforge.ops import rules
from hexforge.ops.pointwise_elementwise import same_dtype

define_move = functools.partial(define, work=moves, quant=rules.SAME)
"""Add an op to the table that moves elements and computes nothing: what it gives has its input's encoding."""


def moved_type(call: Call, shape: tuple[int, ...]) -> TensorType:
    """The type of moved elements of input 0 in `shape`: its encoding is kept, a per-axis one must be declared."""
    type = call.input(0)
    if type.encoding is None or isinstance(type.encoding, ScaleOffset):
        return type.with_shape(shape)
    return TensorType(type.dtype, shape, call.out().encoding)


def _axes(call: Call, name: str, rank: int | None = None) -> tuple[int, ...]:
    axes = tuple(call.axis(a, rank, name) for a in call[name])
    if len(set(axes)) != len(axes):
        raise call.fail(f"{name} {list(call[name])} names an axis twice")
    return axes


def _infer_transpose(call: Call) -> tuple[TensorType, ...]:
    perm, rank = call["perm"], len(call.input(0).shape)
    if sorted(perm) != list(range(rank)):
        raise call.fail(f"perm {list(perm)} is no permutation of {rank} axes")
    return (permute_type(call.input(0), perm),)


define_move(
    "Transpose",
    "in",
    params=(Param("perm", "uint32", 1),),
    infer=_infer_transpose,
    reference=lambda call, x: x.transpose(call["perm"]),
    kind=Work.TRANSPOSE,
    doc="Axes permuted: output axis i is input axis perm[i].",
)


def _infer_reshape(call: Call) -> tuple[TensorType, ...]:
    shape = call.out().shape
    if math.prod(shape) != call.input(0).size:
        raise call.fail(f"shape {list(call.input(0).shape)} has not as many elements as {list(shape)}")
    return (moved_type(call, shape),)


for _name, _doc in (
    ("Reshape", "The same elements, row-major, in the declared shape."),
    ("Squeeze", "The input without the axes of size 1 that the declared shape leaves out."),
):
    define_move(
        _name,
        "in",
        infer=_infer_reshape,
        reference=lambda call, x: x.reshape(call.out().shape),
        kind=Work.RESHAPE,
        layout=Layout(free=True, merges=True),
        doc=_doc,
    )


def _infer_expand_dims(call: Call) -> tuple[TensorType, ...]:
    shape = call.input(0).shape
    rank = len(shape) + len(call["axes"])
    axes, rest = _axes(call, "axes", rank), iter(shape)
    return (moved_type(call, tuple(1 if i in axes else next(rest) for i in range(rank))),)


define_move(
    "ExpandDims",
    "in",
    params=(Param("axes", "uint32", 1),),
    infer=_infer_expand_dims,
    reference=lambda call, x: x.reshape(call.out().shape),
    kind=Work.RESHAPE,
    doc="Axes of size 1 put in; `axes` are their places in the output.",
)


def _infer_concat(call: Call) -> tuple[TensorType, ...]:
    count = len(call.ins)
    shapes = [call.input(i).shape for i in range(count)]
    axis = call.axis(call["axis"])
    same_dtype(call, *range(count))
    rest = [(len(s), s[:axis] + s[axis + 1 :]) for s in shapes]
    if any(r != rest[0] for r in rest):
        raise call.fail(f"shapes {', '.join(str(list(s)) for s in shapes)} differ outside axis {axis}")
    return (moved_type(call, (*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])),)


define_move(
    "Concat",
    "in*",
    params=(Param("axis", "uint32"),),
    infer=_infer_concat,
    reference=lambda call, *arrays: np.concatenate(arrays, call["axis"]),
    kind=Work.CONCAT,
    layout=Layout(free=True, params={"axis": Follows.AXIS}, together=True),
    doc="Inputs joined along `axis`.",
)


def _infer_pack(call: Call) -> tuple[TensorType, ...]:
    count = len(call.ins)
    shape = call.input(0).shape
    if any(call.input(i).shape != shape for i in range(count)):
        raise call.fail("inputs have different shapes")
    same_dtype(call, *range(count))
    axis = call.axis(call["axis"], len(shape) + 1)
    return (moved_type(call, (*shape[:axis], count, *shape[axis:])),)


define_move(
    "Pack",
    "in*",
    params=(Param("axis", "uint32"),),
    infer=_infer_pack,
    reference=lambda call, *arrays: np.stack(arrays, call["axis"]),
    kind=Work.MOVE,
    doc="Inputs of one shape stacked along a new axis.",
)


def _infer_unpack(call: Call) -> tuple[TensorType, ...]:
    shape = call.input(0).shape
    axis = call.axis(call["axis"])
    return (moved_type(call, shape[:axis] + shape[axis + 1 :]),) * shape[axis]


define_move(
    "UnPack",
    "in",
    "out*",
    params=(Param("axis", "uint32"),),
    infer=_infer_unpack,
    reference=lambda call, x: tuple(np.moveaxis(x, call["axis"], 0)),
    kind=Work.MOVE,
    doc="The slices along `axis`, one output each, without the axis.",
)


def _infer_split(call: Call) -> tuple[TensorType, ...]:
    shape, index = call.input(0).shape, call["split_index"]
    axis = call.axis(call["axis"])
    edges = (0, *index, shape[axis])
    if any(b < a for a, b in pairwise(edges)):
        raise call.fail(f"split_index {list(index)} does not rise from 0 to {shape[axis]}")
    return tuple(moved_type(call, (*shape[:axis], b - a, *shape[axis + 1 :])) for a, b in pairwise(edges))


def _split(call: Call, x: Array) -> tuple[Array, ...]:
    before = (slice(None),) * (call["axis"] % x.ndim)
    edges = (0, *call["split_index"], x.shape[call["axis"]])
    return tuple(x[(*before, slice(a, b))] for a, b in pairwise(edges))


define_move(
    "Split",
    "in",
    "out*",
    params=(Param("axis", "uint32"), Param("split_index", "uint32", 1)),
    infer=_infer_split,
    reference=_split,
    kind=Work.SLICE,
    layout=ALONG_AXIS,
    doc="The input cut along `axis` before each index of `split_index`.",
)

_SCHEME = {"CONSTANT": 0, "MIRROR_SYMMETRIC": 1, "MIRROR_REFLECT": 2, "EDGE": 3}
_NUMPY_MODE: tuple[Any, ...] = ("constant", "symmetric", "reflect", "edge")


def _infer_pad(call: Call) -> tuple[TensorType, ...]:
    shape, pads, scheme = call.input(0).shape, call["pad_amount"], call["scheme"]
    if len(pads) != len(shape) or any(len(p) != 2 or min(p) < 0 for p in pads):
        raise call.fail(f"pad_amount must be {len(shape)} pairs of counts, not {pads}")
    if scheme not in _SCHEME.values():
        raise call.fail(f"scheme {scheme} is unknown; there are {_SCHEME}")
    for size, pad in zip(shape, pads, strict=True):
        most = (math.inf, size, size - 1, math.inf if size else 0)[scheme]
        if max(pad) > max(most, 0):
            raise call.fail(f"scheme {scheme} pads an axis of {size} by {most} at most, not by {max(pad)}")
    return (moved_type(call, tuple(n + a + b for n, (a, b) in zip(shape, pads, strict=True))),)


def pad(x: Array, pads: Sequence[tuple[int, int]], value: float, type: TensorType) -> Array:
    """`x` with a real constant around it; `type` says what its integers mean."""
    if type.encoding is not None and not np.issubdtype(x.dtype, np.floating):  # its integers, to be moved
        fill = quantize(np.asarray(value, np.float64), TensorType(type.dtype, (), type.encoding)).astype(x.dtype)
    else:
        fill = np.asarray(value).astype(x.dtype)
    out = np.full([n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)], fill, x.dtype)
    out[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, pads, strict=True))] = x
    return out


def _pad(call: Call, x: Array) -> Array:
    mode = _NUMPY_MODE[call["scheme"]]
    if mode == "constant":
        return pad(x, call["pad_amount"], call["pad_constant_value"], call.input(0))
    return np.pad(x, call["pad_amount"], mode=mode) if x.ndim else x


define_move(
    "Pad",
    "in",
    params=(
        Param("scheme", "uint32", choices=_SCHEME),
        Param("pad_amount", "uint32", 2),
        Param("pad_constant_value", "float32", default=0.0),
    ),
    infer=_infer_pad,
    reference=_pad,
    kind=Work.SLICE,
    layout=Layout(free=True, params={"pad_amount": Follows.ENTRIES}),
    doc="Elements added before and after each axis: a real constant, mirrored (with or without the edge), or the edge.",
)


def _bit(mask: int, index: int) -> bool:
    return bool(mask >> index & 1)


def _slices(call: Call, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """numpy's index of a StridedSlice: a slice, an int (shrunk axis) or None (new axis) per row of ranges."""
    sizes = iter(shape)
    index: list[Any] = []
    rows = call["ranges"]
    new = sum(_bit(call["new_axes_mask"], i) for i in range(len(rows)))
    if len(rows) != len(shape) + new or any(len(r) != 3 for r in rows):
        raise call.fail(f"ranges must be {len(shape) + new} rows of (begin, end, step), not {rows}")
    for i, (begin, end, step) in enumerate(rows):
        if _bit(call["new_axes_mask"], i):
            index.append(None)
            continue
        size = next(sizes)
        if step == 0:
            raise call.fail(f"ranges[{i}] has step 0")
        if _bit(call["shrink_axes"], i):
            if not 0 <= begin < size:
                raise call.fail(f"ranges[{i}] takes element {begin} of an axis of {size}")
            index.append(begin)
            continue
        first = (0 if step > 0 else size - 1) if _bit(call["begin_mask"], i) else begin
        last = (size if step > 0 else -1) if _bit(call["end_mask"], i) else end
        if (first < 0 and size) or last < (0 if step > 0 else -1):
            raise call.fail(f"ranges[{i}] = {(begin, end, step)} has a negative bound; count from the axis's start")
        index.append(slice(max(first, 0), None if last < 0 else last, step))
    return tuple(index)


def _infer_strided_slice(call: Call) -> tuple[TensorType, ...]:
    sizes, shape = iter(call.input(0).shape), []
    for index in _slices(call, call.input(0).shape):
        if index is None:
            shape.append(1)
        elif isinstance(index, slice):
            shape.append(len(range(next(sizes))[index]))
        else:
            next(sizes)
    return (moved_type(call, tuple(shape)),)


_SLICED = Layout(
    free=True,
    params={
        "ranges": Follows.ENTRIES,
        "begin_mask": Follows.BITS,
        "end_mask": Follows.BITS,
        "shrink_axes": Follows.BITS,
    },
    loses="shrink_axes",
    adds="new_axes_mask",
)
define_move(
    "StridedSlice",
    "in",
    params=(
        Param("ranges", "int32", 2),
        Param("begin_mask", "uint32", default=0),
        Param("end_mask", "uint32", default=0),
        Param("shrink_axes", "uint32", default=0),
        Param("new_axes_mask", "uint32", default=0),
    ),
    infer=_infer_strided_slice,
    reference=lambda call, x: x[_slices(call, x.shape)],
    kind=Work.SLICE,
    layout=_SLICED,
    doc="Every step-th element from begin (included) to end (not included) of each axis. Bounds count from the start; "
    "end -1 with a negative step means through element 0. A bit of begin_mask or end_mask takes the axis's own bound.",
)


def _infer_tile(call: Call) -> tuple[TensorType, ...]:
    shape, multiples = call.input(0).shape, call["multiples"]
    if len(multiples) != len(shape) or any(m < 0 for m in multiples):
        raise call.fail(f"multiples {list(multiples)} must be {len(shape)} counts")
    return (moved_type(call, tuple(n * m for n, m in zip(shape, multiples, strict=True))),)


define_move(
    "Tile",
    "in",
    params=(Param("multiples", "uint32", 1),),
    infer=_infer_tile,
    reference=lambda call, x: np.tile(x, call["multiples"]),
    kind=Work.SLICE,
    layout=Layout(free=True, params={"multiples": Follows.ENTRIES}),
    doc="The input repeated multiples[i] times along axis i.",
)


def _infer_shape(call: Call) -> tuple[TensorType, ...]:
    size = len(call.input(0).shape[call["start"] : call["end"]])
    return (TensorType(call.outs[0].dtype if call.outs else DType.INT32, (size,)),)


define_move(
    "Shape",
    "in",
    params=(Param("start", "int32", default=0), Param("end", "int32", default=(1 << 31) - 1)),
    infer=_infer_shape,
    reference=lambda call, x: np.asarray(x.shape[call["start"] : call["end"]], np.int64),
    kind=Work.MOVE,
    quant=rules.NEVER,
    doc="The sizes of axes start (included) to end (not included).",
)
