# SPDX-License-Identifier: Apache-2.0
"""Boxes out of detectors' outputs, and how well two sets of boxes agree."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage

Array = np.ndarray[Any, Any]
Boxes = list[tuple[int, Array]]
"""(class, left top right bottom), the surest first."""

_TEXT, _LEAST_AREA = 0.3, 16
"""PP-OCR's threshold of its map; smaller spots are no text."""
_SCORE, _OVERLAP = 0.2, 0.45
"""nudenet's thresholds of a box and of boxes on top of each other."""
_MATCH = 0.5


def photo_input(path: Path, size: int) -> Array:
    """A photo as nudenet reads it: scaled to fit, empty to the right and below, 0..1."""
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    picture.thumbnail((size, size), Image.Resampling.BILINEAR)
    x = np.zeros((1, 3, size, size), np.float32)
    x[0, :, : picture.height, : picture.width] = np.asarray(picture, np.float32).transpose(2, 0, 1) / 255
    return x


def text_boxes(output: Array) -> Boxes:
    """Boxes around the spots of PP-OCR's map of text [1, 1, h, w]."""
    spots, _ = ndimage.label(output[0, 0] > _TEXT)
    boxes = []
    for down, right in ndimage.find_objects(spots):
        if (down.stop - down.start) * (right.stop - right.start) >= _LEAST_AREA:
            boxes.append((0, np.array([right.start, down.start, right.stop, down.stop], float)))
    return boxes


def yolo_boxes(output: Array) -> Boxes:
    """Boxes of a YOLOv8's output [1, 4 + classes, anchors], without those on top of a surer one."""
    scores, classes = output[0, 4:].max(0), output[0, 4:].argmax(0)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= _SCORE]
    x, y, width, height = output[0, :4, order].T
    corners = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], 1)
    kept: Boxes = []
    for number, corner in zip(classes[order], corners, strict=True):
        if all(overlap(corner, other) < _OVERLAP for _, other in kept):
            kept.append((int(number), corner))
    return kept


def overlap(first: Array, second: Array) -> float:
    """The common area as a part of that of both together."""
    sides = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    common = float(np.prod(np.maximum(sides, 0)))
    whole = float(np.prod(first[2:] - first[:2]) + np.prod(second[2:] - second[:2])) - common
    return common / whole if whole > 0 else 0.0


def f1(pairs: Iterable[tuple[Boxes, Boxes]]) -> float:
    """How well boxes agree with the reference's, over all pictures: each may match one of its class."""
    matched = total = 0
    for reference, boxes in pairs:
        left = list(reference)
        for kind, box in boxes:
            best = max(
                (i for i, (other, _) in enumerate(left) if other == kind),
                key=lambda i: overlap(left[i][1], box),
                default=None,
            )
            if best is not None and overlap(left[best][1], box) >= _MATCH:
                matched += 1
                del left[best]
        total += len(reference) + len(boxes)
    return 2 * matched / total if total else 1.0
