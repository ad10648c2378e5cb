# SPDX-License-Identifier: Apache-2.0
"""Judge: a second model beside the float one, by what people decide by, channel group by channel group, with alarms."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hexforge.analysis.quality.decisions.channels import ChannelSums, OutputChannels
from hexforge.analysis.quality.decisions.detection import Detection, Detections, of_first_picture
from hexforge.analysis.quality.decisions.evidence import Supposed
from hexforge.analysis.quality.decisions.graph_facts import ModelFacts, model_facts
from hexforge.analysis.quality.decisions.maps import Segmentation
from hexforge.analysis.quality.decisions.measure import DecisionMeasure, Outputs, Tally, finite_numbers, together
from hexforge.analysis.quality.decisions.metric import DecisionMetric, decision_metric
from hexforge.analysis.quality.decisions.paired_anchors import PairedAnchors
from hexforge.analysis.quality.decisions.verdict import Alarm, Decisions, GroupQuality, OutputDecisions, WorstSample
from hexforge.analysis.quality.pictures import as_picture
from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.quant.compare import ErrorSums

NUMBERS = "fiub"


@dataclass(frozen=True, slots=True, eq=False)
class JudgedSample:
    """What one sample says of both models; small, so that it travels between processes."""

    tallies: tuple[Tally, ...]
    channels: Mapping[str, ChannelSums]
    drawn: tuple[Any, ...] = ()
    """What both models decide, in words and as boxes or maps; kept of the worst sample only."""


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceSample:
    """The float model's outputs of one sample, and what is decided by them; made once for many other models."""

    outputs: Outputs
    decisions: tuple[Any, ...]
    evidence: Mapping[int, Tally]
    """What it says of kinds that are supposed, by the number of their measure."""


class DecisionJudge:
    """Judges models by the float model's decisions; the kinds are chosen by the first sample it sees."""

    def __init__(self, model: Any = None, metric: str | DecisionMetric = DecisionMetric()) -> None:  # noqa: B008 - frozen
        rule = decision_metric(metric) if isinstance(metric, str) else metric
        if rule is None:
            raise CallError(f"metric {metric!r}: is no kind of decision")
        self._rule, self._facts = rule, model if isinstance(model, ModelFacts) else model_facts(model)
        self.measures: list[DecisionMeasure] | None = None
        self._supposed: dict[int, Supposed] = {}
        self._channels: dict[str, OutputChannels] = {}

    def choose(self, outputs: Outputs) -> None:
        """Choose the kinds of decisions by the float model's outputs of one sample; later calls change nothing."""
        if self.measures is None:
            chosen = self._rule.measures(finite_numbers(outputs), self._facts)
            self._supposed = {i: kind for i, kind in enumerate(chosen) if isinstance(kind, Supposed)}
            self.measures = [kind.measure if isinstance(kind, Supposed) else kind for kind in chosen]
            for name, array in outputs.items():
                if array.dtype.kind in NUMBERS:
                    self._channels[name] = OutputChannels.of(name, array, self._facts.of(name))

    def reference(self, outputs: Outputs) -> ReferenceSample:
        """What the float model decides on a sample."""
        self.choose(outputs)
        assert self.measures is not None
        numbers = finite_numbers(outputs)
        evidence = {number: kind.evidence(numbers) for number, kind in self._supposed.items()}
        return ReferenceSample(outputs, tuple(m.decide(numbers) for m in self.measures), evidence)

    def compare(self, reference: ReferenceSample, outputs: Outputs, *, draw: bool = False) -> JudgedSample:
        """What a second model's outputs of the same sample say; `draw` keeps the decisions themselves too."""
        assert self.measures is not None
        missing = [name for m in self.measures for name in m.outputs if name not in outputs]
        if missing:
            raise CallError(f"the second model has no output {missing[0]!r}; it has {', '.join(map(repr, outputs))}")
        numbers = finite_numbers(outputs)
        decided = tuple(m.decide(numbers) for m in self.measures)
        tallies = tuple(
            m.compare(one, two) | reference.evidence.get(i, {})
            for i, (m, one, two) in enumerate(zip(self.measures, reference.decisions, decided, strict=True))
        )
        channels = {
            name: own.measure(reference.outputs[name], outputs[name])
            for name, own in self._channels.items()
            if name in outputs and name in reference.outputs and reference.outputs[name].size and outputs[name].size
        }
        drawn = (reference.decisions, decided) if draw else ()
        return JudgedSample(tallies, channels, drawn)

    def settled(self, tallies: Sequence[Tally]) -> tuple[int, ...]:
        """Which of the measures count by what some samples add up to: kinds they confirm, numbers for the others."""
        # a kind that is supposed stands behind the numbers of its output
        out = {i - 1 if kind.confirmed(tallies[i]) else i for i, kind in self._supposed.items()}
        return tuple(number for number in range(len(tallies)) if number not in out)

    def agreements(self, sample: JudgedSample) -> list[float]:
        """How far both models agree on a sample, by each kind of decision; NaN where nothing is decided."""
        assert self.measures is not None
        return [m.figures(tally)["agreement"] for m, tally in zip(self.measures, sample.tallies, strict=True)]

    def channels(self) -> Iterator[OutputChannels]:
        """The outputs that are numbers, as channels."""
        yield from self._channels.values()

    def can_change(self, output: str, highest: float) -> bool:
        """Whether a decision can change by numbers of an output that reach this high in the float model."""
        read_by = [m for m in self.measures or () if isinstance(m, PairedAnchors | Detection) and output in m.outputs]
        return all(measure.can_change(output, highest) for measure in read_by)

    def worst_sample(
        self, shown: WorstSample, sample: JudgedSample, among: Sequence[int], feeds: Mapping[str, Array] | None = None
    ) -> WorstSample:
        """A sample as it is shown: the input where it is a picture, what both models decide of it by these measures."""
        assert self.measures is not None
        if not sample.drawn:
            return shown
        known = self.agreements(sample)
        least = min(among, key=lambda i: math.inf if math.isnan(known[i]) else known[i])
        measure, one, two = self.measures[least], sample.drawn[0][least], sample.drawn[1][least]
        firsts = [a[:1] if np.ndim(a) == 4 else a for a in (feeds or {}).values()]  # a batch is shown by its first
        picture = next((p for a in firsts if (p := as_picture(a)) is not None), None)
        boxes = maps = None
        if isinstance(measure, Detection) and isinstance(one, Detections):
            threshold = measure.threshold
            first, second = (
                _in_pixels(of_first_picture(detections.boxes.above(threshold).corners), picture)
                for detections in (one, two)
            )
            boxes = first, second
        if isinstance(measure, Segmentation):
            maps = np.asarray(one), np.asarray(two)
        return replace(
            shown, in_float=measure.words(one), in_other=measure.words(two), picture=picture, boxes=boxes, maps=maps
        )


class DecisionCollector:
    """Judges a second model sample by sample, and adds up what they say: all that grows is a figure for each.

    Of the worst sample by each measure it keeps the input too.
    """

    def __init__(self, judge: DecisionJudge) -> None:
        self.judge = judge
        self._count = 0
        self._tallies: list[Tally] = []
        self._agreements: list[array[float]] = []
        self._channels: dict[str, tuple[ChannelSums, int]] = {}
        self._worst: list[tuple[tuple[float, float], int, JudgedSample, Mapping[str, Array]] | None] = []

    def add(self, feeds: Mapping[str, Array], reference: Outputs | ReferenceSample, outputs: Outputs) -> None:
        """Judge one sample; outputs that only one model has are left out."""
        if not isinstance(reference, ReferenceSample):
            reference = self.judge.reference({n: a for n, a in reference.items() if n in outputs})
        self.keep(feeds, self.judge.compare(reference, outputs, draw=True))

    def keep(self, feeds: Mapping[str, Array], sample: JudgedSample) -> None:
        """Add a sample that is judged already."""
        agreements = self.judge.agreements(sample)
        if not self._count:
            self._agreements, self._worst = [array("d") for _ in agreements], [None] * len(agreements)
        before = self._tallies or sample.tallies
        self._tallies = [
            together(*both) if self._count else both[1] for both in zip(before, sample.tallies, strict=True)
        ]
        for agreement, own in zip(agreements, self._agreements, strict=True):
            own.append(agreement)
        for name, piece in sample.channels.items():
            whole, pieces = self._channels.get(name) or (_no_channels(piece), 0)
            if piece.low.shape == whole.low.shape:
                whole.merge(piece)
            self._channels[name] = whole, pieces + 1
        db = sample_sqnr_db(sample)
        for i, agreement in enumerate(agreements):
            worst = self._worst[i]
            if not math.isnan(agreement) and (worst is None or (agreement, db) < worst[0]):
                self._worst[i] = (agreement, db), self._count, sample, feeds
        self._count += 1

    def decisions(self, names: Sequence[str] = (), numbers: Sequence[int] = ()) -> Decisions:
        """The verdict; `names` are the samples' files, `numbers` theirs among all, where these are known."""
        if not self._count:
            raise CallError("there are no samples to judge by")
        groups: list[GroupQuality] = []
        alarms: list[Alarm] = []
        lowest = math.inf
        for own in self.judge.channels():
            if own.name not in self._channels:
                continue
            sums, pieces = self._channels[own.name]
            qualities = own.qualities(sums)
            alarms += own.alarms(sums, qualities, pieces, partial(self.judge.can_change, own.name))
            if not own.integers:
                groups += qualities
                whole = ErrorSums()
                for piece in sums.groups:
                    whole.merge(piece)
                lowest = min(lowest, whole.sqnr_db)
        worst = self._shown_worst(names, numbers)
        return Decisions(tuple(self._parts()), tuple(groups), tuple(alarms), self._count, lowest, worst)

    def settled(self) -> tuple[int, ...]:
        """Which of the judge's measures count, by all samples."""
        return self.judge.settled(self._tallies)

    def _parts(self) -> Iterator[OutputDecisions]:
        """How often both models decide alike, by each kind of decision."""
        for i in self.settled():
            measure = (self.judge.measures or ())[i]
            figures = measure.figures(self._tallies[i])
            agreement, each = figures.pop("agreement"), tuple(self._agreements[i])
            yield OutputDecisions(measure.kind, measure.outputs, agreement, figures, each, measure.about)

    def _shown_worst(self, names: Sequence[str], numbers: Sequence[int]) -> WorstSample | None:
        among = self.settled()
        known = [worst for i in among if (worst := self._worst[i]) is not None]
        if not known:
            return None
        (agreement, _), index, sample, feeds = min(known, key=lambda worst: worst[0])
        name = names[index] if index < len(names) else ""
        number = numbers[index] if index < len(numbers) else index
        return self.judge.worst_sample(WorstSample(number, name, agreement, "", ""), sample, among, feeds)


def judge(
    float_outputs: Iterable[Outputs],
    other_outputs: Iterable[Outputs],
    model: Any = None,
    metric: str | DecisionMetric = DecisionMetric(),  # noqa: B008 - it is frozen
) -> Decisions:
    """Judge a second model by its outputs beside the float model's, sample by sample.

    `model` is the float model (as `read` gives it, or its `ir`), whose last ops help to see what the outputs are;
    `metric` is a kind of decision, such as "detection", where that is known.
    """
    judged = DecisionJudge(model, metric)
    collector = DecisionCollector(judged)
    for one, two in zip(float_outputs, other_outputs, strict=True):
        collector.keep({}, judged.compare(judged.reference(one), two, draw=True))
    return collector.decisions()


def _no_channels(like: ChannelSums) -> ChannelSums:
    groups = [ErrorSums() for _ in like.groups]
    return ChannelSums(np.full_like(like.low, np.nan), np.full_like(like.high, np.nan), groups)


def sample_sqnr_db(sample: JudgedSample) -> float:
    """The lowest SQNR of a sample's channel groups."""
    return min((sums.sqnr_db for own in sample.channels.values() for sums in own.groups), default=math.inf)


def _in_pixels(corners: Array, picture: Array | None) -> Array:
    """Corners in pixels of the input, where they are parts of it."""
    if picture is not None and len(corners) and float(np.abs(corners).max()) <= 2:
        height, width = picture.shape[:2]
        return np.asarray(corners * np.array([width, height, width, height]))
    return corners
