# SPDX-License-Identifier: Apache-2.0
"""Stacking, unstacking, channel shuffles and space-to-batch: permuted copies. Shapes, which are constants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hexforge.backends.htp.numbers.lower.adapt import constant, transpose
from hexforge.backends.htp.numbers.lower.moves import alike, copy, merged, strides
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.ir import Node


@lowers("Pack", "UnPack")
def pack(lowering: Lowering, node: Node) -> bool:
    """Each tensor is one slice of a new axis of the other side."""
    stacking = node.op.name == "Pack"
    parts = [v for v in (node.inputs if stacking else node.outputs) if v is not None]
    whole = node.outputs[0] if stacking else node.operand(0)
    if not alike(lowering, whole, *parts):
        return False
    axis = int(node.params["axis"]) % len(whole.shape)
    outer, inner = math.prod(whole.shape[:axis]), math.prod(whole.shape[axis + 1 :])
    dims, in_whole, in_part = merged((outer, inner), (inner * len(parts), 1), (inner, 1))
    for i, part in enumerate(parts):
        if stacking:
            copy(lowering, part, whole, dims, in_part, in_whole, offset_y=i * inner)
        else:
            copy(lowering, whole, part, dims, in_whole, in_part, offset_x=i * inner)
    return True


@lowers("ChannelShuffle")
def channel_shuffle(lowering: Lowering, node: Node) -> bool:
    """The groups of an axis interleaved."""
    x, y = node.operand(0), node.outputs[0]
    if not alike(lowering, x, y):
        return False
    axis, groups = int(node.params["axis"]) % len(x.shape), int(node.params["num_groups"])
    shape = (math.prod(x.shape[:axis]), groups, x.shape[axis] // groups, math.prod(x.shape[axis + 1 :]))
    transpose(lowering, x, y, shape, (0, 2, 1, 3))
    return True


@lowers("BatchToSpace", "SpaceToBatch")
def space_batch(lowering: Lowering, node: Node) -> bool:
    """Blocks of pixels as batches; the space is cropped or padded with zeros."""
    x, y = node.operand(0), node.outputs[0]
    joins = node.op.name == "BatchToSpace"
    (top, bottom), (left, right) = node.params["crops" if joins else "pad_amount"]
    own = lowering.storage(x)
    cut = bool(top or bottom or left or right)
    if not alike(lowering, x, y) or (cut and own.kind == "raw" and x.encoding is not None):
        return False
    bh, bw = (int(n) for n in node.params["block_size"])
    wide, deep = (y, x) if joins else (x, y)
    n, height, width, c = wide.shape
    _, h, w, _ = deep.shape
    # deep is [bh, bw, n][h, w, c], wide is [n, h, bh, w, bw, c]
    dims = (bh, bw, n, h, w, c)
    row = w * bw * c
    in_wide = (row, c, h * bh * row, bh * row, bw * c, 1)
    item = own.dtype.itemsize
    whole = lowering.temp(replace(own, shape=(n, h * bh, w * bw, c)), wide.name) if cut else lowering.name(wide)
    box = {"element_bytes": item, "dims": (n, height, width * c)}
    in_box, in_whole, at = (height * width * c, width * c, 1), (h * bh * row, row, 1), top * row + left * c
    if joins:
        copy(lowering, x, whole, *merged(dims, strides(dims), in_wide))
        if cut:
            lowering.emit("copy", [whole], [y], **box, strides_x=in_whole, strides_y=in_box, offset_x=at, offset_y=0)
        return True
    if cut:
        zero = np.asarray([own.zero_point], own.dtype)  # of floats 0
        lowering.emit("fill", [], [whole], element_bytes=item, count=math.prod(dims), value=zero)
        lowering.emit("copy", [x], [whole], **box, strides_x=in_box, strides_y=in_whole, offset_x=0, offset_y=at)
    copy(lowering, whole, y, *merged(dims, in_wide, strides(dims)))
    return True


@lowers("Shape")
def shape(lowering: Lowering, node: Node) -> bool:
    """The sizes of a tensor, which are known."""
    x, y = node.operand(0), node.outputs[0]
    if y.encoding is not None or not y.dtype.is_integer:
        return False
    sizes = np.asarray(node.op.reference(node.call, np.broadcast_to(np.int8(0), x.shape))).astype(y.dtype.numpy)
    copy(lowering, constant(lowering, sizes, y.name), y, sizes.shape, (1,), (1,))
    return True
