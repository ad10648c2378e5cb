# SPDX-License-Identifier: Apache-2.0
"""Kinds: which decisions people make by a model's outputs, as far as its last ops, shapes and numbers are evidence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hexforge.analysis.quality.decisions.answers import Classification, Labels, SymbolSequence
from hexforge.analysis.quality.decisions.channels import channel_axis
from hexforge.analysis.quality.decisions.evidence import Supposed
from hexforge.analysis.quality.decisions.graph_facts import PROBABILITY_OPS, ModelFacts
from hexforge.analysis.quality.decisions.maps import Keypoints, PictureLikeness, Segmentation
from hexforge.analysis.quality.decisions.measure import DecisionMeasure, Outputs, rows_of
from hexforge.analysis.quality.decisions.recognise import detector, sums_to_one
from hexforge.analysis.quality.decisions.vectors import Embedding, Numbers
from hexforge.analysis.quality.pictures import LEAST, as_picture
from hexforge.ir import Array

SWITCH_OPS = ("Sigmoid", "HardSigmoid")
VECTOR_OPS = ("LayerNormalization", "SkipLayerNormalization", "BatchNormalization", "LpNormalization")
NEVER_SCORES = ("Relu", "Tanh", "GlobalAveragePool", "Clip")
UNIT_LENGTH = 32
"""Vectors of so many numbers and length 1 are told apart by cosines."""
MOST_CLASSES = 256
"""Classes of pixels at most; maps of more channels are features."""
BLANKS = 0.25
"""The share of places at which a CTC model says nothing, at least."""
UNCERTAIN = "kind uncertain: judged by numbers, their error beside their spread and what the samples differ by"


def choose(outputs: Outputs, facts: ModelFacts) -> list[DecisionMeasure | Supposed]:
    """The decisions by all outputs: boxes out of several together, the rest output by output."""
    found = detector(outputs, facts)
    measures: list[DecisionMeasure | Supposed] = [] if found is None else [found]
    taken = set() if found is None else {*found.outputs, *found.beside}
    for name, array in outputs.items():
        if name not in taken and array.size and array.dtype.kind in "fiub":
            measures += of_output(name, array, facts)
    return measures


def of_output(name: str, array: Array, facts: ModelFacts) -> Iterator[DecisionMeasure | Supposed]:
    """What one output is judged by: a kind, or one that the samples must confirm and numbers where they do not."""
    if array.dtype.kind in "iub":
        sides = [side for side in array.shape if side > 1]
        if len(sides) == 2 and min(sides) >= LEAST:
            yield Segmentation(name, None)
        else:
            yield Classification(name) if array.size == 1 or array.ndim == 1 else SymbolSequence(name)
        return
    kind = _kind(name, array, facts)
    if kind is None or isinstance(kind, Supposed):
        yield Numbers(name, UNCERTAIN)
    if kind is not None:
        yield kind


def _kind(name: str, array: Array, facts: ModelFacts) -> DecisionMeasure | Supposed | None:
    """The kind of decision that an output of floats tells, or may tell; None where it is numbers."""
    told = facts.of(name).last_op
    sides = sum(side > 1 for side in array.shape)
    chosen_from = told in PROBABILITY_OPS
    looked_at = array.ndim >= 3 and not chosen_from and as_picture(array) is not None
    if array.ndim < 4 and array.shape in facts.given and not looked_at and not chosen_from:
        return None  # a state, which the next inference is given
    if sides <= 1 or array.ndim == 2:
        return _vector(name, array, told)
    if array.ndim == 3 and sides == 2 and not (looked_at and facts.picture is not None):
        axis = facts.of(name).axis if chosen_from else None
        return _rows(name, array, array.ndim - 1 if axis is None else axis, facts)
    if array.ndim in (3, 4) and min(_sides(array)) >= LEAST // 2:
        return _map(name, array, told, looked_at=looked_at)
    return None


def _vector(name: str, array: Array, told: str) -> DecisionMeasure | Supposed | None:
    """A row of numbers, or one for each of a batch: scores of classes, labels, a vector."""
    axis = int(np.argmax(array.shape)) if array.ndim and array.size == max(array.shape) else array.ndim - 1
    if told in SWITCH_OPS:
        return Supposed(Labels(name), None)
    if not array.ndim or array.shape[axis] == 1:
        return None
    rows = rows_of(array, axis)
    if told in PROBABILITY_OPS or sums_to_one(rows, 1):
        return Classification(name, axis)
    if _directed(rows, told):
        return Embedding(name, axis)
    return None if told in NEVER_SCORES else Supposed(Classification(name, axis), axis)


def _rows(name: str, array: Array, axis: int, facts: ModelFacts) -> DecisionMeasure | Supposed | None:
    """A row of numbers at each of several places: symbols, labels, vectors."""
    told, rows = facts.of(name).last_op, rows_of(array, axis)
    symbols = SymbolSequence(name, axis, None if facts.tokens else ctc_blank(rows))
    if told in PROBABILITY_OPS or sums_to_one(rows, 1):
        return symbols
    if told in SWITCH_OPS:
        return Supposed(Labels(name), None)
    if _directed(rows, told):
        return Embedding(name, axis)
    return None if told in NEVER_SCORES else Supposed(symbols, axis)


def _directed(rows: Array, told: str) -> bool:
    """Whether rows are vectors of which the direction counts: normalized, or of length 1."""
    unit = rows.shape[1] >= UNIT_LENGTH and bool((np.abs(np.linalg.norm(rows, axis=1) - 1) < 1e-2).all())
    return unit or told in VECTOR_OPS


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


def _map(name: str, array: Array, told: str, *, looked_at: bool) -> DecisionMeasure | Supposed | None:
    """Maps: classes of pixels, a picture, heat maps."""
    axis = channel_axis(array.shape) if array.ndim == 4 else 0
    channels = array.shape[axis]
    if told in SWITCH_OPS and not (looked_at and channels == 3):
        return Supposed(Segmentation(name, None, 0.5), None)
    if channels == 1 or array.ndim == 3:
        return PictureLikeness(name) if looked_at else None
    if told in PROBABILITY_OPS or sums_to_one(array, axis):
        return Segmentation(name, axis)
    if looked_at:
        return PictureLikeness(name)
    if axis == 1 and _peaked(array):
        return Keypoints(name)
    if channels > MOST_CLASSES or told in NEVER_SCORES:
        return None
    return Supposed(Segmentation(name, axis), axis)


def _peaked(array: Array) -> bool:
    """Whether maps are flat but for a peak in each."""
    flat = np.abs(array.reshape(-1, array.shape[-2] * array.shape[-1]))
    return bool((np.quantile(flat, 0.9, axis=1) < 0.1 * flat.max(1)).mean() > 0.8)
