# SPDX-License-Identifier: Apache-2.0
"""Detection: non-maximum suppression."""

from __future__ import annotations

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, DType, TensorType

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
