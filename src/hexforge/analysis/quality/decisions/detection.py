# SPDX-License-Identifier: Apache-2.0
"""Detection: boxes of one model found again among those of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.boxes import Boxes, average_precision, match, overlaps
from hexforge.analysis.quality.decisions.detection_layout import DetectionLayout
from hexforge.analysis.quality.decisions.measure import Outputs, Tally, share, total
from hexforge.ir import Array

SAME = 0.5
"""Two boxes of a class that overlap by this much are one."""
RANKED = 10
"""Boxes of a sample that are compared where the float model is sure of none."""
LOWEST = 0.25
"""The part of the threshold down to which boxes are ranked for the average precision."""
MASKS = 32
"""Masks of a sample that are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """What a model finds in one sample."""

    boxes: Boxes
    """Down to the lowest score that counts for the average precision."""
    ranked: Boxes
    """The best boxes, whatever their score; none where there are some above the threshold."""
    prototypes: Array | None = None


@dataclass(frozen=True, slots=True)
class Detection:
    """Boxes, matched by class and overlap."""

    layout: DetectionLayout
    kind: str = "detection"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs with boxes, scores and masks."""
        return self.layout.outputs

    @property
    def beside(self) -> tuple[str, ...]:
        """Outputs about the same anchors, which mean nothing where there is no box."""
        return self.layout.beside

    @property
    def about(self) -> str:
        """How boxes are read."""
        return self.layout.about()

    def decide(self, outputs: Outputs) -> Detections:
        """The boxes of one sample."""
        boxes = self.layout.decode(outputs, LOWEST * self.layout.threshold)
        ranked = boxes.above(np.inf)
        if not len(boxes.above(self.layout.threshold)):
            scores = self.layout.best_scores(outputs)
            least = float(np.sort(scores[np.isfinite(scores)])[-4 * RANKED :].min(initial=np.inf))
            best = self.layout.decode(outputs, least)
            ranked = best.chosen(np.arange(min(RANKED, len(best))))
        maps = outputs.get(self.layout.prototypes) if self.layout.prototypes and self.layout.batch == 1 else None
        return Detections(
            boxes, ranked, None if maps is None else np.asarray(maps, np.float64).reshape(maps.shape[-3:])
        )

    def compare(self, reference: Detections, other: Detections) -> Tally:
        """Boxes of both models and how many of them are the same; the ranks of those down to a low score."""
        truth, boxes = (detections.boxes.above(self.layout.threshold) for detections in (reference, other))
        matched = match(truth, boxes, SAME)
        pairs = [(int(j), i) for i, j in enumerate(matched) if j >= 0]
        shared = [float(overlaps(truth.corners[j : j + 1], boxes.corners[i : i + 1])[0, 0]) for j, i in pairs]
        low = match(truth, other.boxes, SAME)
        tally: Tally = {
            "one": len(truth), "two": len(boxes), "both": len(pairs), "iou": sum(shared),
            "scores": other.boxes.scores, "right": (low >= 0).astype(np.float64),
        }  # fmt: skip
        ranked = match(reference.ranked, other.ranked, SAME) if len(reference.ranked) else np.zeros(0)
        tally["ranked"], tally["ranked_both"] = len(reference.ranked), int((ranked >= 0).sum())
        masks = self._masks(reference, other, truth, boxes, pairs[:MASKS])
        tally["masks"], tally["mask_iou"] = len(masks), sum(masks)
        return tally

    def figures(self, tallies: Sequence[Tally]) -> dict[str, float]:
        """Twice the boxes of both over all boxes, precision and recall against the float model, and AP at 0.5."""
        one, two, both = (total(tallies, key) for key in ("one", "two", "both"))
        if not one + two:  # the float model is sure of nothing, and neither is the other: their best guesses count
            return {"agreement": share(total(tallies, "ranked_both"), total(tallies, "ranked")), "boxes": 0.0}
        scores = np.concatenate([tally["scores"] for tally in tallies])
        right = np.concatenate([tally["right"] for tally in tallies])
        figures = {
            "agreement": share(2 * both, one + two), "precision": share(both, two), "recall": share(both, one),
            "ap50": average_precision(scores, right, int(one)), "mean_iou": share(total(tallies, "iou"), both),
        }  # fmt: skip
        if masks := total(tallies, "masks"):
            figures["mask_iou"] = total(tallies, "mask_iou") / masks
        return figures | {"boxes": one}

    def _masks(
        self, reference: Detections, other: Detections, truth: Boxes, boxes: Boxes, pairs: Sequence[tuple[int, int]]
    ) -> list[float]:
        """The overlap of the masks of matched boxes."""
        if truth.coefficients is None or boxes.coefficients is None:
            return []
        if reference.prototypes is None or other.prototypes is None:
            return []
        ious = []
        for j, i in pairs:
            one = (np.tensordot(truth.coefficients[j], reference.prototypes, 1) > 0) & self._inside(truth, j, reference)
            two = (np.tensordot(boxes.coefficients[i], other.prototypes, 1) > 0) & self._inside(boxes, i, other)
            either = int((one | two).sum())
            ious.append(float((one & two).sum()) / either if either else 1.0)
        return ious

    def _inside(self, boxes: Boxes, number: int, detections: Detections) -> Array:
        """Which pixels of the prototypes are inside a box, outside of which masks do not count."""
        assert detections.prototypes is not None
        height, width = detections.prototypes.shape[-2:]
        inside = np.zeros((height, width), bool)
        high, wide = self.layout.picture or (height, width)
        left, top, right, bottom = boxes.corners[number] * np.array([width / wide, height / high] * 2)
        inside[max(0, round(top)) : max(0, round(bottom)), max(0, round(left)) : max(0, round(right))] = True
        return inside

    def words(self, decision: Detections) -> str:
        """The best boxes."""
        boxes = decision.boxes.above(self.layout.threshold)
        if not len(boxes):
            best = f", the best score is {decision.ranked.scores[0]:.3g}" if len(decision.ranked) else ""
            return f"no box of {self.layout.threshold:g}{best}"
        shown = ", ".join(f"class {c}: {s:.2f}" for c, s in zip(boxes.classes[:4], boxes.scores[:4], strict=True))
        return f"{len(boxes)} box{'es' if len(boxes) > 1 else ''} ({shown}{' …' if len(boxes) > 4 else ''})"

    def can_change(self, output: str, highest: float) -> bool:
        """Whether a box passes whose scores reach this high in the float model."""
        alone = output != self.layout.boxes.output
        return not alone or self.layout.scores.can_pass(output, highest, LOWEST * self.layout.threshold)
