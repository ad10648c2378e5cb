# SPDX-License-Identifier: Apache-2.0
"""Recognise: a detector's outputs, by the anchors that boxes and scores have in common, by shapes and by numbers.

What is at its place in the picture is read as boxes; anything else is compared anchor by anchor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hexforge.analysis.quality.decisions.detection import Detection
from hexforge.analysis.quality.decisions.detection_layout import (
    THRESHOLD,
    Activation,
    DetectionLayout,
    Head,
    OutputPart,
    activated,
)
from hexforge.analysis.quality.decisions.graph_facts import ModelFacts
from hexforge.analysis.quality.decisions.measure import Outputs
from hexforge.analysis.quality.decisions.paired_anchors import Anchors, PairedAnchors
from hexforge.ir import Array

LEAST_ANCHORS = 10
MOST_CHANNELS = 1100
MOST_FINISHED = 1000
"""Boxes that a model lists at most where it has dropped those that overlap."""
STRIDES = (8, 16, 32, 64, 128)
USUAL_STRIDES = (STRIDES[:3], STRIDES[:4], STRIDES[1:3], STRIDES[1:4])
OF_CELL = 3
"""Anchors of each cell of YOLO's raw maps."""
MOST_OBJECTS = 0.2
"""The share of anchors that may pass: most of a detector's have no object."""
SPARSE = 8
"""Numbers that most anchors have alike vary by this part of their range."""
TOP_LEFT_FIRST = ("detection_boxes", "StatefulPartitionedCall")
"""What TensorFlow's detectors, which list top, left, bottom, right, call their boxes."""


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """An output as [anchors, channels]."""

    rows: Array
    part: OutputPart

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
    def scored(self) -> bool:
        """Whether the numbers may be scores: few anchors pass."""
        best = activated(self.rows, self.activation).max(1)
        background = self.channels > 1 and sums_to_one(self.rows, 1)
        return not self.still and (background or float((best >= THRESHOLD).mean()) <= MOST_OBJECTS)


def detector(outputs: Outputs, facts: ModelFacts) -> Detection | PairedAnchors | None:
    """How a detector's outputs are judged; None where they are not those of a detector."""
    if facts.batch > 1:
        numbers = {name: array for name, array in outputs.items() if array.ndim and array.shape[0] == facts.batch}
        alone = {name: array[:1] for name, array in numbers.items()}
        found = detector(alone, replace(facts, batch=1)) if len(numbers) == len(outputs) else None
        if isinstance(found, Detection):
            return replace(found, layout=replace(found.layout, batch=facts.batch))
        return None if found is None else replace(found, batch=facts.batch)
    return _listed(outputs) or _one_output(outputs, facts) or _by_anchors(outputs, facts)


def paired(parts: Sequence[OutputPart], scores: OutputPart, outputs: Outputs, **more: object) -> Anchors:
    """Anchors with what their numbers vary by in these outputs of the float model."""
    rows = np.concatenate([part.rows(outputs) for part in parts], 1)
    rows = np.where(np.isfinite(rows).all(0), rows, 0.0)
    spread = np.maximum(rows.std(0), np.ptp(rows, axis=0) / SPARSE)
    return Anchors(scores, tuple(parts), tuple(spread.tolist()), **more)  # type: ignore[arg-type]


def _listed(outputs: Outputs) -> Detection | None:
    """A list of boxes that do not overlap any more: one table of six or seven columns, or boxes, scores and classes."""
    for name, array in outputs.items():
        rows = _squeezed(array)
        if rows.ndim != 2 or not 0 < rows.shape[0] <= MOST_FINISHED or array.dtype.kind != "f":
            continue
        if rows.shape[1] == 6 and _whole(rows[:, 5]) and shares(rows[:, 4:5]) and _cornered(rows[:, :4]):
            parts = OutputPart(name, 0, 4), OutputPart(name, 4, 5), OutputPart(name, 5, 6)
        elif rows.shape[1] == 7 and _whole(rows[:, 0]) and _whole(rows[:, 5]) and shares(rows[:, 6:7]):
            parts = OutputPart(name, 1, 5), OutputPart(name, 6, 7), OutputPart(name, 5, 6)
        else:
            continue
        return _finished(Head(parts[0], parts[1], "xyxy", classes=parts[2]))
    boxes = [n for n, a in outputs.items() if a.ndim >= 2 and a.shape[-1] == 4 and a.dtype.kind == "f"]
    if len(boxes) != 1:
        return None
    count = math.prod(outputs[boxes[0]].shape[:-1])
    flat = [n for n, a in outputs.items() if a.ndim and max(a.shape) == a.size == count]
    classes = [n for n in flat if outputs[n].dtype.kind in "iu" or (_whole(outputs[n]) and not shares(outputs[n]))]
    scores = [n for n in flat if n not in classes and outputs[n].dtype.kind == "f" and shares(outputs[n])]
    if len(scores) != 1 or len(classes) != 1:
        return None
    form = "yxyx" if boxes[0].startswith(TOP_LEFT_FIRST) else "xyxy"
    column = {n: OutputPart(n, channels_first=_squeezed(outputs[n]).ndim == 2) for n in (*scores, *classes)}
    return _finished(Head(OutputPart(boxes[0]), column[scores[0]], form, classes=column[classes[0]]))


def _finished(head: Head) -> Detection:
    return Detection(DetectionLayout("boxes that are listed", (head,), finished=True))


def _one_output(outputs: Outputs, facts: ModelFacts) -> Detection | PairedAnchors | None:
    """YOLO: boxes, perhaps objectness, classes, perhaps masks in one output, channels first or last."""
    for name, array in outputs.items():
        rows = _squeezed(array)
        if array.dtype.kind != "f" or rows.ndim != 2 or array.ndim < 3:
            continue
        first = rows.shape[0] < rows.shape[1]
        table = rows.T if first else rows
        anchors, channels = table.shape
        if anchors < 2 * LEAST_ANCHORS or not 5 <= channels <= MOST_CHANNELS or anchors < channels:
            continue
        if array.ndim > 3 and anchors < 4 * channels:  # a map
            continue
        if any(a.ndim > 1 and max(_squeezed(a).shape) == anchors for n, a in outputs.items() if n != name):
            continue  # the boxes have their own output
        if facts.picture is None and float(table[:, :4].max()) <= 1.5:  # parts of a picture, and there is none
            continue
        if facts.of(name).last_op in ("Softmax", "LogSoftmax") or any(sums_to_one(table, axis) for axis in (0, 1)):
            continue
        prototypes = _prototypes(outputs, name, channels)
        end = _end_of_scores(table, 0 if not prototypes else outputs[prototypes].shape[-3])
        if end < 5 or not _boxes_like(table[:, :4]):
            continue
        there = not first and _has_objectness(end - 4, anchors, facts)
        parts = [OutputPart(name, a, b, first) for a, b in ((0, 4), (4, 5), (5 if there else 4, end), (end, channels))]
        boxes, objectness, scores, masks = parts
        if not _cornered(table[:, :4]) and float(table[:, 2:4].min()) < -0.5:  # sizes are none: they are logarithms
            passing = OutputPart(name, 4, 5, first) if there else None
            return PairedAnchors((paired([boxes], scores, outputs, objectness=passing),))
        head = Head(
            boxes, scores, "xyxy" if _cornered(table[:, :4]) else "cxcywh", objectness if there else None,
            masks=masks if prototypes and end < channels else None,
        )  # fmt: skip
        kind = "YOLO with objectness" if there else "YOLO"
        return Detection(DetectionLayout(kind, (head,), prototypes=prototypes, picture=facts.picture))
    return None


def _end_of_scores(table: Array, masks: int) -> int:
    """One past the last channel that is a probability, behind the four of the box."""
    channels = table.shape[1]
    probable = (table.min(0) >= -1e-3) & (table.max(0) <= 1 + 1e-3)
    if masks and channels - masks > 4 and probable[4 : channels - masks].all():
        return int(channels - masks)
    others = np.flatnonzero(~probable[4:])
    return int(4 + others[0] if others.size else channels)


def _prototypes(outputs: Outputs, name: str, channels: int) -> str:
    """The output whose maps masks are made of, where there is one."""
    for other, array in outputs.items():
        if other != name and array.ndim == 4 and array.shape[0] == 1 and 8 <= array.shape[1] < channels - 4:
            return other
    return ""


def _has_objectness(scores: int, anchors: int, facts: ModelFacts) -> bool:
    """YOLOv5 to v7 and YOLOX have it, channels last; of others only their 80 or 90 classes and one more tell it."""
    cells = [sum(height * width for height, width in _grids(facts, some)) for some in USUAL_STRIDES]
    alone = anchors in cells and scores != 80
    return scores > 1 and (anchors in [OF_CELL * count for count in cells] or scores in (81, 91) or alone)


def _grids(facts: ModelFacts, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    height, width = facts.picture or (0, 0)
    return [(math.ceil(height / s), math.ceil(width / s)) for s in strides]


def _by_anchors(outputs: Outputs, facts: ModelFacts) -> Detection | PairedAnchors | None:
    """Boxes and scores in outputs of their own, or in maps of which each has both; one group for each grid."""
    groups: dict[int, list[_Table]] = {}
    for name, array in outputs.items():
        table = _table(name, array, facts)
        if table is not None:
            groups.setdefault(len(table.rows), []).append(table)
    found = [(tables, _pair_of(tables)) for tables in groups.values() if len(tables) > 1]
    heads = [(tables, pair) for tables, pair in found if pair is not None]
    if not heads:
        return _raw_maps(outputs, groups, facts)
    if len(heads) == 1:
        (tables, (boxes, scores, objectness)) = heads[0]
        placed = boxes.channels == 4 and bool((boxes.rows >= -1e-3).all())
        cornered = boxes.channels == 4 and _cornered(boxes.rows)
        if cornered or placed:
            background = 0 if scores.channels > 1 and sums_to_one(scores.rows, 1) else None
            part = None if objectness is None else objectness.part
            head = Head(
                boxes.part, scores.part, "xyxy" if cornered else "cxcywh", part, activation=scores.activation,
                background=background,
            )  # fmt: skip
            beside = tuple(table.part.output for table in tables)
            finished = len(boxes.rows) <= MOST_FINISHED // 2
            layout = DetectionLayout("boxes and scores", (head,), finished, "", facts.picture, beside=beside)
            return Detection(layout)
    anchors = []
    for tables, (_, scores, objectness) in heads:
        numbers = [t.part for t in tables if t is not scores and t is not objectness]
        anchors.append(
            paired(
                numbers, scores.part, outputs, objectness=None if objectness is None else objectness.part,
                activation=scores.activation,
                background=0 if scores.channels > 1 and sums_to_one(scores.rows, 1) else None,
            )
        )  # fmt: skip
    return PairedAnchors(tuple(anchors))


def _pair_of(tables: list[_Table]) -> tuple[_Table, _Table, _Table | None] | None:
    """Boxes, scores and objectness among outputs of the same anchors."""
    moving = [t for t in tables if not t.still]
    boxes = [t for t in moving if t.channels == 4 and not t.scored] or [t for t in moving if t.channels == 4]
    boxes = boxes or [t for t in moving if t.channels > 4 and t.channels % 2 == 0 and not t.scored]
    boxes = boxes or [t for t in moving if t.channels == 2]  # sizes and offsets of centres in a heat map
    scores = [t for t in moving if t.scored and t is not boxes[0] and t.channels != 2] if boxes else []
    if boxes and not scores:
        scores = [t for t in moving if t.scored and t is not boxes[0]]
    if not boxes or not scores:
        return None
    probable = [t for t in scores if t.activation == "none"] or scores
    classes = max(probable, key=lambda t: t.channels)
    objectness = [t for t in probable if t.channels == 1 and t is not classes]
    return boxes[0], classes, objectness[0] if objectness else None


def _raw_maps(outputs: Outputs, groups: dict[int, list[_Table]], facts: ModelFacts) -> PairedAnchors | None:
    """YOLO's maps, of which every one has three times box, objectness and classes for each cell of its grid."""
    tables = [table for some in groups.values() for table in some]
    grids = {height * width for height, width in _grids(facts, STRIDES)}
    raw = all(a.ndim == 5 and a.shape[1] == OF_CELL for a in outputs.values())
    if len(tables) < len(outputs) or (len(tables) < 2 and not raw) or len({t.channels for t in tables}) != 1:
        return None
    each = tables[0].channels if raw else tables[0].channels // OF_CELL
    if each <= 5 or (not raw and tables[0].channels % OF_CELL) or len(groups) < len(tables):
        return None
    if not raw and not set(groups) <= grids:
        return None
    anchors = []
    for table in tables:
        for first in range(0, table.channels, each):
            ends = pairwise((first, first + 4, first + 5, first + each))
            box, there, classes = (replace(table.part, first=a, last=b) for a, b in ends)
            objects = _Table(table.rows[:, first + 4 : first + 5], there)
            if not objects.still and not objects.scored:
                return None  # features
            anchors.append(paired([box], classes, outputs, objectness=there, activation=objects.activation))
    return PairedAnchors(tuple(anchors))


def _table(name: str, array: Array, facts: ModelFacts) -> _Table | None:
    if array.dtype.kind != "f" or not array.size or not array.ndim:
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


def _whole(column: Array) -> bool:
    return bool(np.isfinite(column).all() and (column == np.rint(column)).all())


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
