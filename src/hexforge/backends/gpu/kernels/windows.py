# SPDX-License-Identifier: Apache-2.0
"""Kernels that look at a window around each position: depthwise convolution, pooling, local response."""

from __future__ import annotations

import math

from hexforge.backends.gpu.kernels.code import FAULT, Index, KernelCode, NotVectorizedError, affine, literal, strides
from hexforge.backends.gpu.kernels.launch import Epilogue, Kernel, Launch, rounded_up
from hexforge.backends.gpu.kernels.products.product import HALF_RUN
from hexforge.ir import Node


def _positions(code: KernelCode, node: Node, width: int) -> tuple[Index, int]:
    """A work-item per output element, or per `width` neighbours of the last axis."""
    out = node.outputs[0]
    total = out.type.size // width
    code.add("const int g = get_global_id(0);")
    code.add(f"if (g >= {total}) return;")
    flat = code.let("int", f"g * {width}") if width > 1 else "g"
    return Index(out.shape, flat), total


def depthwise(kernel: Kernel, node: Node, epilogue: Epilogue, width: int, local: int, across: int = 1) -> Launch:
    """Each channel with its own filter, `width` channels and `across` neighbouring columns at a time."""
    x, w = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    out = node.outputs[0]
    assert x is not None
    assert w is not None
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
    code.add("const int g = get_global_id(0);")
    code.add(f"if (g >= {total}) return;")
    at = code.axes(Index((out.shape[0], out.shape[1], groups, lanes), "g"))
    code.add(f"const int channel = {at[3]} * {width};")
    code.add(f"const int column = {at[2]} * {across};")
    storage, filters = kernel.elements.storage(x), kernel.elements.storage(w)
    xb, wb = kernel.buffers.read(x, storage), kernel.buffers.read(w, filters)
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
    code.add(f"    const {type} f = {filters.load(wb, f'((i * {kw} + j) * {out.shape[3]} + channel)', width, real)};")
    for a in range(across):
        code.add(f"    {{ const int z = (column + {a}) * {sw} + j * {dw} - {pads[1][0]};")
        load = storage.load(xb, f"((line + z) * {channels} + {source_channel})", width, real)
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
                bias_storage = kernel.elements.storage(bias)
                load = bias_storage.load(kernel.buffers.read(bias, bias_storage), "channel", width)
                value = block.let(block.vector, f"{value} + {load}")
            place = f"(({at[0]} * {out.shape[1]} + {at[1]}) * {out.shape[2]} + column + {a}) * {out.shape[3]} + channel"
            epilogue.write(kernel, block, value, Index(out.shape, block.let("int", place)))
    return kernel.launch(
        f"DepthWiseConv2d {across}x{width}", (node, *epilogue.nodes), kernel.text("\n".join(code.lines)),
        (epilogue.target,),
        (rounded_up(total, local),), (local,), 2 * out.type.size * kh * kw,
    )  # fmt: skip


def pool(kernel: Kernel, node: Node, epilogue: Epilogue, width: int, local: int) -> Launch:
    """Maximum, mean or norm of each window."""
    (x,), out, params = node.inputs[:1], node.outputs[0], node.params
    assert x is not None
    kind = node.op.name
    float_type = x.dtype.is_float
    if width > 1 and not float_type:
        raise NotVectorizedError
    sizes = x.shape[1:-1]
    taps, stride, pads = params["filter_size"], params["stride"], params["pad_amount"]
    code = kernel.code(width)
    scalar = "float" if float_type else kernel.elements.storage(x).type
    type = scalar if width == 1 else f"float{width}"
    index, total = _positions(code, node, width)
    at = code.axes(index)
    storage = kernel.elements.storage(x)
    buffer = kernel.buffers.read(x, storage)
    maximum = kind.startswith("PoolMax")
    lowest = "-INFINITY" if float_type else {"uchar": "0", "char": "CHAR_MIN", "short": "SHRT_MIN", "ushort": "0",
                                             "int": "INT_MIN", "uint": "0", "long": "LONG_MIN"}[scalar]  # fmt: skip
    code.add(f"{type} acc = ({type})({lowest if maximum else '0.0f'});")
    code.add("int count = 0;")
    names = []
    for i, n in enumerate(taps):
        if n <= 16:
            code.add("#pragma unroll")
        code.add(f"for (int k{i} = 0; k{i} < {n}; k{i}++) {{")
        code.add(f"const int z{i} = {at[i + 1]} * {stride[i]} + k{i} - {pads[i][0]};")
        if params.get("count_pad_for_edges"):
            code.add(f"if (z{i} >= {sizes[i] + pads[i][1]}) continue;")
        elif pads[i][0] or (out.shape[i + 1] - 1) * stride[i] + n > sizes[i]:
            code.add(f"if ((uint)z{i} >= {sizes[i]}u) continue;")
        names.append(f"z{i}")
    if params.get("count_pad_for_edges"):
        code.add("count++;")
        code.add(f"if ({' || '.join(f'(uint){z} >= {n}u' for z, n in zip(names, sizes, strict=True))}) continue;")
    place = at[0]
    for z, n in zip(names, sizes, strict=True):
        place = f"({place} * {n} + {z})"
    code.add(f"const {type} v = {storage.load(buffer, f'({place} * {x.shape[-1]} + {at[-1]})', width)};")
    p = params.get("p", 0)
    if maximum:
        code.add(
            "acc = (v > acc || v != v) ? v : acc;"
            if width == 1 and float_type
            else "acc = v > acc ? v : acc;"
            if not float_type
            else "acc = (acc >= v) ? acc : v;"
        )
    elif kind == "L2Pool2d":
        code.add({1: "acc += fabs(v);", 2: "acc += v * v;"}.get(p, f"acc += pow(fabs(v), ({type})({p}.0f));"))
    else:
        code.add("acc += v;")
    if not params.get("count_pad_for_edges"):
        code.add("count++;")
    code.lines += ["}"] * len(taps)
    result = "acc"
    if kind.startswith("PoolAvg"):
        result = code.let(type, "acc / (float)count")
    elif kind == "L2Pool2d" and p != 1:
        result = code.let(type, "sqrt(acc)" if p == 2 else f"pow(acc, ({type})(1.0f / {p}.0f))")
    epilogue.write(kernel, code, result, index)
    return kernel.launch(
        kind, (node, *epilogue.nodes), kernel.text("\n".join(code.lines)), (epilogue.target,),
        (rounded_up(total, local),), (local,), out.type.size * math.prod(taps),
    )  # fmt: skip


def local_response(kernel: Kernel, node: Node, epilogue: Epilogue, local: int) -> Launch:
    """Each element divided by a power of the sum of squares around it."""
    (x,), params = node.inputs[:1], node.params
    assert x is not None
    code = kernel.code()
    index, total = _positions(code, node, 1)
    at = code.axes(index)
    storage = kernel.elements.storage(x)
    buffer = kernel.buffers.read(x, storage)
    axes = [len(x.shape) - 1] if params["region"] == 0 else list(range(1, len(x.shape) - 1))
    code.add("float total = 0.0f;")
    place = list(at)
    for i in axes:
        radius = min(int(params["radius"]), x.shape[i] - 1)
        code.add(
            f"for (int z{i} = max(0, {at[i]} - {radius}); z{i} <= min({x.shape[i] - 1}, {at[i]} + {radius}); z{i}++) {{"
        )
        place[i] = f"z{i}"
    inner = Index(x.shape, None, tuple(place))
    code.add(f"const float v = {storage.load(buffer, f'({_flat(inner)})')};")
    code.add("total += v * v;")
    code.lines += ["}"] * len(axes)
    alpha, beta, bias = (f"{float(params[n])!r}f" for n in ("alpha", "beta", "bias"))
    own = storage.load(buffer, code.flat(index))
    result = code.let("float", f"{own} / pow({bias} + {alpha} * total, {beta})")
    epilogue.write(kernel, code, result, index)
    return kernel.launch(
        "Lrn",
        (node, *epilogue.nodes),
        kernel.text("\n".join(code.lines)),
        (epilogue.target,),
        (rounded_up(total, local),),
        (local,),
    )


_MOST_SAMPLES = 1 << 14
"""Samples of a bin along an axis at most: regions are data, and may be of any size."""


def roi_align(kernel: Kernel, node: Node, epilogue: Epilogue, local: int) -> Launch:
    """Bins of regions of pictures: bilinear samples of each, averaged."""
    x, rois, batch = node.inputs[:3]
    out, params = node.outputs[0], node.params
    assert x is not None
    assert rois is not None
    assert batch is not None
    elements, code = kernel.elements, kernel.code()
    index, total = _positions(code, node, 1)
    at = code.axes(index)
    pictures, height, width, channels = x.shape
    picture = elements.element(code, batch, Index(batch.shape, at[0]))
    fault = code.buffers.write(FAULT, "int", FAULT)
    if node not in elements.faults:
        elements.faults.append(node)
    number = elements.faults.index(node) + 1
    code.add(f"if ({picture} < 0 || {picture} >= {pictures}) {{ {fault}[0] = {number}; return; }}")
    shift = literal(0.5 if params["aligned"] else 0.0, "float")
    axes = (("y", 1, height, out.shape[1], 0), ("x", 0, width, out.shape[2], 1))
    for name, corner, _, bins, which in axes:
        ratio = literal(float(params["img_size_ratio"][which]), "float")
        corners = [Index(rois.shape, code.let("int", f"{at[0]} * 4 + {k}")) for k in (corner, corner + 2)]
        first, last = (f"{elements.element(code, rois, c)} / {ratio} - {shift}" for c in corners)
        code.add(f"const float begin_{name} = {first};")
        extent = f"({last}) - begin_{name}"
        code.add(f"const float extent_{name} = {extent if params['aligned'] else f'fmax({extent}, 1.0f)'};")
        samples = int(params[f"num_samples_{name}"])
        count = str(samples) if samples > 0 else f"convert_int_sat(ceil(extent_{name} / {bins}.0f))"
        code.add(f"const int count_{name} = min({count}, {_MOST_SAMPLES});")
    storage = elements.storage(x)
    buffer = kernel.buffers.read(x, storage)
    code.add("float total = 0.0f;")
    for (name, _, size, bins, _), place in zip(axes, (at[1], at[2]), strict=True):
        code.add(f"for (int s_{name} = 0; s_{name} < count_{name}; s_{name}++) {{")
        offset = f"({place} + (s_{name} + 0.5f) / count_{name}) * (extent_{name} / {bins}.0f)"
        code.add(f"float {name} = begin_{name} + {offset};")
        code.add(f"if (!({name} >= -1.0f && {name} <= {size}.0f)) continue;")
        code.add(f"{name} = clamp({name}, 0.0f, {size - 1}.0f);")
        code.add(f"const int {name}0 = (int){name}, {name}1 = min({name}0 + 1, {size - 1});")
        code.add(f"const float {name}r = {name} - {name}0;")

    def sample(y: str, x: str) -> str:
        return storage.load(buffer, f"((({picture} * {height} + {y}) * {width} + {x}) * {channels} + {at[3]})")

    code.add(f"const float upper = {sample('y0', 'x0')} * (1.0f - xr) + {sample('y0', 'x1')} * xr;")
    code.add(f"const float lower = {sample('y1', 'x0')} * (1.0f - xr) + {sample('y1', 'x1')} * xr;")
    code.add("total += upper * (1.0f - yr) + lower * yr;")
    code.lines += ["}", "}"]
    result = code.let("float", "count_y > 0 && count_x > 0 ? total / ((float)count_y * (float)count_x) : 0.0f")
    epilogue.write(kernel, code, result, index)
    return kernel.launch(
        "RoiAlign", (node, *epilogue.nodes), kernel.text("\n".join(code.lines)), (epilogue.target,),
        (rounded_up(total, local),), (local,), 16 * out.type.size,
    )  # fmt: skip


def _flat(index: Index) -> str:
    assert index.axes is not None
    return affine(index.axes, strides(index.shape))
