# SPDX-License-Identifier: Apache-2.0
"""Ops that trade axes for one another: depth and space, batch and space, groups of channels. Channel-last."""

from __future__ import annotations

from hexforge.ir import ALONG_AXIS, Array, Call, Param, TensorType, Work
from hexforge.ops.moves_layout import define_move, moved_type, pad

_MODE = {"DCR": 0, "CRD": 1}
_BLOCK = Param("block_size", "uint32", 1)


def _rank4(call: Call) -> tuple[int, int, int, int]:
    shape = call.input(0).shape
    if len(shape) != 4:
        raise call.fail(f"the input has {len(shape)} dimensions; give [batch, height, width, channels]")
    if len(call["block_size"]) != 2 or min(call["block_size"]) < 1:
        raise call.fail(f"block_size {list(call['block_size'])} must be two positive numbers")
    return shape


def _infer_depth_to_space(call: Call) -> tuple[TensorType, ...]:
    (n, h, w, c), (bh, bw) = _rank4(call), call["block_size"]
    if c % (bh * bw):
        raise call.fail(f"{c} channels do not divide into blocks of {bh} by {bw}")
    return (moved_type(call, (n, h * bh, w * bw, c // (bh * bw))),)


def _depth_to_space(call: Call, x: Array) -> Array:
    (n, h, w, c), (bh, bw) = x.shape, call["block_size"]
    d = c // (bh * bw)
    if call["mode"] == _MODE["DCR"]:
        y = x.reshape(n, h, w, bh, bw, d).transpose(0, 1, 3, 2, 4, 5)
    else:
        y = x.reshape(n, h, w, d, bh, bw).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, h * bh, w * bw, d)


define_move(
    "DepthToSpace",
    "in",
    params=(_BLOCK, Param("mode", "uint32", default=0, choices=_MODE)),
    infer=_infer_depth_to_space,
    reference=_depth_to_space,
    kind=Work.DEPTH_TO_SPACE,
    doc="Channels laid out as blocks of space; channels count (block, depth) in mode DCR, (depth, block) in CRD.",
)


def _infer_space_to_depth(call: Call) -> tuple[TensorType, ...]:
    (n, h, w, c), (bh, bw) = _rank4(call), call["block_size"]
    if h % bh or w % bw:
        raise call.fail(f"{h} by {w} does not divide into blocks of {bh} by {bw}")
    return (moved_type(call, (n, h // bh, w // bw, c * bh * bw)),)


def _space_to_depth(call: Call, x: Array) -> Array:
    (n, h, w, c), (bh, bw) = x.shape, call["block_size"]
    y = x.reshape(n, h // bh, bh, w // bw, bw, c)
    y = y.transpose(0, 1, 3, 2, 4, 5) if call["mode"] == _MODE["DCR"] else y.transpose(0, 1, 3, 5, 2, 4)
    return y.reshape(n, h // bh, w // bw, c * bh * bw)


define_move(
    "SpaceToDepth",
    "in",
    params=(_BLOCK, Param("mode", "uint32", default=0, choices=_MODE)),
    infer=_infer_space_to_depth,
    reference=_space_to_depth,
    kind=Work.DEPTH_TO_SPACE,
    doc="Blocks of space laid out as channels, the inverse of DepthToSpace.",
)


def _pairs(call: Call, name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    pairs = call[name]
    if len(pairs) != 2 or any(len(p) != 2 or min(p) < 0 for p in pairs):
        raise call.fail(f"{name} must be two pairs of counts, not {pairs}")
    return pairs[0], pairs[1]


def _infer_batch_to_space(call: Call) -> tuple[TensorType, ...]:
    (n, h, w, c), (bh, bw) = _rank4(call), call["block_size"]
    (top, bottom), (left, right) = _pairs(call, "crops")
    if n % (bh * bw) or h * bh < top + bottom or w * bw < left + right:
        raise call.fail(f"shape {[n, h, w, c]} does not fit blocks of {bh} by {bw} and crops {call['crops']}")
    return (moved_type(call, (n // (bh * bw), h * bh - top - bottom, w * bw - left - right, c)),)


def _batch_to_space(call: Call, x: Array) -> Array:
    (n, h, w, c), (bh, bw) = x.shape, call["block_size"]
    (top, bottom), (left, right) = call["crops"]
    n //= bh * bw
    y = x.reshape(bh, bw, n, h, w, c).transpose(2, 3, 0, 4, 1, 5).reshape(n, h * bh, w * bw, c)
    return y[:, top : h * bh - bottom, left : w * bw - right]


define_move(
    "BatchToSpace",
    "in",
    params=(_BLOCK, Param("crops", "uint32", 2, default=((0, 0), (0, 0)))),
    infer=_infer_batch_to_space,
    reference=_batch_to_space,
    kind=Work.DEPTH_TO_SPACE,
    doc="Batches laid out as blocks of space, then cropped.",
)


def _infer_space_to_batch(call: Call) -> tuple[TensorType, ...]:
    (n, h, w, c), (bh, bw) = _rank4(call), call["block_size"]
    (top, bottom), (left, right) = _pairs(call, "pad_amount")
    h, w = h + top + bottom, w + left + right
    if h % bh or w % bw:
        raise call.fail(f"{h} by {w} (padded) does not divide into blocks of {bh} by {bw}")
    return (moved_type(call, (n * bh * bw, h // bh, w // bw, c)),)


def _space_to_batch(call: Call, x: Array) -> Array:
    bh, bw = call["block_size"]
    x = pad(x, ((0, 0), *call["pad_amount"], (0, 0)), 0.0, call.input(0))
    n, h, w, c = x.shape
    y = x.reshape(n, h // bh, bh, w // bw, bw, c).transpose(2, 4, 0, 1, 3, 5)
    return y.reshape(n * bh * bw, h // bh, w // bw, c)


define_move(
    "SpaceToBatch",
    "in",
    params=(_BLOCK, Param("pad_amount", "uint32", 2, default=((0, 0), (0, 0)))),
    infer=_infer_space_to_batch,
    reference=_space_to_batch,
    kind=Work.DEPTH_TO_SPACE,
    doc="Padded with zeros, then blocks of space laid out as batches, the inverse of BatchToSpace.",
)


def _infer_shuffle(call: Call) -> tuple[TensorType, ...]:
    shape, groups = call.input(0).shape, call["num_groups"]
    axis = call.axis(call["axis"])
    if groups < 1 or shape[axis] % groups:
        raise call.fail(f"{shape[axis]} channels do not divide into {groups} groups")
    return (moved_type(call, shape),)


def _shuffle(call: Call, x: Array) -> Array:
    axis, groups = call["axis"] % x.ndim, call["num_groups"]
    split = x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])
    return split.swapaxes(axis, axis + 1).reshape(x.shape)


define_move(
    "ChannelShuffle",
    "in",
    params=(Param("num_groups", "uint32"), Param("axis", "int32", default=-1)),
    infer=_infer_shuffle,
    reference=_shuffle,
    kind=Work.MOVE,
    layout=ALONG_AXIS,
    doc="Channels of `num_groups` groups interleaved: the first of each group, the second of each, and so on.",
)
