# SPDX-License-Identifier: Apache-2.0
"""Evaluate: how well a model does on labelled samples, on several processes, with the same result on any number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hexforge.analysis.quality.decision_agreement import DecisionAgreement
from hexforge.analysis.quality.decisions.judge import JudgedSample
from hexforge.analysis.quality.decisions.metric import DecisionMetric, decisions_or_none
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.analysis.quality.labels import FOLDERS, class_folders, class_numbers, read_labels
from hexforge.analysis.quality.metrics import Metric, TopK, check_numbers, metric_of
from hexforge.analysis.quality.runners import backend_for, runner
from hexforge.analysis.spread.spread import spread
from hexforge.analysis.spread.workers import Workers
from hexforge.errors import CallError, HexforgeError
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant.data.feeds import Feeds, Samples
from hexforge.quant.data.model_inputs import checked_sample
from hexforge.quant.data.pictures import PictureFolder
from hexforge.quant.data.sample_sources import IndexedSamples
from hexforge.quant.data.samples import CheckedSamples
from hexforge.quant.data.samples import samples as samples_of
from hexforge.runtime import registry


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well a model does."""

    model: str
    metric: str
    score: float
    samples: int
    backend: str
    decisions: Decisions | None = None
    """How often it decides as the reference does, with SQNR and alarms; None where no reference was named."""

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        score = self.score if math.isfinite(self.score) else None
        figures = {
            "score": score, "metric": self.metric, "samples": self.samples, "model": self.model,
            "backend": self.backend,
        }  # fmt: skip
        return figures if self.decisions is None else figures | {"decisions": self.decisions.to_json()}


def evaluate(
    model: str | Path | bytes,
    data: str | Path | Samples | Iterable[Feeds],
    labels: str | Path | Sequence[Any] | Array | None = None,
    metric: Any = "top1",
    *,
    classes: Sequence[str] | None = None,
    backend: str = registry.DEFAULT,
    soc: str = "",
    reference: str | Path | None = None,
    jobs: int = 1,
    cluster: bool | str = False,
    limit: int | None = None,
    draw: bool = False,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Run a model on samples and measure its outputs.

    `labels` is a file, a list, or "folders"; `metric` is top1, top5, psnr, ssim, sqnr:FLOAT.onnx, FILE.py:NAME, or a
    Python function of (outputs by name, label) or an object with update(outputs, label) and result(); without labels a
    kind of decisions, such as detection. `reference` is the float model that decisions and sqnr are compared with;
    `draw` keeps the sample on which both decide most differently, and what each of them decides, for a page. With
    `cluster` (True, or its address) the machines of a Ray cluster work, which need not see the files.
    """
    float_model = None if reference is None else Path(reference)
    chosen = metric_of(metric, float_model)
    judged = _judged_beside(chosen, metric, float_model)
    loaded = read(model, dims=dims, shapes=shapes, constants=constants)
    loaded.require_static()
    if dims or shapes or constants:
        model = to_bytes(loaded.ir)
    chosen_samples = labelled_samples(data, labels, chosen, loaded.ir, classes, limit)
    workers = Workers(jobs, cluster)
    threads = 1 if workers.several else 0
    for metric_of_decisions in (chosen, judged):
        if isinstance(metric_of_decisions, DecisionAgreement):
            metric_of_decisions.prepare(next(iter(chosen_samples))[1])
    ran = Path(model) if isinstance(model, str) else model
    measured = spread(_SampleScorer, (ran, backend, soc, threads, chosen, judged), chosen_samples, workers)
    for index, (number, label, (measurement, decided)) in enumerate(
        zip(chosen_samples.order, chosen_samples.labels, measured, strict=True)
    ):
        try:
            chosen.update(measurement, label)
            if judged is not None and decided is not None:
                judged.update(decided, label)
        except HexforgeError as error:
            raise _error_at_sample(error, number) from error.__cause__
        if progress is not None:
            progress(index + 1, len(chosen_samples))
    beside = chosen if isinstance(chosen, DecisionAgreement) else judged
    decisions = None if beside is None else beside.decisions(chosen_samples.names(), chosen_samples.order)
    if draw and beside is not None and decisions is not None:
        run = runner(model, backend_for(backend, soc, 0))
        decisions = _with_drawn_sample(decisions, beside, chosen_samples, run)
    return Evaluation(loaded.name, chosen.name, chosen.result(), len(chosen_samples), backend, decisions)


def _with_drawn_sample(
    decisions: Decisions, judged: DecisionAgreement, samples: LabelledSamples, run: Callable[[Feeds], dict[str, Array]]
) -> Decisions:
    """The decisions with the worst sample as it is drawn: it is run once more, since no sample's input is kept."""
    worst = decisions.worst_sample
    feeds = None if worst is None else next((feeds for i, feeds, _ in samples if i == worst.number), None)
    if worst is None or feeds is None:
        return decisions
    again = judged.measure(feeds, run(feeds), None, draw=True)
    drawn = judged.judge.worst_sample(worst.number, worst.agreement, again, feeds, worst.name)
    return replace(decisions, worst_sample=drawn)


def _judged_beside(chosen: Metric, metric: Any, reference: Path | None) -> DecisionAgreement | None:
    """What judges decisions beside a metric that is none of them; None without a reference."""
    if reference is None or isinstance(chosen, DecisionAgreement):
        return None
    return DecisionAgreement(decisions_or_none(metric) or DecisionMetric(), reference)


@dataclass(frozen=True, slots=True)
class LabelledSamples:
    """Samples to evaluate on, each with what is right: (number, sample, label), as often as it is asked."""

    parts: Sequence[CheckedSamples]
    order: Sequence[int]
    """Numbers of the samples among those of all parts; they rise."""
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.order)

    def names(self) -> list[str]:
        """The files of the samples, where they come from files."""
        names = [str(name) for part in self.parts for name in getattr(part.origin, "names", ())[part.skip :]]
        return [names[i] for i in self.order if i < len(names)]

    def __iter__(self) -> Iterator[tuple[int, Feeds, Any]]:
        label_of, before = dict(zip(self.order, self.labels, strict=True)), 0
        for part in self.parts:
            chosen = [i - before for i in label_of if before <= i < before + len(part)]
            if chosen and isinstance(part.origin, IndexedSamples) and len(chosen) < len(part):
                for i in chosen:  # read by number, not one after another
                    where, raw = part.origin.get(part.skip + i)
                    yield before + i, checked_sample(raw, part.inputs, where), label_of[before + i]
            elif chosen:
                for i, feeds in enumerate(islice(part, self.order[-1] - before + 1)):
                    if before + i in label_of:
                        yield before + i, feeds, label_of[before + i]
            before += len(part)


def labelled_samples(
    data: Any, labels: Any, metric: Metric, model: Any, classes: Sequence[str] | None = None, limit: int | None = None
) -> LabelledSamples:
    """Samples and labels for a metric: all of them, the first, or, where they lie class by class, evenly out of all."""
    parts, all_labels = _sources(data, labels, model)
    total = sum(map(len, parts))
    if not total:
        raise CallError("there are no samples to evaluate")
    if all_labels is None and metric.labelled:
        raise CallError(f"metric {metric.name} needs labels: a file of them, or folders named for classes")
    if all_labels is not None and isinstance(metric, TopK):
        all_labels, metric.classes = class_numbers(all_labels, classes)
    count = total if limit is None else min(limit, total)
    if count < 1:
        raise CallError(f"limit {limit}: at least one sample is evaluated")
    order = [i * total // count for i in range(count)] if len(parts) > 1 else list(range(count))
    return LabelledSamples(parts, order, [None if all_labels is None else all_labels[i] for i in order])


def _sources(data: Any, labels: Any, model: Any) -> tuple[list[CheckedSamples], list[Any] | None]:
    """The samples, in one part or in one for each class, and their labels."""
    if isinstance(labels, str | Path) and str(labels) == FOLDERS:
        pictures = data.options if isinstance(data, PictureFolder) else {}
        data = data.path if isinstance(data, PictureFolder) else data
        if not isinstance(data, str | Path):
            raise CallError("labels from folder names need a folder of samples; give a file or a list of labels")
        folders = class_folders(Path(data))
        parts = [samples_of(folder, model, **pictures) for folder in folders]
        return parts, [f.name for f, part in zip(folders, parts, strict=True) for _ in range(len(part))]
    samples = samples_of(data, model)
    names = getattr(samples.origin, "names", ())
    return [samples], None if labels is None else read_labels(labels, names, len(samples))


class _SampleScorer:
    """Runs the model in each process, which loads it once, and measures what comes out."""

    def __init__(
        self,
        model: str | Path | bytes,
        backend: str,
        soc: str,
        threads: int,
        metric: Metric,
        judged: DecisionAgreement | None,
    ) -> None:
        self.run, self.metric = runner(model, backend_for(backend, soc, threads), threads=threads), metric
        self.judged = judged

    def __call__(self, task: tuple[int, Feeds, Any]) -> tuple[Any, JudgedSample | None]:
        index, feeds, label = task
        try:
            outputs = self.run(feeds)
            check_numbers(outputs, index)
            decided = None if self.judged is None else self.judged.measure(feeds, outputs, label)
            return self.metric.measure(feeds, outputs, label), decided
        except HexforgeError as error:
            raise _error_at_sample(error, index) from None


def _error_at_sample(error: HexforgeError, index: int) -> HexforgeError:
    """The error with the number of its sample in front of the message."""
    text = str(error)
    return error if text.startswith("sample ") else type(error)(f"sample {index}: {text}")
