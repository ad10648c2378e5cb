# SPDX-License-Identifier: Apache-2.0
"""Front: mixes of two precisions by latency and quality, as a drawing shows them."""

from __future__ import annotations

from hexforge.analysis.quality.search import Searched
from hexforge.quant.measure.search import Point
from hexforge.report.section import Series


def front_series(searched: Searched, recommended: Point | None = None) -> list[Series]:
    """The mixes that no other beats, joined by a line, and all others; the recommended one is drawn large."""
    front, low, high = searched.mixes.front(), searched.mixes.low, searched.mixes.high
    parts = {
        "the front": front,
        "beaten by others": [p for p in searched.mixes.points.values() if p not in (*front, low, high)],
        searched.low.name: [low],
        searched.high.name: [high],
    }
    if recommended is not None:
        parts["recommended"] = [recommended]
    return [
        Series(
            name,
            [(p.latency_ms, p.quality) for p in mixes],
            [mix_name(p, searched) for p in mixes],
            mixes is front,
            name == "recommended",
        )
        for name, mixes in parts.items()
    ]


def front_note(searched: Searched) -> str:
    """What was measured, and how."""
    return (
        f"{len(searched.mixes.points)} mixes of {searched.low.name} and {searched.high.name} in "
        f"{len(searched.groups)} groups of layers: quality on the emulator, time simulated on {searched.soc}. "
        "On the front are those that no other beats."
    )


def mix_name(point: Point, searched: Searched) -> str:
    """Which groups of layers have the high precision."""
    if len(point.high) == len(searched.groups):
        return "all"
    return ", ".join(searched.groups[g].name for g in sorted(point.high)) or "none"
