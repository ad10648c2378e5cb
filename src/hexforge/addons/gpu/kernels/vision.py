# SPDX-License-Identifier: Apache-2.0
"""Kernels of ops on pictures: read in another size, at coordinates that are given, or by regions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexforge.addons.gpu.kernels.code import C_TYPES, FLOAT, BufferType, Index, literal
from hexforge.addons.gpu.kernels.launch import Constant, Epilogue, Kernel, Launch
from hexforge.addons.gpu.kernels.reductions_windows import positions
from hexforge.ir import Array, Node
from hexforge.ops.vision_resize import (
    ALIGN_CORNERS,
    ASYMMETRIC,
    FLOOR,
    HALF_PIXEL,
    ROUND_PREFER_CEIL,
    coordinates,
    interpolation,
    nearest,
)


def _taps(node: Node) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices and weights of each spatial axis, [positions, taps]."""
    x, out, params = node.operand(0), node.outputs[0], node.params
    if node.op.name == "Resize":
        transformation, mode, nearest_mode = (
            params["transformation_mode"],
            params["interpolation_mode"],
            params["nearest_mode"],
        )
    else:
        transformation = (
            ALIGN_CORNERS if params["align_corners"] else HALF_PIXEL if params["half_pixel_centers"] else ASYMMETRIC
        )
        mode = 1 if node.op.name == "ResizeBilinear" else 0
        nearest_mode = FLOOR if transformation == ASYMMETRIC else ROUND_PREFER_CEIL
    by_axis = []
    for size, out_size in zip(x.shape[1:-1], out.shape[1:-1], strict=True):
        if size == out_size:
            by_axis.append((np.arange(size)[:, None], np.ones((size, 1))))
            continue
        at = coordinates(size, out_size, transformation)
        if mode == 0:
            by_axis.append((nearest(at, size, nearest_mode)[:, None], np.ones((out_size, 1))))
        else:
            cubic, exclude = params.get("cubic_coeff", -0.75), bool(params.get("exclude_outside", False))
            by_axis.append(interpolation(at, size, mode, cubic, exclude))
    return by_axis


def _given(array: Array) -> Callable[[], Array]:
    return lambda: array


def resize(kernel: Kernel, node: Node, epilogue: Epilogue, local: int) -> Launch:
    """Interpolation along each spatial axis, by tables of indices and weights."""
    x, out = node.operand(0), node.outputs[0]
    code = kernel.code()
    index, total = positions(code, node, 1)
    at, source = code.axes(index), kernel.source(x)
    code.add("float acc = 0.0f;")
    place, depth, factors = at[0], 0, []
    moves_only = all(weights.shape[1] == 1 for _, weights in _taps(node))
    for i, (indices, weights) in enumerate(_taps(node)):
        taps = indices.shape[1]
        table = np.ascontiguousarray(indices, np.int32)
        constant = Constant(f"{node.name}.index{i}", BufferType("int", 4), _given(table), table.nbytes)
        name = kernel.source(constant).name
        if taps > 1:
            code.add(f"for (int k{i} = 0; k{i} < {taps}; k{i}++) {{")
            depth += 1
        entry = f"{at[i + 1]} * {taps} + {f'k{i}' if taps > 1 else '0'}"
        code.add(f"const int z{i} = {name}[{entry}];")
        if taps > 1:
            values = np.ascontiguousarray(weights, np.float32)
            factor = Constant(f"{node.name}.weight{i}", FLOAT, _given(values), values.nbytes)
            factors.append(kernel.source(factor).load(entry))
        place = f"({place} * {x.shape[i + 1]} + z{i})"
    load = source.load(f"({place} * {x.shape[-1]} + {at[-1]})")
    if moves_only and not x.dtype.is_float:
        result = code.let(C_TYPES[out.dtype], load)
    else:
        code.add(f"acc += {' * '.join([load, *factors])};")
        result = "acc"
    code.lines += ["}"] * depth
    epilogue.write(kernel, code, result, index)
    return kernel.launch_items(node.op.name, (node,), code, epilogue, total, local, total)


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
    x, grid = node.operands(2)
    params = node.params
    elements = kernel.elements
    code = kernel.code()
    index, total = positions(code, node, 1)
    at = code.axes(index)
    corners, padding = int(params["align_corners"]), params["padding_mode"]
    place = []
    for i, size in ((0, x.shape[2]), (1, x.shape[1])):
        v = elements.element(code, grid, Index(grid.shape, None, (*at[:3], str(i))))
        place.append(code.let("float", f"coordinate({v}, {size}, {corners}, {padding})"))
    source = kernel.source(x)
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
    code.add(f"  acc += {weight} * {source.load(sampled)};")
    code.add("}")
    epilogue.write(kernel, code, "acc", index)
    return kernel.launch_items("GridSample", (node,), code, epilogue, total, local, total, before=_COORDINATE)


_MOST_SAMPLES = 1 << 14
"""Samples of a bin along an axis at most: regions are data, and may be of any size."""


def roi_align(kernel: Kernel, node: Node, epilogue: Epilogue, local: int) -> Launch:
    """Bins of regions of pictures: bilinear samples of each, averaged."""
    x, rois, batch = node.operands(3)
    out, params = node.outputs[0], node.params
    elements, code = kernel.elements, kernel.code()
    index, total = positions(code, node, 1)
    at = code.axes(index)
    pictures, height, width, channels = x.shape
    picture = elements.element(code, batch, Index(batch.shape, at[0]))
    code.add(f"if ({picture} < 0 || {picture} >= {pictures}) {{ {elements.fault(code, node)} return; }}")
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
    source = kernel.source(x)
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
        return source.load(f"((({picture} * {height} + {y}) * {width} + {x}) * {channels} + {at[3]})")

    code.add(f"const float upper = {sample('y0', 'x0')} * (1.0f - xr) + {sample('y0', 'x1')} * xr;")
    code.add(f"const float lower = {sample('y1', 'x0')} * (1.0f - xr) + {sample('y1', 'x1')} * xr;")
    code.add("total += upper * (1.0f - yr) + lower * yr;")
    code.lines += ["}", "}"]
    result = code.let("float", "count_y > 0 && count_x > 0 ? total / ((float)count_y * (float)count_x) : 0.0f")
    epilogue.write(kernel, code, result, index)
    return kernel.launch_items("RoiAlign", (node,), code, epilogue, total, local, 16 * out.type.size)
