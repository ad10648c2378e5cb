# SPDX-License-Identifier: Apache-2.0
"""Recognise: a detector's outputs, by the anchors that boxes and scores have in common, by shapes and by numbers.

Every output is a table of anchors; one that joins boxes and scores is taken apart. What is at its place in the picture
is read as boxes, anything else is compared anchor by anchor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hexforge.analysis.quality.decisions.detection import (
    THRESHOLD,
    Activation,
    AnchorScores,
    Detection,
    OutputPart,
    activated,
)
from hexforge.analysis.quality.decisions.graph_facts import PROBABILITY_OPS, ModelFacts
from hexforge.analysis.quality.decisions.measure import Outputs
from hexforge.analysis.quality.decisions.paired_anchors import Anchors, PairedAnchors
from hexforge.ir import Array

LEAST_ANCHORS, MOST_CHANNELS = 10, 1100
MOST_FINISHED = 1000
"""Boxes that a model lists at most where it has dropped those that overlap."""
STRIDES = (8, 16, 32, 64, 128)
USUAL_STRIDES = (STRIDES[:3], STRIDES[:4], STRIDES[1:3], STRIDES[1:4])
OF_CELL = 3
"""Anchors of each cell of YOLO's raw maps."""
MOST_OBJECTS = 0.2
"""The share of anchors that may pass: most of a detector's have no object."""
TOP_LEFT_FIRST = ("detection_boxes", "StatefulPartitionedCall")
"""What TensorFlow's detectors, which list top, left, bottom, right, call their boxes."""


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Channels of an output as [anchors, channels]."""

    rows: Array
    part: OutputPart

    @classmethod
    def of(cls, part: OutputPart, outputs: Outputs) -> _Table:
        """The table of a part."""
        return cls(part.rows(outputs), part)

    @property
    def channels(self) -> int:
        return int(self.rows.shape[1])

    @property
    def still(self) -> bool:
        """True where all anchors have the same numbers."""
        return not np.ptp(self.rows, axis=0).any()

    @property
    def activation(self) -> Activation:
        return "none" if shares(self.rows) else "sigmoid"

    @property
    def background(self) -> int | None:
        """The class that means nothing is there, where one comes true of every anchor."""
        return 0 if self.channels > 1 and sums_to_one(self.rows, 1) else None

    @property
    def scored(self) -> bool:
        """Whether the numbers may be scores: few anchors pass."""
        passing = activated(self.rows, self.activation).max(1) >= THRESHOLD
        return not self.still and (self.background is not None or float(passing.mean()) <= MOST_OBJECTS)

    @property
    def whole(self) -> bool:
        """Whether the numbers may be classes by number."""
        return self.channels == 1 and bool((self.rows == np.rint(self.rows)).all())


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Outputs, or parts of one, about the same anchors."""

    boxes: _Table
    scores: _Table
    numbers: tuple[_Table, ...]
    """All that is no score, boxes among them."""
    objectness: _Table | None = None
    classes: _Table | None = None
    masks: OutputPart | None = None
    listed: bool = False
    """True where the model itself has dropped boxes that overlap."""

    @property
    def format(self) -> str:
        """How boxes are written, where they are at their place in the picture."""
        if self.boxes.channels != 4:
            return ""
        return "xyxy" if _cornered(self.boxes.rows) else "cxcywh" if (self.boxes.rows[:, 2:] >= -1e-3).all() else ""

    @property
    def scored(self) -> AnchorScores:
        """How the scores are read."""
        there = None if self.objectness is None else self.objectness.part
        return AnchorScores(self.scores.part, there, self.scores.activation, self.scores.background)


def detector(outputs: Outputs, facts: ModelFacts) -> Detection | PairedAnchors | None:
    """How a detector's outputs are judged; None where they are not those of a detector."""
    if facts.batch > 1:
        alone = {name: array[:1] for name, array in outputs.items() if array.ndim and len(array) == facts.batch}
        found = detector(alone, replace(facts, batch=1)) if len(alone) == len(outputs) else None
        return None if found is None else replace(found, batch=facts.batch)
    groups = [group for tables in _by_anchors(outputs, facts) if (group := _group(tables)) is not None]
    groups = groups or list(_raw_maps(outputs, facts)) or list(_joined(outputs, facts))[:1]
    if not groups:
        return None
    first = groups[0]
    if len(groups) > 1 or not first.format:
        anchors = (Anchors.of(group.scored, [table.part for table in group.numbers], outputs) for group in groups)
        return PairedAnchors(tuple(anchors))
    return Detection(
        "boxes that are listed" if first.listed else "boxes and scores", first.boxes.part, first.scored,
        "yxyx" if first.boxes.part.output.startswith(TOP_LEFT_FIRST) else first.format,
        None if first.classes is None else first.classes.part, first.masks, first.listed,
        "" if first.masks is None else _prototypes(outputs, first.masks), facts.picture,
        beside=tuple(dict.fromkeys(table.part.output for table in first.numbers)),
    )  # fmt: skip


def _by_anchors(outputs: Outputs, facts: ModelFacts) -> list[list[_Table]]:
    """Outputs that are about the same anchors, as many for each."""
    groups: dict[int, list[_Table]] = {}
    for name, array in outputs.items():
        table = _table(name, array, facts)
        if table is not None:
            groups.setdefault(len(table.rows), []).append(table)
    return [tables for tables in groups.values() if len(tables) > 1]


def _group(tables: list[_Table]) -> _Group | None:
    """Boxes, scores and objectness among outputs of the same anchors."""
    moving = [t for t in tables if not t.still]
    boxes = [t for t in moving if t.channels == 4 and not t.scored] or [t for t in moving if t.channels == 4]
    boxes = boxes or [t for t in moving if t.channels > 4 and t.channels % 2 == 0 and not t.scored]
    boxes = boxes or [t for t in moving if t.channels == 2]  # sizes and offsets of centres in a heat map
    if not boxes:
        return None
    others = [t for t in moving if t is not boxes[0]]
    classes = [t for t in others if t.whole and not shares(t.rows) and len(t.rows) <= MOST_FINISHED]
    chances = [t for t in others if t.channels == 1 and shares(t.rows)]
    if len(classes) == len(chances) == 1 and boxes[0].channels == 4:
        return _Group(boxes[0], chances[0], tuple(tables), classes=classes[0], listed=True)
    scores = [t for t in others if t.scored and t.channels != 2] or [t for t in others if t.scored]
    if not scores:
        return None
    probable = [t for t in scores if t.activation == "none"] or scores
    best = max(probable, key=lambda t: t.channels)
    there = next((t for t in probable if t.channels == 1 and t is not best), None)
    numbers = tuple(t for t in tables if t is not best and t is not there)
    return _Group(boxes[0], best, numbers, there, listed=len(boxes[0].rows) <= MOST_FINISHED // 2)


def _raw_maps(outputs: Outputs, facts: ModelFacts) -> Iterator[_Group]:
    """YOLO's maps, of which every one has three times box, objectness and classes for each cell of its grid."""
    tables = [table for n, a in outputs.items() if (table := _table(n, a, facts)) is not None]
    raw = all(a.ndim == 5 and a.shape[1] == OF_CELL for a in outputs.values())
    grids = {height * width for height, width in _grids(facts, STRIDES)}
    if (
        len(tables) < len(outputs)
        or len({t.channels for t in tables}) != 1
        or len({len(t.rows) for t in tables}) < len(tables)
    ):
        return
    channels = tables[0].channels
    each = channels if raw else channels // OF_CELL
    if each <= 5 or (not raw and (channels % OF_CELL or len(tables) < 2 or not {len(t.rows) for t in tables} <= grids)):
        return
    groups = []
    for table in tables:
        for first in range(0, channels, each):
            ends = pairwise((first, first + 4, first + 5, first + each))
            box, there, classes = (_Table.of(replace(table.part, first=a, last=b), outputs) for a, b in ends)
            if not there.still and not there.scored:
                return  # features
            groups.append(_Group(box, classes, (box,), there))
    yield from groups


def _joined(outputs: Outputs, facts: ModelFacts) -> Iterator[_Group]:
    """Outputs that join boxes and scores: lists of boxes; YOLO's with its classes, perhaps objectness and masks."""
    for name, array in outputs.items():
        sides = _squeezed(array).shape
        if array.dtype.kind != "f" or len(sides) != 2 or not array.size or not np.isfinite(array).all():
            continue
        first = array.ndim > 2 and sides[0] < sides[1]
        whole = OutputPart(name, channels_first=first)
        rows = whole.rows(outputs)
        yield from _listed(whole, _Table(rows, whole), outputs)
        anchors, channels = rows.shape
        alone = not any(a.ndim > 1 and max(_squeezed(a).shape) == anchors for n, a in outputs.items() if n != name)
        if (
            array.ndim < 3
            or not alone
            or anchors < 2 * LEAST_ANCHORS
            or not 5 <= channels <= min(anchors, MOST_CHANNELS)
        ):
            continue
        if array.ndim > 3 and anchors < 4 * channels:  # a map
            continue
        if facts.picture is None and float(rows[:, :4].max()) <= 1.5:  # parts of a picture, and there is none
            continue
        if facts.of(name).last_op in PROBABILITY_OPS or any(sums_to_one(rows, axis) for axis in (0, 1)):
            continue
        prototypes = _prototypes(outputs, whole)
        end = _end_of_scores(rows, outputs[prototypes].shape[-3] if prototypes else 0)
        if end < 5 or not _boxes_like(rows[:, :4]):
            continue
        begin = 5 if not first and _has_objectness(end - 4, anchors, facts) else 4
        ends = pairwise((0, 4, begin, end, channels))
        box, there, scores, masks = (_Table.of(replace(whole, first=a, last=b), outputs) for a, b in ends)
        masked = masks.part if prototypes and end < channels else None
        yield _Group(box, scores, (box,), there if begin > 4 else None, masks=masked)


def _listed(whole: OutputPart, table: _Table, outputs: Outputs) -> Iterator[_Group]:
    """A list of boxes: corners, score and class, or the picture's number, corners, class and score."""
    columns = {6: ((0, 4), (4, 5), (5, 6)), 7: ((1, 5), (6, 7), (5, 6))}.get(table.channels)
    if columns is None or len(table.rows) > MOST_FINISHED:
        return
    box, scores, classes = (_Table.of(replace(whole, first=a, last=b), outputs) for a, b in columns)
    if classes.whole and shares(scores.rows) and _cornered(box.rows):
        yield _Group(box, scores, (box,), classes=classes, listed=True)


def _end_of_scores(rows: Array, masks: int) -> int:
    """One past the last channel that is a probability, behind the four of the box."""
    channels = rows.shape[1]
    probable = (rows.min(0) >= -1e-3) & (rows.max(0) <= 1 + 1e-3)
    if masks and channels - masks > 4 and probable[4 : channels - masks].all():
        return int(channels - masks)
    others = np.flatnonzero(~probable[4:])
    return int(4 + others[0] if others.size else channels)


def _prototypes(outputs: Outputs, boxes: OutputPart) -> str:
    """The output whose maps masks are made of, where there is one."""
    sizes = {n: a.shape for n, a in outputs.items() if n != boxes.output and a.ndim == 4 and a.shape[0] == 1}
    most = min(_squeezed(outputs[boxes.output]).shape) - 4
    return next((name for name, shape in sizes.items() if 8 <= shape[1] < most), "")


def _has_objectness(scores: int, anchors: int, facts: ModelFacts) -> bool:
    """YOLOv5 to v7 and YOLOX have it, channels last; of others only their 80 or 90 classes and one more tell it."""
    cells = [sum(height * width for height, width in _grids(facts, some)) for some in USUAL_STRIDES]
    alone = anchors in cells and scores != 80
    return scores > 1 and (anchors in [OF_CELL * count for count in cells] or scores in (81, 91) or alone)


def _grids(facts: ModelFacts, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    height, width = facts.picture or (0, 0)
    return [(math.ceil(height / s), math.ceil(width / s)) for s in strides]


def _table(name: str, array: Array, facts: ModelFacts) -> _Table | None:
    if array.dtype.kind not in "fiu" or not array.size or not array.ndim:
        return None
    sides = _squeezed(array).shape
    if array.ndim == 4 and len(array) == 1 and len(sides) == 2 and _is_grid(sides, facts):
        sides = (1, *sides)  # a map of one channel
    first = len(sides) == 2 and sides[0] < sides[1] and sides[0] <= 4
    if len(sides) == 3:  # channels before rows and columns, or behind
        first = _is_grid(sides[1:], facts) or (sides[0] != sides[1] and sides[0] < sides[2])
    part = OutputPart(name, channels_first=first)
    rows = part.rows({name: array})
    fits = len(rows) >= LEAST_ANCHORS and 1 <= rows.shape[1] <= MOST_CHANNELS and bool(np.isfinite(rows).all())
    return _Table(rows, part) if fits else None


def _is_grid(sides: tuple[int, ...], facts: ModelFacts) -> bool:
    return sides[0] == sides[1] or sides in _grids(facts, STRIDES)


def _squeezed(array: Array) -> Array:
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return array


def shares(scores: Array) -> bool:
    """Whether numbers may be probabilities."""
    return bool(scores.size and scores.min() >= -1e-3 and scores.max() <= 1 + 1e-3)


def sums_to_one(array: Array, axis: int) -> bool:
    """Whether numbers along an axis are probabilities of which one comes true."""
    return shares(array) and bool((np.abs(array.sum(axis) - 1) < 0.02).all())


def _cornered(boxes: Array) -> bool:
    """Whether boxes are two corners each: the second is right of the first and below."""
    return bool(len(boxes) and ((boxes[:, 2] >= boxes[:, 0]) & (boxes[:, 3] >= boxes[:, 1])).mean() >= 0.995)


def _boxes_like(boxes: Array) -> bool:
    """Whether four columns may be boxes: sizes, or second corners, are no negative numbers, and centres differ."""
    finite = bool(np.isfinite(boxes).all())
    sizes = float((boxes[:, 2:] >= -1e-3).mean())
    spread = np.ptp(boxes[:, :2], axis=0)
    return finite and (sizes > 0.98 or _cornered(boxes) or float(boxes.max()) < 40) and bool((spread > 0).all())
