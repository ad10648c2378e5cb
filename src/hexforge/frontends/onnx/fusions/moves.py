# SPDX-License-Identifier: Apache-2.0
"""Fusions of data movement: reshapes and transposes that are one QNN op, or fit QNN's five dimensions.

Every value moves as it is, so they hold for float and, where all encodings are equal, for quantized units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hexforge.frontends.onnx.fusions.net import Fusion, Net, attribute, constant_input, move_chain, operand_shape
from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.unit import Operand, Unit, UnitKind, detail_of
from hexforge.ir import Array, ParamValue, ScaleOffset

Shape = tuple[int, ...]
_MAX_RANK = 5


@dataclass(frozen=True, slots=True, eq=False)
class SpaceMove:
    """A QNN op that moves data between space and channels, and the layout it works in."""

    op: str
    channel_last: bool
    params: Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, eq=False)
class LowRankMove:
    """A transposition in few dimensions, of the elements at `indices` along `axis` where these are given."""

    dims: Shape
    perm: Shape
    axis: int = 0
    indices: Array | None = None


@dataclass(frozen=True, slots=True)
class FocusOrder:
    """The order of a Focus: row by row, or column by column where it is swapped."""

    swapped: bool


def canonical(size: Shape, perm: Shape) -> tuple[Shape, Shape]:
    """The transposition with axes of size 1 dropped and axes that stay together merged: one form per movement."""
    kept = [a for a in range(len(size)) if size[a] != 1]
    order = [a for a in perm if size[a] != 1]
    runs: list[list[int]] = []
    for axis in order:
        if runs and kept.index(axis) == kept.index(runs[-1][-1]) + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    by_input = sorted(range(len(runs)), key=lambda r: runs[r][0])
    dims = tuple(math.prod(size[a] for a in runs[r]) for r in by_input)
    return dims, tuple(by_input.index(r) for r in range(len(runs)))


def _candidates(before: Shape, after: Shape) -> Iterator[tuple[SpaceMove, Shape, Shape]]:
    """QNN ops that make `after` of `before`, and the movement they are: a shape and a permutation of it."""
    for last in (False, True):
        (n, h, w, c), (m, hh, ww, cc) = (s if last else (s[0], s[2], s[3], s[1]) for s in (before, after))
        if n != m:
            continue
        if h == hh and w == ww and c == cc:
            for g in (g for g in range(2, c // 2 + 1) if c % g == 0):
                shuffle = SpaceMove("ChannelShuffle", last, {"num_groups": g, "axis": 3})
                if last:
                    yield shuffle, (n, h, w, g, c // g), (0, 1, 2, 4, 3)
                else:
                    yield shuffle, (n, g, c // g, h, w), (0, 2, 1, 3, 4)
        if hh and ww and h % hh == 0 and w % ww == 0 and (h // hh) * (w // ww) > 1:
            bh, bw = h // hh, w // ww
            size = (n, hh, bh, ww, bw, c) if last else (n, c, hh, bh, ww, bw)
            perms = ((0, 1, 3, 2, 4, 5), (0, 1, 3, 5, 2, 4)) if last else ((0, 3, 5, 1, 2, 4), (0, 1, 3, 5, 2, 4))
            for mode, perm in enumerate(perms):
                yield SpaceMove("SpaceToDepth", last, {"block_size": (bh, bw), "mode": mode}), size, perm
        if h and w and hh % h == 0 and ww % w == 0 and (hh // h) * (ww // w) > 1:
            bh, bw = hh // h, ww // w
            d = c // (bh * bw)
            forms = (
                (((n, h, w, bh, bw, d), (0, 1, 3, 2, 4, 5)), ((n, h, w, d, bh, bw), (0, 1, 4, 2, 5, 3)))
                if last
                else (((n, bh, bw, d, h, w), (0, 3, 4, 1, 5, 2)), ((n, d, bh, bw, h, w), (0, 1, 4, 2, 5, 3)))
            )
            for mode, (size, perm) in enumerate(forms):
                yield SpaceMove("DepthToSpace", last, {"block_size": (bh, bw), "mode": mode}), size, perm


def _reshape_transpose_reshape(net: Net, start: Unit) -> Unit | None:
    units = move_chain(net, start, "Transpose", "Reshape")
    if units is None:
        return None
    before, inner, after = (operand_shape(o) for o in (start.inputs[0], start.outputs[0], units[2].outputs[0]))
    if before is None or inner is None or after is None or not math.prod(inner):
        return None
    movement = canonical(inner, _perm(units[1], len(inner)))
    if len(before) == len(after) == 4 and len(movement[0]) > 1:
        for move, size, perm in _candidates(before, after):
            if math.prod(size) == math.prod(inner) and canonical(size, perm) == movement:
                return net.join(UnitKind.SPACE_MOVE, units, start.inputs[:1], units[2].outputs, move)
    if len(inner) > _MAX_RANK >= len(movement[0]):
        return net.join(UnitKind.LOW_RANK, units, start.inputs[:1], units[2].outputs, LowRankMove(*movement))
    return None


def _perm(unit: Unit, rank: int) -> Shape:
    given = attribute(unit, "perm")
    return tuple(range(rank))[::-1] if given is None else tuple(int(p) for p in given)


def _write_space_move(b: Builder, u: Unit) -> None:
    x, move = b.input(u, 0), detail_of(u, SpaceMove)
    if move.channel_last:
        b.emit(move.op, [x], b.output(u), **move.params)
    else:
        b.to_channel_first(b.emit(move.op, [b.to_channel_last(x)], **move.params), b.output(u))


def _write_low_rank(b: Builder, u: Unit) -> None:
    x, move = b.input(u, 0), detail_of(u, LowRankMove)
    if move.indices is not None:
        x = b.emit("Gather", [x, b.static(move.indices)], axis=move.axis)
    b.reshape(b.transpose(b.reshape(x, move.dims), move.perm), b.output(u).shape, b.output(u))


def _gather_transpose_reshape(net: Net, start: Unit) -> Unit | None:
    """A Gather whose indices have so many axes that its output has more than five dimensions."""
    units = move_chain(net, start, "Transpose", "Reshape")
    indices = constant_input(start, 1)
    if units is None or indices is None:
        return None
    source, inner = operand_shape(start.inputs[0]), operand_shape(start.outputs[0])
    if source is None or inner is None or len(inner) <= _MAX_RANK or not source or not math.prod(inner):
        return None
    movement = canonical(inner, _perm(units[1], len(inner)))
    if len(movement[0]) > _MAX_RANK:
        return None
    axis = int(attribute(start, "axis", 0)) % len(source)
    flat = indices.ravel().astype(np.int64)
    flat = np.where(flat < 0, flat + source[axis], flat)
    if flat.min() < 0 or flat.max() >= source[axis]:
        return None
    move = LowRankMove(*movement, axis, flat.astype(np.int32))
    return net.join(UnitKind.LOW_RANK, units, start.inputs[:1], units[2].outputs, move)


def _focus(net: Net, concat: Unit) -> Unit | None:
    """Four slices of every second row and column, concatenated along the channels."""
    size = operand_shape(concat.outputs[0])
    if len(concat.inputs) != 4 or size is None or len(size) != 4 or int(attribute(concat, "axis", -9)) not in (1, -3):
        return None
    parts, offsets, sources = [concat], [], set()
    x: Operand | None = None
    for operand in concat.inputs:
        offset = {2: 0, 3: 0}
        strided: set[int] = set()
        for _ in range(2):  # rows and columns may be sliced by one node or by two
            cut = net.before(operand, "Slice")
            if cut is None or cut.clip is not None:
                break
            steps = _every_second(cut)
            if steps is None or strided & steps.keys():
                break
            offset.update(steps)
            strided |= steps.keys()
            parts.append(cut)
            operand = cut.inputs[0]
        if strided != {2, 3} or operand is None:
            return None
        x = operand
        sources.add(operand.value)
        offsets.append((offset[2], offset[3]))
    before = operand_shape(x)
    if len(sources) != 1 or before is None or before[2] % 2 or before[3] % 2 or x is None:
        return None
    encodings = {o.encoding for u in parts for o in (*u.inputs[:1], *u.outputs) if o is not None}
    encodings |= {o.encoding for o in concat.inputs if o is not None}
    if len(encodings) != 1 or concat.clip is not None or not isinstance(encodings.pop(), ScaleOffset | None):
        return None
    row_major = [(0, 0), (0, 1), (1, 0), (1, 1)]
    if offsets not in (row_major, [(b, a) for a, b in row_major]):
        return None
    return net.join(UnitKind.FOCUS, parts, [x], concat.outputs, FocusOrder(offsets != row_major))


def _every_second(cut: Unit) -> dict[int, int] | None:
    """Axis -> start of a Slice that takes every second element up to the end of some of the axes 2 and 3."""
    size = operand_shape(cut.inputs[0])
    starts, ends, axes, steps = (constant_input(cut, i) for i in range(1, 5))
    if size is None or len(size) != 4 or starts is None or ends is None or axes is None or steps is None:
        return None
    out = {}
    for start, end, axis, step in zip(*(a.ravel().tolist() for a in (starts, ends, axes, steps)), strict=True):
        axis %= 4
        if axis not in (2, 3) or step != 2 or start not in (0, 1) or not (end >= size[axis]):
            return None
        out[axis] = int(start)
    return out


def _write_focus(b: Builder, u: Unit) -> None:
    x = b.input(u, 0)
    # blocks counted column by column are blocks of the image with rows and columns swapped
    to, back = ((0, 3, 2, 1), (0, 3, 2, 1)) if detail_of(u, FocusOrder).swapped else ((0, 2, 3, 1), (0, 3, 1, 2))
    y = b.emit("SpaceToDepth", [b.transpose(x, to)], block_size=(2, 2), mode=0)
    b.transpose(y, back, b.output(u))


FUSIONS: tuple[Fusion, ...] = (
    Fusion(
        UnitKind.SPACE_MOVE,
        ("Reshape",),
        _reshape_transpose_reshape,
        _write_space_move,
        ("ChannelShuffle", "DepthToSpace", "SpaceToDepth"),
    ),
    Fusion(UnitKind.LOW_RANK, ("Gather",), _gather_transpose_reshape, _write_low_rank, ("Gather",)),
    Fusion(UnitKind.FOCUS, ("Concat",), _focus, _write_focus, ("SpaceToDepth",)),
)
