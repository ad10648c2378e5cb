# SPDX-License-Identifier: Apache-2.0
"""Quality: a comparison of a quantized model with the float one, its score, or a what-if, as sections of the page."""

from __future__ import annotations

from collections.abc import Iterable

from hexforge.analysis.quality.comparison import Comparison, TensorError
from hexforge.analysis.quality.evaluate import Evaluation
from hexforge.analysis.quality.metrics import in_decibels
from hexforge.analysis.quality.whatif import WhatIf
from hexforge.report.quantized.decisions import decisions_section
from hexforge.report.section import Bars, Cell, Column, Figure, Figures, Section, Table

_BARS = 30
_TENSORS = (
    Column("tensor"),
    Column("kind", choose=True),
    Column("op", choose=True, about="What makes it; what reads it, for a weight"),
    Column("type", choose=True),
    Column("SQNR dB", "number", 2, about="In the running quantized model, all errors before it included"),
    Column("cosine", "number", 6),
    Column("max error", "number", 5),
    Column("own SQNR dB", "number", 2, about="What its own quantization leaves of the float model's numbers"),
)
_LAYERS = (
    Column("layer"),
    Column("op", choose=True),
    Column("SQNR dB", "number", 2, about="Of the output that lost most"),
    Column("gain dB", "number", 2, about="By leaving this layer in float"),
)


_BLAMED = (
    Column("node"),
    Column("op", choose=True),
    Column("share", "share"),
    Column("switched alone", "number", 6),
    Column("left out: less by", "number", 6),
    Column("of the model's nodes"),
)


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
    sections.append(Section("Quantization", [bars, Table(_TENSORS, list(_rows(everything)))], note))
    if comparison.layers:
        alone = comparison.sensitivity == "one"
        rows = [(r.name, r.op_type, r.sqnr_db, None if alone else r.gain_db) for r in comparison.layers]
        worst = comparison.layers[:_BARS]
        values = [r.sqnr_db if alone else r.gain_db for r in worst]
        title = "outputs' SQNR with only this layer quantized" if alone else "what leaving this layer in float wins"
        drawn = Bars([r.name for r in worst], values, "dB", title)
        sections.append(Section("Sensitivity of layers", [drawn, Table(_LAYERS, rows)]))
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


def whatif_section(result: WhatIf) -> Section:
    """What a switch does to a model at the input that shows it most, and which nodes are to blame."""
    place = ", ".join(map(str, result.place))
    figures = [
        Figure("difference", f"{result.difference:.6g}", f"output {result.output} at [{place}]"),
        Figure("of its largest number", f"{100 * result.relative:.3g} %"),
        Figure("without, with", f"{result.without:.6g}, {result.with_switch:.6g}"),
        Figure("random inputs showed", f"{result.random_difference:.6g}", f"{result.tries} inputs tried"),
    ]
    shown = result.blame[:_BARS]
    bars = Bars([row.node for row in shown], [100 * row.share for row in shown], "%", "Share of the blame")
    rows = [(b.node, b.op, b.share, b.alone, b.saves, ", ".join(b.source)) for b in result.blame]
    note = f"{result.meaning}; {result.nodes} nodes of the graph have it."
    if result.blame_left_out:
        note += f" The {len(result.blame)} most to blame are told apart; {result.blame_left_out} others are not."
    return Section("What if", [Figures(figures, f"{result.switch} on {result.soc}"), bars, Table(_BLAMED, rows)], note)


def _rows(errors: Iterable[TensorError]) -> Iterable[tuple[Cell, ...]]:
    for row in errors:
        running, own = row.running, row.own
        figures = (None, None, None) if running is None else (row.sqnr_db, running.cosine, running.max_error)
        yield (row.name, row.kind, row.op_type, row.dtype, *figures, None if own is None else own.sqnr_db)
