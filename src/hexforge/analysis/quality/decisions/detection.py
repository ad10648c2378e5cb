# SPDX-License-Identifier: Apache-2.0
"""Detection: where boxes, scores and masks lie in a detector's outputs, and boxes of a model found again in another's.

A layout is recognised (`recognise`), or described in a few words (`metric`). Outputs whose boxes are not at their place
in the picture are not decoded: their anchors are paired (`paired_anchors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hexforge.analysis.quality.decisions.boxes import Boxes, average_precision, by_score, match, overlaps, suppress
from hexforge.analysis.quality.decisions.measure import Outputs, Tally, share
from hexforge.ir import Array

PLACED = ("cxcywh", "xyxy", "yxyx", "xywh")
"""Corners, or centre or corner and size, in the picture."""
FORMATS = (*PLACED, "ltrb", "dfl", "log", "cells", "ssd")
"""What a description may say; all but PLACED are relative to an anchor: distances, distributions, logarithms."""
Activation = Literal["none", "sigmoid", "softmax"]
THRESHOLD, MOST_OVERLAP = 0.25, 0.45
"""The score from which on a box counts, and the overlap from which on two boxes of a class are one."""
PICTURES_APART = 1e6
"""Pixels between the boxes of two pictures of a batch, which are laid below each other."""
SAME = 0.5
"""Two boxes of a class that overlap by this much are one."""
RANKED = 10
"""Boxes of a sample that are compared where the float model is sure of none."""
LOWEST = 0.25
"""The part of the threshold down to which boxes are ranked for the average precision."""
MASKS = 32
"""Masks of a sample that are compared."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Channels of an output."""

    output: str
    first: int = 0
    last: int | None = None
    """One past the last channel; None: all."""
    channels_first: bool = False
    """True where channels lie before anchors."""

    def rows(self, outputs: Outputs) -> Array:
        """[anchors, channels]."""
        array = np.asarray(outputs[self.output])
        array = array[0] if array.ndim > 2 and array.shape[0] == 1 else array
        while array.ndim > 2 and array.shape[0] == 1 and not self.channels_first:
            array = array[0]
        if array.ndim == 1:
            array = array[:, None]
        first = self.channels_first
        array = array.reshape(array.shape[0], -1).T if first else array.reshape(-1, array.shape[-1])
        return array[:, self.first : self.last].astype(np.float64)

    def __str__(self) -> str:
        if self.last is None and not self.first:
            return self.output
        return f"{self.output}[{self.first}:{'' if self.last is None else self.last}]"


@dataclass(frozen=True, slots=True)
class AnchorScores:
    """The scores of anchors."""

    part: OutputPart
    objectness: OutputPart | None = None
    activation: Activation = "none"
    background: int | None = None
    """The class that means nothing is there."""

    @property
    def parts(self) -> tuple[OutputPart, ...]:
        """What is read."""
        return (self.part,) if self.objectness is None else (self.part, self.objectness)

    def __str__(self) -> str:
        return " times ".join(map(str, self.parts))

    def best(self, outputs: Outputs) -> tuple[Array, Array]:
        """Each anchor's best score, and its class."""
        scores = activated(self.part.rows(outputs), self.activation)
        if self.background is not None:
            scores = np.delete(scores, self.background, 1)
        if not scores.size:
            return np.zeros(0), np.zeros(0, np.int64)
        best = scores.max(1)
        if self.objectness is not None:
            best = best * activated(self.objectness.rows(outputs), self.activation)[:, 0]
        return best, scores.argmax(1)

    def can_pass(self, output: str, highest: float, least: float) -> bool:
        """Whether an anchor whose number in an output is this high may have a score of at least so much."""
        if all(part.output != output for part in self.parts) or self.activation == "softmax":
            return True
        return float(activated(np.array([[highest]]), self.activation)[0, 0]) >= least


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
    """How a detector's outputs are read; boxes are matched by class and overlap."""

    name: str
    boxes: OutputPart
    scores: AnchorScores
    format: str = "cxcywh"
    """One of PLACED."""
    classes: OutputPart | None = None
    """Where the model names the class itself."""
    masks: OutputPart | None = None
    finished: bool = False
    """True where the model itself has dropped boxes that overlap."""
    prototypes: str = ""
    """The output with the maps that masks are made of."""
    picture: tuple[int, int] | None = None
    """Height and width that boxes and prototypes lie in; None where they are not known."""
    threshold: float = THRESHOLD
    most_overlap: float = MOST_OVERLAP
    beside: tuple[str, ...] = ()
    """Outputs about the same anchors, such as key points: where there is no box they mean nothing, so they are not
    judged alone."""
    batch: int = 1
    """Pictures of one sample; masks are compared where it is one."""
    kind: str = "detection"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that are read."""
        parts = [part for part in (self.boxes, *self.scores.parts, self.classes, self.masks) if part is not None]
        names = dict.fromkeys(part.output for part in parts)
        return (*names, *((self.prototypes,) if self.prototypes else ()))

    def decode(self, outputs: Outputs, threshold: float | None = None) -> Boxes:
        """The boxes of one sample, the best first."""
        least = self.threshold if threshold is None else threshold
        if self.batch == 1:
            return self._decode_picture(outputs, least)
        pictures = [self._decode_picture(picture, least) for picture in pictures_of(outputs, self.batch)]
        below = np.array([0.0, PICTURES_APART, 0.0, PICTURES_APART])
        joined = Boxes(
            np.concatenate([boxes.corners + number * below for number, boxes in enumerate(pictures)]),
            np.concatenate([boxes.scores for boxes in pictures]),
            np.concatenate([boxes.classes for boxes in pictures]),
        )
        return joined.chosen(np.argsort(-joined.scores, kind="stable"))

    def _decode_picture(self, outputs: Outputs, least: float) -> Boxes:
        (best, classes), rows = self.scores.best(outputs), self.boxes.rows(outputs)
        count = min(len(best), len(rows))
        best, classes = best[:count], classes[:count]
        if self.classes is not None:
            classes = np.rint(self.classes.rows(outputs)[:count, 0]).astype(np.int64)
        chosen = np.flatnonzero((best >= least) & np.isfinite(best) & np.isfinite(rows[:count, :4]).all(1))
        masks = None if self.masks is None else self.masks.rows(outputs)[chosen]
        boxes = Boxes(self._corners(*rows[chosen, :4].T), best[chosen], classes[chosen], masks)
        return suppress(boxes, 2.0 if self.finished else self.most_overlap)

    def _corners(self, a: Array, b: Array, c: Array, d: Array) -> Array:
        if self.format == "xyxy":
            return np.stack([a, b, c, d], 1)
        if self.format == "yxyx":
            return np.stack([b, a, d, c], 1)
        if self.format == "xywh":
            return np.stack([a, b, a + c, b + d], 1)
        return np.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2], 1)

    @property
    def about(self) -> str:
        """How boxes are read, in words."""
        return f"{self.name}: boxes {self.boxes} as {self.format}, scores {self.scores}"

    def decide(self, outputs: Outputs) -> Detections:
        """The boxes of one sample."""
        boxes = self.decode(outputs, LOWEST * self.threshold)
        ranked = boxes.above(np.inf)
        if not len(boxes.above(self.threshold)):
            scores = np.concatenate([self.scores.best(picture)[0] for picture in pictures_of(outputs, self.batch)])
            least = float(np.sort(scores[np.isfinite(scores)])[-4 * RANKED :].min(initial=np.inf))
            best = self.decode(outputs, least)
            ranked = best.chosen(np.arange(min(RANKED, len(best))))
        maps = outputs.get(self.prototypes) if self.prototypes and self.batch == 1 else None
        return Detections(
            boxes, ranked, None if maps is None else np.asarray(maps, np.float64).reshape(maps.shape[-3:])
        )

    def compare(self, reference: Detections, other: Detections) -> Tally:
        """Boxes of both models and how many of them are the same; the ranks of those down to a low score."""
        truth, boxes = (detections.boxes.above(self.threshold) for detections in (reference, other))
        matched = match(truth, boxes, SAME)
        pairs = [(int(j), i) for i, j in enumerate(matched) if j >= 0]
        shared = [float(overlaps(truth.corners[j : j + 1], boxes.corners[i : i + 1])[0, 0]) for j, i in pairs]
        low = match(truth, other.boxes, SAME)
        tally: Tally = {
            "one": len(truth), "two": len(boxes), "both": len(pairs), "iou": sum(shared),
            "listed": by_score(other.boxes.scores), "right": by_score(other.boxes.scores[low >= 0]),
        }  # fmt: skip
        ranked = match(reference.ranked, other.ranked, SAME) if len(reference.ranked) else np.zeros(0)
        tally["ranked"], tally["ranked_both"] = len(reference.ranked), int((ranked >= 0).sum())
        masks = self._mask_overlaps(reference, other, pairs[:MASKS])
        tally["masks"], tally["mask_iou"] = len(masks), sum(masks)
        return tally

    def figures(self, tally: Tally) -> dict[str, float]:
        """Twice the boxes of both over all boxes, precision and recall against the float model, and AP at 0.5."""
        one, two, both = (float(tally[key]) for key in ("one", "two", "both"))
        if not one + two:  # the float model is sure of nothing, and neither is the other: their best guesses count
            return {"agreement": share(tally["ranked_both"], tally["ranked"]), "boxes": 0.0}
        figures = {
            "agreement": share(2 * both, one + two), "precision": share(both, two), "recall": share(both, one),
            "ap50": average_precision(tally["listed"], tally["right"], int(one)), "mean_iou": share(tally["iou"], both),
        }  # fmt: skip
        if masks := tally["masks"]:
            figures["mask_iou"] = tally["mask_iou"] / masks
        return figures | {"boxes": one}

    def _mask_overlaps(self, reference: Detections, other: Detections, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """The overlap of the masks of matched boxes."""
        masks = [(self._mask(reference, j), self._mask(other, i)) for j, i in pairs if self.masks is not None]
        known = [(one, two) for one, two in masks if one is not None and two is not None]
        return [float((one & two).sum()) / int((one | two).sum()) if (one | two).any() else 1.0 for one, two in known]

    def _mask(self, detections: Detections, number: int) -> Array | None:
        """Which pixels of the prototypes are in a box's mask; outside of the box none counts."""
        boxes, maps = detections.boxes, detections.prototypes
        if boxes.coefficients is None or maps is None:
            return None
        height, width = maps.shape[-2:]
        high, wide = self.picture or (height, width)
        sides = np.rint(boxes.corners[number] * np.array([width / wide, height / high] * 2)).astype(int).clip(0)
        left, top, right, bottom = sides.tolist()
        mask = np.zeros((height, width), bool)
        inside = np.s_[top:bottom, left:right]
        mask[inside] = np.tensordot(boxes.coefficients[number], maps, 1)[inside] > 0
        return mask

    def words(self, decision: Detections) -> str:
        """The best boxes."""
        boxes = decision.boxes.above(self.threshold)
        if not len(boxes):
            best = f", the best score is {decision.ranked.scores[0]:.3g}" if len(decision.ranked) else ""
            return f"no box of {self.threshold:g}{best}"
        shown = ", ".join(f"class {c}: {s:.2f}" for c, s in zip(boxes.classes[:4], boxes.scores[:4], strict=True))
        return f"{len(boxes)} box{'es' if len(boxes) > 1 else ''} ({shown}{' …' if len(boxes) > 4 else ''})"

    def can_change(self, output: str, highest: float) -> bool:
        """Whether a box passes whose scores reach this high in the float model."""
        alone = output != self.boxes.output
        return not alone or self.scores.can_pass(output, highest, LOWEST * self.threshold)


def of_first_picture(corners: Array) -> Array:
    """The boxes of the first picture of a batch."""
    return np.asarray(corners[corners[:, 1] < PICTURES_APART / 2])


def pictures_of(outputs: Outputs, batch: int) -> list[Outputs]:
    """The outputs of each picture of a batch."""
    if batch == 1:
        return [outputs]
    return [{n: a[i : i + 1] for n, a in outputs.items() if a.ndim and len(a) == batch} for i in range(batch)]


def activated(scores: Array, activation: Activation) -> Array:
    """Scores as probabilities."""
    if activation == "sigmoid":
        return np.asarray(1 / (1 + np.exp(-np.clip(scores, -80, 80))))
    if activation == "softmax":
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(powers / powers.sum(1, keepdims=True))
    return scores
