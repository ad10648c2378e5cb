# SPDX-License-Identifier: Apache-2.0
"""The search: exhaustive where it can be, near the best where it cannot, and every point it saw is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.quant.search import Choice, Point, SearchPoints, knee, search_mixes


class World:
    """Layers that lose quality at low precision and take longer at high precision, independently."""

    def __init__(self, groups: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.noise, self.cost = rng.exponential(1.0, groups) ** 2, rng.exponential(1.0, groups) + 0.01
        self.asked: list[Choice] = []

    def point(self, choice: Choice) -> tuple[float, float]:
        low = [g for g in range(len(self.noise)) if g not in choice]
        return float(-self.noise[low].sum()), float(1 + self.cost[list(choice)].sum())

    def __call__(self, choices: Sequence[Choice]) -> Iterator[tuple[float, float]]:
        for choice in choices:
            self.asked.append(choice)
            yield self.point(choice)


def every(groups: int) -> list[Choice]:
    return [frozenset(c) for n in range(groups + 1) for c in combinations(range(groups), n)]


@given(st.integers(1, 5), st.integers(0, 10_000))
@settings(max_examples=30)
def test_a_small_space_is_measured_whole(groups: int, seed: int) -> None:
    world = World(groups, seed)
    found = search_mixes(groups, world, budget=32)
    assert found.exhausted
    assert set(found.points) == set(every(groups))
    assert len(world.asked) == len(set(world.asked))
    front = found.front()
    for choice in every(groups):
        point = Point(choice, *world.point(choice))
        assert not any(point.beats(p) for p in front)


@given(st.integers(0, 10_000), st.floats(0.3, 0.95))
@settings(max_examples=20)
def test_a_large_space_is_searched_near_its_best(seed: int, share: float) -> None:
    groups = 10
    world = World(groups, seed)
    goal = world.point(frozenset())[0] * (1 - share)
    found = search_mixes(groups, world, target=goal, budget=90)
    assert len(world.asked) <= 90
    assert not found.exhausted
    best = found.best(goal)
    assert best is not None
    ideal = min(ms for q, ms in (world.point(c) for c in every(groups)) if q >= goal)
    assert best.latency_ms - 1 <= 1.6 * (ideal - 1) + 0.5


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_a_budget_that_is_left_looks_around_the_front(seed: int) -> None:
    found = search_mixes(7, World(7, seed), budget=120)
    if len(found.points) < 120:
        assert all(p.high ^ {g} in found.points for p in found.front() for g in range(7))


def test_what_dominates_the_high_precision() -> None:
    found = SearchPoints(2)
    for choice, quality, ms in (((), 1.0, 1.0), ((0,), 5.0, 1.5), ((1,), 2.0, 1.8), ((0, 1), 5.0, 2.0)):
        found.points[frozenset(choice)] = Point(frozenset(choice), quality, ms)
    assert [p.high for p in found.dominating()] == [frozenset({0})]
    assert [p.high for p in found.front()] == [frozenset(), frozenset({0})]
    assert found.best(6.0) is None
    best = found.best(4.0)
    assert best is not None
    assert best.high == {0}


def test_the_budget_is_kept_even_when_tiny() -> None:
    world = World(8, 3)
    assert len(search_mixes(8, world, budget=2).points) == 2
    assert len(search_mixes(8, World(8, 3), budget=11).points) == 11


def test_the_knee_is_where_quality_becomes_dear() -> None:
    found = SearchPoints(3)
    for number, (quality, ms) in enumerate([(20.0, 1.0), (50.0, 1.1), (55.0, 1.8), (56.0, 2.5), (40.0, 2.0)]):
        found.points[frozenset([number])] = Point(frozenset([number]), quality, ms)
    assert found.knee().latency_ms == 1.1
    one = SearchPoints(1, {frozenset(): Point(frozenset(), math.inf, 1.0)})
    assert one.knee().quality == math.inf


def test_the_knee_is_above_the_line() -> None:
    front = [Point(frozenset({i}), q, ms) for i, (ms, q) in enumerate([(1, 0), (2, 8), (3, 9), (5, 10)])]
    assert knee(front).latency_ms == 2
    straight = [Point(frozenset({i}), float(i), float(i)) for i in range(3)]
    assert knee(straight) is straight[-1]
    exact = [Point(frozenset({i}), q, ms) for i, (ms, q) in enumerate([(1, 20.0), (2, 30.0), (2.1, math.inf)])]
    assert knee(exact) is exact[-1]
    lost = [Point(frozenset({i}), q, ms) for i, (ms, q) in enumerate([(1, -math.inf), (1.2, 30.0), (5, 31.0)])]
    assert knee(lost) is lost[1]
