# SPDX-License-Identifier: Apache-2.0
"""Detection: the usual layouts are decoded to the same boxes, and boxes are matched as counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hexforge.analysis.quality.decisions.boxes import Boxes, average_precision, by_score, match, overlaps, suppress
from hexforge.analysis.quality.decisions.detection import Detection, of_first_picture
from hexforge.analysis.quality.decisions.graph_facts import ModelFacts
from hexforge.analysis.quality.decisions.judge import judge
from hexforge.analysis.quality.decisions.metric import decision_metric
from hexforge.analysis.quality.decisions.paired_anchors import PairedAnchors
from hexforge.analysis.quality.decisions.recognise import detector
from hexforge.errors import CallError
from hexforge.ir import Array

SIDE = 320
FACTS = ModelFacts({}, (SIDE, SIDE))
STRIDES = (8, 16, 32)
CELLS = [(s, y, x) for s in STRIDES for y in range(SIDE // s) for x in range(SIDE // s)]
CLASSES = 6
# class, score, left, top, right, bottom: far from each other, so that none is suppressed
OBJECTS = ((2, 0.9, 16, 16, 80, 64), (5, 0.75, 160, 48, 224, 176), (0, 0.6, 40, 200, 120, 296))


def cell_of(number: int) -> int:
    """The cell of 32 pixels that the middle of an object lies in."""
    _, _, left, top, right, bottom = OBJECTS[number]
    return CELLS.index((32, (top + bottom) // 64, (left + right) // 64))


def scattered(seed: int = 0) -> tuple[Array, Array]:
    """Boxes (centre and size) and class scores of every cell: small scores but for the objects' cells."""
    random = np.random.default_rng(seed)
    centres = np.array([[(x + 0.5) * s, (y + 0.5) * s] for s, y, x in CELLS])
    boxes = np.concatenate([centres, random.uniform(4, 120, (len(CELLS), 2))], 1)
    scores = random.uniform(0, 0.05, (len(CELLS), CLASSES))
    for number, (kind, score, left, top, right, bottom) in enumerate(OBJECTS):
        cell = cell_of(number)
        boxes[cell] = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
        scores[cell, kind] = score
    return boxes, scores


def corners(boxes: Array) -> Array:
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)


def batch(*columns: Array) -> Array:
    return np.concatenate(columns, 1)[None].astype(np.float32)


BOXES, SCORES = scattered()


def layouts() -> dict[str, dict[str, Array]]:
    yolo = batch(BOXES, SCORES)
    rest = np.maximum(SCORES.max(1, keepdims=True), 1e-6)
    objectness = batch(BOXES, np.sqrt(rest), SCORES / np.sqrt(rest))
    masks = np.random.default_rng(1).normal(0, 1, (len(CELLS), 8))
    s, y, x = np.array(CELLS).T[:, :, None]
    in_cells = corners(BOXES) / s
    distances = np.concatenate(
        [np.concatenate([x, y], 1) - in_cells[:, :2], in_cells[:, 2:] - np.concatenate([x, y], 1)], 1
    )
    distances = np.clip(distances, 0, None)
    logs = np.concatenate([BOXES[:, :2] / s - np.concatenate([x, y], 1), np.log(BOXES[:, 2:] / s)], 1)
    by_stride = {}
    by_stride_logs = {}
    for stride in STRIDES:
        rows = (s == stride)[:, 0]
        by_stride |= {
            f"score_{stride}": SCORES[rows].astype(np.float32),
            f"bbox_{stride}": distances[rows].astype(np.float32),
        }
        by_stride_logs |= {
            f"cls_{stride}": batch(SCORES[rows]),
            f"obj_{stride}": batch(np.ones((rows.sum(), 1))),
            f"bbox_{stride}": batch(logs[rows]),
            f"kps_{stride}": batch(np.zeros((rows.sum(), 10))),
        }
    maps = {}  # of the three anchors of a cell the second has the boxes, the others no objectness
    for stride in STRIDES:
        rows, side = (s == stride)[:, 0], SIDE // stride
        own = np.concatenate([logs[rows], SCORES[rows].max(1, keepdims=True) > 0.5, SCORES[rows]], 1)
        cells = np.concatenate([0 * own, own, 0 * own], 1).astype(np.float32)
        maps[f"p{stride}"] = cells.reshape(1, side, side, -1)
    bins = np.full((len(CELLS), 4, 17), -30.0)  # each distance as a distribution of 17 bins, between two of them
    for row, distance in enumerate(distances.clip(0, 15.9)):
        for side, value in enumerate(distance):
            bins[row, side, int(value)] = np.log(max(1 - value % 1, 1e-9))
            bins[row, side, int(value) + 1] = np.log(max(value % 1, 1e-9))
    by_stride_bins = {}
    for stride in STRIDES:
        rows = (s == stride)[:, 0]
        by_stride_bins |= {f"a{stride}": batch(SCORES[rows]), f"b{stride}": batch(bins[rows].reshape(-1, 68))}
    heat = np.zeros((1, CLASSES, 80, 80), np.float32)
    sizes, offsets = np.zeros((2, 1, 2, 80, 80), np.float32)
    for kind, score, left, top, right, bottom in OBJECTS:
        x, y = (left + right) / 8, (top + bottom) / 8
        heat[0, kind, int(y), int(x)] = score
        heat[0, kind, int(y), int(x) + 1] = score - 0.1  # beside the peak, which alone counts
        sizes[0, :, int(y), int(x)] = (right - left) / 4, (bottom - top) / 4
        offsets[0, :, int(y), int(x)] = x % 1, y % 1
    background = batch(1 - SCORES.sum(1, keepdims=True).clip(0, 1), SCORES.clip(0, 1))
    background /= background.sum(2, keepdims=True)
    found = [[*box, score, kind] for kind, score, *box in OBJECTS]
    listed = np.array(found + [[0, 0, 1, 1, 0.01, 0]] * 17, np.float32)
    return {
        "YOLO": {"output0": yolo.transpose(0, 2, 1)},
        "YOLO, channels last": {"output0": yolo[:, :, : 4 + CLASSES]},
        "YOLO with masks": {
            "output0": batch(BOXES, SCORES, masks).transpose(0, 2, 1), "output1": np.zeros((1, 8, 80, 80), np.float32),
        },
        "YOLO with objectness": {"output": np.concatenate([objectness] * 3, 1)},
        "boxes and scores": {"boxes": batch(corners(BOXES) / SIDE), "scores": batch(SCORES)},
        "with background": {"boxes": batch(corners(BOXES) / SIDE), "scores": background},
        "by stride, distances": by_stride,
        "by stride, logarithms": by_stride_logs,
        "by stride, distributions": by_stride_bins,
        "YOLOX in cells": {"output": batch(logs, np.ones((len(CELLS), 1)), SCORES)},
        "centres in a heat map": {"hm": heat, "wh": sizes, "reg": offsets},
        "centres with logarithms": {"537": heat[:, :1].copy(), "538": np.log(sizes.clip(1)), "539": offsets},
        "YOLO's maps": {n: a.transpose(0, 3, 1, 2) for n, a in maps.items()},
        "YOLO's maps, channels behind": maps,
        "listed": {"dets": listed[None]},
        "listed apart": {
            "boxes": listed[None, :, :4], "scores": listed[None, :, 4], "labels": listed[None, :, 5].astype(np.int64),
        },
    }  # fmt: skip


LAYOUTS = layouts()


PAIRED = (
    "by stride, distances", "by stride, logarithms", "by stride, distributions", "YOLOX in cells",
    "centres in a heat map", "centres with logarithms", "YOLO's maps", "YOLO's maps, channels behind",
)  # fmt: skip
"""Layouts whose boxes are not at their place in the picture."""


def layout_of(outputs: dict[str, Array], facts: ModelFacts = FACTS) -> Detection:
    found = detector(outputs, facts)
    assert isinstance(found, Detection)
    return found


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in PAIRED])
def test_a_usual_layout_is_decoded_to_the_same_boxes(name: str) -> None:
    boxes = layout_of(LAYOUTS[name], FACTS if "last" not in name else ModelFacts({}, None)).decode(LAYOUTS[name])
    assert boxes.classes.tolist() == [kind for kind, *_ in OBJECTS]
    wanted = np.array([box for _, _, *box in OBJECTS], float)
    scale = SIDE if boxes.corners.max() <= 1 else 1
    assert overlaps(boxes.corners * scale, wanted).diagonal() == pytest.approx([1, 1, 1], abs=0.02)
    if "background" not in name:
        assert boxes.scores == pytest.approx([score for _, score, *_ in OBJECTS], abs=1e-5)


@pytest.mark.parametrize("name", PAIRED)
def test_the_anchors_of_raw_outputs_are_paired(name: str) -> None:
    """The objects' anchors pass; one that is lost counts, and so does one that moves far, and noise moves none."""
    one = LAYOUTS[name]
    found = detector(one, FACTS)
    assert isinstance(found, PairedAnchors)
    passing = [
        (int(kind), round(float(score), 5)) for own in found.decide(one)
        for kind, score in zip(own.classes, own.scores, strict=True) if score >= found.threshold
    ]  # fmt: skip
    wanted = [(kind, score) for kind, score, *_ in OBJECTS]
    if "537" in one:  # of one class, which only one object has
        wanted = wanted[2:]
    if "hm" in one or "537" in one:  # what is beside the peak passes too
        wanted += [(kind, round(score - 0.1, 5)) for kind, score in wanted]
    assert sorted(passing) == sorted(wanted)
    assert judge([one], [one], FACTS).agreement == 1
    random = np.random.default_rng(2)
    noisy = {n: (a + random.normal(0, 0.004, a.shape)).astype(np.float32) for n, a in one.items()}
    kept = judge([one], [noisy], FACTS)
    assert kept.kind == "detection"
    assert kept.agreement > 0.99
    assert 0 < kept.parts[0].figures["moved"] < 0.1
    scores = found.heads[-1].scores
    part = scores.part
    lost = {n: a.copy() for n, a in one.items()}
    lost[part.output][...] = np.minimum(lost[part.output], 0.05) if scores.activation == "none" else -9
    assert judge([one], [lost], FACTS).agreement < 0.9
    moved = {n: a.copy() for n, a in one.items()}
    for head in found.heads:
        for numbers in head.numbers:
            array = moved[numbers.output]
            channels = np.moveaxis(array, 1 if numbers.channels_first else -1, 0)
            last = len(channels) if numbers.last is None else numbers.last
            channels[numbers.first : last] = np.flip(channels[numbers.first : last], -1) + 7
    assert judge([one], [moved], FACTS).agreement < 0.5


def test_an_object_counts_at_every_threshold_up_to_its_score() -> None:
    """At which one it is looked for is not known, so scores that sink cost as much as thresholds are lost."""
    one = LAYOUTS["by stride, distances"]

    def sunk(by: float) -> float:
        weaker = {n: (a * by).astype(np.float32) if n.startswith("score") else a for n, a in one.items()}
        return judge([one], [weaker], FACTS).agreement

    assert sunk(0.98) > 0.97
    assert 0.75 < sunk(0.8) < 0.9
    assert 0.3 < sunk(0.5) < 0.6
    assert judge([one], [{n: a * 0.1 if n.startswith("score") else a for n, a in one.items()}], FACTS).agreement == 0


@pytest.mark.parametrize("name", ["YOLO", "YOLO's maps", "by stride, logarithms", "with background"])
def test_the_pictures_of_a_batch_are_judged_each_by_itself(name: str) -> None:
    one, facts = LAYOUTS[name], ModelFacts({}, (SIDE, SIDE), batch=3)
    together = {n: np.concatenate([a, a, np.zeros_like(a)]) for n, a in one.items()}
    found, alone = detector(together, facts), detector(one, FACTS)
    assert found is not None
    assert alone is not None
    assert found.about == alone.about
    if isinstance(found, Detection):
        boxes = found.decode(together)
        assert len(boxes) == 2 * len(OBJECTS)
        assert len(of_first_picture(boxes.corners)) == len(OBJECTS)
    swapped = {n: a[[0, 2, 1]] for n, a in together.items()}  # the same boxes, in another picture
    judged = judge([together], [swapped], facts)
    assert judged.kind == "detection"
    assert judged.agreement == pytest.approx(0.5)
    assert judge([together], [together], facts).agreement == 1


def test_key_points_are_not_judged_where_there_is_no_box() -> None:
    outputs = LAYOUTS["by stride, logarithms"]
    random = np.random.default_rng(5)
    other = {
        n: random.normal(0, 1, a.shape).astype(np.float32) if n.startswith("kps") else a for n, a in outputs.items()
    }
    found = judge([outputs], [other], FACTS)
    assert [part.kind for part in found.parts] == ["detection"]
    assert found.agreement == 1


def test_a_model_that_loses_one_box_and_moves_another_is_counted_so() -> None:
    one = LAYOUTS["YOLO"]
    boxes, scores = BOXES.copy(), SCORES.copy()
    boxes[cell_of(0), 0] += 8  # still overlaps by (64 - 8) / (64 + 8)
    scores[cell_of(1), 5] = 0.1  # is not sure any more
    scores[500, 3] = 0.8  # one that the float model does not have
    two = {"output0": batch(boxes, scores).transpose(0, 2, 1)}
    found = judge([one], [two], FACTS)
    figures = found.parts[0].figures
    assert found.kind == "detection"
    assert (figures["precision"], figures["recall"]) == (2 / 3, 2 / 3)
    assert found.agreement == pytest.approx(2 * 2 / (3 + 3))
    assert figures["mean_iou"] == pytest.approx(((64 - 8) / (64 + 8) + 1) / 2, abs=1e-4)
    # ranked 0.9 right, 0.8 wrong, 0.6 right, then 0.1 right: precision 1, 2/3 (raised to 3/4 by the last), 3/4
    assert figures["ap50"] == pytest.approx((1 + 0.75 + 0.75) / 3)
    assert found.worst_sample is not None
    assert found.worst_sample.boxes is not None
    assert [len(boxes) for boxes in found.worst_sample.boxes] == [3, 3]


def test_where_the_float_model_is_sure_of_nothing_its_best_guesses_count() -> None:
    boxes, scores = BOXES, SCORES.clip(0, 0.04)
    one = {"output0": batch(boxes, scores).transpose(0, 2, 1)}
    found = judge([one], [one], FACTS)
    assert (found.kind, found.agreement) == ("detection", 1.0)
    assert found.parts[0].figures["boxes"] == 0
    blind = {"output0": batch(boxes, np.zeros_like(scores)).transpose(0, 2, 1)}
    assert judge([one], [blind], FACTS).agreement < 0.5


def test_masks_of_matched_boxes_are_compared_inside_the_box() -> None:
    maps = np.zeros((1, 8, 80, 80), np.float32)
    maps[0, 0] = 1
    maps[0, 1, :10] = -2
    boxes, scores = BOXES.copy(), SCORES.copy()
    plain = np.zeros((len(CELLS), 8))
    plain[:, 0] = 1
    cut = plain.copy()
    cut[cell_of(0), 1] = 1  # the first object, rows 4 to 16 of the maps, loses its rows above 10
    one = {"a": batch(boxes, scores, plain).transpose(0, 2, 1), "b": maps}
    two = {"a": batch(boxes, scores, cut).transpose(0, 2, 1), "b": maps}
    figures = judge([one], [two], FACTS).parts[0].figures
    assert figures["mask_iou"] == pytest.approx((6 / 12 + 1 + 1) / 3)


def test_a_layout_is_described() -> None:
    turned = {"out": batch(SCORES, corners(BOXES)[:, [1, 0, 3, 2]]).transpose(0, 2, 1)}
    text = "detection:boxes=out[6:10],scores=out[0:6],format=yxyx,threshold=0.7"
    found = judge([turned], [turned], FACTS, text)
    assert found.parts[0].figures["boxes"] == 2
    assert "boxes out[6:10] as yxyx" in found.parts[0].about


def test_a_layout_is_described_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "layout.json"
    path.write_text(json.dumps({"boxes": "out[0:4]", "scores": "out[4:10]", "threshold": 0.5}))
    outputs = {"out": batch(BOXES, SCORES).transpose(0, 2, 1)}
    assert judge([outputs], [outputs], FACTS, f"detection:{path}").parts[0].figures["boxes"] == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("detection:boxs=a,scores=b", "unknown key 'boxs'; did you mean 'boxes'"),
        ("detection:boxes=a", "says nothing of scores"),
        ("detection:boxes=a,scores=b,format=xxyy", "there are cxcywh"),
        ("detection:boxes=a,scores=b,threshold=nine", "a number from 0 to 1"),
    ],
)
def test_a_wrong_description_is_said(text: str, said: str) -> None:
    with pytest.raises(CallError, match=said.replace("?", r"\?")):
        decision_metric(text)


def test_what_is_no_detector_is_none() -> None:
    random = np.random.default_rng(3)
    softmax = np.exp(random.normal(0, 3, (1, 40, 97)))
    softmax /= softmax.sum(2, keepdims=True)
    for array in (
        softmax,
        random.normal(0, 1, (1, 128, 768)),
        random.normal(0, 1, (1, 1000)),
        random.random((1, 3, 64, 64)),
    ):
        assert detector({"y": array.astype(np.float32)}, FACTS) is None
    for channels in (64, 192):
        sizes = {f"p{s}": (1, channels, SIDE // s, SIDE // s) for s in STRIDES}
        features = {name: random.normal(0, 1, size).astype(np.float32) for name, size in sizes.items()}
        assert detector(features, FACTS) is None


def test_channels_that_masks_are_made_of_are_told_apart_by_their_maps() -> None:
    # masks that happen to be between 0 and 1 would look like classes
    masks = np.random.default_rng(1).random((len(CELLS), 8))
    outputs = {"y": batch(BOXES, SCORES, masks).transpose(0, 2, 1)}
    assert layout_of(outputs).scores.part.last == 4 + CLASSES + 8  # without maps nothing says that they are masks
    layout = layout_of(outputs | {"maps": np.zeros((1, 8, 80, 80), np.float32)})
    assert (layout.scores.part.last, layout.prototypes) == (4 + CLASSES, "maps")


def _slow_overlap(a: Array, b: Array) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = width * height if width > 0 and height > 0 else 0.0
    return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


def random_boxes(random: np.random.Generator, count: int) -> Boxes:
    corner = random.uniform(0, 60, (count, 2))
    return Boxes(
        np.concatenate([corner, corner + random.uniform(5, 40, (count, 2))], 1),
        random.random(count),
        random.integers(0, 2, count),
    )


@pytest.mark.parametrize("seed", range(5))
def test_overlap_suppression_and_matching_agree_with_slow_ones(seed: int) -> None:
    random = np.random.default_rng(seed)
    boxes, truth = random_boxes(random, 30), random_boxes(random, 12)
    table = overlaps(boxes.corners, truth.corners)
    for i in range(30):
        for j in range(12):
            assert table[i, j] == pytest.approx(_slow_overlap(boxes.corners[i], truth.corners[j]))
    kept: list[int] = []
    for i in np.argsort(-boxes.scores):
        same = [k for k in kept if boxes.classes[k] == boxes.classes[i]]
        if all(_slow_overlap(boxes.corners[k], boxes.corners[i]) <= 0.45 for k in same):
            kept.append(int(i))
    assert suppress(boxes, 0.45).scores.tolist() == boxes.scores[kept].tolist()
    free = set(range(12))
    for i in np.argsort(-boxes.scores):
        fits = [(table[i, j], j) for j in free if truth.classes[j] == boxes.classes[i] and table[i, j] >= 0.3]
        best = max(fits, default=(0.0, -1))[1]
        assert match(truth, boxes, 0.3)[i] == best
        free.discard(best)


def test_average_precision_is_the_area_below_the_curve() -> None:
    listed, right = by_score(np.array([0.9, 0.8, 0.7])), by_score(np.array([0.9, 0.7]))
    assert average_precision(listed, right, 4) == pytest.approx((1 + 2 / 3) / 4)
    assert np.isnan(average_precision(by_score(np.zeros(0)), by_score(np.zeros(0)), 0))
