# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements: for an element of the output, which element of the input it is."""

from __future__ import annotations

from itertools import accumulate

from hexforge.addons.gpu.kernels.code import Index, KernelCode
from hexforge.ir import Node

ALIASES = ("Reshape", "Squeeze", "ExpandDims")
"""Ops that leave every element where it is."""
MOVES = (
    *ALIASES, "Transpose", "StridedSlice", "Tile", "Split", "UnPack", "ChannelShuffle", "DepthToSpace", "SpaceToDepth",
    "BatchToSpace",
)  # fmt: skip
"""Ops each of whose elements is one element of the input."""


def _blocks(node: Node) -> tuple[int, int]:
    height, width = node.params["block_size"]
    return int(height), int(width)


def moved(code: KernelCode, node: Node, output: int, index: Index) -> Index:
    """The element of input 0 that an element of an output is."""
    source = node.operand(0)
    shape, params, name = source.shape, node.params, node.op.name
    if name in ALIASES:
        return Index(shape, code.flat(index))
    at = code.axes(index)
    match name:
        case "Transpose":
            axes = [""] * len(shape)
            for out, axis in enumerate(params["perm"]):
                axes[axis] = at[out]
        case "StridedSlice":
            axes = _sliced(code, node, at)
        case "Tile":
            axes = [code.let("int", f"{a} % {n}") if n > 1 else "0" for a, n in zip(at, shape, strict=True)]
        case "Split":
            axis = params["axis"] % len(shape)
            start = (0, *params["split_index"])[output]
            axes = [code.let("int", f"{a} + {start}") if i == axis and start else a for i, a in enumerate(at)]
        case "UnPack":
            axis = params["axis"] % len(shape)
            axes = [*at[:axis], str(output), *at[axis:]]
        case "ChannelShuffle":
            axis = params["axis"] % len(shape)
            groups = params["num_groups"]
            per_group = shape[axis] // groups
            axes = list(at)
            axes[axis] = code.let("int", f"({at[axis]} % {groups}) * {per_group} + {at[axis]} / {groups}")
        case "DepthToSpace":
            (bh, bw), depth = _blocks(node), index.shape[3]
            block = f"(({at[1]} % {bh}) * {bw} + {at[2]} % {bw})"
            channel = f"{block} * {depth} + {at[3]}" if params["mode"] == 0 else f"{at[3]} * {bh * bw} + {block}"
            axes = [at[0], f"({at[1]} / {bh})", f"({at[2]} / {bw})", f"({channel})"]
        case "SpaceToDepth":
            (bh, bw), depth = _blocks(node), shape[3]
            inner = f"({at[3]} % {depth})" if params["mode"] == 0 else f"({at[3]} / {bh * bw})"
            block = f"({at[3]} / {depth})" if params["mode"] == 0 else f"({at[3]} % {bh * bw})"
            axes = [at[0], f"({at[1]} * {bh} + {block} / {bw})", f"({at[2]} * {bw} + {block} % {bw})", inner]
        case "BatchToSpace":
            (bh, bw), batch = _blocks(node), index.shape[0]
            top, left = params["crops"][0][0], params["crops"][1][0]
            row, column = code.let("int", f"{at[1]} + {top}"), code.let("int", f"{at[2]} + {left}")
            block = f"(({row} % {bh}) * {bw} + {column} % {bw})"
            axes = [f"({block} * {batch} + {at[0]})", f"({row} / {bh})", f"({column} / {bw})", at[3]]
        case _:
            raise AssertionError(name)
    return Index(shape, None, tuple(a if a.isidentifier() else code.let("int", a) for a in axes))


def _sliced(code: KernelCode, node: Node, at: tuple[str, ...]) -> list[str]:
    source, params = node.operand(0), node.params
    sizes, outputs = iter(source.shape), iter(at)
    axes: list[str] = []
    for i, (begin, _, step) in enumerate(params["ranges"]):
        if params["new_axes_mask"] >> i & 1:
            next(outputs)
            continue
        size = next(sizes)
        if params["shrink_axes"] >> i & 1:
            axes.append(str(begin))
            continue
        first = (0 if step > 0 else size - 1) if params["begin_mask"] >> i & 1 else begin
        if step < 0:
            first = min(first, size - 1)
        out = next(outputs)
        axes.append(out if (first, step) == (0, 1) else code.let("int", f"{first} + {out} * ({step})"))
    return axes


def starts(sizes: list[int]) -> list[int]:
    """Where each of several pieces begins."""
    return [0, *accumulate(sizes)][:-1]
