# SPDX-License-Identifier: Apache-2.0
"""Fusions of data movement: reshapes and transposes that are one QNN op, or fit QNN's five dimensions.

Every value moves as it is, so they hold for float and, where all encodings are equal, for quantized units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hexforge.frontends.onnx.fusions.net import Fusion, Net, attribute, constant_input, moves, operand_shape
from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.unit import Unit, UnitKind, detail_of
from hexforge.ir import Array, ParamValue, ScaleOffset
from hexforge.patterns.language import op
from hexforge.patterns.permutation import canonical
from hexforge.patterns.pieces import cuts_to_the_end, sliced_pieces

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


RESHAPED, GATHERED = op("Reshape"), op("Gather")
RESHAPED_MOVED_RESHAPED = op("Reshape", op("Transpose", RESHAPED))
GATHERED_MOVED_RESHAPED = op("Reshape", op("Transpose", GATHERED))


def _reshape_transpose_reshape(net: Net, start: Unit) -> Unit | None:
    match = moves(net, RESHAPED_MOVED_RESHAPED, RESHAPED, start)
    if match is None:
        return None
    _, transpose, last = match.nodes
    before, inner, after = (operand_shape(o) for o in (start.inputs[0], start.outputs[0], last.outputs[0]))
    if before is None or inner is None or after is None or not math.prod(inner):
        return None
    movement = canonical(inner, _perm(transpose, len(inner)))
    if len(before) == len(after) == 4 and len(movement[0]) > 1:
        for move, size, perm in _candidates(before, after):
            if math.prod(size) == math.prod(inner) and canonical(size, perm) == movement:
                return net.join(UnitKind.SPACE_MOVE, match.nodes, start.inputs[:1], last.outputs, move)
    if len(inner) > _MAX_RANK >= len(movement[0]):
        return net.join(UnitKind.LOW_RANK, match.nodes, start.inputs[:1], last.outputs, LowRankMove(*movement))
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
    match, indices = moves(net, GATHERED_MOVED_RESHAPED, GATHERED, start), constant_input(start, 1)
    if match is None or indices is None:
        return None
    _, transpose, last = match.nodes
    source, inner = operand_shape(start.inputs[0]), operand_shape(start.outputs[0])
    if source is None or inner is None or len(inner) <= _MAX_RANK or not source or not math.prod(inner):
        return None
    movement = canonical(inner, _perm(transpose, len(inner)))
    if len(movement[0]) > _MAX_RANK:
        return None
    axis = int(attribute(start, "axis", 0)) % len(source)
    flat = indices.ravel().astype(np.int64)
    flat = np.where(flat < 0, flat + source[axis], flat)
    if flat.min() < 0 or flat.max() >= source[axis]:
        return None
    move = LowRankMove(*movement, axis, flat.astype(np.int32))
    return net.join(UnitKind.LOW_RANK, match.nodes, start.inputs[:1], last.outputs, move)


ROW_MAJOR = ((0, 0), (0, 1), (1, 0), (1, 1))
COLUMN_MAJOR = ((0, 0), (1, 0), (0, 1), (1, 1))


def _focus(net: Net, concat: Unit) -> Unit | None:
    """Four slices of every second row and column, concatenated along the channels."""
    size, axis = operand_shape(concat.outputs[0]), int(attribute(concat, "axis", -9))
    if concat.clip is not None or size is None or len(size) != 4 or axis not in (1, -3):
        return None
    pieces = sliced_pieces(net, concat, lambda cut: None if cut.clip else cuts_to_the_end(cut.target))
    if pieces is None or pieces.step != (2, 2) or pieces.offsets not in (ROW_MAJOR, COLUMN_MAJOR):
        return None
    x = next(
        operand for unit in pieces.nodes for operand in unit.inputs[:1] if operand and operand.value is pieces.picture
    )
    before = operand_shape(x)
    if before is None or before[2] % 2 or before[3] % 2:
        return None
    encodings = {o.encoding for u in pieces.nodes for o in (*u.inputs[:1], *u.outputs) if o is not None}
    encodings |= {o.encoding for o in concat.inputs if o is not None}
    if len(encodings) != 1 or not isinstance(encodings.pop(), ScaleOffset | None):
        return None
    return net.join(UnitKind.FOCUS, pieces.nodes, [x], concat.outputs, FocusOrder(pieces.offsets != ROW_MAJOR))


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
