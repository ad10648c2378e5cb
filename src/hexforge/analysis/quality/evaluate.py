# SPDX-License-Identifier: Apache-2.0
"""Evaluate: how well a model does on labelled samples, on several processes, with the same result on any number."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hexforge.analysis.quality.decision_agreement import DecisionAgreement
from hexforge.analysis.quality.decisions.judge import JudgedSample
from hexforge.analysis.quality.decisions.metric import DecisionMetric, decisions_or_none
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.analysis.quality.labelled_samples import LabelledSample, LabelledSamples, labelled_samples
from hexforge.analysis.quality.metrics import Metric, check_numbers, metric_of
from hexforge.analysis.quality.runners import ModelEngine, backend_for, runner
from hexforge.analysis.spread.spread import spread
from hexforge.analysis.spread.workers import ON_GPU, Workers
from hexforge.errors import CallError, HexforgeError
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant.data.feeds import Feeds, Samples
from hexforge.quant.data.sample_sources import UnreadableSample
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
    left_out: int = 0
    """Samples that could not be read."""
    first_left_out: str = ""
    """How many these are in words, and why the first was left out."""

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        score = self.score if math.isfinite(self.score) else None
        figures = {
            "score": score, "metric": self.metric, "samples": self.samples, "model": self.model,
            "backend": self.backend,
        }  # fmt: skip
        if self.left_out:
            figures |= {"left_out": self.left_out, "first_left_out": self.first_left_out}
        return figures if self.decisions is None else figures | {"decisions": self.decisions.to_json()}


def evaluate(
    model: str | Path | bytes,
    data: str | Path | Samples | Iterable[Feeds],
    labels: str | Path | Sequence[Any] | Array | None = None,
    metric: Any = "top1",
    *,
    classes: Sequence[str] | None = None,
    backend: str | ModelEngine = registry.DEFAULT,
    soc: str = "",
    reference: str | Path | None = None,
    jobs: int = 1,
    cluster: bool | str = False,
    limit: int | None = None,
    draw: bool = False,
    strict_samples: bool = False,
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
    `cluster` (True, or its address) the machines of a Ray cluster work, which need not see the files. A sample that
    cannot be read is left out and counted; with `strict_samples` it is an error.
    """
    float_model = None if reference is None else Path(reference)
    chosen = metric_of(metric, float_model)
    judged = _judged_beside(chosen, metric, float_model)
    loaded = read(model, dims=dims, shapes=shapes, constants=constants)
    loaded.require_static()
    if dims or shapes or constants:
        model = to_bytes(loaded.ir)
    chosen_samples = labelled_samples(data, labels, chosen, loaded.ir, classes, limit, strict=strict_samples)
    workers = Workers(jobs, cluster)
    threads = 1 if workers.several else 0
    for metric_of_decisions in (chosen, judged):
        if isinstance(metric_of_decisions, DecisionAgreement):
            metric_of_decisions.prepare(next(iter(chosen_samples))[1])
    ran = Path(model) if isinstance(model, str) else model
    beside = chosen if isinstance(chosen, DecisionAgreement) else judged
    workers = workers.for_model(ran, float_model, gpu=backend in ON_GPU)
    measured = spread(_SampleScorer, (ran, backend, soc, threads, chosen, judged), chosen_samples.tasks(), workers)
    left_out, total, evaluated, numbers = chosen_samples.left_out, len(chosen_samples), 0, array("q")
    for number, label, measurement, decided in measured:
        if isinstance(measurement, UnreadableSample):
            chosen_samples.leave_out(number, measurement)
        else:
            try:
                chosen.update(measurement, label)
                if judged is not None and decided is not None:
                    judged.update(decided, label)
            except HexforgeError as error:
                raise _error_at_sample(error, number) from error.__cause__
            evaluated += 1
            if beside is not None:
                numbers.append(number)
        if progress is not None:
            progress(evaluated + len(left_out.numbers), total)
    if not evaluated:
        raise CallError(f"no sample can be read; the first: {left_out.reasons[0]}")
    decisions = None if beside is None else beside.decisions(chosen_samples.names(numbers), numbers)
    if draw and beside is not None and decisions is not None:
        run = runner(model, backend_for(backend, soc, 0))
        decisions = _with_drawn_sample(decisions, beside, chosen_samples, run)
    return Evaluation(
        loaded.name,
        chosen.name,
        chosen.result(),
        evaluated,
        str(backend),
        decisions,
        len(left_out.numbers),
        left_out.told(),
    )


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


class _SampleScorer:
    """Runs the model in each process, which loads it once, and measures what comes out."""

    def __init__(
        self,
        model: str | Path | bytes,
        backend: str | ModelEngine,
        soc: str,
        threads: int,
        metric: Metric,
        judged: DecisionAgreement | None,
    ) -> None:
        self.run, self.metric = runner(model, backend_for(backend, soc, threads), threads=threads), metric
        self.judged = judged

    def __call__(self, task: LabelledSample) -> tuple[int, Any, Any, JudgedSample | None]:
        index, feeds, label = task
        if isinstance(feeds, UnreadableSample):
            return index, label, feeds, None
        try:
            outputs = self.run(feeds)
            check_numbers(outputs, index)
            decided = None if self.judged is None else self.judged.measure(feeds, outputs, label)
            return index, label, self.metric.measure(feeds, outputs, label), decided
        except HexforgeError as error:
            raise _error_at_sample(error, index) from None


def _error_at_sample(error: HexforgeError, index: int) -> HexforgeError:
    """The error with the number of its sample in front of the message."""
    text = str(error)
    return error if text.startswith("sample ") else type(error)(f"sample {index}: {text}")
