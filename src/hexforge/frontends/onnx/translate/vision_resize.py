# SPDX-License-Identifier: Apache-2.0
"""Resize, Upsample and GridSample: QNN's op where it means the same, else elements that are chosen or weighed."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from hexforge.frontends.onnx.translate.builder import (
    Builder,
    binary,
    carried,
    cast,
    map_axis,
    part,
    take_axis,
    translates,
    unary,
)
from hexforge.frontends.onnx.translate.pointwise_activation import wide
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, DType, Value
from hexforge.ops.vision_resize import ASYMMETRIC, CUBIC, FLOOR, LINEAR, NEAREST, interpolation, nearest

_MODES = {"nearest": NEAREST, "linear": LINEAR, "cubic": CUBIC}
_TRANSFORMATIONS = {"half_pixel": 0, "pytorch_half_pixel": 1, "align_corners": 2, "asymmetric": ASYMMETRIC}
_COMPOSED = ("half_pixel_symmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn")
_ROUNDINGS = {"round_prefer_floor": 0, "round_prefer_ceil": 1, "floor": FLOOR, "ceil": 3}


@dataclass(frozen=True, slots=True)
class _Spec:
    """What to do: per axis of the tensor its scale and region; the rest for all axes."""

    mode: int
    transformation: str
    rounding: int
    scales: tuple[float, ...]
    regions: tuple[tuple[float, float], ...]
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    outside: float = 0.0


@translates("Resize", writes=("ElementWiseSelect", "Gather", "MatMul", "Resize"))
def resize(b: Builder, u: Unit) -> None:
    """Resize of any mode with constant scales or sizes."""
    _write(b, u, _spec(b, u))


@translates("Upsample", writes=("Gather", "MatMul", "Resize"))
def upsample(b: Builder, u: Unit) -> None:
    """Upsample, by attribute (opset 7) or input: positions count from the corner, nearest rounds down."""
    shape, mode = b.input(u, 0).shape, b.attr(u, "mode", "nearest")
    scales = b.attr(u, "scales")
    scales = b.constant(u, 1, "scales") if scales is None else scales
    if scales is None or len(scales) != len(shape) or mode not in ("nearest", "linear"):
        raise Refusal(f"mode {mode!r} and scales {scales}; give nearest or linear, and a scale per axis")
    regions = ((0.0, 1.0),) * len(shape)
    _write(b, u, _Spec(_MODES[mode], "asymmetric", FLOOR, tuple(float(s) for s in scales), regions))


def _choice(b: Builder, u: Unit, name: str, default: str, known: tuple[str, ...]) -> str:
    value = str(b.attr(u, name, default))
    if value not in known:
        raise Refusal(f"{name} {value!r} is unknown; use {', '.join(known)}")
    return value


def _vector(b: Builder, u: Unit, index: int, what: str) -> Array | None:
    """A constant input, None where it is absent or empty (as Resize 11 leaves it)."""
    if not b.has(u, index) or b.operand(u, index).value.shape == (0,):
        return None
    vector = b.constant(u, index, what)
    return None if vector is None or not vector.size else vector


def _spec(b: Builder, u: Unit) -> _Spec:
    rank, out = len(b.input(u, 0).shape), b.output(u).shape
    given = b.attr(u, "axes")
    axes = [int(a) % rank for a in (range(rank) if given is None else given)]
    mode = _choice(b, u, "mode", "nearest", tuple(_MODES))
    early = b.opset(u) < 11  # Resize 10 has scales as input 1, and Upsample's meaning
    default = "asymmetric" if early else "half_pixel"
    transformation = _choice(b, u, "coordinate_transformation_mode", default, (*_TRANSFORMATIONS, *_COMPOSED))
    rounding = _choice(b, u, "nearest_mode", "floor" if early else "round_prefer_floor", tuple(_ROUNDINGS))
    regions = [(0.0, 1.0)] * rank
    if transformation == "tf_crop_and_resize":
        roi = _vector(b, u, 1, "roi")
        if roi is None or roi.size != 2 * len(axes):
            raise Refusal(f"tf_crop_and_resize needs a roi of {2 * len(axes)} numbers")
        for i, axis in enumerate(axes):
            regions[axis] = (float(roi[i]), float(roi[i + len(axes)]))
    return _Spec(
        _MODES[mode], transformation, _ROUNDINGS[rounding], _scales(b, u, axes, out, 1 if early else 2), tuple(regions),
        float(b.attr(u, "cubic_coeff_a", -0.75)), bool(b.attr(u, "exclude_outside", 0)),
        bool(b.attr(u, "antialias", 0)), float(b.attr(u, "extrapolation_value", 0.0)),
    )  # fmt: skip


def _scales(b: Builder, u: Unit, axes: list[int], out: tuple[int, ...], index: int) -> tuple[float, ...]:
    """The scale of every axis; from sizes it is the ratio, or one ratio for all with a keep_aspect_ratio_policy."""
    shape = b.input(u, 0).shape
    scales = [1.0] * len(shape)
    given_scales = _vector(b, u, index, "scales")
    if given_scales is not None:
        if given_scales.size != len(axes):
            raise Refusal(f"{given_scales.size} scales for {len(axes)} axes")
        for axis, scale in zip(axes, given_scales, strict=True):
            scales[axis] = float(scale)
        return tuple(scales)
    sizes = _vector(b, u, index + 1, "sizes")
    if sizes is None or sizes.size != len(axes):
        raise Refusal(f"neither scales nor sizes for {len(axes)} axes")
    policy = _choice(b, u, "keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    ratios = [float(n) / max(shape[a], 1) for a, n in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
    for axis, ratio in zip(axes, ratios, strict=True):
        scales[axis] = ratio if policy != "stretch" else out[axis] / max(shape[axis], 1)
    return tuple(scales)


def _write(b: Builder, u: Unit, spec: _Spec) -> None:
    x, out = carried(b, u), b.output(u)
    if min(x.shape, default=0) < 1 or min(out.shape, default=0) < 1 or len(x.shape) != len(out.shape):
        raise Refusal(f"nothing to resize: {list(x.shape)} to {list(out.shape)}")
    if any(not s > 0 for s in spec.scales):
        raise Refusal(f"scales {list(spec.scales)} must be positive")
    slack = 0.0 if spec.mode == NEAREST else 1e-6  # a scale rounded to float32 may move a tie, but not a blend
    whole = all(abs(s * n - o) <= slack * o for s, n, o in zip(spec.scales, x.shape, out.shape, strict=True))
    if whole and spec.transformation in _TRANSFORMATIONS and not spec.antialias and _spatial(x, out):
        params = {
            "transformation_mode": _TRANSFORMATIONS[spec.transformation],
            "interpolation_mode": spec.mode,
            "nearest_mode": spec.rounding,
            "exclude_outside": spec.exclude_outside and spec.mode == CUBIC,
            "cubic_coeff": spec.cubic,
        }
        x = b.to_channel_last(x)
        last = out.type.with_shape((out.shape[0], *out.shape[2:], out.shape[1]))
        b.to_channel_first(b.emit("Resize", [x], last, **params), out)
        return
    b.finish(u, _composed(b, x if spec.mode == NEAREST else wide(b, u), out, spec))


def _spatial(x: Value, out: Value) -> bool:
    return 3 <= len(x.shape) <= 5 and x.shape[:2] == out.shape[:2]


def _coordinates(spec: _Spec, axis: int, size: int, out: int) -> Array:
    """Where each output position lies on an axis: ONNX's formulas, whose resized length may not be whole."""
    at, scale = np.arange(out, dtype=np.float64), spec.scales[axis]
    length = scale * size
    match spec.transformation:
        case "align_corners":
            return at * (size - 1) / (length - 1) if length != 1 else np.zeros(out)
        case "asymmetric":
            return at / scale
        case "tf_crop_and_resize":
            # in float32, as onnxruntime: whether a place on the border is inside hangs on it
            start, end = np.float32(spec.regions[axis][0]), np.float32(spec.regions[axis][1])
            last, length32 = np.float32(size - 1), np.float32(length)
            if length32 > 1:
                span = (at.astype(np.float32) * (end - start) * last) / (length32 - np.float32(1))
                return np.asarray(start * last + span).astype(np.float64)
            return np.full(out, 0.5 * float(start + end) * (size - 1))
        case "pytorch_half_pixel" if length <= 1:
            return np.zeros(out)
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        case "half_pixel_symmetric":
            return size / 2 * (1 - out / length) + (at + 0.5) / scale - 0.5
        case _:
            return (at + 0.5) / scale - 0.5


def _composed(b: Builder, x: Value, out: Value, spec: _Spec) -> Value:
    """Axis by axis: elements chosen by constant indices, or products with interpolation matrices."""
    inside: list[Array] = []
    for axis, (size, n) in enumerate(zip(x.shape, out.shape, strict=True)):
        at = np.arange(n, dtype=np.float64)
        if size != n or spec.scales[axis] != 1 or spec.regions[axis] != (0.0, 1.0):
            at = _coordinates(spec, axis, size, n)
            x = _one_axis(b, x, axis, at, spec)
        inside.append((at >= 0) & (at <= size - 1))
    if spec.transformation != "tf_crop_and_resize" or all(i.all() for i in inside):
        return x
    x = b.dequantize(x)
    beyond = b.static(np.asarray([spec.outside]).astype(x.dtype.numpy))
    return b.emit("ElementWiseSelect", [b.static(_all_inside(inside)), x, beyond])


def _one_axis(b: Builder, x: Value, axis: int, at: Array, spec: _Spec) -> Value:
    size, n = x.shape[axis], len(at)
    if spec.mode == NEAREST:
        return take_axis(b, x, axis, nearest(at, size, spec.rounding))
    shrink = spec.scales[axis] if spec.antialias else 1.0
    index, weight = interpolation(at, size, spec.mode, spec.cubic, spec.exclude_outside, shrink)
    matrix = np.zeros((n, size))
    np.add.at(matrix, (np.arange(n)[:, None], index), weight)
    return map_axis(b, x, axis, matrix)


def _all_inside(inside: list[Array]) -> Array:
    """True where every axis' coordinate lies on the input; else the extrapolation value is meant."""
    rank = len(inside)
    keep = np.ones((1,) * rank, np.bool_)
    for axis, flags in enumerate(inside):
        keep = keep & flags.reshape([-1 if i == axis else 1 for i in range(rank)])
    return keep


_GRID_MODES = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}
_CUBIC = 2
_COEFFICIENT = -0.75


@translates(
    "GridSample",
    writes=(
        "ElementWiseAbs", "ElementWiseAdd", "ElementWiseAnd", "ElementWiseFloor", "ElementWiseGreaterEqual",
        "ElementWiseLessEqual", "ElementWiseMod", "ElementWiseMultiply", "ElementWiseRound", "ElementWiseSubtract",
        "Gather", "GridSample", "StridedSlice",
    ),
)  # fmt: skip
def grid_sample(b: Builder, u: Unit) -> None:
    """GridSample of images and volumes."""
    mode, padding = b.attr(u, "mode", "linear"), b.attr(u, "padding_mode", "zeros")
    corners = bool(b.attr(u, "align_corners", 0))
    if mode not in _GRID_MODES or padding not in _PADDINGS:
        raise Refusal(
            f"mode {mode!r} with padding_mode {padding!r}; use {', '.join(_GRID_MODES)}; {', '.join(_PADDINGS)}"
        )
    x, grid, out = carried(b, u), carried(b, u, 1), b.output(u)
    dims = len(x.shape) - 2
    if dims not in (2, 3) or len(grid.shape) != dims + 2 or grid.shape[-1] != dims or min(x.shape) < 1:
        raise Refusal(f"input {list(x.shape)} with grid {list(grid.shape)}; give images or volumes and a grid for them")
    if dims == 2 and _GRID_MODES[mode] != _CUBIC:
        last = out.type.with_shape((*grid.shape[:3], x.shape[1]))
        params = {"align_corners": corners, "mode": _GRID_MODES[mode], "padding_mode": _PADDINGS[padding]}
        b.to_channel_first(b.emit("GridSample", [b.to_channel_last(x), grid], last, **params), out)
        return
    if dims == 3 and _GRID_MODES[mode] == _CUBIC:
        raise Refusal("cubic sampling of volumes takes 64 gathers; use linear or nearest")
    _compose(b, u, _GRID_MODES[mode], padding, corners)


def _compose(b: Builder, u: Unit, mode: int, padding: str, corners: bool) -> None:
    """Taps of every axis, their products gathered from the flat image and summed."""
    x, grid = b.to_channel_last(wide(b, u)), wide(b, u, 1)
    images, channels, sizes = x.shape[0], x.shape[-1], x.shape[1:-1]
    points, dims = math.prod(grid.shape[1:-1]), len(sizes)
    flat = b.reshape(x, (images * math.prod(sizes), channels))
    rows = b.reshape(grid, (images, points, dims))
    taps = []
    for axis, size in enumerate(sizes):
        normal = b.reshape(part(b, rows, 2, dims - 1 - axis, dims - axis), (images, points))  # the grid counts x first
        shifted = binary(b, "Add", normal, 1.0)
        if corners:
            at = binary(b, "Multiply", shifted, (size - 1) / 2)
        else:
            at = binary(b, "Multiply", binary(b, "Subtract", binary(b, "Multiply", shifted, float(size)), 1.0), 0.5)
        step = math.prod(sizes[axis + 1 :])
        taps.append([_placed(b, i, w, size, step, padding, corners) for i, w in _weights(b, at, mode)])
    first = b.static((np.arange(images) * math.prod(sizes)).astype(np.int32)[:, None])
    total: Value | None = None
    for choice in itertools.product(*taps):
        index, weight = first, None
        for place, share in choice:
            index = binary(b, "Add", place, index)
            weight = share if weight is None or share is None else binary(b, "Multiply", weight, share)
        value = b.emit("Gather", [flat, index], axis=0)
        if weight is not None:
            value = binary(b, "Multiply", value, b.reshape(weight, (images, points, 1)))
        total = value if total is None else binary(b, "Add", total, value)
    assert total is not None
    spatial = b.reshape(total, (*grid.shape[:-1], channels))
    b.finish(u, b.to_channel_first(spatial))


def _weights(b: Builder, at: Value, mode: int) -> list[tuple[Value, Value | None]]:
    """Positions (whole numbers, as floats) and weights of the taps along one axis."""
    if mode == 1:
        return [(unary(b, "Round", at), None)]
    floor = unary(b, "Floor", at)
    rest = binary(b, "Subtract", at, floor)
    back = binary(b, "Add", binary(b, "Multiply", rest, -1.0), 1.0)
    after = binary(b, "Add", floor, 1.0)
    if mode == 0:
        return [(floor, back), (after, rest)]
    return [
        (binary(b, "Add", floor, -1.0), _far(b, rest)),
        (floor, _near(b, rest)),
        (after, _near(b, back)),
        (binary(b, "Add", floor, 2.0), _far(b, back)),
    ]


def _near(b: Builder, d: Value) -> Value:
    """The cubic kernel at distance d: ((a + 2) d - (a + 3)) d d + 1."""
    inner = binary(b, "Subtract", binary(b, "Multiply", d, _COEFFICIENT + 2), _COEFFICIENT + 3)
    return binary(b, "Add", binary(b, "Multiply", binary(b, "Multiply", inner, d), d), 1.0)


def _far(b: Builder, d: Value) -> Value:
    """The cubic kernel at distance 1 + d, which is a d (1 - d)**2."""
    back = binary(b, "Subtract", d, 1.0)
    return binary(b, "Multiply", binary(b, "Multiply", binary(b, "Multiply", back, back), d), _COEFFICIENT)


def _placed(
    b: Builder, index: Value, weight: Value | None, size: int, step: int, padding: str, corners: bool
) -> tuple[Value, Value | None]:
    """A tap as its share of the flat index and its weight, 0 outside where zeros pad."""
    if padding == "zeros":
        above, below = binary(b, "GreaterEqual", index, 0.0), binary(b, "LessEqual", index, float(size - 1))
        inside = cast(b, b.emit("ElementWiseAnd", [above, below]), DType.FLOAT32)
        weight = inside if weight is None else binary(b, "Multiply", weight, inside)
    elif padding == "reflection":
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        if span > 0:
            folded = binary(b, "Mod", binary(b, "Subtract", index, low), 2 * span)
            distance = unary(b, "Abs", binary(b, "Subtract", folded, span))
            index = binary(b, "Add", binary(b, "Multiply", distance, -1.0), low + span)
    index = b.emit("ReluMinMax", [index], min_value=0.0, max_value=float(size - 1))
    place = cast(b, index, DType.INT32)
    return (binary(b, "Multiply", place, step) if step != 1 else place), weight
