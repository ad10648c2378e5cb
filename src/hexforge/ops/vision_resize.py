# SPDX-License-Identifier: Apache-2.0
"""Pictures read elsewhere: Resize, channel-last, axis by axis; GridSample, at coordinates that come with the data."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from hexforge.ir import Array, Call, Measure, Param, TensorType, Work, define
from hexforge.ops import rules

HALF_PIXEL, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC = range(4)
NEAREST, LINEAR, CUBIC = range(3)
ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL = range(4)


def coordinates(size: int, out_size: int, mode: int) -> Array:
    """Where each of `out_size` positions lies on an axis of `size` elements, as float64."""
    at = np.arange(out_size, dtype=np.float64)
    if mode == ALIGN_CORNERS:
        return at * (size - 1) / max(out_size - 1, 1)
    if mode == ASYMMETRIC:
        return at * size / out_size
    if mode == PYTORCH_HALF_PIXEL and out_size == 1:
        return np.zeros(1)
    return (at + 0.5) * size / out_size - 0.5


def nearest(at: Array, size: int, mode: int) -> Array:
    """The index of the element nearest to each coordinate."""
    rounded = {
        ROUND_PREFER_FLOOR: lambda: np.ceil(at - 0.5),
        ROUND_PREFER_CEIL: lambda: np.floor(at + 0.5),
        FLOOR: lambda: np.floor(at),
        CEIL: lambda: np.ceil(at),
    }[mode]()
    return np.clip(rounded, 0, size - 1).astype(np.int64)


def cubic_kernel(distance: Array, coefficient: float) -> Array:
    """Keys' cubic convolution kernel: one at 0, zero from 2 on."""
    a, d = coefficient, np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def interpolation(
    at: Array, size: int, mode: int, coefficient: float = -0.75, exclude_outside: bool = False, shrink: float = 1.0
) -> tuple[Array, Array]:
    """Indices and weights [positions, taps] of linear or cubic interpolation at coordinates `at`.

    Elements beyond the ends are the end elements, or weigh nothing with `exclude_outside`. `shrink` below 1 widens the
    kernel by 1 / shrink (antialiasing).
    """
    reach = (1 if mode == LINEAR else 2) / min(shrink, 1.0)
    first = -int(np.ceil(reach)) + 1
    index = np.floor(at)[:, None] + np.arange(first, 2 - first)
    distance = (index - at[:, None]) * min(shrink, 1.0)
    weight = np.clip(1 - np.abs(distance), 0, 1) if mode == LINEAR else cubic_kernel(distance, coefficient)
    if exclude_outside:
        weight = np.where((index < 0) | (index >= size), 0.0, weight)
    weight = weight / weight.sum(axis=1, keepdims=True)
    return np.clip(index, 0, size - 1).astype(np.int64), weight


def _along(x: Array, axis: int, index: Array, weight: Array) -> Array:
    total: Array | None = None
    for tap in range(index.shape[1]):
        factor = weight[:, tap].astype(x.dtype).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        part = np.take(x, index[:, tap], axis=axis) * factor
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _resize(
    call: Call, x: Array, transformation: int, mode: int, nearest_mode: int, coefficient: float, exclude: bool
) -> Array:
    if mode != NEAREST and x.dtype.kind != "f":
        x = x.astype(np.float64)
    for axis in range(1, x.ndim - 1):
        size, out_size = x.shape[axis], call.out().shape[axis]
        if size == out_size:
            continue
        at = coordinates(size, out_size, transformation)
        if mode == NEAREST:
            x = np.take(x, nearest(at, size, nearest_mode), axis=axis)
        else:
            x = _along(x, axis, *interpolation(at, size, mode, coefficient, exclude))
    return x


def _infer(call: Call) -> tuple[TensorType, ...]:
    shape, out = call.input(0).shape, call.out()
    if not 3 <= len(shape) <= 5 or len(out.shape) != len(shape):
        raise call.fail(f"input {list(shape)} and output {list(out.shape)} must have the same 3 to 5 dimensions")
    if shape[0] != out.shape[0] or shape[-1] != out.shape[-1]:
        raise call.fail(f"only spatial axes can be resized, not {list(shape)} to {list(out.shape)}")
    if min(shape) < 1 or min(out.shape) < 1:
        raise call.fail(f"nothing to resize: {list(shape)} to {list(out.shape)}")
    return (TensorType(call.input(0).dtype, out.shape),)


def _taps(taps: int) -> Measure:
    return Measure(lanes=lambda call: taps * call.out().size)


define(
    "Resize",
    "in",
    params=(
        Param("exclude_outside", "bool", default=False),
        Param(
            "transformation_mode", "uint32", default=0,
            choices={"HALF_PIXEL": 0, "PYTORCH_HALF_PIXEL": 1, "ALIGN_CORNERS": 2, "ASYMMETRIC": 3},
        ),
        Param("interpolation_mode", "uint32", default=0, choices={"NEAREST": 0, "LINEAR": 1, "CUBIC": 2}),
        Param(
            "nearest_mode", "uint32", default=0,
            choices={"ROUND_PREFER_FLOOR": 0, "ROUND_PREFER_CEIL": 1, "FLOOR": 2, "CEIL": 3},
        ),
        Param("cubic_coeff", "float32", default=-0.75),
    ),
    infer=_infer,
    reference=lambda call, x: _resize(
        call, x, call["transformation_mode"], call["interpolation_mode"], call["nearest_mode"], call["cubic_coeff"],
        bool(call["exclude_outside"]),
    ),
    kind=Work.RESIZE,
    work=Measure(lanes=lambda call: (1, 4, 16)[int(call["interpolation_mode"])] * call.out().size),
    quant=rules.OWN,
    doc="Spatial axes interpolated to the declared output shape, by the ratio of the sizes.",
)  # fmt: skip


def _corner_mode(call: Call) -> int:
    if call["align_corners"] and call["half_pixel_centers"]:
        raise call.fail("align_corners and half_pixel_centers exclude each other")
    return ALIGN_CORNERS if call["align_corners"] else HALF_PIXEL if call["half_pixel_centers"] else ASYMMETRIC


def _infer_corners(call: Call) -> tuple[TensorType, ...]:
    _corner_mode(call)
    if len(call.input(0).shape) != 4:
        raise call.fail(f"input {list(call.input(0).shape)} must have 4 dimensions")
    return _infer(call)


def _nearest_neighbor(call: Call, x: Array) -> Array:
    mode = _corner_mode(call)
    return _resize(call, x, mode, NEAREST, FLOOR if mode == ASYMMETRIC else ROUND_PREFER_CEIL, 0.0, False)


_CORNERS = (Param("align_corners", "bool", default=False), Param("half_pixel_centers", "bool", default=False))
define(
    "ResizeBilinear",
    "in",
    params=_CORNERS,
    infer=_infer_corners,
    reference=lambda call, x: _resize(call, x, _corner_mode(call), LINEAR, FLOOR, 0.0, False),
    kind=Work.RESIZE,
    work=_taps(4),
    quant=rules.OWN,
    doc="Height and width interpolated linearly to the declared output shape.",
)
define(
    "ResizeNearestNeighbor",
    "in",
    params=_CORNERS,
    infer=_infer_corners,
    reference=_nearest_neighbor,
    kind=Work.RESIZE,
    work=_taps(1),
    quant=rules.OWN,
    doc="Height and width taken from the nearest element, to the declared output shape.",
)


_BILINEAR, _NEAREST = range(2)
ZEROS, BORDER, REFLECTION = range(3)


def _infer_samples(call: Call) -> tuple[TensorType, ...]:
    x, grid = call.input(0), call.input(1)
    axes = len(x.shape) - 2
    if axes not in (2, 3):
        raise call.fail(f"input {list(x.shape)} is no image [batch, height, width, channels], and no volume")
    if len(grid.shape) != axes + 2 or grid.shape[-1] != axes or grid.shape[0] != x.shape[0]:
        wanted = ", ".join(("depth", "height", "width")[3 - axes :])
        raise call.fail(f"input {list(x.shape)} needs a grid [{x.shape[0]}, {wanted}, {axes}], not {list(grid.shape)}")
    if grid.encoding is None and not grid.dtype.is_float:
        raise call.fail(f"the grid is {grid.qnn_dtype}, not real numbers")
    if min(x.shape) < 1:
        raise call.fail(f"input {list(x.shape)} is empty")
    return (TensorType(x.dtype, (*grid.shape[:-1], x.shape[-1])),)


def _reflect(at: Array, low: float, high: float) -> Array:
    """Coordinates folded back at both borders until they lie between them."""
    span = high - low
    if span <= 0:
        return np.full_like(at, low)
    return low + span - np.abs(np.mod(at - low, 2 * span) - span)


def _coordinate(call: Call, normal: Array, size: int) -> Array:
    """-1..1 to element positions, with padding modes that move the position applied."""
    corners = bool(call["align_corners"])
    at = (normal + 1) / 2 * (size - 1) if corners else ((normal + 1) * size - 1) / 2
    if call["padding_mode"] == REFLECTION:
        at = _reflect(at, 0, size - 1) if corners else _reflect(at, -0.5, size - 0.5)
    if call["padding_mode"] != ZEROS:
        at = np.clip(at, 0, size - 1)
    # beyond this far every tap is outside; NaN lies nowhere
    return np.clip(np.nan_to_num(at, nan=-2.0), -2.0, size + 1.0)


def _sample_taps(call: Call, at: Array, size: int) -> list[tuple[Array, Array]]:
    """Indices and weights of the elements that a coordinate blends; weight 0 outside."""
    if call["mode"] == _NEAREST:
        taps = [(np.rint(at), np.ones_like(at))]
    else:
        floor = np.floor(at)
        taps = [(floor, 1 - (at - floor)), (floor + 1, at - floor)]
    return [(np.clip(i, 0, size - 1).astype(np.intp), np.where((i >= 0) & (i <= size - 1), w, 0)) for i, w in taps]


def _grid_sample(call: Call, x: Array, grid: Array) -> Array:
    axes = x.ndim - 2
    taps = [
        _sample_taps(call, _coordinate(call, grid[..., axes - 1 - axis], size), size)  # the grid counts x first
        for axis, size in enumerate(x.shape[1:-1])
    ]
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * axes)
    out = np.zeros(call.out().shape, x.dtype if x.dtype.kind == "f" else np.float64)
    for chosen in itertools.product(*taps):
        weight = functools.reduce(np.multiply, [w for _, w in reversed(chosen)])
        out += x[(batch, *(at for at, _ in chosen))] * weight[..., None].astype(out.dtype)
    return out


define(
    "GridSample",
    "in grid",
    params=(
        Param("align_corners", "bool", default=False),
        Param("mode", "uint32", default=0, choices={"BILINEAR": 0, "NEAREST": 1}),
        Param("padding_mode", "uint32", default=0, choices={"ZEROS": 0, "BORDER": 1, "REFLECTION": 2}),
    ),
    infer=_infer_samples,
    reference=_grid_sample,
    kind=Work.OTHER,
    work=Measure(
        lanes=lambda call: (1 << len(call.input(0).shape) - 2) * call.out().size, lookups=lambda call: call.out().size
    ),
    quant=rules.OWN,
    doc="The input at grid[..., (x, y)] or (x, y, z), from -1 to 1 over the image or volume: blended or the nearest.",
)
