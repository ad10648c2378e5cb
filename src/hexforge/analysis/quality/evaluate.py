# SPDX-License-Identifier: Apache-2.0
"""Evaluate: how well a model does on labelled samples, on several processes, with the same result on any number."""

from __future__ import annotations

import hashlib
import json
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import hexforge
from hexforge.analysis.finished_work import FinishedWork
from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.quality.decision_agreement import DecisionAgreement
from hexforge.analysis.quality.decisions.judge import JudgedSample
from hexforge.analysis.quality.decisions.metric import DecisionMetric, decisions_or_none
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.analysis.quality.labelled_samples import LabelledSample, LabelledSamples, labelled_samples
from hexforge.analysis.quality.labels import class_names
from hexforge.analysis.quality.metrics import Metric, ResumableMetric, check_numbers, metric_of, metric_source
from hexforge.analysis.quality.runners import ModelEngine, backend_for, runner
from hexforge.analysis.requests import EvaluateRequest
from hexforge.analysis.workers import ON_GPU, Workers
from hexforge.errors import CallError, HexforgeError
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.model.tensors import external_files
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.data.sample_sources import UnreadableSample
from hexforge.quant.data.samples import LeftOutSamples
from hexforge.request_fields import takes_fields_of
from hexforge.results import Key, Result

_EVERY_S = 1.0
"""How often a state's sums are written: what was done after that is done again."""


@dataclass(frozen=True, slots=True)
class Evaluation(Result):
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

    described = (
        "score metric samples model backend",
        Key("left_out", of=lambda result: result.left_out or None, omit_empty=True),
        Key("first_left_out", omit_empty=True),
        Key("decisions", omit_empty=True),
    )


@takes_fields_of(EvaluateRequest)
def evaluate(request: EvaluateRequest) -> Evaluation:
    """Run a model on samples and measure its outputs.

    Labels are a file, a list, or "folders"; without labels a metric is a kind of decisions, such as detection, or
    sqnr:FLOAT.onnx. A sample that cannot be read is left out and counted, unless that is to be an error. A state keeps
    what the samples so far add up to: an evaluation that was stopped goes on from there.
    """
    metric = request.metric
    float_model = None if request.reference is None else Path(request.reference)
    chosen = metric_of(metric, float_model)
    judged = _judged_beside(chosen, metric, float_model)
    loaded = read(request.model, dims=request.dims, shapes=request.shapes, constants=request.constants)
    loaded.require_static()
    model = to_bytes(loaded.ir) if request.dims or request.shapes or request.constants else request.model
    classes = class_names(request.classes)
    strict, backend, soc = request.strict_samples, request.backend, request.soc
    chosen_samples = labelled_samples(
        request.data, request.labels, chosen, loaded.ir, classes, request.limit, strict=strict
    )
    workers = Workers(request.jobs, request.cluster)
    threads = 1 if workers.several else 0
    ran = Path(model) if isinstance(model, str) else model
    beside = chosen if isinstance(chosen, DecisionAgreement) else judged
    left_out, total, numbers = chosen_samples.left_out, len(chosen_samples), array("q")
    with ExitStack() as opened:
        kept = None
        if request.state is not None:
            if not isinstance(metric, str):
                raise CallError("a state needs a metric by its name, such as top1 or FILE.py:NAME")
            named = getattr(chosen, "reference", float_model), metric_source(metric), chosen.name
            job = _job(ran, chosen_samples, *named, backend, soc, classes, strict)
            kept = opened.enter_context(_EvaluationState(request.state, job, beside or chosen, left_out))
            chosen_samples = chosen_samples.without_first(kept.done)
        done = 0 if kept is None else kept.done
        for metric_of_decisions in (chosen, judged):
            if isinstance(metric_of_decisions, DecisionAgreement):
                metric_of_decisions.prepare(next(iter(chosen_samples))[1])
        workers = workers.for_model(ran, float_model, gpu=backend in ON_GPU)
        measured = map_tasks(
            _SampleScorer, (ran, backend, soc, threads, chosen, judged), chosen_samples.tasks(), workers
        )
        for number, label, measurement, decided in measured:
            done += 1
            if isinstance(measurement, UnreadableSample):
                chosen_samples.leave_out(number, measurement)
            else:
                try:
                    chosen.update(measurement, label)
                    if judged is not None and decided is not None:
                        judged.update(decided, label)
                except HexforgeError as error:
                    raise _error_at_sample(error, number) from error.__cause__
                if beside is not None:
                    numbers.append(number)
            if kept is not None:
                kept.add(done, last=done == total)
            if request.progress is not None:
                request.progress(done, total)
    evaluated = done - len(left_out.numbers)
    if not evaluated:
        raise CallError(f"no sample can be read; the first: {left_out.reasons[0]}")
    decisions = None if beside is None else beside.decisions(chosen_samples.names(numbers), numbers)
    if request.draw and beside is not None and decisions is not None:
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
    drawn = judged.judge.worst_sample(worst, again, judged.collector.settled(), feeds)
    return replace(decisions, worst_sample=drawn)


def _judged_beside(chosen: Metric, metric: Any, reference: Path | None) -> DecisionAgreement | None:
    """What judges decisions beside a metric that is none of them; None without a reference."""
    if reference is None or isinstance(chosen, DecisionAgreement):
        return None
    return DecisionAgreement(decisions_or_none(metric) or DecisionMetric(), reference)


class _EvaluationState:
    """The sums of an evaluation's first samples; results come in order, so they say what is left."""

    def __init__(self, path: str | Path, job: str, metric: Metric, left_out: LeftOutSamples) -> None:
        if not isinstance(metric, ResumableMetric) or not metric.resumable:
            raise CallError(
                f"metric {metric.name}: cannot go on from a state; top1 (any k), psnr, ssim, sqnr and functions of "
                "outputs and label can"
            )
        self._work, self._metric, self._left_out = FinishedWork(path, job), metric, left_out
        self.done = max(map(int, self._work), default=0)
        """Samples that are done, those that could not be read among them."""
        self._written_at = time.monotonic()
        if self.done:
            sums, left_out.numbers, left_out.reasons = self._work[str(self.done)]
            left_out.numbers = set(left_out.numbers)
            metric.go_on(sums)

    def add(self, done: int, *, last: bool = False) -> None:
        """So many samples are done now; what they add up to is written from time to time."""
        if done > self.done and (last or time.monotonic() - self._written_at >= _EVERY_S):
            self._work.add(str(done), [self._metric.sums(), sorted(self._left_out.numbers), self._left_out.reasons])
            self.done, self._written_at = done, time.monotonic()

    def __enter__(self) -> _EvaluationState:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._work.close()


def _job(model: Path | bytes, samples: LabelledSamples, reference: Path | None, *parts: Any) -> str:
    """All that an evaluation's sums depend on: files by their bytes, samples by their names, sizes and times."""
    digest = hashlib.sha256()
    for file in (model, reference):
        if isinstance(file, Path):
            for path in (file, *external_files(file)):
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        elif file is not None:
            digest.update(hashlib.sha256(file).digest())
    for label in samples.labels or ():
        digest.update(np.asarray(label).tobytes() if not isinstance(label, str) else label.encode())
    kept = [hexforge.__version__, digest.hexdigest(), samples.identity(), len(samples), *map(str, parts)]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


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
