# SPDX-License-Identifier: Apache-2.0
"""Samples of detection ops."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

# boxes 0 and 1 overlap by 0.8; 2 is apart and has its corners flipped; 3 is empty
_BOXES = f32([[[0, 0, 1, 0.9], [0, 0.1, 1, 1], [2, 3, 1, 2], [5, 5, 5, 5]]])
_SCORES = f32([[[0.5, 0.9, 0.7, 0.1], [0.1, 0.2, 0.3, 0.4]]])

SAMPLES = [
    Sample(
        "NonMaxSuppression",
        [_BOXES, _SCORES],
        [np.array([[0, 0, 1], [0, 0, 2], [0, 1, 3], [0, 1, 2], [-1, -1, -1]], np.int32), np.array([4], np.int32)],
        {"iou_threshold": 0.5, "score_threshold": 0.25, "max_boxes_selected": 3},
    ),
    Sample(
        "NonMaxSuppression",
        [_BOXES, _SCORES[:, :1]],
        [np.array([[0, 0, 1], [0, 0, 2], [0, 0, 0], [0, 0, 3]], np.int32), np.array([4], np.int32)],
        {"iou_threshold": 0.9, "max_boxes_selected": 10},
        id="-all",
    ),
]
