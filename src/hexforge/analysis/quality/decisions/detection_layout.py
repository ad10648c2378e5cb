# SPDX-License-Identifier: Apache-2.0
"""Detection layout: where boxes, scores and masks lie in a detector's outputs, and how they become boxes.

A layout is recognised (`recognise`), or described in a few words (`metric`). Outputs whose boxes are not at their place
in the picture are not decoded: their anchors are paired (`paired_anchors`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hexforge.analysis.quality.decisions.boxes import Boxes, suppress
from hexforge.analysis.quality.decisions.measure import Outputs
from hexforge.ir import Array

PLACED = ("cxcywh", "xyxy", "yxyx", "xywh")
"""Corners, or centre or corner and size, in the picture."""
FORMATS = (*PLACED, "ltrb", "dfl", "log", "cells", "ssd")
"""What a description may say; all but PLACED are relative to an anchor: distances, distributions, logarithms."""
Activation = Literal["none", "sigmoid", "softmax"]
THRESHOLD, MOST_OVERLAP = 0.25, 0.45
"""The score from which on a box counts, and the overlap from which on two boxes of a class are one."""
CANDIDATES = 4096
"""Boxes above the threshold that are looked at before those that overlap are dropped."""
PICTURES_APART = 1e6
"""Pixels between the boxes of two pictures of a batch, which are laid below each other."""


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
class Head:
    """Boxes and scores of the same anchors."""

    boxes: OutputPart
    scores: OutputPart
    format: str = "cxcywh"
    """One of PLACED."""
    objectness: OutputPart | None = None
    classes: OutputPart | None = None
    """Where the model names the class itself."""
    masks: OutputPart | None = None
    activation: Activation = "none"
    background: int | None = None
    """The class that means nothing is there."""

    def decode(self, outputs: Outputs, threshold: float) -> Boxes:
        """Boxes of at least this score, not yet suppressed."""
        scores = activated(self.scores.rows(outputs), self.activation)
        if self.background is not None:
            scores = np.delete(scores, self.background, 1)
        count = min(len(scores), len(self.boxes.rows(outputs)))
        if not count or not scores.shape[1]:
            return Boxes(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
        best, classes = scores[:count].max(1), scores[:count].argmax(1)
        if self.objectness is not None:
            best = best * activated(self.objectness.rows(outputs), self.activation)[:count, 0]
        if self.classes is not None:
            classes = np.rint(self.classes.rows(outputs)[:count, 0]).astype(np.int64)
        chosen = np.flatnonzero(best >= threshold)
        if len(chosen) > CANDIDATES:
            chosen = chosen[np.argsort(-best[chosen], kind="stable")[:CANDIDATES]]
        masks = None if self.masks is None else self.masks.rows(outputs)[chosen]
        corners = self._corners(*self.boxes.rows(outputs)[chosen, :4].T)
        return Boxes(corners, best[chosen], classes[chosen], masks)

    def _corners(self, a: Array, b: Array, c: Array, d: Array) -> Array:
        if self.format == "xyxy":
            return np.stack([a, b, c, d], 1)
        if self.format == "yxyx":
            return np.stack([b, a, d, c], 1)
        if self.format == "xywh":
            return np.stack([a, b, a + c, b + d], 1)
        return np.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2], 1)


@dataclass(frozen=True, slots=True)
class DetectionLayout:
    """How a detector's outputs are read."""

    name: str
    heads: tuple[Head, ...]
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

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that are read."""
        names: dict[str, None] = {}
        for head in self.heads:
            for part in (head.boxes, head.scores, head.objectness, head.classes, head.masks):
                if part is not None:
                    names[part.output] = None
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

    def best_scores(self, outputs: Outputs) -> Array:
        """The score of every anchor."""
        pictures = pictures_of(outputs, self.batch)
        return np.concatenate([head.decode(picture, -math.inf).scores for picture in pictures for head in self.heads])

    def _decode_picture(self, outputs: Outputs, least: float) -> Boxes:
        parts = [head.decode(outputs, least) for head in self.heads]
        masks = [part.coefficients for part in parts if part.coefficients is not None]
        boxes = Boxes(
            np.concatenate([part.corners for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.classes for part in parts]),
            np.concatenate(masks) if len(masks) == len(parts) else None,
        )
        finite = np.isfinite(boxes.corners).all(1) & np.isfinite(boxes.scores)
        return suppress(boxes.chosen(finite), 2.0 if self.finished else self.most_overlap)

    def about(self) -> str:
        """The layout in words."""
        first = self.heads[0]
        where = f"boxes {first.boxes} as {first.format}, scores {first.scores}"
        if first.objectness is not None:
            where += f" times {first.objectness}"
        more = f" and {len(self.heads) - 1} more such" if len(self.heads) > 1 else ""
        return f"{self.name}: {where}{more}"


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
