# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements: shapes, slices, joins, pads."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, carried, translates
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, DType, TensorType, Value


def normal_axis(axis: Any, rank: int) -> int:
    """An axis counted from the start; Refusal if there is none such."""
    if not -rank <= int(axis) < rank:
        raise Refusal(f"axis {axis} is outside a tensor of {rank} dimensions")
    return int(axis) % rank


def axes_of(b: Builder, u: Unit, rank: int, index: int = 1) -> tuple[int, ...] | None:
    """The axes a node names in an attribute (older opsets) or a constant input, None where it names none."""
    given = b.attr(u, "axes")
    if given is None:
        given = b.constant(u, index, "axes")
    return None if given is None else tuple(normal_axis(a, rank) for a in np.ravel(given))


def ints(b: Builder, u: Unit, index: int, name: str) -> tuple[int, ...] | None:
    """Numbers of a node that are an attribute in older opsets and a constant input in newer ones."""
    given = b.attr(u, name) if b.attr(u, name) is not None else b.constant(u, index, name)
    return None if given is None else tuple(int(v) for v in np.ravel(given))


def _reshaped(b: Builder, u: Unit, shape: Iterable[int]) -> None:
    """The input in `shape`, which must be the output's."""
    x, out = carried(b, u), b.output(u)
    if tuple(shape) != out.shape:
        raise Refusal(f"the output's shape {list(out.shape)} is not {list(shape)}, which its node gives")
    b.emit("Reshape", [x], out)


@translates("Reshape", writes=("Reshape",))
def reshape(b: Builder, u: Unit) -> None:
    """Reshape: 0 keeps a size (unless allowzero), -1 takes the rest."""
    given = ints(b, u, 1, "shape")
    if given is None:
        raise Refusal("the shape is missing")
    old = b.input(u, 0).shape
    shape = list(given)
    if not b.attr(u, "allowzero", 0):
        if any(n == 0 and i >= len(old) for i, n in enumerate(shape)):
            raise Refusal(f"shape {shape} copies a size that {list(old)} does not have")
        shape = [old[i] if n == 0 else n for i, n in enumerate(shape)]
    if shape.count(-1) == 1:
        known = -math.prod(shape)
        if not known or math.prod(old) % known:
            raise Refusal(f"shape {list(given)} does not fit {list(old)}")
        shape[shape.index(-1)] = math.prod(old) // known
    _reshaped(b, u, shape)


@translates("Flatten", writes=("Reshape",))
def flatten(b: Builder, u: Unit) -> None:
    """Flatten to two dimensions, cut at `axis`."""
    shape, axis = b.input(u, 0).shape, int(b.attr(u, "axis", 1))
    axis = axis if axis == len(shape) else normal_axis(axis, len(shape))
    _reshaped(b, u, (math.prod(shape[:axis]), math.prod(shape[axis:])))


@translates("Squeeze", writes=("Reshape",))
def squeeze(b: Builder, u: Unit) -> None:
    """Squeeze the given axes, or all of size 1."""
    shape = b.input(u, 0).shape
    axes = axes_of(b, u, len(shape))
    if axes is not None and any(shape[a] != 1 for a in axes):
        raise Refusal(f"axes {list(axes)} of {list(shape)} are not all of size 1")
    _reshaped(b, u, tuple(n for i, n in enumerate(shape) if (n != 1 if axes is None else i not in axes)))


@translates("Unsqueeze", writes=("Reshape",))
def unsqueeze(b: Builder, u: Unit) -> None:
    """Unsqueeze: axes of size 1 put in."""
    rank = len(b.output(u).shape)
    axes, rest = axes_of(b, u, rank), iter(b.input(u, 0).shape)
    if axes is None or len(set(axes)) + len(b.input(u, 0).shape) != rank:
        raise Refusal("the axes are missing, or do not fit the output")
    _reshaped(b, u, tuple(1 if i in axes else next(rest) for i in range(rank)))


@translates("Transpose", writes=("Transpose",))
def transpose(b: Builder, u: Unit) -> None:
    """Transpose; without perm the axes are reversed."""
    x = carried(b, u)
    perm = b.attr(u, "perm") or range(len(x.shape))[::-1]
    b.emit("Transpose", [x], b.output(u), perm=tuple(int(p) for p in perm))


@translates("Concat", writes=("Concat",))
def concat(b: Builder, u: Unit) -> None:
    """Concat; empty inputs are left out."""
    out = b.output(u)
    axis = normal_axis(b.attr(u, "axis", 1), len(out.shape))
    inputs = [x for x in (carried(b, u, i) for i in range(len(u.inputs))) if x.type.size or not out.type.size]
    b.emit("Concat", inputs, out, axis=axis)


@translates("Split", writes=("Split",))
def split(b: Builder, u: Unit) -> None:
    """Split into given sizes, or evenly (the last part smaller where it does not divide)."""
    x = carried(b, u)
    axis = normal_axis(b.attr(u, "axis", 0), len(x.shape))
    size, sizes = x.shape[axis], ints(b, u, 1, "split")
    if sizes is None:
        count = int(b.attr(u, "num_outputs", len(u.outputs)))
        each = -(-size // max(count, 1))
        sizes = tuple(max(0, min(each, size - i * each)) for i in range(count))
    if sum(sizes) != size or len(sizes) != len(u.outputs) or any(n < 0 for n in sizes):
        raise Refusal(f"parts {list(sizes)} do not make up an axis of {size} in {len(u.outputs)} outputs")
    shapes = [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in sizes]
    outputs = [b.output(u, i) if b.wants(u, i) else b.temp(x.type.with_shape(s)) for i, s in enumerate(shapes)]
    b.emit_many("Split", [x], outputs, axis=axis, split_index=tuple(accumulate(sizes))[:-1])


def _ranges(shape: tuple[int, ...], slices: dict[int, slice]) -> list[tuple[int, int, int]]:
    """QNN's ranges of Python slices."""
    rows = []
    for axis, size in enumerate(shape):
        picked = range(size)[slices.get(axis, slice(None))]
        begin, end, step = picked.start, picked.stop, picked.step
        rows.append((begin, max(end, -1), step) if len(picked) else (0, 0, 1))
    return rows


@translates("Slice", writes=("StridedSlice",))
def slice_(b: Builder, u: Unit) -> None:
    """Slice with constant bounds: attributes before opset 10."""
    x = carried(b, u)
    starts, ends, steps = (ints(b, u, i, name) for i, name in ((1, "starts"), (2, "ends"), (4, "steps")))
    if starts is None or ends is None:
        raise Refusal("starts or ends are missing")
    axes = axes_of(b, u, len(x.shape), 3) or tuple(range(len(starts)))
    steps = steps or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise Refusal(f"starts, ends, axes and steps do not fit together: {starts}, {ends}, {axes}, {steps}")
    slices = {a: slice(s, e, step) for a, s, e, step in zip(axes, starts, ends, steps, strict=True)}
    # a negative end beyond the start of the axis means "through element 0", which Python spells the same way
    b.emit("StridedSlice", [x], b.output(u), ranges=_ranges(x.shape, slices))


_SCHEMES = {"constant": 0, "reflect": 2, "edge": 3}


def _pad_value(b: Builder, u: Unit, x: Value) -> float:
    """The constant a Pad fills with, as a real number that the tensor can hold."""
    given = b.constant(u, 2, "constant_value")
    value = b.attr(u, "value", 0.0) if given is None else np.ravel(given)[0]
    real = float(value)
    if x.dtype.is_integer and x.encoding is None and int(real) != int(value):
        raise Refusal(f"constant_value {value} is not a float64 number; use one below 2**53")
    return real


@translates("Pad", writes=("Gather", "Pad", "StridedSlice"))
def pad(b: Builder, u: Unit) -> None:
    """Pad: negative amounts slice, and what no QNN scheme gives is gathered with constant indices."""
    x, out = carried(b, u), b.output(u)
    rank, given = len(x.shape), ints(b, u, 1, "pads")
    if given is None:
        raise Refusal("the pads are missing")
    axes = axes_of(b, u, rank, 3)
    axes = tuple(range(rank)) if axes is None else axes
    if len(given) != 2 * len(axes):
        raise Refusal(f"{len(given)} pads for {len(axes)} axes")
    pads = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pads[axis] = (given[i], given[len(axes) + i])
    if any(min(p) < 0 for p in pads):
        cut = {a: slice(max(0, -p), n - max(0, -q)) for a, (n, (p, q)) in enumerate(zip(x.shape, pads, strict=True))}
        ranges = _ranges(x.shape, cut)
        kept = tuple(len(range(n)[cut[a]]) for a, n in enumerate(x.shape))
        x = b.emit("StridedSlice", [x], x.type.with_shape(kept), ranges=ranges)
        pads = [(max(0, p), max(0, q)) for p, q in pads]
    mode = b.attr(u, "mode", "constant")
    if mode not in (*_SCHEMES, "wrap"):
        raise Refusal(f"mode {mode!r} is unknown")
    if mode != "constant" and any(max(p) and not n for n, p in zip(x.shape, pads, strict=True)):
        raise Refusal(f"mode {mode!r} cannot pad an empty axis")
    if mode == "wrap" or (mode == "reflect" and any(max(p) >= max(n, 1) for n, p in zip(x.shape, pads, strict=True))):
        for axis, amount in enumerate(pads):
            if max(amount):
                picks = np.pad(np.arange(x.shape[axis], dtype=np.int32), amount, mode=mode)
                x = b.emit("Gather", [x, b.static(picks)], axis=axis)
        b.finish(u, x)
        return
    value = _pad_value(b, u, x) if mode == "constant" else 0.0
    b.emit("Pad", [x], out, scheme=_SCHEMES[mode], pad_amount=pads, pad_constant_value=value)


@translates("Tile", writes=("Tile",))
def tile(b: Builder, u: Unit) -> None:
    """Tile with constant repeats."""
    repeats = ints(b, u, 1, "repeats")
    if repeats is None:
        raise Refusal("the repeats are missing")
    b.emit("Tile", [carried(b, u)], b.output(u), multiples=repeats)


def _expands(old: tuple[int, ...], shape: tuple[int, ...], new: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(old, shape) == new
    except ValueError:
        return False


@translates("Expand", writes=("Tile",))
def expand(b: Builder, u: Unit) -> None:
    """Expand: axes of size 1 repeated."""
    shape = ints(b, u, 1, "shape")
    x, out = carried(b, u), b.output(u)
    if shape is None or len(x.shape) > len(out.shape) or not _expands(x.shape, shape, out.shape):
        raise Refusal(f"shape {shape} does not expand {list(x.shape)} to {list(out.shape)}")
    x = b.reshape(x, (1,) * (len(out.shape) - len(x.shape)) + x.shape)
    multiples = tuple(1 if n == m else m for n, m in zip(x.shape, out.shape, strict=True))
    b.emit("Tile", [x], out, multiples=multiples)


@translates("DepthToSpace", writes=("DepthToSpace",))
@translates("SpaceToDepth", writes=("SpaceToDepth",))
def depth_space(b: Builder, u: Unit) -> None:
    """DepthToSpace and SpaceToDepth, channel-last."""
    op, block = u.target.op_type, int(b.attr(u, "blocksize", 0))
    mode = b.attr(u, "mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Refusal(f"mode {mode!r} is unknown; there are DCR and CRD")
    out = b.output(u)
    if len(out.shape) != 4 or len(b.input(u, 0).shape) != 4:
        raise Refusal(f"{op} of {len(out.shape)} dimensions; give [batch, channels, height, width]")
    x = b.to_channel_last(carried(b, u))
    n, c, h, w = out.shape
    y = TensorType(out.dtype, (n, h, w, c), out.encoding)
    y_value = b.emit(op, [x], y, block_size=(block, block), mode=("DCR", "CRD").index(mode))
    b.to_channel_first(y_value, out)


@translates("Shape", writes=("Reshape",))
def shape_(b: Builder, u: Unit) -> None:
    """Shape: shapes are static, so this is a constant."""
    shape = b.type_of(b.operand(u, 0)).shape
    sizes = np.asarray(shape[b.attr(u, "start", 0) : b.attr(u, "end")], np.int64)
    b.finish(u, b.static(sizes))


@translates("Range", writes=("Reshape",))
def range_(b: Builder, u: Unit) -> None:
    """Range of constants: a constant."""
    start, limit, delta = (b.constant(u, i, name) for i, name in enumerate(("start", "limit", "delta")))
    if start is None or limit is None or delta is None or not np.all(delta):
        raise Refusal("start, limit and a delta that is not 0 must be given")
    first, last, step = (np.ravel(v)[0].item() for v in (start, limit, delta))
    count = max(math.ceil((last - first) / step), 0)
    dtype = DType.of(start.dtype)
    steps: Array = np.arange(count, dtype=np.float64 if dtype.is_float else np.int64)
    b.finish(u, b.static((first + steps * step).astype(dtype.numpy)))


@translates("Constant", writes=("Reshape",))
def constant_(b: Builder, u: Unit) -> None:
    """Constant: what the reader leaves of a model's output that it could compute."""
    given = [a.value for name, a in u.target.attributes.items() if name.startswith("value")]
    if len(given) != 1:
        raise Refusal("a Constant must have one value; write it as a dense tensor")
    data = given[0].numpy() if hasattr(given[0], "numpy") else np.asarray(given[0])
    b.finish(u, b.static(data.astype(b.output(u).dtype.numpy, copy=False)))
