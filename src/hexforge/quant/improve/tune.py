# SPDX-License-Identifier: Apache-2.0
"""Tune: the steps of a recipe that better its encodings, each kept only where samples it has not seen agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice

import numpy as np
import onnx_ir

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.quant.compare import ErrorSums
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.feeds import Feeds, SampleRunner, Samples, TaskMap
from hexforge.quant.data.observe import Statistics
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import ChipArithmetic, EncodingPlan, Fixed
from hexforge.quant.decide.recipe import Recipe
from hexforge.quant.improve.bias import correct_biases
from hexforge.quant.improve.equalize import equalize
from hexforge.quant.improve.rounding import round_weights
from hexforge.quant.improve.side_by_side import session
from hexforge.quant.masks import limit_masks
from hexforge.quant.write import write
from hexforge.request_fields import takes_fields_of
from hexforge.results import Column, Result

FITTED, JUDGED = 24, 24
"""Samples that steps are fitted to, and others that decide whether a step is kept; at most."""
METHODS = ("mse", "percentile=99.99")
"""Ways of finding ranges that are proposed in turn, where the recipe uses another."""
_CAP_DB, _MARGIN_DB, _NARROWING_DB = 100.0, 0.1, 0.5
"""A step must gain a margin, and one that cuts off extremes more: samples to come may reach further than any seen."""
_TRIES = 7
"""How often parts of a proposal of ranges are tried: all of it, its halves, their halves."""

_SATURATES = frozenset(("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid"))

Progress = Callable[[str, int, int], None]
"""What is being done, how far it is, and out of how much."""
Load = Callable[[onnx_ir.Model], SampleRunner]
"""Makes something that runs a QDQ model, such as a session on the emulator."""


@dataclass(frozen=True, slots=True)
class TriedStep(Result):
    """A step: the SQNR before and with it, on samples kept apart, of the outputs (of what a last Softmax reads)."""

    name: str
    before_db: float
    after_db: float
    kept: bool
    seconds: float

    described = (
        Column("improvement", of="name", key="step"),
        Column("SQNR before", "number", key="before_db"),
        Column("with it, dB", "number", key="after_db"),
        Column("", key="kept", text=lambda step: "kept" if step.kept else "dropped"),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Improvement:
    """The model the plan is for (equalized, where that helped), and what was tried."""

    model: onnx_ir.Model
    statistics: Statistics
    plan: EncodingPlan
    tried: tuple[TriedStep, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ImproveRequest:
    """A folded model with what is known of it, and how its plan is made and bettered."""

    model: onnx_ir.Model
    statistics: Statistics
    samples: Samples
    recipe: Recipe
    load: Load
    _: KW_ONLY
    held_out: Samples | None = None
    given: Mapping[str, Fixed | None] = field(default_factory=dict)
    arithmetic: ChipArithmetic = ChipArithmetic()  # noqa: RUF009 - it is frozen
    seed: int = 0
    progress: Progress = lambda what, done, whole: None
    task_map: TaskMap | None = None


@takes_fields_of(ImproveRequest)
def improve(request: ImproveRequest) -> Improvement:
    """The plan of a folded model by a recipe, bettered by what `recipe.improve` names.

    Each step starts from the best plan so far and is dropped where the outputs are no better for it on `held_out`,
    which calibration has not seen; without these on some of `samples` that steps are not fitted to. The same samples
    and seed give the same plan.
    """
    return _Improver(request).run()


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """SQNR in dB, the mean of the outputs': of all samples together, and sample by sample."""

    db: float
    each: Array

    def better(self, than: Score, margin: float) -> bool:
        """True where it is better by a margin, and by more over the samples than chance would make of them."""
        gain = self.each - than.each
        return self.db > than.db + margin and bool(gain.mean() > gain.std() / np.sqrt(len(gain)))


def _mean_db(sums: Sequence[ErrorSums]) -> float:
    return float(np.mean([np.clip(total.sqnr_db, -_CAP_DB, _CAP_DB) for total in sums])) if sums else 0.0


class Judge:
    """How near a quantized model's outputs are to the float model's; `parts` of outputs are judged one by one.

    `unsaturated` looks at what goes into a Softmax or Sigmoid that makes an output: where nearly all of the outputs are
    0 or 1, theirs is the error of the one or two samples that are not, and says little of the next samples.
    """

    def __init__(
        self,
        model: onnx_ir.Model,
        samples: Sequence[Feeds],
        load: Load,
        *,
        unsaturated: bool = False,
        parts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.samples, self.load = samples, load
        self.names: list[str] = []
        for value in (v for v in model.graph.outputs if v.dtype == onnx_ir.DataType.FLOAT):
            joined = list((parts or {}).get(str(value.name), ()))
            self.names += joined or [str((_before_saturation(value) if unsaturated else value).name)]
        run = session(self._with_judged_outputs(model))
        self.references: list[list[Array]] = [run.run(self.names, dict(feeds)) for feeds in samples]

    def __call__(self, model: onnx_ir.Model, plan: EncodingPlan) -> float:
        """SQNR in dB, the mean of the outputs'."""
        return self.score(model, plan).db

    def score(self, model: onnx_ir.Model, plan: EncodingPlan) -> Score:
        """SQNR of all samples together, and of each."""
        run = self.load(write(self._with_judged_outputs(model), plan))
        sums, by_sample = [ErrorSums() for _ in self.names], []
        for feeds, references in zip(self.samples, self.references, strict=True):
            outputs = run(feeds)
            here = [ErrorSums() for _ in self.names]
            for name, total, part, reference in zip(self.names, sums, here, references, strict=True):
                part.update(reference, outputs[name])
                total.merge(part)
            by_sample.append(_mean_db(here))
        return Score(_mean_db(sums), np.asarray(by_sample))

    def _with_judged_outputs(self, model: onnx_ir.Model) -> onnx_ir.Model:
        """The model with what is looked at among its outputs."""
        shown_already = {v.name for v in model.graph.outputs}
        if shown_already.issuperset(self.names):
            return model
        shown = model.clone()
        values = {v.name: v for node in shown.graph for v in node.outputs}
        shown.graph.outputs.extend(values[name] for name in dict.fromkeys(self.names) if name not in shown_already)
        return shown


def _before_saturation(value: onnx_ir.Value) -> onnx_ir.Value:
    maker = value.producer()
    if maker is None or maker.op_type not in _SATURATES:
        return value
    source = maker.inputs[0]
    return value if source is None or source.producer() is None else source


class _Improver:
    def __init__(self, request: ImproveRequest) -> None:
        self.task_map, self.held_out, self.load = request.task_map, request.held_out, request.load
        self.model, self.statistics, self.samples = request.model, request.statistics, request.samples
        self.recipe, self.arithmetic, self.seed = request.recipe, request.arithmetic, request.seed
        self.user_given = self.given = dict(request.given)
        self.report = request.progress
        self.tried: list[TriedStep] = []
        self.correcting = False
        self.means: tuple[onnx_ir.Model, dict[str, Array]] = request.model, {}
        """What a model's layers make on average, found when biases are first corrected."""
        self.dropped: list[tuple[str, EncodingPlan]] = []
        """Ranges that were no better as a whole: weights rounded for them may be."""
        self.plan = self.best = self._assign()
        """The plan steps go on from, and the one to give: the same, perhaps with corrected biases."""

    def run(self) -> Improvement:
        """All steps, in an order in which none undoes another."""
        if self.recipe.improve and self.plan.tensors:
            self.fitted, judged = _split(self.samples, self.held_out)
            self.judge = Judge(self.model, judged, self.load, unsaturated=True, parts=self.plan.mixed_parts)
            self.score, first = self.judge.score(self.model, self.plan), self.best
            if "bias" in self.recipe.improve:
                self._bias()
            for name, step in (
                ("equalize", self._equalize),
                ("range", self._range),
                ("seqmse", self._round),
                ("adaround", self._round),
            ):
                if name in self.recipe.improve:
                    step(name)
            if "bias" in self.recipe.improve and not self.correcting and self.best is not first:
                self._bias()
        return Improvement(self.model, self.statistics, self.best, tuple(self.tried))

    def _assign(self, *, with_better_ranges: bool = True, **changes: str) -> EncodingPlan:
        """The recipe's plan, some words of it changed, with the ranges that were found to be better or without them."""
        chosen = replace(self.recipe, **changes)  # type: ignore[arg-type]
        given = self.given if with_better_ranges else self.user_given
        return assign(self.model, self.statistics, chosen, given=given, arithmetic=self.arithmetic)

    def _keep(
        self, name: str, plan: EncodingPlan, since: float, *, corrected: bool = False, margin: float = _MARGIN_DB
    ) -> bool:
        """Judge a plan, with its biases corrected where that is asked for; take it if it is better, and say so."""
        best = plan
        if self.correcting and not corrected:
            if self.means[0] is not self.model:
                self.means = self.model, {}
            best = correct_biases(self.model, plan, self.fitted, self._progress("correcting biases"), self.means[1])
        score = self.judge.score(self.model, best)
        better = score.better(self.score, margin)
        self.tried.append(TriedStep(name, self.score.db, score.db, better, time.perf_counter() - since))
        if better:
            self.plan, self.best, self.score = plan, best, score
        return better

    def _progress(self, stage: str) -> Callable[[int, int], None]:
        return lambda done, whole: self.report(stage, done, whole)

    def _bias(self) -> None:
        self.correcting = True  # from here on plans are judged with corrected biases, if that helps this one
        self.correcting = self._keep("bias", self.plan, time.perf_counter())

    def _equalize(self, name: str) -> None:
        start, equalized = time.perf_counter(), self.model.clone()
        if not equalize(equalized):
            return
        before = self.model, self.statistics
        self.model = equalized
        self.statistics = calibrate(
            equalized, self.samples, progress=self._progress("calibrating, equalized"), task_map=self.task_map
        )
        limit_masks(equalized, self.statistics)
        if not self._keep(name, self._assign(), start):
            self.model, self.statistics = before

    def _range(self, name: str) -> None:
        start = time.perf_counter()
        plan = self._assign(weight_method="mse")
        if self.recipe.weight_method != "mse" and self._keep(f"{name}: weights by mse", plan, start):
            self.recipe = replace(self.recipe, weight_method="mse")
        for method in METHODS:
            if method != self.recipe.method:
                self._keep_helpful_ranges(
                    f"{name}: {method}", self._assign(method=method, with_better_ranges=False).tensors
                )

    def _keep_helpful_ranges(self, name: str, changes: Mapping[str, Fixed]) -> None:
        """Take encodings that help: all, or where they do not, either half of them in the model's order, and so on."""
        together: dict[Fixed, list[str]] = {}  # what shares an encoding changes together
        graph = self.model.graph
        for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
            tensor = str(value.name)
            fixed = self.plan.tensors.get(tensor)
            if fixed is not None and changes.get(tensor, fixed) != fixed and tensor not in self.user_given:
                together.setdefault(fixed, []).append(tensor)
        rest, whole, before = [list(together.values())], len(together), self.given
        for _ in range(_TRIES):
            if not rest or not rest[0]:
                break
            classes, start = rest.pop(0), time.perf_counter()
            self.given = {**before, **{n: changes[n] for names in classes for n in names}}
            words = f"{name} ({len(classes)} of {whole} encodings)"
            if self._keep(words, self._assign(), start, margin=_NARROWING_DB):
                before = self.given
                continue
            if len(classes) == whole:
                self.dropped.append((name, self._assign()))
            if len(classes) > 1:
                rest += [classes[: len(classes) // 2], classes[len(classes) // 2 :]]
        self.given = before

    def _round(self, name: str) -> None:
        for words, base in [(name, self.plan), *((f"{name}, {dropped}", plan) for dropped, plan in self.dropped[:1])]:
            start = time.perf_counter()
            plan = round_weights(
                self.model, base, self.fitted, compensate=name == "adaround", correct_bias=self.correcting,
                seed=self.seed, progress=self._progress("rounding weights"),
            )  # fmt: skip
            margin = _MARGIN_DB if words == name else _NARROWING_DB
            self._keep(words, plan, start, corrected=True, margin=margin)


def _split(samples: Samples, held_out: Samples | None = None) -> tuple[list[Feeds], list[Feeds]]:
    """Samples to fit to and others to judge by, spread over all; the same where there is but one."""
    count = len(samples)
    if held_out is not None and len(held_out) and count:
        fitting = set(np.linspace(0, count - 1, min(count, FITTED)).astype(int).tolist())
        return [feeds for i, feeds in enumerate(samples) if i in fitting], list(islice(held_out, JUDGED))
    if not count:
        raise CallError("improving encodings needs at least one sample, and there is none")
    spread = np.unique(np.linspace(0, count - 1, min(count, FITTED + JUDGED)).astype(int))
    judged = set(spread[1::2].tolist()) if len(spread) > 1 else {int(spread[0])}
    fitted, judges = [], []
    last = int(spread[-1])
    chosen = set(spread.tolist())
    for index, feeds in enumerate(samples):
        if index in judged:
            judges.append(feeds)
        elif index in chosen:
            fitted.append(feeds)
        if index == last:
            break
    return fitted or judges, judges
