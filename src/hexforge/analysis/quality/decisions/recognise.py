# SPDX-License-Identifier: Apache-2.0
"""Recognise: the layout of a detector's outputs, by shapes, ranges, names and what is concatenated into them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hexforge.analysis.quality.decisions.detection_layout import Activation, DetectionLayout, Format, Head, OutputPart
from hexforge.analysis.quality.decisions.graph_facts import ModelFacts
from hexforge.analysis.quality.decisions.measure import Outputs
from hexforge.ir import Array

LEAST_ANCHORS = 20
MOST_CHANNELS = 1100
MOST_FINISHED = 1000
"""Boxes that a model lists at most where it has dropped those that overlap."""
STRIDES = (8, 16, 32, 64, 128)
USUAL_STRIDES = (STRIDES[:3], STRIDES[:4], STRIDES[1:3], STRIDES[1:4])
BOXES = re.compile(r"box|loc|regress|(?<![a-z])reg(?![a-z])|delta", re.IGNORECASE)
SCORES = re.compile(r"scor|conf|prob|cls|class|logit|label|obj", re.IGNORECASE)
CLASSES = re.compile(r"class|label|cls", re.IGNORECASE)
OBJECTNESS = re.compile(r"obj", re.IGNORECASE)
POINTS = re.compile(r"kps|landm|keyp|point|mask|proto|feat", re.IGNORECASE)
HEAT = re.compile(r"heat|(?<![a-z])hm(?![a-z])|center_map", re.IGNORECASE)
OFFSETS = re.compile(r"off|(?<![a-z])reg(?![a-z])", re.IGNORECASE)
DISTRIBUTIONS = (32, 64, 68)
"""Channels of four distances as distributions of 8, 16 or 17 bins."""
ANCHORS, MOST_OBJECTS = 3, 0.2
"""Anchors of each cell of YOLO's raw maps, and the share of them that may have an object."""
STRIDE_IN_NAME = re.compile(r"(?<!\d)(8|16|32|64|128)(?!\d)")


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """An output as [anchors, channels]."""

    name: str
    rows: Array
    part: OutputPart


def detection_layout(outputs: Outputs, facts: ModelFacts) -> DetectionLayout | None:
    """The layout of a detector's outputs; None where they are not those of a detector."""
    if facts.batch > 1:
        alone = replace(facts, batch=1)
        numbers = {name: array for name, array in outputs.items() if array.ndim and array.shape[0] == facts.batch}
        layout = detection_layout({name: array[:1] for name, array in numbers.items()}, alone)
        return None if layout is None or len(numbers) < len(outputs) else replace(layout, batch=facts.batch)
    layout = (
        _listed(outputs) or _concatenated(outputs, facts) or _raw_grids(outputs, facts) or _raw_maps(outputs, facts)
    )
    return layout or _apart(outputs, facts) or _centres(outputs, facts)


def _anchors(array: Array) -> int:
    """How many anchors an output may be about: its longest side."""
    return max(_squeezed(array).shape, default=0) if array.ndim > 1 else 0


def _squeezed(array: Array) -> Array:
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return array


def _listed(outputs: Outputs) -> DetectionLayout | None:
    """A list of boxes that do not overlap any more: one table of six or seven columns, or boxes, scores and classes."""
    for name, array in outputs.items():
        rows = _squeezed(array)
        if rows.ndim != 2 or rows.shape[0] > MOST_FINISHED or array.dtype.kind != "f":
            continue
        if rows.shape[1] == 6 and len(rows) and _whole(rows[:, 5]) and _shares(rows[:, 4:5]) and _cornered(rows[:, :4]):
            parts = OutputPart(name, 0, 4), OutputPart(name, 4, 5), OutputPart(name, 5, 6)
        elif rows.shape[1] == 7 and len(rows) and _whole(rows[:, 0]) and _whole(rows[:, 5]) and _shares(rows[:, 6:7]):
            parts = OutputPart(name, 1, 5), OutputPart(name, 6, 7), OutputPart(name, 5, 6)
        else:
            continue
        return DetectionLayout(
            "boxes that are listed", (Head(parts[0], parts[1], "xyxy", classes=parts[2]),), finished=True
        )
    boxes = [n for n, a in outputs.items() if a.ndim >= 2 and a.shape[-1] == 4 and BOXES.search(n)]
    flat = [n for n, a in outputs.items() if math.prod(a.shape) == max(a.shape, default=0) and a.ndim]
    scores = [n for n in flat if re.search(r"scor|conf|prob", n, re.IGNORECASE) and outputs[n].dtype.kind == "f"]
    classes = [n for n in flat if CLASSES.search(n) and n not in scores]
    if len(boxes) != 1 or len(scores) != 1 or len(classes) != 1:
        return None
    if len({outputs[boxes[0]].shape[-2], outputs[scores[0]].size, outputs[classes[0]].size}) != 1:
        return None
    # TensorFlow's detectors list top, left, bottom, right
    form: Format = "yxyx" if boxes[0].startswith(("detection_boxes", "StatefulPartitionedCall")) else "xyxy"
    head = Head(OutputPart(boxes[0]), _column(scores[0], outputs), form, classes=_column(classes[0], outputs))
    return DetectionLayout("boxes that are listed", (head,), finished=True)


def _column(name: str, outputs: Outputs) -> OutputPart:
    """An output of one number for each box, however it is shaped."""
    rows = _squeezed(outputs[name])
    return OutputPart(name, channels_first=rows.ndim == 2 and rows.shape[0] == 1)


def _concatenated(outputs: Outputs, facts: ModelFacts) -> DetectionLayout | None:
    """YOLO: boxes, perhaps objectness, classes, perhaps masks in one output, channels first or last."""
    for name, array in outputs.items():
        rows = _squeezed(array)
        if array.dtype.kind != "f" or rows.ndim != 2 or array.ndim < 3:
            continue
        channels_first = rows.shape[0] < rows.shape[1]
        table = rows.T if channels_first else rows
        anchors, channels = table.shape
        if anchors < LEAST_ANCHORS or not 5 <= channels <= MOST_CHANNELS or anchors < channels:
            continue
        if array.ndim > 3 and anchors < 4 * channels:  # a map
            continue
        if any(_anchors(a) == anchors for n, a in outputs.items() if n != name):  # the boxes have their own output
            continue
        if facts.picture is None and float(table[:, :4].max()) <= 1.5:  # parts of a picture, and there is none
            continue
        if facts.of(name).last_op in ("Softmax", "LogSoftmax") or any(sums_to_one(table, axis) for axis in (0, 1)):
            continue
        prototypes = _prototypes(outputs, name, channels)
        parts = facts.of(name).parts
        end = 4 + _classes(table, parts, 0 if not prototypes else outputs[prototypes].shape[-3])
        if end < 5 or not _boxes_like(table[:, :4]):
            continue
        raw = not channels_first and _is_grid(anchors, facts, 1) and float(table[:, :4].min()) < -0.5
        objectness = _has_objectness(table[:, 4:end], anchors, facts, channels_first=channels_first)
        first = 5 if objectness else 4

        form: Format = "xyxy" if _cornered(table[:, :4]) else "cxcywh"
        head = Head(
            OutputPart(name, 0, 4, channels_first),
            OutputPart(name, first, end, channels_first),
            form,
            OutputPart(name, 4, 5, channels_first) if objectness else None,
            masks=OutputPart(name, end, channels, channels_first) if prototypes and end < channels else None,
        )
        if raw:
            return DetectionLayout("YOLOX in cells", tuple(_by_grid(head, anchors, facts)), picture=facts.picture)
        kind = "YOLO with objectness" if objectness else "YOLO"
        return DetectionLayout(kind, (head,), prototypes=prototypes, picture=facts.picture)
    return None


def _classes(table: Array, parts: tuple[int, ...], masks: int) -> int:
    """How many channels after the four of the box are probabilities."""
    channels = table.shape[1]
    probable = (table.min(0) >= -1e-3) & (table.max(0) <= 1 + 1e-3)
    if masks and channels - masks > 4 and probable[4 : channels - masks].all():
        return int(channels - masks - 4)
    ends = [int(end) for end in np.cumsum(parts)]
    if 4 in ends and len(ends) > ends.index(4) + 1:
        # what is concatenated after the box, as far as it is probabilities: objectness and classes may be two parts
        end = 4
        for stop in ends[ends.index(4) + 1 :]:
            if not probable[end:stop].all():
                break
            end = stop
        if end > 4:
            return int(end - 4)
    run = np.flatnonzero(~probable[4:])
    return int(run[0] if run.size else channels - 4)


def _prototypes(outputs: Outputs, name: str, channels: int) -> str:
    """The output whose maps masks are made of, where there is one."""
    for other, array in outputs.items():
        if other != name and array.ndim == 4 and array.shape[0] == 1 and 8 <= array.shape[1] < channels - 4:
            return other
    return ""


def _has_objectness(scores: Array, anchors: int, facts: ModelFacts, *, channels_first: bool) -> bool:
    """YOLOv5 to v7 and YOLOX have it, channels last; later ones have not."""
    if channels_first or scores.shape[1] < 2:
        return False
    if _is_grid(anchors, facts, 3):
        return True
    if scores.shape[1] in (81, 91):  # 80 or 90 classes, the usual ones, and one more
        return True
    return _is_grid(anchors, facts, 1) and scores.shape[1] != 80


def _grid_sizes(facts: ModelFacts, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    height, width = facts.picture or (0, 0)
    return [(math.ceil(height / s), math.ceil(width / s)) for s in strides]


def _is_grid(anchors: int, facts: ModelFacts, of_cell: int) -> bool:
    """Whether there are so many anchors for each cell of the usual grids."""
    return any(anchors == of_cell * _cells(facts, some) for some in USUAL_STRIDES)


def _cells(facts: ModelFacts, strides: tuple[int, ...]) -> int:
    return sum(height * width for height, width in _grid_sizes(facts, strides))


def _by_grid(head: Head, anchors: int, facts: ModelFacts) -> Iterator[Head]:
    """A head for each grid of cells that follow each other in one output."""
    strides = next(some for some in USUAL_STRIDES if _cells(facts, some) == anchors)
    begin = 0
    for stride, (height, width) in zip(strides, _grid_sizes(facts, strides), strict=True):
        rows = begin, begin + height * width
        begin = rows[1]
        objectness = None if head.objectness is None else replace(head.objectness, anchors=rows)
        yield replace(
            head, boxes=replace(head.boxes, anchors=rows), scores=replace(head.scores, anchors=rows), format="log",
            objectness=objectness, grid=(height, width, 1), stride=float(stride),
        )  # fmt: skip


def _raw_maps(outputs: Outputs, facts: ModelFacts) -> DetectionLayout | None:
    """Maps of YOLO before anything is decoded: [1, 3 (5 + classes), rows, columns] by stride, or channels last."""
    maps = {n: a for n, a in outputs.items() if a.ndim == 4 and a.shape[0] == 1 and a.dtype.kind == "f"}
    if len(maps) < 2 or len(maps) < len(outputs) or facts.picture is None:
        return None
    heads: list[Head] = []
    sizes = set()
    for name, array in maps.items():
        grids = {size: stride for stride in STRIDES for size in _grid_sizes(facts, (stride,))}
        first = array.shape[2:] in grids
        rows, columns, channels = (array.shape[i] for i in ((2, 3, 1) if first else (1, 2, 3)))
        numbers, stride = channels // ANCHORS, grids.get((rows, columns))
        if stride is None or channels % ANCHORS or not 5 < numbers <= MOST_CHANNELS:
            return None
        sizes.add((stride, numbers))
        there = array[:, 4::numbers] if first else array[..., 4::numbers]
        shares = _shares(there)
        if float((there > (0.5 if shares else 0.0)).mean()) > MOST_OBJECTS:
            return None  # features: most cells of a detector have no object
        heads += [
            Head(
                OutputPart(name, k, k + 4, first), OutputPart(name, k + 5, k + numbers, first), "log",
                OutputPart(name, k + 4, k + 5, first), activation="none" if shares else "sigmoid",
                grid=(rows, columns, 1), stride=float(stride),
            )
            for k in range(0, channels, numbers)
        ]  # fmt: skip
    if len(sizes) < len(maps) or len({numbers for _, numbers in sizes}) > 1:
        return None
    return DetectionLayout("YOLO's maps", tuple(heads), picture=facts.picture)


def _raw_grids(outputs: Outputs, facts: ModelFacts) -> DetectionLayout | None:
    """Grids of YOLO before anything is decoded: [1, 3, rows, columns, 5 + classes] for each stride."""
    grids = {n: a for n, a in outputs.items() if a.ndim == 5 and a.shape[1] == 3 and a.shape[-1] > 5}
    if not grids or len({a.shape[-1] for a in grids.values()}) != 1:
        return None
    heads = tuple(
        Head(
            OutputPart(n, 0, 4),
            OutputPart(n, 5),
            "log",
            OutputPart(n, 4, 5),
            activation="none" if _shares(a[..., 4:]) else "sigmoid",
        )
        for n, a in grids.items()
    )
    return DetectionLayout("YOLO's grids", heads, picture=facts.picture)


def _apart(outputs: Outputs, facts: ModelFacts) -> DetectionLayout | None:
    """Boxes and scores in outputs of their own, one pair or one for each stride."""
    tables: dict[int, list[_Table]] = {}
    for table in _tables(outputs):
        tables.setdefault(len(table.rows), []).append(table)
    heads: list[Head] = []
    beside: list[str] = []
    for anchors, some in tables.items():
        head = _head(anchors, some, len(tables), facts)
        if head is not None:
            heads.append(head)
            beside += [table.name for table in some]
    if not heads:
        return None
    named = "boxes and scores" + (" by stride" if len(heads) > 1 else "")
    finished = len(heads) == 1 and len(_squeezed(outputs[heads[0].boxes.output])) <= MOST_FINISHED // 2
    return DetectionLayout(named, tuple(heads), finished=finished, picture=facts.picture, beside=tuple(beside))


def _centres(outputs: Outputs, facts: ModelFacts) -> DetectionLayout | None:
    """CenterNet: a heat map of centres, with maps of sizes and offsets as large, if any."""
    maps = {n: a for n, a in outputs.items() if a.ndim == 4 and a.shape[0] == 1 and a.dtype.kind == "f"}
    heats = [n for n in maps if HEAT.search(n)]
    if not heats:  # the one map of probabilities among maps of two numbers and more
        heats = [n for n, a in maps.items() if a.shape[1] == 1 and _shares(a)] if len(maps) > 1 else []
    if len(heats) != 1:
        return None
    heat = maps[heats[0]]
    height, width = heat.shape[2:]
    others = [n for n, a in maps.items() if n != heats[0] and a.shape[2:] == heat.shape[2:]]
    if not others or any(maps[n].shape[1] < 2 for n in others):
        return None
    pairs = [n for n in others if maps[n].shape[1] == 2]
    offsets = next((n for n in pairs if OFFSETS.search(n)), "") or (pairs[1] if len(pairs) > 1 else "")
    sizes = next((n for n in pairs if n != offsets), "")
    stride = facts.picture[0] / height if facts.picture is not None else 1.0
    # a logarithm is small: that of a whole map's size at most
    form: Format = "log" if sizes and float(maps[sizes].max()) < math.log(max(height, width)) + 0.5 else "cells"
    whole = bool(offsets and sizes)
    head = Head(
        OutputPart(offsets if whole else heats[0], channels_first=True), OutputPart(heats[0], channels_first=True),
        form if whole else "cells", grid=(height, width, 1), stride=stride,
        sizes=OutputPart(sizes, channels_first=True) if whole else None, peaks=True,
        activation="none" if _shares(heat) else "sigmoid",
    )  # fmt: skip
    return DetectionLayout("centres in a heat map", (head,), picture=facts.picture, beside=(heats[0], *others))


def _tables(outputs: Outputs) -> Iterator[_Table]:
    for name, array in outputs.items():
        rows = _squeezed(array)
        if array.dtype.kind != "f" or not 1 <= rows.ndim <= 3:
            continue
        first = rows.ndim == 3 and rows.shape[0] < rows.shape[2]  # channels before rows and columns
        first = first or (rows.ndim == 2 and rows.shape[0] < rows.shape[1] and rows.shape[0] <= 4)
        part = OutputPart(name, channels_first=first)
        table = part.rows({name: array})
        if len(table) >= LEAST_ANCHORS // 2 and table.shape[1] <= MOST_CHANNELS:
            yield _Table(name, table, part)


def _head(anchors: int, tables: list[_Table], groups: int, facts: ModelFacts) -> Head | None:
    """Boxes with their scores among outputs of as many anchors."""
    boxes = [t for t in tables if t.rows.shape[1] == 4 and not SCORES.search(t.name) and not POINTS.search(t.name)]
    boxes = [t for t in boxes if BOXES.search(t.name)] or boxes
    if not boxes:  # distances as distributions
        spread = [t for t in tables if t.rows.shape[1] in DISTRIBUTIONS and not _shares(t.rows) and len(tables) > 1]
        boxes = spread if len(spread) == 1 else []
    if not boxes:  # boxes with key points behind them
        boxes = [t for t in tables if t.rows.shape[1] > 4 and BOXES.search(t.name) and t.rows.shape[1] % 2 == 0]
    if len(boxes) != 1:
        return None
    others = [t for t in tables if t is not boxes[0] and not POINTS.search(t.name)]
    named = [t for t in others if SCORES.search(t.name)] or others
    objectness = [t for t in named if OBJECTNESS.search(t.name) and t.rows.shape[1] == 1 and len(named) > 1]
    scores = [t for t in named if t not in objectness]
    if len(scores) != 1 or (not BOXES.search(boxes[0].name) and not SCORES.search(scores[0].name) and groups > 4):
        return None
    activation, background = _score_kind(scores[0].rows)
    grid, stride = _grid(anchors, boxes[0].name, facts)
    form, scaled = _box_format(boxes[0].rows[:, :4], background, placed=grid is not None and groups > 1)
    if boxes[0].rows.shape[1] in DISTRIBUTIONS and not BOXES.search(boxes[0].name):
        form, scaled = "dfl", True
    return Head(
        boxes[0].part, scores[0].part, form, objectness[0].part if objectness else None, activation=activation,
        background=background, grid=grid if scaled else None, stride=stride if scaled and grid is not None else 1.0,
    )  # fmt: skip


def _score_kind(scores: Array) -> tuple[Activation, int | None]:
    if not _shares(scores):
        return "sigmoid", None
    return "none", 0 if scores.shape[1] > 1 and sums_to_one(scores, 1) else None


def _box_format(boxes: Array, background: int | None, *, placed: bool) -> tuple[Format, bool]:
    """How boxes are written, and whether in cells of a grid."""
    if not placed and _cornered(boxes):
        return "xyxy", False
    if float(boxes.min()) >= -1e-3 and not placed:
        return "cxcywh", False
    if float((boxes >= -0.05 * np.abs(boxes).max()).mean()) > 0.99:
        return "ltrb", True
    return ("ssd", False) if background is not None else ("log", True)


def _grid(anchors: int, name: str, facts: ModelFacts) -> tuple[tuple[int, int, int] | None, float]:
    """Rows, columns and anchors of a cell of the grid that so many anchors fill, and its stride."""
    strides = [int(s) for s in STRIDE_IN_NAME.findall(name)] or [*STRIDES, 4]
    for stride in strides:
        ((height, width),) = _grid_sizes(facts, (stride,))
        cells = height * width
        if cells and anchors % cells == 0 and anchors // cells in (1, 2, 3):
            return (height, width, anchors // cells), float(stride)
    return None, 1.0


def _whole(column: Array) -> bool:
    return bool(np.isfinite(column).all() and (column == np.rint(column)).all())


def _shares(scores: Array) -> bool:
    return bool(scores.size and scores.min() >= -1e-3 and scores.max() <= 1 + 1e-3)


def sums_to_one(array: Array, axis: int) -> bool:
    """Whether numbers along an axis are probabilities of which one comes true."""
    return _shares(array) and bool((np.abs(array.sum(axis) - 1) < 0.02).all())


def _cornered(boxes: Array) -> bool:
    """Whether boxes are two corners each: the second is right of the first and below."""
    return bool(len(boxes) and ((boxes[:, 2] >= boxes[:, 0]) & (boxes[:, 3] >= boxes[:, 1])).mean() >= 0.995)


def _boxes_like(boxes: Array) -> bool:
    """Whether four columns may be boxes: sizes, or second corners, are no negative numbers, and centres differ."""
    finite = bool(np.isfinite(boxes).all())
    sizes = float((boxes[:, 2:] >= -1e-3).mean())
    spread = np.ptp(boxes[:, :2], axis=0)
    return finite and (sizes > 0.98 or _cornered(boxes) or float(boxes.max()) < 40) and bool((spread > 0).all())
