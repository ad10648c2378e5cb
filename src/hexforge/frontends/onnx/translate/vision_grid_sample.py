# SPDX-License-Identifier: Apache-2.0
"""GridSample: QNN's op over two axes, blending or nearest; three axes and cubic composed from gathers."""

from __future__ import annotations

import itertools
import math

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, carried, translates
from hexforge.frontends.onnx.translate.compose import binary, cast, part, unary
from hexforge.frontends.onnx.translate.pointwise_activation import wide
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, Value

_MODES = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
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
    if mode not in _MODES or padding not in _PADDINGS:
        raise Refusal(f"mode {mode!r} with padding_mode {padding!r}; use {', '.join(_MODES)}; {', '.join(_PADDINGS)}")
    x, grid, out = carried(b, u), carried(b, u, 1), b.output(u)
    dims = len(x.shape) - 2
    if dims not in (2, 3) or len(grid.shape) != dims + 2 or grid.shape[-1] != dims or min(x.shape) < 1:
        raise Refusal(f"input {list(x.shape)} with grid {list(grid.shape)}; give images or volumes and a grid for them")
    if dims == 2 and _MODES[mode] != _CUBIC:
        last = out.type.with_shape((*grid.shape[:3], x.shape[1]))
        params = {"align_corners": corners, "mode": _MODES[mode], "padding_mode": _PADDINGS[padding]}
        b.to_channel_first(b.emit("GridSample", [b.to_channel_last(x), grid], last, **params), out)
        return
    if dims == 3 and _MODES[mode] == _CUBIC:
        raise Refusal("cubic sampling of volumes takes 64 gathers; use linear or nearest")
    _compose(b, u, _MODES[mode], padding, corners)


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
