# SPDX-License-Identifier: Apache-2.0
"""Optimizing: what `hexforge optimize` did to a model, why, what it costs and what is left, as sections on top."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hexforge.analysis.advise import Advice
from hexforge.analysis.estimate import Estimate
from hexforge.analysis.optimize import Optimized
from hexforge.analysis.quality.search import Searched
from hexforge.analysis.recommend import EXACT_ENOUGH_DB
from hexforge.quant.measure.search import Point
from hexforge.report.graph import graph_section_of
from hexforge.report.page import page
from hexforge.report.quality import quality_sections
from hexforge.report.section import Column, Figure, Figures, Plot, Section, Series, Step, Steps, Table
from hexforge.report.words import size

WORST = 3


def optimized_page(
    found: Optimized,
    placement: Mapping[str, Any] | None = None,
    others: Iterable[Estimate | tuple[str, str]] | None = None,
) -> str:
    """The page: front and recommendation first, then what it costs and what to change, then the time as usual."""
    graph = graph_section_of(found.folder.quantized, found.after, found.comparison)
    sections = [*quality_sections(found.comparison), *([graph] if graph is not None else [])]
    return page(found.after, placement, sections, others, lead=lead_sections(found), title=found.model)


def lead_sections(found: Optimized) -> list[Section]:
    """The result, the front, and what to change next."""
    in_float = "the chip has no float math" if found.before is None else f"{found.before.latency_ms:.3f} ms in float"
    faster = [] if found.speedup is None else [Figure("Faster", f"{found.speedup:.2f} x", "than float as it came")]
    figures = [
        Figure("One inference", f"{found.after.latency_ms:.3f} ms", in_float),
        *faster,
        quality_figure(found),
        Figure("Outputs", _db(found.comparison.sqnr_db), "signal to noise of the output that lost most"),
    ]
    if found.compiled is not None:
        figures.append(Figure("Context", size(found.compiled.nbytes), found.folder.context.name))
    recommended = Section(
        "Recommendation",
        [Figures(figures, f"{found.quantization.recipe.name}: {found.recommendation.reason}")],
    )
    front = front_section(found.searched, found.recommendation.point)
    return [recommended, front, next_section(found), Section("Files", [_files(found)])]


def quality_figure(found: Optimized) -> Figure:
    """What it costs in accuracy."""
    if found.float_score is None:
        worst = min((row.sqnr_db for row in found.comparison.tensors), default=math.nan)
        return Figure("Worst tensor", _db(worst), f"on {found.comparison.samples} samples, against float")
    about = f"{found.float_score:.4f} in float, on {found.scored} samples"
    return Figure(found.metric, f"{found.score:.4f}", about)


def front_section(found: Searched, recommended: Point) -> Section:
    """Latency and quality of every mix that was measured; those on the front are joined."""
    front, points = found.found.front(), list(found.found.points.values())
    low, high = found.found.low, found.found.high
    parts = {
        "the front": front,
        "beaten by others": [p for p in points if p not in (*front, low, high)],
        found.low.name: [low],
        found.high.name: [high],
        "recommended": [recommended],
    }
    series = [
        Series(
            name,
            [(p.latency_ms, p.quality) for p in some],
            [mix_name(p, found) for p in some],
            some is front,
            name == "recommended",
        )
        for name, some in parts.items()
    ]
    unit, digits = ("SQNR dB", 1) if found.metric == "sqnr" else (found.metric, 4)
    columns = (
        Column(""), Column("ms", "number", 3), Column(unit, "number", digits), Column(f"at {found.high.name}"),
    )  # fmt: skip
    rows = [("→" if p == recommended else "", p.latency_ms, p.quality, mix_name(p, found)) for p in front]
    return Section(
        "Speed and quality",
        [Plot("ms", unit, series, "Every mix that was measured"), Table(columns, rows, "The front", narrow=True)],
        note=f"{len(points)} mixes of {found.low.name} and {found.high.name} in {len(found.groups)} groups of layers: "
        f"quality on the emulator, time simulated on {found.soc}. On the front are those that no other beats.",
    )


def mix_name(point: Point, found: Searched) -> str:
    """Which groups of layers have the high precision."""
    if len(point.high) == len(found.groups):
        return "all"
    return ", ".join(found.groups[g].name for g in sorted(point.high)) or "none"


def next_section(found: Optimized) -> Section:
    """What was rewritten, and what to change next with its gain."""
    rewrites = found.rewrites
    done = [step(a) for a in rewrites.advice if a.rule in rewrites.applied]
    left = [step(a) for a in found.next_steps]
    dropped = dict(rewrites.dropped)
    for advice in rewrites.advice:
        if advice.rule in dropped and advice.keeps_function:
            why = f"Left out, since on random inputs {dropped[advice.rule]}: look at it on your own data."
            left.append(replace(step(advice), text=why))
    if found.speedup is not None and found.speedup <= 1:
        left.insert(
            0, Step("Keep it in float", "", "It is as fast in float on this chip; integers save memory and power only.")
        )
    lost = [row for row in found.comparison.tensors if row.sqnr_db < EXACT_ENOUGH_DB]
    for row in lost[:WORST]:
        text = f"{row.name} is at {_db(row.sqnr_db)}: more bits for the node that makes it win the most here."
        left.append(Step(f"Look at the {row.op_type or 'input'} that loses most", "accuracy", text))
    refused = [Step(f"{node} stays on the CPU", "", why) for node, why in found.quantization.refused[:WORST]]
    return Section(
        "What to change",
        [
            Steps([*refused, *left], "Next", "Nothing more is known that would make it faster."),
            Steps(done, "Done already: rewrites that keep the function", "No rewrite that keeps the function gains."),
        ],
    )


def step(advice: Advice) -> Step:
    """An advice as a step: the gain is of the latency."""
    gain = f"{100 * advice.gain:.1f} % faster" if advice.gain > 0 else "accuracy"
    places = f"{len(advice.nodes)} nodes: {', '.join(advice.nodes[:WORST])}" + (
        " …" if len(advice.nodes) > WORST else ""
    )
    return Step(advice.title, gain, f"{advice.why} {advice.how}".strip(), places if advice.nodes else "")


def _files(found: Optimized) -> Table:
    about: dict[Path, str] = {
        found.folder.quantized: "the recommended model, QDQ: for onnxruntime's QNN execution provider",
        found.folder.context: "the same compiled: loads in milliseconds",
        found.folder.float_model: "the float model, shapes fixed and rewritten",
        found.folder.recipe: "how it was quantized: for hexforge quantize --recipe",
        found.folder.result: "these figures as JSON",
    }
    rows = [(path.name, path.stat().st_size, text) for path, text in about.items() if path.exists()]
    return Table((Column("file"), Column("size", "bytes"), Column("what it is")), rows, "Beside this page")


def _db(number: float) -> str:
    return f"{number:.1f} dB" if math.isfinite(number) else "exact" if number > 0 else "lost"
