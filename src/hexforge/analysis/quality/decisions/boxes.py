# SPDX-License-Identifier: Apache-2.0
"""Boxes: overlap, non-maximum suppression, and boxes of one model matched with those of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexforge.ir import Array

MOST_BOXES = 300
"""Boxes of a sample that are looked at, the best first, as detectors' own tools have it."""


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of one sample, the best first."""

    corners: Array
    """[n, 4]: left, top, right, bottom."""
    scores: Array
    classes: Array
    coefficients: Array | None = None
    """[n, k]: how much of each mask prototype is in a box's mask."""

    def __len__(self) -> int:
        return len(self.scores)

    def chosen(self, rows: Array) -> Boxes:
        """Some of the boxes, by number or by mask."""
        masks = None if self.coefficients is None else self.coefficients[rows]
        return Boxes(self.corners[rows], self.scores[rows], self.classes[rows], masks)

    def above(self, threshold: float) -> Boxes:
        """Boxes of at least this score."""
        return self.chosen(self.scores >= threshold)


def overlaps(first: Array, second: Array) -> Array:
    """The intersection over union of each box of one list with each of another."""
    lower = np.maximum(first[:, None, :2], second[None, :, :2])
    upper = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(upper - lower, 0, None).prod(2)
    areas = [np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(1) for boxes in (first, second)]
    whole = areas[0][:, None] + areas[1][None] - shared
    parts = np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0)
    if not (whole > 0).all():  # boxes without an area are found where they are
        parts[(whole <= 0) & (first[:, None] == second[None]).all(2)] = 1
    return np.asarray(parts)


def suppress(boxes: Boxes, most_overlap: float, most: int = MOST_BOXES) -> Boxes:
    """The best boxes of each class that overlap no better one of that class by more; the best `most` of them."""
    order = np.argsort(-boxes.scores, kind="stable")[: 4 * most]
    boxes = boxes.chosen(order)
    overlapping = overlaps(boxes.corners, boxes.corners) > most_overlap
    overlapping &= boxes.classes[:, None] == boxes.classes[None]
    alive = np.ones(len(boxes), bool)
    for i in range(len(boxes)):
        if alive[i]:
            alive[i + 1 :] &= ~overlapping[i, i + 1 :]
    return boxes.chosen(np.flatnonzero(alive)[:most])


def match(truth: Boxes, boxes: Boxes, least_overlap: float) -> Array:
    """For each box, the best first, the number of the box of the truth that it finds; -1 where it finds none.

    A box finds what it overlaps most among the boxes of its class that no better box has found.
    """
    matched = np.full(len(boxes), -1)
    if not len(truth) or not len(boxes):
        return matched
    shared = overlaps(boxes.corners, truth.corners)
    shared[boxes.classes[:, None] != truth.classes[None]] = 0
    for i in np.argsort(-boxes.scores, kind="stable"):
        j = int(shared[i].argmax())
        if shared[i, j] >= least_overlap:
            matched[i] = j
            shared[:, j] = 0
    return matched


def by_score(scores: Array) -> Array:
    """How many boxes there are of each thousandth of a score, the best last."""
    return np.bincount(np.rint(1000 * np.clip(scores, 0, 1)).astype(np.int64), minlength=1001)


def average_precision(listed: Array, right: Array, wanted: int) -> float:
    """The area below the curve of precision over recall, by counts of scores; NaN where nothing is wanted."""
    if not wanted:
        return float("nan")
    precision = np.cumsum(right[::-1]) / np.maximum(np.cumsum(listed[::-1]), 1)
    best = np.maximum.accumulate(precision[::-1])  # the best precision at that recall or more
    return float((best * right).sum() / wanted)
