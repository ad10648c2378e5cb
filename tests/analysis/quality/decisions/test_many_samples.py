# SPDX-License-Identifier: Apache-2.0
"""Decisions over many samples: added up one by one they say what all say together, in a memory that is small."""

from __future__ import annotations

import gc
import tracemalloc
from functools import reduce
from typing import Any

import numpy as np
import pytest

from hexforge.analysis.quality.decisions.answers import Classification, Labels, SymbolSequence
from hexforge.analysis.quality.decisions.channels import OutputChannels
from hexforge.analysis.quality.decisions.graph_facts import OutputFacts
from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge
from hexforge.analysis.quality.decisions.maps import Keypoints, PictureLikeness, Segmentation
from hexforge.analysis.quality.decisions.measure import DecisionMeasure, together
from hexforge.analysis.quality.decisions.vectors import Embedding, Numbers

RANDOM = np.random.default_rng(11)
MEASURES: list[tuple[DecisionMeasure, tuple[int, ...]]] = [
    (Classification("y"), (1, 9)),
    (Classification("y"), (3, 4)),
    (Labels("y"), (1, 5)),
    (SymbolSequence("y", blank=0), (1, 12, 4)),
    (Segmentation("y"), (1, 5, 6, 6)),
    (PictureLikeness("y"), (1, 3, 12, 12)),
    (Keypoints("y"), (1, 4, 8, 8)),
    (Embedding("y"), (1, 16)),
    (Numbers("y"), (1, 7)),
]


@pytest.mark.parametrize(("measure", "shape"), MEASURES, ids=lambda m: getattr(m, "kind", str(m)))
def test_tallies_add_up_in_any_order_of_pieces(measure: DecisionMeasure, shape: tuple[int, ...]) -> None:
    tallies = []
    for _ in range(50):
        one = RANDOM.random(shape, np.float32)
        two = one + RANDOM.normal(0, 0.2, shape).astype(np.float32)
        tallies.append(measure.compare(measure.decide({"y": one}), measure.decide({"y": two})))
    halves = together(reduce(together, tallies[:20]), reduce(together, tallies[20:]))
    assert measure.figures(reduce(together, tallies)) == pytest.approx(measure.figures(halves), nan_ok=True)


def test_what_not_every_sample_has_is_not_told() -> None:
    tally = reduce(together, [{"one": 1} | ({"top5": 1.0} if i != 7 else {}) for i in range(3000)])
    assert tally == {"one": 3000}


def test_clipped_numbers_are_those_at_the_ends_of_all_samples() -> None:
    channels = OutputChannels.of("y", np.zeros((1, 2, 8), np.float32), OutputFacts(""))
    pieces = []
    for end in (1.0, 2.0, 1.5, 2.0):
        one = RANDOM.uniform(-6, 6, (1, 2, 8)).astype(np.float32)
        pieces.append(channels.measure(one, one.clip(-end, end)))
    whole = pieces[0]
    wanted = {end: pieces[1].clipped.get(end, 0) + pieces[3].clipped.get(end, 0) for end in (-2.0, 2.0)}
    for piece in pieces[1:]:
        whole.merge(piece)
    assert whole.clipped == {end: count for end, count in wanted.items() if count}
    assert sum(wanted.values()) > 0


def test_a_sample_takes_a_few_bytes() -> None:
    judge = DecisionJudge()
    collector = DecisionCollector(judge)

    def add(count: int) -> None:
        for _ in range(count):
            one: dict[str, Any] = {"y": RANDOM.random((1, 10), np.float32)}
            other = {"y": one["y"] + RANDOM.normal(0, 0.1, (1, 10)).astype(np.float32)}
            collector.keep({}, judge.compare(judge.reference(one), other))

    add(100)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        add(4000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert collector.decisions().samples == 4100
    assert grown < 4000 * 32, "more than the agreement of each sample was kept"
