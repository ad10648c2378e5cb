# SPDX-License-Identifier: Apache-2.0
"""Block weights: 4-bit weights with a float scale for each block as LPBQ, which HTP multiplies as 8-bit integers.

A channel's scale is a sixteenth of the largest of its blocks', a block's an integer from 1 to 16 times that: of the two
nearest the one whose weights are nearer to the model's. Weights that fit exactly stay what they are.
"""

from __future__ import annotations

import math

import numpy as np

from hexforge.ir import Array, Block, BlockwiseExpansion, Graph, TensorType, Value
from hexforge.ir.fixed_point import scale_array

MOST = 16
"""The largest integer scale of a block."""
_WEIGHTED = ("FullyConnected", "Conv2d")
"""Ops whose weights, input 1, may be LPBQ."""


def to_lpbq(graph: Graph) -> int:
    """Give 4-bit weights with scales per block the encoding LPBQ where their blocks lie so; how many were changed."""
    changes = 0
    for value in list(graph.values.values()):
        readers = [(user, user.inputs.index(value)) for user in value.users]
        if value.data is None or not readers or any(u.op.name not in _WEIGHTED or i != 1 for u, i in readers):
            continue
        axes = _axes(value, readers[0][0].op.name)
        if axes is not None:
            graph.retype(value, *_converted(value, *axes))
            changes += 1
    return changes


def _axes(value: Value, op: str) -> tuple[int, int] | None:
    """The axes of output channels and of blocks; None where the blocks are not those of LPBQ."""
    encoding, shape = value.encoding, value.shape
    if not isinstance(encoding, Block) or (encoding.bitwidth or value.dtype.bits) != 4 or any(encoding.offsets):
        return None
    channel = 0 if op == "FullyConnected" else len(shape) - 1
    cut = [d for d, (size, block) in enumerate(zip(shape, encoding.block_shape, strict=True)) if block < size]
    if channel not in cut or encoding.block_shape[channel] != 1 or len(cut) != 2:
        return None
    (blocks,) = (d for d in cut if d != channel)
    return channel, blocks


def _converted(value: Value, channel: int, blocks: int) -> tuple[TensorType, Array]:
    encoding = value.encoding
    assert isinstance(encoding, Block)
    assert value.data is not None
    shape, length = value.shape, encoding.block_shape[blocks]
    count = shape[blocks] // length
    codes = np.moveaxis(np.asarray(value.data, np.float64), (channel, blocks), (0, 1))
    rest = codes.shape[2:]
    codes = codes.reshape(shape[channel], count, -1)
    every = np.broadcast_to(scale_array(encoding, shape), shape)
    scales = np.moveaxis(every, (channel, blocks), (0, 1)).reshape(shape[channel], count, -1)[:, :, 0]
    steps = (np.maximum(scales.max(1), np.finfo(np.float32).tiny) / MOST).astype(np.float32).astype(np.float64)
    exact = scales / steps[:, None]
    tried = [np.clip(rounded, 1, MOST) for rounded in (np.floor(exact + 1e-6), np.ceil(exact - 1e-6))]
    made = [np.clip(np.rint(codes * (exact / t)[:, :, None]), -8, 7) for t in tried]
    errors = [((codes * exact[:, :, None] - m * t[:, :, None]) ** 2).sum(2) for m, t in zip(made, tried, strict=True)]
    upper = errors[1] < errors[0]
    integers = np.where(upper, tried[1], tried[0]).astype(np.int64)
    chosen = np.where(upper[:, :, None], made[1], made[0]).reshape(shape[channel], shape[blocks], *rest)
    kind = BlockwiseExpansion(
        channel, blocks, tuple(map(float, steps)), (0,) * shape[channel], tuple(map(int, integers.ravel())), 4,
        math.ceil(math.log2(MOST)),
    )  # fmt: skip
    data = np.ascontiguousarray(np.moveaxis(chosen, (0, 1), (channel, blocks))).astype(value.data.dtype)
    return TensorType(value.dtype, shape, kind), data
