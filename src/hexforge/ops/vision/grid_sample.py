# SPDX-License-Identifier: Apache-2.0
"""GridSample: the input read at coordinates that come with the data."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from hexforge.ir import Array, Call, Measure, Param, TensorType, Work, define
from hexforge.ops import rules

BILINEAR, NEAREST = range(2)
ZEROS, BORDER, REFLECTION = range(3)


def _infer(call: Call) -> tuple[TensorType, ...]:
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


def _taps(call: Call, at: Array, size: int) -> list[tuple[Array, Array]]:
    """Indices and weights of the elements that a coordinate blends; weight 0 outside."""
    if call["mode"] == NEAREST:
        taps = [(np.rint(at), np.ones_like(at))]
    else:
        floor = np.floor(at)
        taps = [(floor, 1 - (at - floor)), (floor + 1, at - floor)]
    return [(np.clip(i, 0, size - 1).astype(np.intp), np.where((i >= 0) & (i <= size - 1), w, 0)) for i, w in taps]


def _grid_sample(call: Call, x: Array, grid: Array) -> Array:
    axes = x.ndim - 2
    taps = [
        _taps(call, _coordinate(call, grid[..., axes - 1 - axis], size), size)  # the grid counts x first
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
    infer=_infer,
    reference=_grid_sample,
    kind=Work.OTHER,
    work=Measure(
        lanes=lambda call: (1 << len(call.input(0).shape) - 2) * call.out().size, lookups=lambda call: call.out().size
    ),
    quant=rules.OWN,
    doc="The input at grid[..., (x, y)] or (x, y, z), from -1 to 1 over the image or volume: blended or the nearest.",
)
