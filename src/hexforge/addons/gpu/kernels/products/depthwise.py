# SPDX-License-Identifier: Apache-2.0
"""The kernel of depthwise convolutions."""

from __future__ import annotations

from hexforge.addons.gpu.kernels.code import Index, NotVectorizedError
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.addons.gpu.kernels.products.product import HALF_RUN
from hexforge.ir import Node


def depthwise(kernel: Kernel, node: Node, epilogue: Epilogue, width: int, local: int, across: int = 1) -> Launch:
    """Each channel with its own filter, `width` channels and `across` neighbouring columns at a time."""
    x, w = node.operands(2)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    out = node.outputs[0]
    _, height, columns, channels = x.shape
    multiple = out.shape[3] // channels
    if width > 1 and multiple != 1:
        raise NotVectorizedError
    (kh, kw), (sh, sw) = w.shape[:2], node.params["stride"]
    (dh, dw), pads = node.params["dilation"], node.params["pad_amount"]
    code, real = kernel.code(width), kernel.elements.real if kh * kw <= 2 * HALF_RUN else "float"
    type = real if width == 1 else f"{real}{width}"
    groups = -(-out.shape[2] // across)
    lanes = out.shape[3] // width
    total = out.shape[0] * out.shape[1] * groups * lanes
    code.item_of(total)
    at = code.axes(Index((out.shape[0], out.shape[1], groups, lanes), "g"))
    code.add(f"const int channel = {at[3]} * {width};")
    code.add(f"const int column = {at[2]} * {across};")
    source, filters = kernel.source(x), kernel.source(w)
    for a in range(across):
        code.add(f"{type} acc{a} = ({type})(({real})0.0f);")
    source_channel = "channel" if multiple == 1 else f"(channel / {multiple})"
    unrolled = across > 1 and kh * kw <= 25  # a GPU has every load on its way at once; a processor skips rows outside
    if unrolled:
        code.add("#pragma unroll")
    code.add(f"for (int i = 0; i < {kh}; i++) {{")
    code.add(f"  const int y = {at[1]} * {sh} + i * {dh} - {pads[0][0]};")
    if not unrolled:
        code.add(f"  if ((uint)y >= {height}u) continue;")
    code.add(f"  const int line = ({at[0]} * {height} + y) * {columns};")
    code.add("#pragma unroll")
    code.add(f"  for (int j = 0; j < {kw}; j++) {{")
    code.add(f"    const {type} f = {filters.load(f'((i * {kw} + j) * {out.shape[3]} + channel)', width, real)};")
    for a in range(across):
        code.add(f"    {{ const int z = (column + {a}) * {sw} + j * {dw} - {pads[1][0]};")
        load = source.load(f"((line + z) * {channels} + {source_channel})", width, real)
        if unrolled:
            inside = f"(uint)y < {height}u && (uint)z < {columns}u"
            zero = f"({type})(({real})0.0f)"
            code.add(f"      const {type} v = ({inside}) ? {load} : {zero}; acc{a} = fma(v, f, acc{a}); }}")
        else:
            code.add(f"      if ((uint)z < {columns}u) acc{a} = fma({load}, f, acc{a}); }}")
    code.add("  }")
    code.add("}")
    for a in range(across):
        guard = f"if (column + {a} < {out.shape[2]})" if out.shape[2] % across else ""
        with code.block(guard) as block:
            value = f"acc{a}" if real == "float" else block.let(block.vector, f"convert_{block.vector}(acc{a})")
            if bias is not None:
                value = block.let(block.vector, f"{value} + {kernel.source(bias).load('channel', width)}")
            place = f"(({at[0]} * {out.shape[1]} + {at[1]}) * {out.shape[2]} + column + {a}) * {out.shape[3]} + channel"
            epilogue.write(kernel, block, value, Index(out.shape, block.let("int", place)))
    flops = 2 * out.type.size * kh * kw
    return kernel.launch_items(f"DepthWiseConv2d {across}x{width}", (node,), code, epilogue, total, local, flops)
