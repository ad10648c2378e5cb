# SPDX-License-Identifier: Apache-2.0
"""Stacking, unstacking, channel shuffles and space-to-batch: permuted copies."""

from __future__ import annotations

import math

from hexforge.backends.htp.numbers.lower.adapt import transpose
from hexforge.backends.htp.numbers.lower.moves import alike, copy, merged, strides
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.ir import Node


@lowers("Pack", "UnPack")
def pack(lowering: Lowering, node: Node) -> bool:
    """Each tensor is one slice of a new axis of the other side."""
    stacking = node.op.name == "Pack"
    parts = [v for v in (node.inputs if stacking else node.outputs) if v is not None]
    whole = node.outputs[0] if stacking else node.inputs[0]
    assert whole is not None
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
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    if not alike(lowering, x, y):
        return False
    axis, groups = int(node.params["axis"]) % len(x.shape), int(node.params["num_groups"])
    shape = (math.prod(x.shape[:axis]), groups, x.shape[axis] // groups, math.prod(x.shape[axis + 1 :]))
    transpose(lowering, x, y, shape, (0, 2, 1, 3), lowering.storage(x).dtype.itemsize)
    return True


@lowers("BatchToSpace", "SpaceToBatch")
def space_batch(lowering: Lowering, node: Node) -> bool:
    """Blocks of pixels as batches, where nothing is padded or cropped."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    border = node.params["crops" if node.op.name == "BatchToSpace" else "pad_amount"]
    if not alike(lowering, x, y) or any(n for pair in border for n in pair):
        return False
    bh, bw = (int(n) for n in node.params["block_size"])
    wide, deep = (y, x) if node.op.name == "BatchToSpace" else (x, y)
    n, _, _, c = wide.shape
    _, h, w, _ = deep.shape
    # deep is [bh, bw, n][h, w, c], wide is [n, h, bh, w, bw, c]
    dims = (bh, bw, n, h, w, c)
    row = w * bw * c
    in_wide = (row, c, h * bh * row, bh * row, bw * c, 1)
    source, target = (in_wide, strides(dims)) if wide is x else (strides(dims), in_wide)
    copy(lowering, x, y, *merged(dims, source, target))
    return True
