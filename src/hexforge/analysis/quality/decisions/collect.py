# SPDX-License-Identifier: Apache-2.0
"""Collect: samples that both models have run on, one after another, judged as they come; the worst one is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hexforge.analysis.quality.decisions.judge import DecisionJudge, JudgedSample, ReferenceSample, sample_sqnr_db
from hexforge.analysis.quality.decisions.measure import Outputs
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.ir import Array


class DecisionCollector:
    """Judges a second model sample by sample; of the samples it keeps figures, of the worst one its input too."""

    def __init__(self, judge: DecisionJudge) -> None:
        self.judge = judge
        self._samples: list[JudgedSample] = []
        self._worst: tuple[tuple[float, float], int, JudgedSample, Mapping[str, Array]] | None = None

    def add(self, feeds: Mapping[str, Array], reference: Outputs | ReferenceSample, outputs: Outputs) -> None:
        """Judge one sample; outputs that only one model has are left out."""
        if not isinstance(reference, ReferenceSample):
            reference = self.judge.reference({n: a for n, a in reference.items() if n in outputs})
        self.keep(feeds, self.judge.compare(reference, outputs, draw=True))

    def keep(self, feeds: Mapping[str, Array], sample: JudgedSample) -> None:
        """Add a sample that is judged already."""
        agreement = self.judge.agreement(sample)
        rank = (math.inf if math.isnan(agreement) else agreement, sample_sqnr_db(sample))
        if self._worst is None or rank < self._worst[0]:
            self._worst = rank, len(self._samples), sample, feeds
        self._samples.append(replace(sample, drawn=()))

    def decisions(self, names: Sequence[str] = (), numbers: Sequence[int] = ()) -> Decisions:
        """The verdict; `names` are the samples' files, `numbers` theirs among all, where these are known."""
        worst = None
        if self._worst is not None:
            (agreement, _), index, sample, feeds = self._worst
            name = names[index] if index < len(names) else ""
            number = numbers[index] if index < len(numbers) else index
            worst = self.judge.worst_sample(number, min(agreement, 1.0), sample, feeds, name)
        return self.judge.decisions(self._samples, worst=worst)
