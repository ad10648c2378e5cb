# SPDX-License-Identifier: Apache-2.0
"""Detection ops: non-maximum suppression."""

from __future__ import annotations

import numpy as np

from hexforge.ir import Array, Call, DType, Measure, Param, QuantRule, TensorType, Work, define

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
