# SPDX-License-Identifier: Apache-2.0
"""The search: exhaustive where it can be, near the best where it cannot, and every point it saw is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.addons.tuning.mixes import (
    EXACT_ENOUGH_DB,
    POOR_DB,
    PRICE_DB,
    Choice,
    Point,
    SearchPoints,
    knee,
    search_mixes,
)


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


def front_of(*points: tuple[float, float]) -> list[Point]:
    """A front by its (latency, quality) pairs."""
    return [Point(frozenset({i}), quality, ms) for i, (ms, quality) in enumerate(points)]


@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ([(1.0, 30.0), (1.1, 30.5)], 1.0),  # 10 % more time for half a decibel
        ([(1.0, 30.0), (1.1, 32.5)], 1.1),
        ([(1.0, 20.0), (1.05, 30.0), (1.1, 38.0)], 1.1),  # steep
        ([(1.0, 24.0), (1.02, 24.1), (1.03, 24.2), (1.5, 24.4), (2.0, 24.9)], 1.0),  # flat, with noise
        ([(1.0, 24.0), (1.01, 24.3), (1.04, 33.0), (1.05, 33.1), (2.0, 34.0)], 1.04),  # noise around one step
        ([(1.0, 20.0), (1.9, 22.0), (2.0, 38.0)], 2.0),  # nothing, then all at once
        ([(1.0, 20.0), (1.2, 26.0), (1.44, 32.0), (1.73, 38.0)], 1.73),  # each step is worth its price
        ([(1.0, 20.0), (1.2, 23.0), (1.44, 26.0), (1.73, 29.0)], 1.0),  # none is
        ([(1.0, 45.0), (1.1, 90.0), (1.2, math.inf)], 1.0),  # exact enough
        ([(1.0, 34.0), (1.2, 60.0), (1.3, 120.0)], 1.2),
        ([(1.0, 20.0), (2.0, 30.0), (2.1, math.inf)], 2.1),
        ([(1.0, -math.inf), (1.2, 30.0), (5.0, 31.0)], 1.2),  # no numbers came out
        ([(1.0, 2.0), (2.0, 14.0), (2.1, 14.2)], 2.0),  # a model that is lost is worth nothing at any speed
        ([(1.0, -math.inf), (2.0, -math.inf)], 1.0),
        ([(1.0, 30.0)], 1.0),
        ([(1.0, 30.0), (1.0, 30.0), (1.2, 40.0), (1.2, 40.0)], 1.2),  # the same twice
    ],
)
def test_the_knee_is_worth_its_price(points: list[tuple[float, float]], chosen: float) -> None:
    assert knee(front_of(*points)).latency_ms == chosen
    assert knee(list(reversed(front_of(*points)))).latency_ms == chosen
    assert knee(front_of(*((7 * ms, quality) for ms, quality in points))).latency_ms == 7 * chosen


@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ([(1.0, 0.985), (1.1, 0.99), (2.0, 0.995)], 1.0),  # nobody sees one answer in a hundred
        ([(1.0, 0.90), (1.1, 0.905), (1.5, 0.99)], 1.5),
        ([(1.0, 0.90), (1.1, 0.905), (4.0, 0.95)], 1.0),
        ([(1.0, 0.50), (1.3, 0.97), (2.5, 0.99)], 1.3),
        ([(1.0, 0.0), (2.0, 0.3), (2.1, 0.31)], 2.0),
        ([(1.0, 40.9), (1.2, 41.0), (1.5, 41.2)], 1.0),  # a score of 0 to 100
        ([(1.0, 20.0), (1.2, 41.0), (1.5, 41.2)], 1.2),
        ([(1.0, -math.inf), (1.2, 0.7)], 1.2),
    ],
)
def test_scores_count_by_what_they_lose_to_the_best(points: list[tuple[float, float]], chosen: float) -> None:
    assert knee(front_of(*points), decibels=False).latency_ms == chosen


@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ([(1.0, 14.8, 1.0), (1.1, 15.5, 1.0), (2.0, 30.0, 1.0)], 1.0),  # a face detector that decides as in float
        ([(1.0, 20.0, 1.0), (1.1, 30.0, 1.0), (2.0, 38.0, 1.0)], 1.1),  # decibels for little
        ([(1.0, 20.0, 0.99), (1.1, 20.5, 1.0)], 1.0),
        ([(1.0, 34.0, 0.2), (1.5, 35.0, 0.97), (3.0, 36.0, 0.99)], 1.5),  # decibels that hide lost decisions
        ([(1.0, 25.0, 0.90), (1.2, 27.0, 0.99), (4.0, 39.0, 1.0)], 1.2),
        ([(1.0, 30.0, math.nan), (1.1, 30.5, math.nan)], 1.0),  # nothing is decided
    ],
)
def test_decisions_count_for_one_half(points: list[tuple[float, float, float]], chosen: float) -> None:
    front = [Point(frozenset({i}), quality, ms, agreed) for i, (ms, quality, agreed) in enumerate(points)]
    assert knee(front).latency_ms == chosen


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(POOR_DB, EXACT_ENOUGH_DB)), min_size=1, max_size=12))
@settings(max_examples=200)
def test_every_slower_point_is_too_dear_and_every_faster_one_too_poor(points: list[tuple[float, float]]) -> None:
    front = front_of(*points)
    chosen = knee(front)
    for other in front:
        price = PRICE_DB * math.log(chosen.latency_ms / other.latency_ms) / math.log(1.1)
        assert chosen.quality - other.quality >= price - 1e-9
