# SPDX-License-Identifier: Apache-2.0
"""Optimizing: what `hexforge optimize` did to a model, why, what it costs and what is left, as sections on top."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hexforge.addons.tuning.advice.result import Advice
from hexforge.addons.tuning.front import front_columns, front_note, front_rows, front_series, mix_name, quality_axis
from hexforge.addons.tuning.mixes import EXACT_ENOUGH_DB
from hexforge.addons.tuning.optimize import OptimizeResult
from hexforge.amounts import size, with_decibels
from hexforge.analysis.estimate import Estimate
from hexforge.analysis.quality.decisions.verdict import figure_text
from hexforge.analysis.quality.metrics import quality_text
from hexforge.report.formatting import npu_part_only
from hexforge.report.graph import graph_section_of
from hexforge.report.page import page
from hexforge.report.pictures import pictures_section
from hexforge.report.quality import decisions_section, quality_sections
from hexforge.report.section import Bars, Column, Figure, Figures, Plot, Section, Step, Steps, Table

WORST = 3


def optimized_page(
    optimized: OptimizeResult,
    placement: Mapping[str, Any] | None = None,
    others: Iterable[Estimate | tuple[str, str]] | None = None,
) -> str:
    """The page: front and recommendation first, then what it costs and what to change, then the time as usual."""
    graph = graph_section_of(optimized.folder.quantized, optimized.after, optimized.comparison)
    sections = [*quality_sections(optimized.comparison, decided=False), *([graph] if graph is not None else [])]
    return page(optimized.after, placement, sections, others, lead=lead_sections(optimized), title=optimized.model)


def lead_sections(optimized: OptimizeResult) -> list[Section]:
    """The result, the front, and what to change next."""
    in_float = (
        "the chip has no float math" if optimized.before is None else f"{optimized.before.latency_ms:.3f} ms in float"
    )
    faster = (
        [] if optimized.speedup is None else [Figure("Faster", f"{optimized.speedup:.2f} x", "than float as it came")]
    )
    part = f"; {npu_part_only(optimized.after)}" if optimized.after.left_on_cpu else ""
    figures = [
        Figure("One inference", f"{optimized.after.latency_ms:.3f} ms", in_float + part),
        *faster,
        quality_figure(optimized),
        Figure("Outputs", with_decibels(optimized.comparison.sqnr_db), "signal to noise of the output that lost most"),
    ]
    if optimized.compiled is not None:
        figures.append(Figure("Context", size(optimized.compiled.nbytes), optimized.folder.context.name))
    recommended = Section(
        "Recommendation" if optimized.recommendation.recommended else "Not recommended",
        [Figures(figures, f"{_mix(optimized)}: {optimized.recommendation.reason}"), precision_bars(optimized)],
    )
    named = optimized.recommendation.recommended
    shown = [] if optimized.pictures is None else [pictures_section(optimized.pictures, recommended=named)]
    front = front_section(optimized)
    if optimized.comparison.decisions is not None:
        shown.insert(0, decisions_section(optimized.comparison.decisions))
    return [recommended, *shown, front, next_section(optimized), Section("Files", [_files(optimized)])]


def precision_bars(optimized: OptimizeResult) -> Bars:
    """The time of one inference in float, at either precision throughout, and as it is recommended."""
    searched, point = optimized.searched, optimized.recommendation.point

    def bar(name: str, ms: float, quality: float | None) -> tuple[str, float]:
        return name if quality is None else f"{name}, {quality_text(quality, searched.metric)}", ms

    bars = [] if optimized.before is None else [bar("float", optimized.before.latency_ms, optimized.float_score)]
    chosen = "recommended" if optimized.recommendation.recommended else "least bad"
    named = {searched.high.name: searched.mixes.high, chosen: point, searched.low.name: searched.mixes.low}
    bars += [bar(name, p.latency_ms, p.quality) for name, p in named.items() if p != point or name == chosen]
    mark = [label.startswith(chosen) for label, _ in bars].index(True)
    return Bars(
        [label for label, _ in bars], [ms for _, ms in bars], "ms", "One inference by precision", mark=mark, wide=True
    )


def quality_figure(optimized: OptimizeResult) -> Figure:
    """What it costs in accuracy."""
    decisions = optimized.comparison.decisions
    if optimized.float_score is None and decisions is not None:
        agreement = figure_text("agreement", decisions.agreement)
        return Figure("Decisions", agreement, f"as in float: {decisions.kind}, {decisions.verdict}")
    if optimized.float_score is None:
        worst = min((row.sqnr_db for row in optimized.comparison.tensors), default=math.nan)
        return Figure("Worst tensor", with_decibels(worst), f"on {optimized.comparison.samples} samples, against float")
    about = f"{quality_text(optimized.float_score, optimized.metric)} in float, on {optimized.scored} samples"
    name = optimized.metric.upper() if optimized.metric in ("psnr", "ssim") else optimized.metric
    return Figure(name, quality_text(optimized.score, optimized.metric), about)


def front_section(optimized: OptimizeResult) -> Section:
    """Latency and quality of every mix that was measured; those on the front are joined."""
    searched = optimized.searched
    recommended = optimized.recommendation.point if optimized.recommendation.recommended else None
    in_float = None
    if optimized.before is not None and optimized.float_score is not None:
        in_float = optimized.before.latency_ms, optimized.float_score
    unit, _ = quality_axis(searched.metric)
    plot = Plot("ms", unit, front_series(searched, recommended, in_float), "Every mix that was measured")
    table = Table.of(front_columns(searched, recommended), front_rows(searched), "The front", narrow=True)
    return Section("Speed and quality", [plot, table], note=front_note(searched))


def next_section(optimized: OptimizeResult) -> Section:
    """What was rewritten, and what to change next with its gain."""
    rewrites = optimized.rewrites
    done = [step(a) for a in rewrites.advice if a.rule in rewrites.applied]
    done += [
        Step(f"Parts of {name} kept apart", "accuracy", how)
        for name, how in optimized.quantization.plan.mixed_heads.items()
    ]
    left = [step(a) for a in optimized.next_steps]
    dropped = dict(rewrites.dropped)
    for advice in rewrites.advice:
        if advice.rule in dropped and advice.keeps_function:
            why = f"Left out, since on random inputs {dropped[advice.rule]}: look at it on your own data."
            left.append(replace(step(advice), text=why))
    if optimized.speedup is not None and optimized.speedup <= 1:
        left.insert(
            0, Step("Keep it in float", "", "It is as fast in float on this chip; integers save memory and power only.")
        )
    lost = [row for row in optimized.comparison.tensors if row.sqnr_db < EXACT_ENOUGH_DB]
    for row in lost[:WORST]:
        text = f"{row.name} is at {with_decibels(row.sqnr_db)}: more bits for the node that makes it win the most here."
        left.append(Step(f"Look at the {row.op_type or 'input'} that loses most", "accuracy", text))
    refused = [Step(f"{node} stays on the CPU", "", why) for node, why in optimized.quantization.refused[:WORST]]
    return Section(
        "What to change",
        [
            Steps([*refused, *left], "Next", "Nothing more is known that would make it faster."),
            Steps(done, "Done already", "No rewrite that keeps the function gains."),
        ],
    )


def step(advice: Advice) -> Step:
    """An advice as a step of the page, with its gain in latency."""
    gain = f"{100 * advice.gain:.1f} % faster" if advice.gain > 0 else "accuracy"
    places = f"{len(advice.nodes)} nodes: {', '.join(advice.nodes[:WORST])}" + (
        " …" if len(advice.nodes) > WORST else ""
    )
    return Step(advice.title, gain, f"{advice.why} {advice.how}".strip(), places if advice.nodes else "")


def _mix(optimized: OptimizeResult) -> str:
    """The recommended recipe, with the layers of the higher precision where they are few."""
    name, point = optimized.quantization.recipe.name, optimized.recommendation.point
    return f"{name} ({mix_name(point, optimized.searched)})" if 0 < len(point.high) <= WORST else name


def _files(optimized: OptimizeResult) -> Table:
    about: dict[Path, str] = {
        optimized.folder.quantized: "the recommended model, QDQ: for onnxruntime's QNN execution provider"
        if optimized.recommendation.recommended
        else "the mix that is least bad: not to be used",
        optimized.folder.context: "the same compiled: loads in milliseconds",
        optimized.folder.float_model: "the float model, shapes fixed and rewritten",
        optimized.folder.recipe: "how it was quantized: for hexforge quantize --recipe",
        optimized.folder.result: "these figures as JSON",
    }
    rows = [(path.name, path.stat().st_size, text) for path, text in about.items() if path.exists()]
    return Table((Column("file"), Column("size", "bytes"), Column("what it is")), rows, "Beside this page")
