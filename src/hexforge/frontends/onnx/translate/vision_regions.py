# SPDX-License-Identifier: Apache-2.0
"""Regions of pictures: RoiAlign and MaxRoiPool, and the boxes that non-maximum suppression keeps."""

from __future__ import annotations

import itertools

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, binary, carried, cast, part, translates, unary
from hexforge.frontends.onnx.translate.pointwise_activation import wide
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, DType, TensorType, Value


@translates(
    "RoiAlign",
    writes=(
        "ElementWiseAdd", "ElementWiseAnd", "ElementWiseFloor", "ElementWiseGreaterEqual", "ElementWiseLessEqual",
        "ElementWiseMaximum", "ElementWiseMinimum", "ElementWiseMultiply", "ElementWiseSubtract", "Gather",
        "ReduceMax", "RoiAlign", "StridedSlice",
    ),
)  # fmt: skip
def roi_align(b: Builder, u: Unit) -> None:
    """RoiAlign; the mean of samples is QNN's op, their maximum is composed."""
    mode, scale = b.attr(u, "mode", "avg"), float(b.attr(u, "spatial_scale", 1.0))
    samples = int(b.attr(u, "sampling_ratio", 0))
    default = "half_pixel" if b.opset(u) >= 16 else "output_half_pixel"
    transformation = b.attr(u, "coordinate_transformation_mode", default)
    if mode not in ("avg", "max") or transformation not in ("half_pixel", "output_half_pixel") or scale <= 0:
        raise Refusal(f"mode {mode!r}, {transformation!r}, spatial_scale {scale}; use avg or max, [output_]half_pixel")
    aligned = transformation == "half_pixel"
    if mode == "max":
        _maximum(b, u, scale, samples, aligned)
        return
    x, rois, out = b.to_channel_last(carried(b, u)), carried(b, u, 1), b.output(u)
    last = out.type.with_shape((out.shape[0], *out.shape[2:], out.shape[1]))
    value = b.emit(
        "RoiAlign", [x, rois, cast(b, b.input(u, 2), DType.INT32)], last, img_size_ratio=(1 / scale, 1 / scale),
        num_samples_y=max(samples, 0), num_samples_x=max(samples, 0), aligned=aligned,
    )  # fmt: skip
    b.to_channel_first(value, out)


def _maximum(b: Builder, u: Unit, scale: float, samples: int, aligned: bool) -> None:
    """The largest weighted corner of all samples of a bin, as ONNX defines mode max."""
    if samples < 1:
        raise Refusal("mode max with sampling_ratio 0 has as many samples as the regions say; give a ratio")
    x, out = b.to_channel_last(wide(b, u)), b.output(u).shape
    regions, (height, width), channels = out[0], out[2:], out[1]
    flat = b.reshape(x, (x.shape[0] * x.shape[1] * x.shape[2], channels))
    rois = binary(b, "Multiply", wide(b, u, 1), scale)
    rois = binary(b, "Subtract", rois, 0.5) if aligned else rois
    batch = binary(b, "Multiply", cast(b, b.input(u, 2), DType.INT32), x.shape[1] * x.shape[2])
    batch = b.reshape(batch, (regions, 1, 1))
    rows = _axis_taps(b, rois, 1, height, samples, x.shape[1], aligned, (regions, -1, 1), x.shape[2])
    columns = _axis_taps(b, rois, 0, width, samples, x.shape[2], aligned, (regions, 1, -1), 1)
    best: Value | None = None
    for (row, row_weight), (column, column_weight) in itertools.product(rows, columns):
        index = binary(b, "Add", binary(b, "Add", row, column), batch)
        weight = binary(b, "Multiply", row_weight, column_weight)
        value = binary(b, "Multiply", b.emit("Gather", [flat, index], axis=0), b.reshape(weight, (*weight.shape, 1)))
        best = value if best is None else binary(b, "Maximum", best, value)
    assert best is not None
    tall = b.reshape(best, (regions * height, samples, width * samples * channels))
    tall = b.emit("ReduceMax", [tall], axes=(1,), keep_dims=False)
    bins = b.reshape(tall, (regions * height * width, samples, channels))
    bins = b.emit("ReduceMax", [bins], axes=(1,), keep_dims=False)
    b.finish(u, b.to_channel_first(b.reshape(bins, (regions, height, width, channels))))


def _axis_taps(
    b: Builder, rois: Value, corner: int, bins: int, samples: int, size: int, aligned: bool, shape: tuple[int, ...],
    step: int,
) -> list[tuple[Value, Value]]:  # fmt: skip
    """The two taps of every sample along one axis: share of the flat index, and weight (0 outside the image)."""
    start, end = part(b, rois, 1, corner, corner + 1), part(b, rois, 1, corner + 2, corner + 3)
    extent = binary(b, "Subtract", end, start)
    extent = extent if aligned else binary(b, "Maximum", extent, 1.0)
    offsets = np.arange(bins)[:, None] + (np.arange(samples) + 0.5) / samples
    where = b.static((offsets.reshape(1, -1) / bins).astype(np.float32))
    at = binary(b, "Add", binary(b, "Multiply", extent, where), start)
    above, below = binary(b, "GreaterEqual", at, -1.0), binary(b, "LessEqual", at, float(size))
    inside = cast(b, b.emit("ElementWiseAnd", [above, below]), DType.FLOAT32)
    at = b.emit("ReluMinMax", [at], min_value=0.0, max_value=float(size - 1))
    low = unary(b, "Floor", at)
    rest = binary(b, "Subtract", at, low)
    high = binary(b, "Minimum", binary(b, "Add", low, 1.0), float(size - 1))
    back = binary(b, "Add", binary(b, "Multiply", rest, -1.0), 1.0)
    full = tuple(bins * samples if n == -1 else n for n in shape)
    taps = []
    for index, weight in ((low, back), (high, rest)):
        place = b.reshape(cast(b, index, DType.INT32), full)
        place = binary(b, "Multiply", place, step) if step != 1 else place
        taps.append((place, b.reshape(binary(b, "Multiply", weight, inside), full)))
    return taps


@translates("MaxRoiPool", writes=("RoiPooling", "StridedSlice"))
def max_roi_pool(b: Builder, u: Unit) -> None:
    """MaxRoiPool; a region's first number is its image."""
    scale, out = float(b.attr(u, "spatial_scale", 1.0)), b.output(u)
    rois = b.real(u, 1)
    if scale <= 0 or len(rois.shape) != 2 or rois.shape[1] != 5:
        raise Refusal(f"rois {list(rois.shape)} and spatial_scale {scale}; give [R, 5] and a positive number")
    batch = cast(b, b.reshape(part(b, rois, 1, 0, 1), rois.shape[:1]), DType.INT32)
    last = out.type.with_shape((out.shape[0], *out.shape[2:], out.shape[1]))
    inputs = [b.to_channel_last(carried(b, u)), part(b, rois, 1, 1, 5), batch]
    b.to_channel_first(b.emit("RoiPooling", inputs, last, img_size_ratio=(1 / scale, 1 / scale)), out)


# [x, y, width, height] of the centre form times this is [y1, x1, y2, x2]
_CORNERS = np.array([[0, 1, 0, -0.5], [1, 0, -0.5, 0], [0, 1, 0, 0.5], [1, 0, 0.5, 0]], np.float32)


def _number(given: Array | None, default: float) -> float:
    return default if given is None or not given.size else float(given.ravel()[0])


@translates("NonMaxSuppression", writes=("FullyConnected", "NonMaxSuppression"))
def non_max_suppression(b: Builder, u: Unit) -> None:
    """NonMaxSuppression where the model declares its number of rows; a run that gives another number is an error."""
    most = _number(b.constant(u, 2, "max_output_boxes_per_class"), 0)
    thresholds = {"iou_threshold": _number(b.constant(u, 3, "iou_threshold"), 0.0)}
    if b.has(u, 4):
        thresholds["score_threshold"] = _number(b.constant(u, 4, "score_threshold"), 0.0)
    shape = None if u.outputs[0] is None else u.outputs[0].value.shape
    if shape is None or not shape.is_static():
        raise Refusal("the number of selected boxes is known only at run time; declare the output's shape where fixed")
    if most < 1:
        raise Refusal("max_output_boxes_per_class is 0, which selects nothing; give a positive number")
    boxes, scores, out = b.real(u, 0), b.real(u, 1), b.output(u)
    if b.attr(u, "center_point_box", 0):
        boxes = b.emit("FullyConnected", [boxes, b.static(_CORNERS.astype(boxes.dtype.numpy))], keep_dims=True)
    limit = int(min(most, boxes.shape[1]))
    selected = TensorType(DType.INT32, out.shape)
    b.finish(u, b.emit("NonMaxSuppression", [boxes, scores], selected, max_boxes_selected=limit, **thresholds))
