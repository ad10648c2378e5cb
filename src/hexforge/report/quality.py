# SPDX-License-Identifier: Apache-2.0
"""Quality: a quantized model compared with the float one, its decisions, alarms and worst sample, as sections."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hexforge.amounts import with_decibels
from hexforge.analysis.quality.comparison import ERRORS, Comparison, layer_columns
from hexforge.analysis.quality.decisions.verdict import DECIDED, GROUPS, Decisions, WorstSample, figure_text
from hexforge.analysis.quality.evaluate import Evaluation
from hexforge.analysis.quality.metrics import in_decibels
from hexforge.analysis.quality.pictures import range_of
from hexforge.ir import Array
from hexforge.report.pictures import Picture, Pictures, pixels_of
from hexforge.report.section import Bars, Figure, Figures, Section, SectionPart, Step, Steps, Table

_BOX = (230, 40, 40)
_COLOURS = np.array(
    [(0, 0, 0), (230, 40, 40), (40, 160, 60), (50, 90, 220), (230, 190, 40), (150, 60, 190), (40, 190, 200)], np.float64
)
"""What classes of pixels are drawn in, in turn."""


def decisions_section(decisions: Decisions) -> Section:
    """The verdict first, then alarms, what is decided, channel groups, and the sample on which both differ most."""
    figures = [Figure("Verdict", decisions.verdict, decisions.caution or decisions.kind), _agreement(decisions)]
    worst = decisions.worst_group
    if worst is not None:
        figures.append(Figure("Worst channels", with_decibels(worst.sqnr_db), worst.name))
    figures.append(Figure("Alarms", str(len(decisions.alarms)), "each makes it unusable"))
    shown: list[SectionPart] = [Figures(figures, decisions.text())]
    if decisions.alarms:
        shown.append(Steps([Step(a.kind, "alarm", a.text) for a in decisions.alarms], "Alarms", ""))
    shown.append(Table.of(DECIDED, decisions.parts, "Decisions"))
    if decisions.groups:
        shown.append(Table.of(GROUPS, decisions.groups, "Channels of about one range"))
    sample = decisions.worst_sample
    if sample is not None and sample.picture is not None:
        shown.append(Pictures(list(_pictures(sample)), _title(sample)))
    note = (
        f"What people do with the outputs, on {decisions.samples} samples and without labels: how often the quantized "
        "model decides as the float model does. SQNR over a whole output sees only its largest part."
    )
    return Section("Decisions", shown, note)


def _agreement(decisions: Decisions) -> Figure:
    return Figure("Agreement", figure_text("agreement", decisions.agreement), f"on {decisions.samples} samples")


def _title(sample: WorstSample) -> str:
    named = f", {sample.name}" if sample.name else ""
    return f"Sample {sample.number + 1}{named}: the one on which both models agree least"


def _pictures(sample: WorstSample) -> Iterator[Picture]:
    """The input, and what both models decide of it, drawn on it where that can be drawn."""
    assert sample.picture is not None
    pixels = pixels_of(sample.picture, *range_of(sample.picture))
    yield Picture("Input", pixels, "as the model gets it")
    if sample.boxes is not None:
        scale = pixels.shape[0] / sample.picture.shape[0]
        for title, boxes, said in zip(_MODELS, sample.boxes, (sample.in_float, sample.in_other), strict=True):
            yield Picture(title, _with_boxes(pixels, boxes * scale), said)
    elif sample.maps is not None:
        for title, classes, said in zip(_MODELS, sample.maps, (sample.in_float, sample.in_other), strict=True):
            yield Picture(title, _coloured(classes), said)
    else:
        for title, said in zip(_MODELS, (sample.in_float, sample.in_other), strict=True):
            yield Picture(title, pixels, said)


_MODELS = ("Float model", "Quantized")


def _with_boxes(pixels: Array, boxes: Array) -> Array:
    """A picture with the edges of boxes drawn on it."""
    drawn = np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels.copy()
    height, width = drawn.shape[:2]
    for left, top, right, bottom in boxes:
        x0, x1 = (int(np.clip(np.rint(x), 0, width - 1)) for x in (left, right))
        y0, y1 = (int(np.clip(np.rint(y), 0, height - 1)) for y in (top, bottom))
        drawn[[y0, y1], x0 : x1 + 1] = _BOX
        drawn[y0 : y1 + 1, [x0, x1]] = _BOX
    return drawn


def _coloured(classes: Array) -> Array:
    """Classes of pixels as colours."""
    flat = classes.reshape(classes.shape[-2:]) if classes.size == math.prod(classes.shape[-2:]) else classes
    while flat.ndim > 2:
        flat = flat[0]
    return pixels_of(_COLOURS[np.abs(flat) % len(_COLOURS)], 0, 255)


_BARS = 30


def quality_sections(comparison: Comparison, *, decided: bool = True) -> list[Section]:
    """Decisions where they were judged, tensors, and layers where their sensitivity was measured.

    Without `decided` there are no decisions: a page has them elsewhere.
    """
    shown = [*comparison.outputs, *comparison.tensors][:_BARS]
    note = (
        f"{comparison.model} on {comparison.backend} against {comparison.reference} in float, {comparison.samples} "
        "samples. Signal to quantization noise: 6 dB more is half the error."
    )
    bars = Bars([row.name for row in shown], [row.sqnr_db for row in shown], "dB", "outputs, then worst tensors")
    everything = (*comparison.outputs, *comparison.tensors, *comparison.weights)
    sections: list[Section] = []
    if decided and comparison.decisions is not None:
        sections.append(decisions_section(comparison.decisions))
    sections.append(Section("Quantization", [bars, Table.of(ERRORS, everything)], note))
    if comparison.layers:
        alone = comparison.sensitivity == "one"
        columns = layer_columns(comparison.sensitivity)
        worst = comparison.layers[:_BARS]
        values = [r.sqnr_db if alone else r.gain_db for r in worst]
        title = "outputs' SQNR with only this layer quantized" if alone else "what leaving this layer in float wins"
        drawn = Bars([r.name for r in worst], values, "dB", title)
        sections.append(Section("Sensitivity of layers", [drawn, Table.of(columns, comparison.layers)]))
    return sections


def evaluation_sections(evaluation: Evaluation) -> list[Section]:
    """The score, and decisions where a float model was named."""
    unit = " dB" if in_decibels(evaluation.metric) else ""
    score = Figure("Score", f"{evaluation.score:.4f}{unit}", evaluation.metric)
    samples = Figure("Samples", str(evaluation.samples), f"on {evaluation.backend}")
    sections = [Section("Score", [Figures([score, samples], evaluation.model)])]
    if evaluation.decisions is not None:
        sections.insert(0, decisions_section(evaluation.decisions))
    return sections
