# SPDX-License-Identifier: Apache-2.0
"""Front: mixes of two precisions by latency and quality, as a drawing shows them."""

from __future__ import annotations

import math

from hexforge.addons.tuning.mixes import Point
from hexforge.addons.tuning.search import SearchResult
from hexforge.analysis.quality.decisions.verdict import figure_text
from hexforge.analysis.quality.metrics import in_decibels
from hexforge.report.section import Column, Series


def quality_axis(metric: str) -> tuple[str, int]:
    """What the quality is called on an axis, and the digits that matter of it."""
    return (f"{metric.upper()} dB", 2 if metric == "psnr" else 1) if in_decibels(metric) else (metric, 4)


def front_rows(searched: SearchResult) -> list[tuple[str, Point]]:
    """The mixes that no other beats, between the two precisions throughout, with their names."""
    low, high = searched.mixes.low, searched.mixes.high
    between = [point for point in searched.mixes.front() if point.high not in (low.high, high.high)]
    mixes = [(f"mix {i}", point) for i, point in enumerate(between, 1)]
    return [(searched.low.name, low), *mixes, (searched.high.name, high)]


def front_columns(searched: SearchResult, chosen: Point | None = None) -> tuple[Column, ...]:
    """A named mix as a table has it, `chosen` with an arrow; the last column says which groups are at the high one."""
    unit, digits = quality_axis(searched.metric)
    high, slowest = searched.high.name, searched.mixes.high.latency_ms
    return (
        Column("", of=lambda row: "→" if row[1] == chosen else "", key="chosen"),
        Column("mix", of=lambda row: row[0]),
        Column("ms", "number", 3, of=lambda row: row[1].latency_ms),
        Column(unit, "decibels" if unit.endswith("dB") else "number", digits, of=lambda row: row[1].quality),
        Column("decisions", of=lambda row: decided_text(row[1])),
        Column(f"groups {high}", of=lambda row: f"{len(row[1].high)} of {len(searched.groups)}", leaves=2),
        Column(f"to {high}", of=lambda row: f"{100 * (row[1].latency_ms / slowest - 1):+.1f} %", leaves=1),
        Column(f"at {high}", of=lambda row: mix_name(row[1], searched)),
    )


def front_series(
    searched: SearchResult, recommended: Point | None = None, in_float: tuple[float, float] | None = None
) -> list[Series]:
    """The mixes that no other beats, joined by a line, and all others; the recommended one is drawn large.

    `in_float` is the float model's latency and quality.
    """
    front, low, high = searched.mixes.front(), searched.mixes.low, searched.mixes.high
    parts = {
        "the front": front,
        "beaten by others": [
            p for p in searched.mixes.points.values() if p not in (*front, low, high) and not p.alarms
        ],
        "with an alarm": [p for p in searched.mixes.points.values() if p not in (low, high) and p.alarms],
        searched.low.name: [low],
        searched.high.name: [high],
    }
    if not parts["with an alarm"]:
        del parts["with an alarm"]
    if recommended is not None:
        parts["recommended"] = [recommended]
    drawn = [
        Series(
            name,
            [(p.latency_ms, p.quality) for p in mixes],
            [mix_name(p, searched) for p in mixes],
            mixes is front,
            name == "recommended",
        )
        for name, mixes in parts.items()
    ]
    return drawn if in_float is None else [*drawn, Series("float", [in_float])]


def front_note(searched: SearchResult) -> str:
    """What was measured, and how."""
    return (
        f"{len(searched.mixes.points)} mixes of {searched.low.name} and {searched.high.name} in "
        f"{len(searched.groups)} groups of layers: quality on the emulator, time simulated on {searched.soc}. "
        "On the front are those that no other beats."
    )


def decided_text(point: Point) -> str:
    """How often a mix decides as the float model does, or that it has an alarm."""
    if point.alarms:
        return "alarm"
    return "" if math.isnan(point.agreement) else figure_text("agreement", point.agreement)


def mix_name(point: Point, searched: SearchResult) -> str:
    """Which groups of layers have the high precision."""
    if len(point.high) == len(searched.groups):
        return "all"
    return ", ".join(searched.groups[g].name for g in sorted(point.high)) or "none"
