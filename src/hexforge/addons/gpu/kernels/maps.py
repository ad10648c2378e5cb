# SPDX-License-Identifier: Apache-2.0
"""Maps: one work-item for each element of an output, or for some neighbours, whatever leads to it."""

from __future__ import annotations

import math
from collections.abc import Callable

from hexforge.addons.gpu.kernels.code import Index, NotVectorizedError
from hexforge.addons.gpu.kernels.launch import Kernel, Launch, rounded_up
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
        code.add("const int g = get_global_id(0);")
        code.add(f"if (g >= {total}) return;")
        flat = code.let("int", f"g * {width}") if width > 1 else "g"
        try:
            value = kernel.elements.computed(code, node, output, Index(out.shape, flat))
        except NotVectorizedError:
            continue
        storage = kernel.elements.storage(out)
        buffer = kernel.buffers.write(out, storage.type, "out")
        code.add(storage.store(buffer, flat, value, width, code.real))
        size = rounded_up(total, local)
        return kernel.launch(
            node.op.name, (node,), kernel.text("\n".join(code.lines)), (out,), (size,), (local,), total
        )
    raise AssertionError("width 1 always works")


def grouped_filter(kernel: Kernel, node: Node, local: int) -> Launch:
    """A computed filter [taps, Cin, columns] of a transposed convolution as [group, taps, Cin / group, columns]."""
    weight, group = node.operand(1), int(node.params["group"])
    *taps, channels, columns = weight.shape
    count, depth = math.prod(taps), channels // group
    out = Value(f"{node.name}:groups", TensorType(weight.dtype, (group, count, depth, columns)))
    code = kernel.code()
    code.add("const int g = get_global_id(0);")
    code.add(f"if (g >= {out.type.size}) return;")
    at = code.axes(Index(out.shape, "g"))
    source = f"(({at[1]} * {channels} + {at[0]} * {depth} + {at[2]}) * {columns} + {at[3]})"
    read, storage = kernel.elements.storage(weight), kernel.elements.storage(out)
    value = read.load(kernel.buffers.read(weight, read), source)
    code.add(storage.store(kernel.buffers.write(out, storage.type, "out"), "g", value))
    size = rounded_up(out.type.size, local)
    return kernel.launch("filter groups", (node,), kernel.text("\n".join(code.lines)), (out,), (size,), (local,))
