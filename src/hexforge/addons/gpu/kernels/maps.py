# SPDX-License-Identifier: Apache-2.0
"""Maps: one work-item for each element of an output, or for some neighbours, whatever leads to it."""

from __future__ import annotations

import math
from collections.abc import Callable

from hexforge.addons.gpu.kernels.code import Index, NotVectorizedError
from hexforge.addons.gpu.kernels.launch import Kernel, Launch
from hexforge.ir import Node, TensorType, Value


def map_values(kernel_of: Callable[[], Kernel], node: Node, output: int, widths: tuple[int, ...], local: int) -> Launch:
    """A chain of pointwise and moving ops: each work-item makes one element, or some neighbours."""
    out = node.outputs[output]
    for width in widths:
        if width > 1 and (not out.shape or out.shape[-1] % width):
            continue
        kernel = kernel_of()
        code = kernel.code(width, kernel.elements.real)
        total = out.type.size // width
        code.item_of(total)
        flat = code.let("int", f"g * {width}") if width > 1 else "g"
        try:
            value = kernel.elements.computed(code, node, output, Index(out.shape, flat))
        except NotVectorizedError:
            continue
        code.add(kernel.target(out).store(flat, value, width, code.real))
        return kernel.launch_items(node.op.name, (node,), code, (out,), total, local, total)
    raise AssertionError("width 1 always works")


def grouped_filter(kernel: Kernel, node: Node, local: int) -> Launch:
    """A computed filter [taps, Cin, columns] of a transposed convolution as [group, taps, Cin / group, columns]."""
    weight, group = node.operand(1), int(node.params["group"])
    *taps, channels, columns = weight.shape
    count, depth = math.prod(taps), channels // group
    out = Value(f"{node.name}:groups", TensorType(weight.dtype, (group, count, depth, columns)))
    code = kernel.code()
    code.item_of(out.type.size)
    at = code.axes(Index(out.shape, "g"))
    place = f"(({at[1]} * {channels} + {at[0]} * {depth} + {at[2]}) * {columns} + {at[3]})"
    value = kernel.source(weight).load(place)
    code.add(kernel.target(out).store("g", value))
    return kernel.launch_items("filter groups", (node,), code, (out,), out.type.size, local)
