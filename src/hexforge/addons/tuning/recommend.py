# SPDX-License-Identifier: Apache-2.0
"""Recommend: which of the mixes on a front to take, and why, in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from hexforge.addons.tuning.mixes import EXACT_ENOUGH_DB, POOR_DB, Point, deciding_well, knee
from hexforge.addons.tuning.search import SearchResult
from hexforge.analysis.quality.decisions.verdict import USABLE, Decisions, figure_text
from hexforge.analysis.quality.metrics import in_decibels, quality_text

KEPT, KEPT_DB = 0.01, 0.1
"""A score may be this much below the float model's; one in decibels, as of pictures, where less is not seen."""


WITHOUT_MIX = "Keep the model in float, give samples as it sees them in use, or quantize by a recipe of your own."


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A point of a front, and why this one."""

    point: Point
    kind: Literal["only", "fastest", "knee", "best", "poor", "none"]
    """poor: the best there is, and little of the model is left; none: every mix has an alarm."""
    reason: str

    @property
    def recommended(self) -> bool:
        """False where nothing can be recommended: every mix has an alarm, and the point is only what is least bad."""
        return self.kind != "none"


def recommend(searched: SearchResult, float_score: float | None = None) -> Recommendation:
    """The fastest mix that keeps the float model's score; by SQNR the fastest if it is exact, else the knee.

    Mixes with an alarm are never recommended. By SQNR those count that decide as the float model does most often, and
    whether a mix is poor is told by its decisions where they are known.
    """
    whole = front = [p for p in searched.mixes.front() if math.isfinite(p.quality) or p.quality > 0]
    alarms = [alarm for p in searched.mixes.points.values() for alarm in p.alarms]
    if not front and alarms:
        least_bad = min(searched.mixes.points.values(), key=lambda p: (len(p.alarms), -p.quality, p.latency_ms))
        return Recommendation(
            least_bad,
            "none",
            f"Nothing is recommended: all {len(searched.mixes.points)} mixes have lost an output. "
            f"{_sentence(alarms[0])} {WITHOUT_MIX}",
        )
    if not front:
        front = [searched.mixes.low]
    if float_score is None:
        front = deciding_well(front)
        if _poor(front[-1]):
            return Recommendation(
                front[-1],
                "poor",
                f"No mix keeps the outputs: the best is {_label(front[-1], searched)}. Give samples as the model sees "
                "them in use (not random ones, and scaled as in training), try recipes with +equalize, or keep the "
                "model in float.",
            )
    dropped = [point for point in whole if point not in front]
    chosen = _chosen(front, searched, float_score, alone=not dropped)
    return replace(chosen, reason=f"{chosen.reason}{_passed_over(chosen.point, dropped, searched)}")


def _chosen(front: list[Point], searched: SearchResult, float_score: float | None, *, alone: bool) -> Recommendation:
    """The point of a front that is worth its price; `alone` where all of the front is there."""
    if len(front) == 1:
        said = "No other mix that was measured is faster or better" if alone else "The one mix that decides well"
        return Recommendation(front[0], "only", f"{said} {_in_brackets(front[0], searched)}.")
    fastest, best = front[0], front[-1]
    well = "" if alone else " that decides well"
    if float_score is not None:
        kept, unit = (KEPT_DB, " dB") if in_decibels(searched.metric) else (KEPT, "")
        good = [p for p in front if p.quality >= float_score - kept]
        if good:
            point = good[0]
            lost = float_score - point.quality
            loss = f"{quality_text(lost, searched.metric)} below" if lost > 0 else "no worse than"
            return Recommendation(
                point,
                "fastest" if point is fastest else "knee",
                f"The fastest mix that keeps {searched.metric} within {kept:g}{unit} of the float model's: {loss} it"
                f"{_faster(point, front, searched)}.",
            )
        return Recommendation(
            best,
            "best",
            f"No mix keeps {searched.metric} within {kept:g}{unit} of the float model's "
            f"{quality_text(float_score, searched.metric)}; this is the best, "
            f"{quality_text(float_score - best.quality, searched.metric)} below it.",
        )
    if fastest.quality >= EXACT_ENOUGH_DB:
        slower = f"; the best, {_label(best, searched)}, takes {_percent(best, fastest)} longer"
        return Recommendation(
            fastest, "fastest", f"The fastest mix, and exact enough {_in_brackets(fastest, searched)}{slower}."
        )
    point = knee(front, decibels=in_decibels(searched.metric))
    if point is fastest or point is best:
        kind: Literal["fastest", "best"] = "fastest" if point is fastest else "best"
        other = best if point is fastest else fastest
        return Recommendation(
            point,
            kind,
            f"The {kind} mix{well} {_in_brackets(point, searched)}; the other end of the front is "
            f"{_label(other, searched)}.",
        )
    return Recommendation(
        point,
        "knee",
        f"The knee of the front {_in_brackets(point, searched)}: the fastest mix{well}, {_label(fastest, searched)}, "
        f"loses {point.quality - fastest.quality:.1f} dB more, and the best, {_label(best, searched)}, takes "
        f"{_percent(best, point)} longer.",
    )


def _passed_over(point: Point, dropped: list[Point], searched: SearchResult) -> str:
    """Mixes that were measured, are faster, and are no choice, with the reason; empty where there are none."""
    said = ""
    if faster := [p for p in dropped if p.latency_ms < point.latency_ms]:
        said += f" Faster, but less often deciding as the float model does: {_label(faster[0], searched)}"
        said += f" and {len(faster) - 1} more." if len(faster) > 1 else "."
    lost = sorted(p.latency_ms for p in searched.mixes.points.values() if p.alarms)
    if lost and lost[0] < point.latency_ms:
        count = sum(ms < point.latency_ms for ms in lost)
        said += f" Faster, but with an output lost: {lost[0]:.3f} ms{f' and {count - 1} more' if count > 1 else ''}."
    return said


def confirmed(choice: Recommendation, decisions: Decisions | None) -> Recommendation:
    """A recommendation after what was written was judged: none with an alarm, poor where its decisions are lost."""
    if decisions is None or not choice.recommended:
        return choice
    if decisions.usable:
        if decisions.verdict != "usable" or decisions.decisive is None:
            return choice
        said = f"Its decisions are usable, not good: {decisions.decisive.text()}."
        return replace(choice, reason=f"{choice.reason} {said} Keep the model in float where that is too little.")
    if decisions.alarms:
        said = _sentence(decisions.alarms[0].text)
        return Recommendation(choice.point, "none", f"Nothing is recommended: {said} {WITHOUT_MIX}")
    if choice.kind == "poor":
        return choice
    return Recommendation(
        choice.point, "poor", f"{choice.reason} But it decides too seldom as the float model does: {decisions.text()}."
    )


def _poor(point: Point) -> bool:
    """Whether little of a model is left: by what it decides where that is known, else by SQNR."""
    return point.quality < POOR_DB if math.isnan(point.agreement) else point.agreement < USABLE


def _sentence(text: str) -> str:
    """A text with a capital at its beginning and a stop at its end."""
    return f"{text[:1].upper()}{text[1:]}."


def _faster(point: Point, front: list[Point], searched: SearchResult) -> str:
    best = front[-1]
    return "" if point is best else f"; the best, {_label(best, searched)}, takes {_percent(best, point)} longer"


def _percent(slow: Point, fast: Point) -> str:
    return f"{100 * (slow.latency_ms / fast.latency_ms - 1):.0f} %"


def _label(point: Point, searched: SearchResult) -> str:
    quality = quality_text(point.quality, searched.metric)
    decides = ""
    if not math.isnan(point.agreement) and searched.metric == "sqnr":
        decides = f", decisions {figure_text('agreement', point.agreement)}"
    at = "" if quality == "exact" else " at"
    return f"{point.latency_ms:.3f} ms{at or ','} {quality}{decides}"


def _in_brackets(point: Point, searched: SearchResult) -> str:
    return f"({_label(point, searched)})"
