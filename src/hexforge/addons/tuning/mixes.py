# SPDX-License-Identifier: Apache-2.0
"""Search: which layers need more bits. Measured one by one, then in growing sets; every point is kept.

A choice is the set of groups (of layers) that get the high precision. `measure` gives each choice its quality (more is
better) and its latency; it may be slow, run choices at the same time, and remember them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from hexforge.results import Key, Result

Choice = frozenset[int]
EXACT_ENOUGH_DB = 40.0
"""An error of a hundredth of the signal; more is seldom seen in what a model answers."""
POOR_DB, POOR_FACTOR = 15.0, 5.0
"""Below it the error is a fifth of the signal: whatever is gained in time, this is another model."""
PRICE_DB = 2.0
"""What 10 % more time must bring at least: an error that is a fifth smaller."""
SAME_DECISIONS = 0.02
"""How much less often than another a mix may decide as the float model does and count as much."""
GOOD_DECISIONS = 0.95
"""How often a mix decides as the float model does where its decisions are good; no less will do where there is one."""
Measured = tuple[float, float] | tuple[float, float, float, tuple[str, ...]]
"""Quality and latency in ms; where both models' decisions are judged, how often they agree, and alarms."""
Measure = Callable[[Sequence[Choice]], Iterable[Measured]]
"""What was measured of each choice, in order."""


@dataclass(frozen=True, slots=True)
class Point(Result):
    """A choice that was measured."""

    high: Choice
    quality: float
    latency_ms: float
    agreement: float = math.nan
    """How often it decides as the float model does, 0 to 1; NaN where that is not known."""
    alarms: tuple[str, ...] = ()
    """Outputs or channels that it has lost, whatever its quality is: it is never recommended."""

    described = (
        Key("quality", rounded=4),
        Key("latency_ms", rounded=5),
        Key("high", of=lambda point: sorted(point.high)),
        Key("agreement", rounded=6),
        "alarms",
    )

    def beats(self, other: Point) -> bool:
        """True where it is better in quality or latency, and not worse in the other."""
        better = self.quality > other.quality or self.latency_ms < other.latency_ms
        return better and self.quality >= other.quality and self.latency_ms <= other.latency_ms


@dataclass(slots=True)
class SearchPoints:
    """What a search saw."""

    groups: int
    points: dict[Choice, Point] = field(default_factory=dict)
    exhausted: bool = False
    """True where every choice was measured: what is not here is not in the space."""

    @property
    def low(self) -> Point:
        """Every group at the low precision."""
        return self.points[frozenset()]

    @property
    def high(self) -> Point:
        """Every group at the high precision."""
        return self.points[frozenset(range(self.groups))]

    def front(self) -> list[Point]:
        """Points that no other beats, fastest first; those with an alarm are no choice, so none is among them."""
        front: list[Point] = []
        sound = [point for point in self.points.values() if not point.alarms]
        for point in sorted(sound, key=lambda p: (p.latency_ms, -p.quality, len(p.high))):
            if not front or point.quality > front[-1].quality:
                front.append(point)
        return front

    def best(self, target: float) -> Point | None:
        """The fastest point of at least that quality and without an alarm."""
        good = [p for p in self.points.values() if p.quality >= target and not p.alarms]
        return min(good, key=lambda p: (p.latency_ms, -p.quality), default=None)

    def knee(self, *, decibels: bool = True) -> Point | None:
        """The point that is worth its price, of what decides well on the front; None where every point has an alarm."""
        front = deciding_well(self.front())
        return knee(front, decibels=decibels) if front else None

    def dominating(self) -> list[Point]:
        """Mixes that beat the high precision everywhere: faster, and no worse."""
        high = self.high
        return [p for p in self.front() if p.latency_ms < high.latency_ms and p.quality >= high.quality]


def deciding_well(front: Sequence[Point]) -> list[Point]:
    """The points of a front that decide as the float model does about as often as its best; all where it is not known.

    Quality in decibels may be high where decisions are lost, and low where none is.
    """
    best = max((p.agreement for p in front if not math.isnan(p.agreement)), default=math.nan)
    least = max(best - SAME_DECISIONS, GOOD_DECISIONS) if best >= GOOD_DECISIONS else best - SAME_DECISIONS
    return [p for p in front if math.isnan(best) or p.agreement >= least]


def knee(front: Sequence[Point], *, decibels: bool = True) -> Point:
    """The point of a front that is worth its price: of every two, the slower one must bring PRICE_DB for each 10 %.

    What exceeds EXACT_ENOUGH_DB counts as nothing, and decibels below POOR_DB count POOR_FACTOR times, since no speed
    makes up for a model that is lost. Where decisions are known, they tell what is poor, and count for one half: they
    are what people see, and decibels tell how near the next sample is to another decision. Scores that are no decibels
    count by what they lose to the best one.
    """
    best = max((p.quality for p in front if math.isfinite(p.quality)), default=0.0)

    def worth(point: Point) -> tuple[float, float]:
        db = poor = _capped(point.quality if decibels else _loss_in_db(best, point.quality))
        if decibels and not math.isnan(point.agreement):
            poor = _capped(_loss_in_db(1.0, point.agreement))
            db = (db + poor) / 2
        db += (POOR_FACTOR - 1) * min(poor - POOR_DB, 0.0)
        tenths = math.log(max(point.latency_ms, 1e-9)) / math.log(1.1)
        return db - PRICE_DB * tenths, -point.latency_ms

    return max(front, key=worth)


def _capped(db: float) -> float:
    return min(max(db, -EXACT_ENOUGH_DB), EXACT_ENOUGH_DB)


def _loss_in_db(best: float, quality: float) -> float:
    """A score as decibels: one that loses a tenth to the best has 20, one that loses a hundredth 40."""
    if quality >= best:
        return EXACT_ENOUGH_DB
    lost = (best - quality) / max(1.0, abs(best))
    return -20 * math.log10(lost) if math.isfinite(lost) else -EXACT_ENOUGH_DB


def search_mixes(
    groups: int,
    measure: Measure,
    *,
    target: float | None = None,
    budget: int = 100,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> SearchPoints:
    """A good front within `budget` measurements; without a target the high precision's quality is the goal."""
    searching = _Search(groups, measure, budget, progress)
    everything: Choice = frozenset(range(groups))
    searching.see([frozenset(), everything])
    if 2**groups <= budget:
        searching.see(frozenset(c) for n in range(groups + 1) for c in combinations(range(groups), n))
        searching.seen.exhausted = len(searching.seen.points) == 2**groups
        return searching.seen
    searching.see(frozenset([g]) for g in range(groups))
    order = searching.by_worth()
    searching.see(frozenset(order[:n]) for n in range(1, len(order)))
    goal = searching.seen.high.quality if target is None else target
    searching.see(everything - {g} for g in reversed(order))  # what the high precision can do without
    searching.see(everything - set(order[n:]) for n in range(groups - 1, 0, -2))
    searching.descend(goal)
    searching.widen()
    return searching.seen


class _Search:
    def __init__(self, groups: int, measure: Measure, budget: int, progress: Callable[[int, int], None]) -> None:
        self.seen = SearchPoints(groups)
        self._measure, self._budget, self._progress = measure, max(budget, 2), progress

    def see(self, choices: Iterable[Choice]) -> None:
        """Measure choices that were not, as far as the budget goes."""
        left = self._budget - len(self.seen.points)
        new = list(dict.fromkeys(frozenset(c) for c in choices if frozenset(c) not in self.seen.points))[:left]
        for choice, measured in zip(new, self._measure(new), strict=True):
            self.seen.points[choice] = Point(choice, *measured)
            self._progress(len(self.seen.points), min(self._budget, 2**self.seen.groups))

    def by_worth(self) -> list[int]:
        """Groups by what quality each gains for the time it costs, alone."""
        low = self.seen.low

        def worth(group: int) -> float:
            point = self.seen.points.get(frozenset([group]))
            if point is None:
                return float("-inf")
            gain, cost = point.quality - low.quality, point.latency_ms - low.latency_ms
            return gain / max(cost, 1e-6) if gain > 0 else gain

        return sorted(range(self.seen.groups), key=worth, reverse=True)

    def descend(self, goal: float) -> None:
        """From the fastest point that is good enough, take back the groups that save most, as long as it stays so."""
        while len(self.seen.points) < self._budget:
            best = self.seen.best(goal)
            if best is None:
                return
            before = len(self.seen.points)
            self.see(best.high - {g} for g in sorted(best.high, key=self._saving, reverse=True))
            now = self.seen.best(goal)
            if now is best or len(self.seen.points) == before:
                return

    def widen(self) -> None:
        """Spend the rest of the budget on mixes one group away from the front, until each of them was measured."""
        while len(self.seen.points) < self._budget:
            near = [p.high ^ {g} for p in self.seen.front() for g in range(self.seen.groups)]
            before = len(self.seen.points)
            self.see(near)
            if len(self.seen.points) == before:
                return

    def _saving(self, group: int) -> float:
        point = self.seen.points.get(frozenset([group]))
        return 0.0 if point is None else point.latency_ms
