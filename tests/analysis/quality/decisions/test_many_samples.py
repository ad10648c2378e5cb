# SPDX-License-Identifier: Apache-2.0
"""Decisions over many samples: added up one by one they say what all say together, in a memory that is small."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

from hexforge.analysis.quality.decisions.answers import Classification, Labels, SymbolSequence
from hexforge.analysis.quality.decisions.channels import OutputChannels
from hexforge.analysis.quality.decisions.graph_facts import OutputFacts
from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge
from hexforge.analysis.quality.decisions.maps import Keypoints, PictureLikeness, Segmentation
from hexforge.analysis.quality.decisions.measure import DecisionMeasure, TallySum
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
def test_tallies_that_were_added_up_give_the_same_figures(measure: DecisionMeasure, shape: tuple[int, ...]) -> None:
    tallies, sums = [], TallySum()
    for _ in range(50):
        one = RANDOM.random(shape, np.float32)
        two = one + RANDOM.normal(0, 0.2, shape).astype(np.float32)
        tallies.append(measure.compare(measure.decide({"y": one}), measure.decide({"y": two})))
        sums.add(tallies[-1])
    assert measure.figures([sums.tally()]) == measure.figures(tallies)


def test_what_is_joined_and_what_not_every_sample_has() -> None:
    sums, scores = TallySum(), RANDOM.random(3000)
    for i, score in enumerate(scores):
        sums.add({"one": 1, "scores": np.array([score] * (i % 2))} | ({"top5": 1.0} if i != 7 else {}))
    tally = sums.tally()
    assert tally["one"] == 3000
    assert "top5" not in tally
    np.testing.assert_array_equal(tally["scores"], scores[1::2])


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
