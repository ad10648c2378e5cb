# SPDX-License-Identifier: Apache-2.0
"""Resize of every mode: taps per axis computed here, read by one kernel; and GridSample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.lower import moves
from hexforge.backends.htp.numbers.lower.adapt import requantize, same_encoding
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.ir import Array, Node
from hexforge.ops.vision_resize import (
    ALIGN_CORNERS,
    ASYMMETRIC,
    FLOOR,
    HALF_PIXEL,
    LINEAR,
    NEAREST,
    ROUND_PREFER_CEIL,
    coordinates,
    interpolation,
    nearest,
)


def _modes(node: Node) -> tuple[int, int, int]:
    """How coordinates are transformed, how elements are blended, how the nearest is chosen."""
    params = node.params
    if node.op.name == "Resize":
        return params["transformation_mode"], params["interpolation_mode"], params["nearest_mode"]
    corners = ALIGN_CORNERS if params["align_corners"] else HALF_PIXEL if params["half_pixel_centers"] else ASYMMETRIC
    mode = LINEAR if node.op.name == "ResizeBilinear" else NEAREST
    return corners, mode, FLOOR if corners == ASYMMETRIC else ROUND_PREFER_CEIL


def _taps(node: Node, size: int, out_size: int) -> tuple[Array, Array]:
    """Indices and weights [out_size, taps] of one axis, float64."""
    transformation, mode, rounding = _modes(node)
    if size == out_size:
        return np.arange(size)[:, None], np.ones((size, 1))
    at = coordinates(size, out_size, transformation)
    if mode == NEAREST:
        return nearest(at, size, rounding)[:, None], np.ones((out_size, 1))
    coefficient = float(node.params.get("cubic_coeff", 0.0))
    return interpolation(at, size, mode, coefficient, bool(node.params.get("exclude_outside", False)))


@lowers("Resize", "ResizeBilinear", "ResizeNearestNeighbor")
def resize(lowering: Lowering, node: Node) -> bool:
    """Any Resize of 8-bit, 16-bit and float tensors."""
    if node.op.name != "ResizeBilinear" and moves.nearest(lowering, node):
        return True
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    if own.kind == "raw" or own.kind != out.kind:
        return False
    fill = 5 - len(x.shape)
    sizes, out_sizes = (1,) * fill + x.shape[1:-1], (1,) * fill + y.shape[1:-1]
    axes = [_taps(node, a, b) for a, b in zip(sizes, out_sizes, strict=True)]
    shape: dict[str, Any] = {"batch": x.shape[0], "in": sizes, "out": out_sizes}
    indices = {f"index{i}": np.ascontiguousarray(index, np.int32) for i, (index, _) in enumerate(axes)}
    if _modes(node)[1] == NEAREST:
        same = own.kind == "f32" or same_encoding(own, out)
        target: Any = y if same else lowering.temp(replace(own, shape=y.shape), y.name)
        pixel = x.shape[-1] * own.dtype.itemsize
        lowering.emit("resize_nearest", [x], [target], channels=pixel, **shape, **indices)
        if not same:
            requantize(lowering, target, replace(own, shape=y.shape), y, out)
        return True
    working = np.float64 if own.kind == "s16" else np.float32
    weights = {f"weight{i}": np.ascontiguousarray(weight, working) for i, (_, weight) in enumerate(axes)}
    fixed = {} if own.kind == "f32" else {"scale": own.scale / out.scale, "zero_a": own.zero_point, **out.output()}
    lowering.emit(
        f"resize_{own.kind}", [x], [y], channels=x.shape[-1], taps=tuple(index.shape[1] for index, _ in axes), **shape,
        **indices, **weights, **fixed,
    )  # fmt: skip
    return True


@lowers("GridSample")
def grid_sample(lowering: Lowering, node: Node) -> bool:
    """Reading at coordinates that come with the data."""
    x, grid = node.operand(0), node.operand(1)
    y = node.outputs[0]
    own, places, out = lowering.storage(x), lowering.storage(grid), lowering.storage(y)
    if own.kind == "raw" or own.kind != out.kind or places.kind == "raw" or (own.kind == "f32" != places.kind):
        return False
    fixed = {} if own.kind == "f32" else {"scale": own.scale / out.scale, "zero_a": own.zero_point, **out.output()}
    coordinates_ = {} if places.kind == "f32" else {"grid_scale": places.scale, "grid_zero": places.zero_point}
    lowering.emit(
        f"grid_sample_{own.kind}_{places.kind}", [x, grid], [y], batch=x.shape[0], out=y.shape[1:-1],
        channels=x.shape[-1], align_corners=int(bool(node.params["align_corners"])), nearest=int(node.params["mode"]),
        padding=int(node.params["padding_mode"]), **{"in": x.shape[1:-1]}, **fixed, **coordinates_,
    )  # fmt: skip
    return True
