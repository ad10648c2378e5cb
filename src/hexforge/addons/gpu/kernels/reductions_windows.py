# SPDX-License-Identifier: Apache-2.0
"""Kernels that reduce windows: pooling, local response; and means and sums of whole pictures.

A kernel that gives each channel to one work-item reads a picture of 112 by 112 one element after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hexforge.addons.gpu.kernels.code import Index, KernelCode, NotVectorizedError, affine, strides
from hexforge.addons.gpu.kernels.launch import Epilogue, Kernel, Launch
from hexforge.ir import Node


def positions(code: KernelCode, node: Node, width: int) -> tuple[Index, int]:
    """A work-item per output element, or per `width` neighbours of the last axis."""
    out = node.outputs[0]
    total = out.type.size // width
    code.item_of(total)
    flat = code.let("int", f"g * {width}") if width > 1 else "g"
    return Index(out.shape, flat), total


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
    source = kernel.source(x)
    scalar = "float" if float_type else source.storage.type
    type = scalar if width == 1 else f"float{width}"
    index, total = positions(code, node, width)
    at = code.axes(index)
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
    code.add(f"const {type} v = {source.load(f'({place} * {x.shape[-1]} + {at[-1]})', width)};")
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
    return kernel.launch_items(kind, (node,), code, epilogue, total, local, out.type.size * math.prod(taps))


def local_response(kernel: Kernel, node: Node, epilogue: Epilogue, local: int) -> Launch:
    """Each element divided by a power of the sum of squares around it."""
    (x,), params = node.inputs[:1], node.params
    assert x is not None
    code = kernel.code()
    index, total = positions(code, node, 1)
    at = code.axes(index)
    source = kernel.source(x)
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
    code.add(f"const float v = {source.load(f'({_flat(inner)})')};")
    code.add("total += v * v;")
    code.lines += ["}"] * len(axes)
    alpha, beta, bias = (f"{float(params[n])!r}f" for n in ("alpha", "beta", "bias"))
    own = source.load(code.flat(index))
    result = code.let("float", f"{own} / pow({bias} + {alpha} * total, {beta})")
    epilogue.write(kernel, code, result, index)
    return kernel.launch_items("Lrn", (node,), code, epilogue, total, local)


def _flat(index: Index) -> str:
    assert index.axes is not None
    return affine(index.axes, strides(index.shape))


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
