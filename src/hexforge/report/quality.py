# SPDX-License-Identifier: Apache-2.0
"""Quality: a comparison of a quantized model with the float one, or its score, as sections of the page."""

from __future__ import annotations

from hexforge.analysis.quality.comparison import ERRORS, Comparison, layer_columns
from hexforge.analysis.quality.evaluate import Evaluation
from hexforge.analysis.quality.metrics import in_decibels
from hexforge.report.decisions import decisions_section
from hexforge.report.section import Bars, Figure, Figures, Section, Table

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
