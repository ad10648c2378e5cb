# SPDX-License-Identifier: Apache-2.0
"""Means and sums of whole pictures on GPUs: a work-group takes neighbouring channels, its work-items share positions.

A kernel that gives each channel to one work-item reads a picture of 112 by 112 one element after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hexforge.addons.gpu.kernels.code import Index
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.ir import Node

_LANES = (32, 16, 8, 4, 2, 1)
_MOST_ITEMS = 512
_FEWEST_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class Columns:
    """What is summed up: [pictures, positions, channels] to [pictures, channels]."""

    pictures: int
    positions: int
    channels: int
    mean: bool

    @classmethod
    def of(cls, node: Node) -> Columns | None:
        """The sums that a node makes of floats; None where it does something else, or has few channels."""
        x, out, params = node.inputs[0], node.outputs[0], node.params
        if x is None or not x.dtype.is_float or not x.shape or not out.type.size or x.shape[-1] < _FEWEST_CHANNELS:
            return None
        if node.op.name in ("PoolAvg2d", "PoolAvg3d"):
            whole = tuple(params["filter_size"]) == x.shape[1:-1] and math.prod(out.shape[1:-1]) == 1
            if not whole or any(map(any, params["pad_amount"])):
                return None
            first = 1
        elif node.op.name in ("ReduceMean", "ReduceSum"):
            axes = sorted({a % len(x.shape) for a in params["axes"]})
            if not axes or axes != list(range(axes[0], len(x.shape) - 1)):
                return None
            first = axes[0]
        else:
            return None
        sizes = math.prod(x.shape[:first]), math.prod(x.shape[first:-1]), x.shape[-1]
        return cls(*sizes, node.op.name != "ReduceSum") if sizes[1] else None


def reduce_columns(
    kernel: Kernel, node: Node, columns: Columns, epilogue: Epilogue, width: int, units: int, most_items: int
) -> Launch:
    """Each work-item adds up every n-th position of `width` channels; their sums are added up in local memory."""
    x, out = node.operand(0), node.outputs[0]
    across = columns.channels // width
    slices = 1 << (min(columns.positions, _MOST_ITEMS, most_items) - 1).bit_length()
    slices = min(slices, 1 << (min(_MOST_ITEMS, most_items).bit_length() - 1))
    fitting = [n for n in _LANES if n * slices <= min(_MOST_ITEMS, most_items)]
    lanes = next((n for n in fitting if columns.pictures * -(-across // n) >= units), fitting[-1])
    groups = -(-across // lanes)
    code = kernel.code(width)
    type = code.vector
    source = kernel.source(x)
    code.add(f"const int lane = get_local_id(0) % {lanes}, slice = get_local_id(0) / {lanes};")
    code.add(f"const int picture = get_group_id(0) / {groups}, column = get_group_id(0) % {groups} * {lanes} + lane;")
    code.add(f"const int channel = min(column, {across - 1}) * {width};")
    code.add(f"local {type} shared[{slices}][{lanes}];")
    code.add(f"{type} acc = ({type})(0.0f);")
    code.add("#pragma unroll 8")
    code.add(f"for (int p = slice; p < {columns.positions}; p += {slices})")
    place = f"((picture * {columns.positions} + p) * {columns.channels} + channel)"
    code.add(f"  acc += {source.load(place, width)};")
    code.add("shared[slice][lane] = acc;")
    code.add("barrier(CLK_LOCAL_MEM_FENCE);")
    code.add(f"for (int n = {slices // 2}; n > 0; n /= 2) {{")
    code.add("  if (slice < n) shared[slice][lane] += shared[slice + n][lane];")
    code.add("  barrier(CLK_LOCAL_MEM_FENCE);")
    code.add("}")
    code.add(f"if (slice || column >= {across}) return;")
    total = "shared[0][lane]"
    result = code.let(type, f"{total} / {float(columns.positions)!r}f" if columns.mean else total)
    at = code.let("int", f"picture * {columns.channels} + channel")
    epilogue.write(kernel, code, result, Index(out.shape, at))
    threads = lanes * slices
    return kernel.launch(
        f"{node.op.name} {lanes * width}x{slices}", (node,), code, epilogue,
        (columns.pictures * groups * threads,), (threads,), x.type.size,
    )  # fmt: skip
