# SPDX-License-Identifier: Apache-2.0
"""Kinds: which decisions people make by a model's outputs, by their shapes, ranges, names and last ops."""

from __future__ import annotations

import re

import numpy as np

from hexforge.analysis.quality.decisions.answers import Classification, Labels, SymbolSequence
from hexforge.analysis.quality.decisions.channels import channel_axis
from hexforge.analysis.quality.decisions.detection import Detection
from hexforge.analysis.quality.decisions.graph_facts import ModelFacts, OutputFacts
from hexforge.analysis.quality.decisions.maps import Keypoints, PictureLikeness, Segmentation
from hexforge.analysis.quality.decisions.measure import DecisionMeasure, Outputs, rows_of
from hexforge.analysis.quality.decisions.recognise import detection_layout, sums_to_one
from hexforge.analysis.quality.decisions.vectors import Embedding, Numbers
from hexforge.analysis.quality.pictures import LEAST, as_picture
from hexforge.ir import Array

VECTORS = re.compile(r"embed|feature|feat(?![a-z])|hidden|pooler|descriptor|vector|latent", re.IGNORECASE)
MAPS = re.compile(r"heat|keypoint|kpt|pose", re.IGNORECASE)
MASKS = re.compile(r"mask|matte|alpha|seg", re.IGNORECASE)
PLAIN = re.compile(r"landmark|keypoint|kps|kpt|coord|offset|delta|angle|depth|point", re.IGNORECASE)
PROBABILITY_OPS = ("Softmax", "LogSoftmax")
VECTOR_OPS = ("LayerNormalization", "SkipLayerNormalization", "BatchNormalization", "LpNormalization")
WIDTHS = {64, 96, 128, 192, 256, 312, 320, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048, 4096}
"""Lengths of vectors that networks have inside; seldom numbers of classes."""
FEW = 4
MOST_CLASSES = 256
"""Classes of pixels at most; maps of more channels are features."""
BLANKS = 0.25
"""The share of places at which a CTC model says nothing, at least."""


def choose(outputs: Outputs, facts: ModelFacts) -> list[DecisionMeasure]:
    """The decisions by all outputs: boxes out of several together, the rest output by output."""
    measures: list[DecisionMeasure] = []
    layout = detection_layout(outputs, facts)
    taken: set[str] = set()
    if layout is not None:
        measures.append(Detection(layout))
        taken.update(layout.outputs, layout.beside)
    for name, array in outputs.items():
        if name not in taken and array.size and array.dtype.kind in "fiub":
            measures.append(of_output(name, array, facts))
    return measures


def of_output(name: str, array: Array, facts: ModelFacts) -> DecisionMeasure:
    """The decision by one output."""
    told = facts.of(name)
    if array.dtype.kind in "iub":
        sides = [side for side in array.shape if side > 1]
        return Segmentation(name, None) if len(sides) == 2 and min(sides) >= LEAST else _integers(name, array)
    if array.size == max(array.shape, default=1):  # a single row, whatever its shape
        return _vector(name, array, told)
    if array.ndim == 2:
        return _vector(name, array, told)  # one row for each of a batch
    chosen_from = told.last_op in ("Softmax", "LogSoftmax")
    looked_at = array.ndim == 3 and facts.picture is not None and not chosen_from and as_picture(array) is not None
    if sum(side > 1 for side in array.shape) == 2 and array.ndim == 3 and not looked_at:
        return _rows(name, array, told, facts)
    if array.ndim in (3, 4) and min(_sides(array)) >= LEAST // 2:
        return _map(name, array, told, facts)
    return Numbers(name)


def _integers(name: str, array: Array) -> DecisionMeasure:
    return Classification(name) if array.size == 1 or array.ndim == 1 else SymbolSequence(name)


def _vector(name: str, array: Array, told: OutputFacts) -> DecisionMeasure:
    """A row of numbers: scores of classes, a vector, or plain numbers."""
    single = array.ndim > 0 and array.size == max(array.shape)
    axis = int(np.argmax(array.shape)) if single else array.ndim - 1
    size = array.shape[axis] if array.ndim else 1
    if told.last_op in PROBABILITY_OPS and size > 1:
        return Classification(name, axis)
    if size == 1:
        return Labels(name) if told.last_op in ("Sigmoid", "HardSigmoid") else Numbers(name)
    rows = rows_of(array, axis)
    if sums_to_one(rows, 1):
        return Classification(name, axis)
    unit = bool((np.abs(np.linalg.norm(rows, axis=1) - 1) < 1e-2).all())
    if VECTORS.search(name) or told.last_op in VECTOR_OPS or (unit and size >= 32):
        return Embedding(name, axis)
    if told.last_op in ("Sigmoid", "HardSigmoid"):
        return Labels(name)
    few = size <= FEW and bool((rows > 0).all())  # grades, ages, angles: scores of classes have both signs
    if PLAIN.search(name) or few or told.last_op == "Tanh":
        return Numbers(name)
    return Embedding(name, axis) if size in WIDTHS else Classification(name, axis)


def _rows(name: str, array: Array, told: OutputFacts, facts: ModelFacts) -> DecisionMeasure:
    """A row of numbers at each of several places."""
    axis = array.ndim - 1 if told.axis is None or told.last_op not in PROBABILITY_OPS else told.axis
    rows = rows_of(array, axis)
    scores = told.last_op in PROBABILITY_OPS or sums_to_one(rows, 1)
    if PLAIN.search(name):
        return Numbers(name)
    if not scores and (VECTORS.search(name) or told.last_op in VECTOR_OPS or rows.shape[1] in WIDTHS):
        return Embedding(name, axis)
    if told.last_op in ("Sigmoid", "HardSigmoid"):
        return Labels(name)
    return SymbolSequence(name, axis, None if facts.tokens else ctc_blank(rows))


def ctc_blank(rows: Array) -> int | None:
    """The blank of CTC: the first or the last symbol, where it is the commonest one; None where there is none."""
    counts = np.bincount(rows.argmax(1), minlength=rows.shape[1])
    commonest = int(counts.argmax())
    if commonest in (0, rows.shape[1] - 1) and counts[commonest] >= BLANKS * len(rows) and rows.shape[1] > 8:
        return commonest
    return None


def _sides(array: Array) -> tuple[int, int]:
    """Height and width of maps."""
    if array.ndim == 3:
        return array.shape[-2], array.shape[-1]
    return (array.shape[1], array.shape[2]) if channel_axis(array.shape) == 3 else (array.shape[2], array.shape[3])


def _map(name: str, array: Array, told: OutputFacts, facts: ModelFacts) -> DecisionMeasure:
    """Maps: classes of pixels, a picture, heat maps, or features."""
    axis = channel_axis(array.shape) if array.ndim == 4 else 0
    channels = array.shape[axis]
    low, high = float(array.min()), float(array.max())
    probable = low >= -1e-3 and high <= 1 + 1e-3
    if channels == 1 or array.ndim == 3:
        if told.last_op in ("Sigmoid", "HardSigmoid") or (MASKS.search(name) and probable):
            return Segmentation(name, None, 0.5)
        if MASKS.search(name) and low < 0 < high:
            return Segmentation(name, None, 0.0)
        return PictureLikeness(name) if as_picture(array) is not None else Numbers(name)
    scores = told.last_op in PROBABILITY_OPS or sums_to_one(array, axis)
    if channels == 3 and not scores and not MASKS.search(name) and as_picture(array) is not None:
        return PictureLikeness(name)
    if VECTORS.search(name) or channels > MOST_CLASSES:
        return Embedding(name, axis)
    if not scores and axis == 1 and (MAPS.search(name) or _peaked(array)):
        return Keypoints(name)
    if told.last_op in ("Sigmoid", "HardSigmoid") and MASKS.search(name):
        return Segmentation(name, None, 0.5)
    if scores or _large(array, facts):
        return Segmentation(name, axis)
    return Embedding(name, axis)


def _large(array: Array, facts: ModelFacts) -> bool:
    """Whether maps are large enough beside the input to be classes of its pixels."""
    height, width = _sides(array)
    if facts.picture is None:
        return min(height, width) >= LEAST
    return height * 8 >= facts.picture[0] and width * 8 >= facts.picture[1]


def _peaked(array: Array) -> bool:
    """Whether maps are flat but for a peak in each."""
    flat = np.abs(array.reshape(-1, array.shape[-2] * array.shape[-1]))
    return bool((np.quantile(flat, 0.9, axis=1) < 0.1 * flat.max(1)).mean() > 0.8)
