# SPDX-License-Identifier: Apache-2.0
"""Regions of pictures: RoiAlign and RoiPooling; and non-maximum suppression of boxes."""

from __future__ import annotations

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array, Call, DType, Measure, Param, QuantRule, TensorType, Work, define

ROI = QuantRule(data=(0, 1))


def _infer(call: Call) -> tuple[TensorType, ...]:
    x, rois, batch, out = call.input(0), call.input(1), call.input(2), call.out()
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1]:
        raise call.fail(f"rois {list(rois.shape)} and batch_indices {list(batch.shape)} must be [R, 4] and [R]")
    if not batch.dtype.is_integer:
        raise call.fail(f"batch_indices are {batch.qnn_dtype}, not integers")
    ratio = call["img_size_ratio"]
    if len(ratio) != 2 or min(ratio) <= 0:
        raise call.fail(f"img_size_ratio {list(ratio)} must be two positive numbers")
    if len(out.shape) != 4 or out.shape[0] != rois.shape[0] or out.shape[3] != x.shape[3] or min(x.shape) < 1:
        raise call.fail(f"output {list(out.shape)} must be [{rois.shape[0]}, height, width, {x.shape[3]}]")
    return (TensorType(x.dtype, out.shape),)


def _image(call: Call, x: Array, index: Array) -> Array:
    if not 0 <= int(index) < x.shape[0]:
        raise CallError(f"{call.op.name}: batch index {int(index)} is outside {x.shape[0]} images")
    return np.asarray(x[int(index)])


def _averages(start: float, extent: float, bins: int, samples: int, size: int) -> Array:
    """[bins, size]: what each bin takes of each element along one axis, its samples averaged."""
    count = samples if samples > 0 else int(np.ceil(extent / bins))
    matrix = np.zeros((bins, size))
    if count <= 0:
        return matrix
    offsets = (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / count) * (extent / bins)
    at = start + offsets
    inside = (at >= -1) & (at <= size)
    at = np.clip(np.where(inside, at, 0), 0, size - 1)
    low = np.floor(at).astype(np.intp)
    rest = at - low
    rows = np.broadcast_to(np.arange(bins)[:, None], low.shape)
    np.add.at(matrix, (rows, low), np.where(inside, 1 - rest, 0) / count)
    np.add.at(matrix, (rows, np.minimum(low + 1, size - 1)), np.where(inside, rest, 0) / count)
    return matrix


def _roi_align(call: Call, x: Array, rois: Array, batch: Array) -> Array:
    _, height, width, _ = call.out().shape
    ratio_y, ratio_x = (float(r) for r in call["img_size_ratio"])
    aligned, samples_y, samples_x = bool(call["aligned"]), int(call["num_samples_y"]), int(call["num_samples_x"])
    out = np.zeros(call.out().shape, x.dtype if x.dtype.kind == "f" else np.float64)
    for i, corners in enumerate(rois.astype(np.float64)):
        left, top, right, bottom = corners / (ratio_x, ratio_y, ratio_x, ratio_y) - 0.5 * aligned
        least = -np.inf if aligned else 1.0
        rows = _averages(top, max(bottom - top, least), height, samples_y, x.shape[1])
        columns = _averages(left, max(right - left, least), width, samples_x, x.shape[2])
        # only the part of the image that the region touches
        at_y, at_x = np.flatnonzero(rows.any(axis=0)), np.flatnonzero(columns.any(axis=0))
        if not at_y.size or not at_x.size:
            continue
        part_y, part_x = slice(at_y[0], at_y[-1] + 1), slice(at_x[0], at_x[-1] + 1)
        part = _image(call, x, batch[i])[part_y, part_x]
        tall = np.tensordot(rows[:, part_y].astype(out.dtype), part, axes=1)
        out[i] = np.matmul(columns[:, part_x].astype(out.dtype), tall)
    return out


def _edges(first: float, last: float, bins: int, size: int) -> tuple[Array, Array]:
    """First and past-last element of each bin between two whole positions, limited to the image."""
    extent = max(last - first + 1, 1.0)
    at = np.arange(bins + 1) * (extent / bins)
    begin = np.clip(np.floor(at[:-1]) + first, 0, size)
    end = np.clip(np.ceil(at[1:]) + first, 0, size)
    return begin.astype(np.intp), end.astype(np.intp)


def _roi_pooling(call: Call, x: Array, rois: Array, batch: Array) -> Array:
    _, height, width, _ = call.out().shape
    ratio_y, ratio_x = (float(r) for r in call["img_size_ratio"])
    out = np.zeros(call.out().shape, x.dtype)
    scaled = rois.astype(np.float64) / (ratio_x, ratio_y, ratio_x, ratio_y)
    whole = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)  # halves away from zero
    for i, (left, top, right, bottom) in enumerate(whole):
        image = _image(call, x, batch[i])
        rows, columns = _edges(top, bottom, height, x.shape[1]), _edges(left, right, width, x.shape[2])
        for row in range(height):
            band = image[rows[0][row] : rows[1][row]]
            if not band.shape[0]:
                continue
            line = band.max(axis=0)
            for column in range(width):
                part = line[columns[0][column] : columns[1][column]]
                if part.shape[0]:
                    out[i, row, column] = part.max(axis=0)
    return out


_RATIO = Param("img_size_ratio", "float32", rank=1)
define(
    "RoiAlign",
    "in rois batch_indices",
    params=(
        _RATIO,
        Param("num_samples_y", "int32", default=0),
        Param("num_samples_x", "int32", default=0),
        Param("aligned", "bool", default=False),
        Param("allow_invalid_roi", "bool", default=False),
    ),
    infer=_infer,
    reference=_roi_align,
    kind=Work.OTHER,
    work=Measure(lanes=lambda call: 16 * call.out().size, lookups=lambda call: call.out().size),
    quant=ROI,
    doc="Each region (x1, y1, x2, y2) divided by img_size_ratio (y, x), cut into bins, bilinear samples averaged.",
)
define(
    "RoiPooling",
    "in rois batch_indices",
    params=(_RATIO,),
    infer=_infer,
    reference=_roi_pooling,
    kind=Work.OTHER,
    work=Measure(lanes=lambda call: 4 * call.out().size),
    quant=ROI,
    doc="Each region (x1, y1, x2, y2) divided by img_size_ratio (y, x) and rounded, cut into bins, their maximum.",
)


_LOWEST = -3.4028234663852886e38  # float32's: no score is below it


def _infer_nms(call: Call) -> tuple[TensorType, ...]:
    boxes, scores, out = call.input(0).shape, call.input(1).shape, call.out()
    if len(boxes) != 3 or boxes[2] != 4 or len(scores) != 3 or (scores[0], scores[2]) != boxes[:2]:
        raise call.fail(
            f"boxes {list(boxes)} and scores {list(scores)} are not [batch, boxes, 4] and [batch, classes, boxes]"
        )
    if len(out.shape) != 2 or out.shape[1] != 3 or not out.dtype.is_integer:
        raise call.fail(f"the output is declared {out}, not integers [rows, 3]")
    each = len(call.outs) == 2 and call.outs[1] is not None and call.outs[1].shape == (boxes[0],)
    return (out, TensorType(DType.INT32, (boxes[0],) if each else (1,)))[: len(call.outs)]


def _overlap(box: Array, others: Array) -> Array:
    """Intersection over union of one box [y1, x1, y2, x2] with many; 0 where either is empty."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[:, 2:] - others[:, :2], axis=1)
    union = area + areas - shared
    return np.where((areas > 0) & (area > 0) & (union > 0), shared / union, 0)


def _suppress(boxes: Array, scores: Array, call: Call) -> list[int]:
    """Indices of the boxes kept for one class, best score first (ties: lower index)."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > call["score_threshold"]]
    kept: list[int] = []
    while order.size and len(kept) < call["max_boxes_selected"]:
        kept.append(int(order[0]))
        order = order[1:][_overlap(boxes[order[0]], boxes[order[1:]]) <= call["iou_threshold"]]
    return kept


def _nms(call: Call, boxes: Array, scores: Array) -> tuple[Array, Array]:
    corners = boxes.reshape(*boxes.shape[:2], 2, 2)
    boxes = np.concatenate([corners.min(axis=2), corners.max(axis=2)], axis=2)
    rows = [
        (batch, kind, box)
        for batch in range(scores.shape[0])
        for kind in range(scores.shape[1])
        for box in _suppress(boxes[batch], scores[batch, kind], call)
    ]
    size = call.out().shape[0]
    if len(call.outs) == 1 and len(rows) != size:
        raise call.fail(f"{len(rows)} boxes are selected, the output is declared with {size} rows")
    out = np.full((size, 3), -1, np.int64)
    count = min(len(rows), size)
    out[:count] = np.asarray(rows[:count], np.int64).reshape(count, 3)
    counts = np.asarray([count], np.int32)
    if len(call.outs) == 2 and call.outs[1].shape != (1,):
        counts = np.bincount(out[:count, 0], minlength=scores.shape[0]).astype(np.int32)
    return out, counts


define(
    "NonMaxSuppression",
    "boxes scores",
    "indices valid_num_selected_indices?",
    params=(
        Param("iou_threshold", "float32", default=0.0),
        Param("score_threshold", "float32", default=_LOWEST),
        Param("max_boxes_selected", "uint32"),
    ),
    infer=_infer_nms,
    reference=_nms,
    kind=Work.OTHER,
    work=Measure(lanes=lambda call: 8 * call.input(1).size * max(1, min(call["max_boxes_selected"], 64))),
    quant=QuantRule("never"),
    doc="Rows [batch, class, box] of boxes kept, best score first, at most max_boxes_selected per class. Rows not used "
    "are -1; without the count as second output, of all rows or of each batch, the number of rows must be exact.",
)
