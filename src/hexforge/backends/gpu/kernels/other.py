# SPDX-License-Identifier: Apache-2.0
"""Kernels of their own kind: maps, resizing, scattering, sampling, the k largest, weights in blocks of 4 bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hexforge.backends.gpu.kernels.code import (
    C_TYPES,
    FLOAT,
    BufferType,
    Index,
    KernelCode,
    NotVectorizedError,
    strides,
)
from hexforge.backends.gpu.kernels.element import Elements
from hexforge.backends.gpu.kernels.launch import Constant, Epilogue, Kernel, Launch, rounded_up
from hexforge.ir import Array, Node, TensorType, Value
from hexforge.ops.vision.resize import (
    ALIGN_CORNERS,
    ASYMMETRIC,
    FLOOR,
    HALF_PIXEL,
    ROUND_PREFER_CEIL,
    coordinates,
    interpolation,
    nearest,
)


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
    weight, group = node.inputs[1], int(node.params["group"])
    assert weight is not None
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


# -- resizing ----------------------------------------------------------------------------------------------------------


def _taps(node: Node) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices and weights of each spatial axis, [positions, taps]."""
    x, out, params = node.inputs[0], node.outputs[0], node.params
    assert x is not None
    if node.op.name == "Resize":
        transformation, mode, nearest_mode = (
            params["transformation_mode"], params["interpolation_mode"], params["nearest_mode"],
        )  # fmt: skip
    else:
        transformation = (
            ALIGN_CORNERS if params["align_corners"] else HALF_PIXEL if params["half_pixel_centers"] else ASYMMETRIC
        )
        mode = 1 if node.op.name == "ResizeBilinear" else 0
        nearest_mode = FLOOR if transformation == ASYMMETRIC else ROUND_PREFER_CEIL
    found = []
    for size, out_size in zip(x.shape[1:-1], out.shape[1:-1], strict=True):
        if size == out_size:
            found.append((np.arange(size)[:, None], np.ones((size, 1))))
            continue
        at = coordinates(size, out_size, transformation)
        if mode == 0:
            found.append((nearest(at, size, nearest_mode)[:, None], np.ones((out_size, 1))))
        else:
            cubic, exclude = params.get("cubic_coeff", -0.75), bool(params.get("exclude_outside", False))
            found.append(interpolation(at, size, mode, cubic, exclude))
    return found


def _given(array: Array) -> Callable[[], Array]:
    return lambda: array


def resize(kernel: Kernel, node: Node, epilogue: Epilogue, local: int) -> Launch:
    """Interpolation along each spatial axis, by tables of indices and weights."""
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    code = kernel.code()
    code.add("const int g = get_global_id(0);")
    code.add(f"if (g >= {out.type.size}) return;")
    index = Index(out.shape, "g")
    at = code.axes(index)
    storage = kernel.elements.storage(x)
    buffer = kernel.buffers.read(x, storage)
    code.add("float acc = 0.0f;")
    place, depth, factors = at[0], 0, []
    moves_only = all(weights.shape[1] == 1 for _, weights in _taps(node))
    for i, (indices, weights) in enumerate(_taps(node)):
        taps = indices.shape[1]
        table = np.ascontiguousarray(indices, np.int32)
        constant = Constant(f"{node.name}.index{i}", BufferType("int", 4), _given(table), table.nbytes)
        name = kernel.buffers.read(constant, constant.storage)
        if taps > 1:
            code.add(f"for (int k{i} = 0; k{i} < {taps}; k{i}++) {{")
            depth += 1
        entry = f"{at[i + 1]} * {taps} + {f'k{i}' if taps > 1 else '0'}"
        code.add(f"const int z{i} = {name}[{entry}];")
        if taps > 1:
            values = np.ascontiguousarray(weights, np.float32)
            factor = Constant(f"{node.name}.weight{i}", FLOAT, _given(values), values.nbytes)
            factors.append(f"{kernel.buffers.read(factor, FLOAT)}[{entry}]")
        place = f"({place} * {x.shape[i + 1]} + z{i})"
    load = storage.load(buffer, f"({place} * {x.shape[-1]} + {at[-1]})")
    if moves_only and not x.dtype.is_float:
        result = code.let(C_TYPES[out.dtype], load)
    else:
        code.add(f"acc += {' * '.join([load, *factors])};")
        result = "acc"
    code.lines += ["}"] * depth
    epilogue.write(kernel, code, result, index)
    return kernel.launch(
        node.op.name, (node, *epilogue.nodes), kernel.text("\n".join(code.lines)), (epilogue.target,),
        (rounded_up(out.type.size, local),), (local,), out.type.size,
    )  # fmt: skip


# -- scattering --------------------------------------------------------------------------------------------------------


def scatter(kernel: Kernel, node: Node, local: int) -> Launch:
    """Updates put into a copy of the input, in their order: each element looks through the updates for its own.

    Slow for many updates, and the same every time, which atomics are not.
    """
    x, indices, updates = node.inputs[:3]
    out = node.outputs[0]
    assert x is not None
    assert indices is not None
    assert updates is not None
    elements = kernel.elements
    code = kernel.code()
    type = C_TYPES[out.dtype]
    code.add("const int g = get_global_id(0);")
    code.add(f"if (g >= {out.type.size}) return;")
    at = code.axes(Index(out.shape, "g"))
    code.add(f"{type} value = {elements.element(code, x, Index(x.shape, 'g'))};")
    reduction = node.params["reduction"]
    combine = (
        "value = u;",
        "value += u;",
        "value *= u;",
        "value = value >= u ? value : u;",
        "value = value <= u ? value : u;",
    )[reduction]
    rank = len(out.shape)
    if node.op.name == "ScatterElements":
        axis = node.params["axis"] % rank
        bounds = [f"{at[i]} < {indices.shape[i]}" for i in range(rank) if i != axis and indices.shape[i] < out.shape[i]]
        inside = " && ".join(["1", *bounds])
        with code.block(f"if ({inside}) for (int j = 0; j < {indices.shape[axis]}; j++)") as inner:
            place = (*at[:axis], "j", *at[axis + 1 :])
            found = elements.element(inner, indices, Index(indices.shape, None, place))
            target = elements._bounded(inner, node, found, out.shape[axis])
            with inner.block(f"if ({target} == {at[axis]})") as hit:
                hit.add(f"const {type} u = {elements.element(hit, updates, Index(updates.shape, None, place))};")
                hit.add(combine)
    else:
        depth, count = indices.shape[-1], indices.type.size // max(indices.shape[-1], 1)
        with code.block(f"for (int j = 0; j < {count}; j++)") as inner:
            tests = []
            for i in range(depth):
                found = elements.element(inner, indices, Index(indices.shape, inner.let("int", f"j * {depth} + {i}")))
                tests.append(f"{elements._bounded(inner, node, found, out.shape[i])} == {at[i]}")
            with inner.block(f"if ({' && '.join(tests)})") as hit:
                rest = " + ".join(["0", *(f"{at[i]} * {s}" for i, s in enumerate(strides(out.shape)) if i >= depth)])
                size = int(np.prod(out.shape[depth:]))
                slot = Index(updates.shape, hit.let("int", f"j * {size} + {rest}"))
                hit.add(f"const {type} u = {elements.element(hit, updates, slot)};")
                hit.add(combine)
    storage = elements.storage(out)
    code.add(storage.store(kernel.buffers.write(out, storage.type, "out"), "g", "value"))
    return kernel.launch(
        node.op.name, (node,), kernel.text("\n".join(code.lines)), (out,), (rounded_up(out.type.size, local),), (local,)
    )


def top_k(kernel: Kernel, node: Node) -> Launch:
    """The k largest or smallest of each row, by selection: of equals the first."""
    (x,), (values, indices) = node.inputs[:1], node.outputs
    assert x is not None
    length, k = x.shape[-1], node.params["k"]
    storage, type = kernel.elements.storage(x), C_TYPES[x.dtype]
    code = kernel.code()
    buffer = kernel.buffers.read(x, storage)
    value_storage, index_storage = kernel.elements.storage(values), kernel.elements.storage(indices)
    first = kernel.buffers.write(values, value_storage.type, "values")
    second = kernel.buffers.write(indices, index_storage.type, "indices")
    before = ">" if node.params["largest"] else "<"
    code.add("const int row = get_global_id(0);")
    code.add(f"{type} last = 0; int last_index = -1;")
    code.add(f"for (int i = 0; i < {k}; i++) {{")
    code.add(f"  {type} best = 0; int index = -1;")
    code.add(f"  for (int j = 0; j < {length}; j++) {{")
    code.add(f"    const {type} v = {storage.load(buffer, f'(row * {length} + j)')};")
    code.add(f"    const int left = last_index < 0 || last {before} v || (v == last && j > last_index);")
    code.add(f"    if (left && (index < 0 || v {before} best)) {{ best = v; index = j; }}")
    code.add("  }")
    code.add("  last = best; last_index = index;")
    code.add(f"  {value_storage.store(first, f'(row * {k} + i)', 'best')}")
    code.add(f"  {index_storage.store(second, f'(row * {k} + i)', f'({index_storage.type})index')}")
    code.add("}")
    rows = x.type.size // max(length, 1)
    return kernel.launch(
        "TopK", (node,), kernel.text("\n".join(code.lines)), (values, indices), (rows,), (1,), rows * length * k
    )


# -- sampling ----------------------------------------------------------------------------------------------------------

_COORDINATE = """
float coordinate(float v, int size, int corners, int padding) {
  float at = corners ? (v + 1.0f) / 2.0f * (size - 1) : ((v + 1.0f) * size - 1.0f) / 2.0f;
  if (padding == 2) {
    const float low = corners ? 0.0f : -0.5f, high = corners ? size - 1.0f : size - 0.5f, span = high - low;
    if (span <= 0.0f) at = low;
    else { float m = fmod(at - low, 2.0f * span); if (m < 0.0f) m += 2.0f * span; at = low + span - fabs(m - span); }
  }
  if (padding != 0) at = clamp(at, 0.0f, size - 1.0f);
  if (isnan(at)) at = -2.0f;
  return clamp(at, -2.0f, size + 1.0f);
}
"""


def grid_sample(kernel: Kernel, node: Node, epilogue: Epilogue, local: int) -> Launch:
    """The input read at coordinates, between elements or at the nearest."""
    x, grid = node.inputs[:2]
    out, params = node.outputs[0], node.params
    assert x is not None
    assert grid is not None
    elements = kernel.elements
    code = kernel.code()
    code.add("const int g = get_global_id(0);")
    code.add(f"if (g >= {out.type.size}) return;")
    index = Index(out.shape, "g")
    at = code.axes(index)
    corners, padding = int(params["align_corners"]), params["padding_mode"]
    place = []
    for i, size in ((0, x.shape[2]), (1, x.shape[1])):
        v = elements.element(code, grid, Index(grid.shape, None, (*at[:3], str(i))))
        place.append(code.let("float", f"coordinate({v}, {size}, {corners}, {padding})"))
    storage = elements.storage(x)
    buffer = kernel.buffers.read(x, storage)
    _, height, width, channels = x.shape
    code.add("float acc = 0.0f;")
    near = params["mode"] == 1
    for name, at_name in (("x", place[0]), ("y", place[1])):
        code.add(f"const float {name}0 = {'rint' if near else 'floor'}({at_name});")
    code.add(f"for (int dy = 0; dy < {1 if near else 2}; dy++) for (int dx = 0; dx < {1 if near else 2}; dx++) {{")
    code.add("  const int yy = (int)y0 + dy, xx = (int)x0 + dx;")
    code.add(f"  if ((uint)yy >= {height}u || (uint)xx >= {width}u) continue;")
    weight = (
        "1.0f"
        if near
        else f"((dy ? {place[1]} - y0 : 1.0f - ({place[1]} - y0)) * (dx ? {place[0]} - x0 : 1.0f - ({place[0]} - x0)))"
    )
    sampled = f"((({at[0]} * {height} + yy) * {width} + xx) * {channels} + {at[3]})"
    code.add(f"  acc += {weight} * {storage.load(buffer, sampled)};")
    code.add("}")
    epilogue.write(kernel, code, "acc", index)
    return kernel.launch(
        "GridSample", (node, *epilogue.nodes), kernel.text("\n".join(code.lines), before=_COORDINATE),
        (epilogue.target,), (rounded_up(out.type.size, local),), (local,), out.type.size,
    )  # fmt: skip


__all__ = ["Elements", "KernelCode", "grid_sample", "grouped_filter", "map_values", "resize", "scatter", "top_k"]
