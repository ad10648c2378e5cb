# SPDX-License-Identifier: Apache-2.0
"""Permutations of axes: `transpose(x, p)` has x's axis p[i] as its axis i."""

from __future__ import annotations

import functools
import itertools
import math

from hexforge.ir import AxisScaleOffset, Block, BlockwiseExpansion, TensorType

Permutation = tuple[int, ...]


@functools.cache
def identity(rank: int) -> Permutation:
    """The permutation that moves nothing."""
    return tuple(range(rank))


@functools.lru_cache(4096)
def compose(first: Permutation, second: Permutation) -> Permutation:
    """transpose(transpose(x, first), second) as one."""
    return tuple(first[i] for i in second)


@functools.lru_cache(4096)
def inverse(perm: Permutation) -> Permutation:
    """What undoes `perm`."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def moves_nothing(perm: Permutation, shape: tuple[int, ...]) -> bool:
    """True where only axes of size 1 move, so that the elements stay where they are in memory."""
    moved = [axis for axis in perm if shape[axis] != 1]
    return moved == sorted(moved)


def canonical(sizes: tuple[int, ...], perm: Permutation) -> tuple[tuple[int, ...], Permutation]:
    """The transposition with axes of size 1 dropped and axes that stay together merged: one form per movement."""
    kept = [axis for axis in range(len(sizes)) if sizes[axis] != 1]
    following = dict(itertools.pairwise(kept))
    runs: list[list[int]] = []
    for axis in perm:
        if runs and following.get(runs[-1][-1]) == axis:
            runs[-1].append(axis)
        elif sizes[axis] != 1:
            runs.append([axis])
    by_input = sorted(runs)
    return tuple(math.prod(sizes[axis] for axis in run) for run in by_input), tuple(map(by_input.index, runs))


def expanded_type(type: TensorType, rank: int) -> TensorType:
    """The type with leading axes of size 1, as broadcasting sees it."""
    extra = rank - len(type.shape)
    encoding = type.encoding
    match encoding:
        case AxisScaleOffset():
            encoding = AxisScaleOffset(encoding.axis + extra, encoding.scales, encoding.offsets, encoding.bitwidth)
        case BlockwiseExpansion():
            encoding = BlockwiseExpansion(
                encoding.axis + extra, encoding.block_axis + extra, encoding.scales, encoding.offsets,
                encoding.block_scales, encoding.bitwidth, encoding.block_scale_bitwidth,
            )  # fmt: skip
        case Block():
            block = (1,) * extra + encoding.block_shape
            encoding = Block(block, encoding.scales, encoding.offsets, encoding.bitwidth)
        case _:
            pass
    return TensorType(type.dtype, (1,) * extra + type.shape, encoding)
