"""Search: which layers need more bits. Measured one by one, then in growing sets; every point is kept.

A choice is the set of groups (of layers) that get the high precision. `measure` gives each choice its quality (more is
better) and its latency; it may be slow, run choices at the same time, and remember them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

Choice = frozenset[int]
Measure = Callable[[Sequence[Choice]], Iterable[tuple[float, float]]]
"""Quality and latency in ms of each choice, in order."""


@dataclass(frozen=True, slots=True)
class Point:
    """A choice that was measured."""

    high: Choice
    quality: float
    latency_ms: float

    def beats(self, other: Point) -> bool:
        """True where it is no worse in both and better in one."""
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
        """Points that no other beats, fastest first."""
        found: list[Point] = []
        for point in sorted(self.points.values(), key=lambda p: (p.latency_ms, -p.quality, len(p.high))):
            if not found or point.quality > found[-1].quality:
                found.append(point)
        return found

    def best(self, target: float) -> Point | None:
        """The fastest point of at least that quality."""
        good = [p for p in self.points.values() if p.quality >= target]
        return min(good, key=lambda p: (p.latency_ms, -p.quality), default=None)

    def dominating(self) -> list[Point]:
        """Mixes that beat the high precision everywhere: faster, and no worse."""
        high = self.high
        return [p for p in self.front() if p.latency_ms < high.latency_ms and p.quality >= high.quality]


def search(
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
        searching.found.exhausted = len(searching.found.points) == 2**groups
        return searching.found
    searching.see(frozenset([g]) for g in range(groups))
    order = searching.by_worth()
    searching.see(_prefixes(order))
    goal = searching.found.high.quality if target is None else target
    searching.see(everything - {g} for g in reversed(order))  # what the high precision can do without
    searching.see(everything - set(order[n:]) for n in range(groups - 1, 0, -2))
    searching.descend(goal)
    searching.widen()
    return searching.found


class _Search:
    def __init__(self, groups: int, measure: Measure, budget: int, progress: Callable[[int, int], None]) -> None:
        self.found = SearchPoints(groups)
        self._measure, self._budget, self._progress = measure, max(budget, 2), progress

    def see(self, choices: Iterable[Choice]) -> None:
        """Measure choices that were not, as far as the budget goes."""
        left = self._budget - len(self.found.points)
        new = list(dict.fromkeys(frozenset(c) for c in choices if frozenset(c) not in self.found.points))[:left]
        for choice, (quality, latency) in zip(new, self._measure(new), strict=True):
            self.found.points[choice] = Point(choice, quality, latency)
            self._progress(len(self.found.points), min(self._budget, 2**self.found.groups))

    def by_worth(self) -> list[int]:
        """Groups by what quality each gains for the time it costs, alone."""
        low = self.found.low

        def worth(group: int) -> float:
            point = self.found.points.get(frozenset([group]))
            if point is None:
                return float("-inf")
            gain, cost = point.quality - low.quality, point.latency_ms - low.latency_ms
            return gain / max(cost, 1e-6) if gain > 0 else gain

        return sorted(range(self.found.groups), key=worth, reverse=True)

    def descend(self, goal: float) -> None:
        """From the fastest point that is good enough, take back the groups that save most, as long as it stays so."""
        while len(self.found.points) < self._budget:
            best = self.found.best(goal)
            if best is None:
                return
            before = len(self.found.points)
            self.see(best.high - {g} for g in sorted(best.high, key=self._saving, reverse=True))
            now = self.found.best(goal)
            if now is best or len(self.found.points) == before:
                return

    def widen(self) -> None:
        """With what is left: mixes one group away from the front, until each of them was measured."""
        while len(self.found.points) < self._budget:
            near = [p.high ^ {g} for p in self.found.front() for g in range(self.found.groups)]
            before = len(self.found.points)
            self.see(near)
            if len(self.found.points) == before:
                return

    def _saving(self, group: int) -> float:
        point = self.found.points.get(frozenset([group]))
        return 0.0 if point is None else point.latency_ms


def _prefixes(order: Sequence[int]) -> list[Choice]:
    return [frozenset(order[:n]) for n in range(1, len(order))]
