# SPDX-License-Identifier: Apache-2.0
"""Advise: what would make a model faster on a chip, each idea tried by rewriting the model and simulating it again."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hexforge.analysis.estimate import FLOAT, Estimate, TimedGraphs, as_converted, estimate, timed_graphs
from hexforge.analysis.mixed_precision import PRECISION_RULES, PrecisionRule
from hexforge.backends.htp.deployment import Deployment
from hexforge.backends.htp.timing import AS_IS
from hexforge.errors import CallError, CapacityError, HexforgeError, UnsupportedError
from hexforge.frontends.onnx.rewrites import RULES, Rewrite, RewriteRule, apply, find
from hexforge.model.reader import Model, read
from hexforge.quant.measure.compare import is_quantized

if TYPE_CHECKING:
    from hexforge.analysis.agreement import Reference
    from hexforge.model.source import ModelSource

MIN_GAIN = 0.01
_TRIED_ALONE = 3.0
"""Times the least gain: kinds of places that take so long are tried one by one."""
MOST_ROUNDS = 2
"""Rewrites make room for each other: a Div that became a Mul can go into a convolution."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One idea, and what it gains by itself."""

    rule: str
    title: str
    nodes: tuple[str, ...]
    places: tuple[str, ...]
    """What was found, in words."""
    why: str
    source: str
    how: str
    keeps_function: bool
    before_us: float
    after_us: float
    error: float | None = None
    """Largest difference of the outputs, relative to their range, on random inputs; None where it was not compared."""
    accuracy: bool = False
    """True where it is for the numbers' sake."""

    @property
    def gain_us(self) -> float:
        """Time saved for each inference."""
        return self.before_us - self.after_us

    @property
    def gain(self) -> float:
        """The same as a part of the whole."""
        return self.gain_us / self.before_us if self.before_us else 0.0

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "rule": self.rule,
            "title": self.title,
            "gain_us": round(self.gain_us, 3),
            "gain_percent": round(100 * self.gain, 2),
            "before_us": round(self.before_us, 3),
            "after_us": round(self.after_us, 3),
            "keeps_function": self.keeps_function,
            "error": self.error,
            "accuracy": self.accuracy,
            "nodes": list(self.nodes),
            "places": list(self.places),
            "why": self.why,
            "source": self.source,
            "how": self.how,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Advised:
    """All advice on a model, and the model with what can be applied."""

    model: str
    soc: str
    precision: str
    runtime: str
    before_us: float
    advice: tuple[Advice, ...]
    """Ranked by gain."""
    after_us: float
    """With every rewrite that keeps the function and gains, together."""
    applied: tuple[str, ...]
    """The rules that made it, in their order."""
    dropped: tuple[tuple[str, str], ...]
    """Rules that gain and were left out, and why."""
    rewritten: Model
    error: float | None

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "model": self.model,
            "soc": self.soc,
            "precision": self.precision,
            "runtime": self.runtime,
            "before_us": round(self.before_us, 3),
            "after_us": round(self.after_us, 3),
            "applied": list(self.applied),
            "error": self.error,
            "dropped": [{"rule": rule, "why": why} for rule, why in self.dropped],
            "advice": [a.to_json() for a in self.advice],
        }


Observe = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """What advice is looked for, and how surely."""

    min_gain: float = MIN_GAIN
    """The least part of the whole that an idea must gain."""
    verify: bool = True
    """Compare the outputs of rewritten models with the original's."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_gain < 1:
            raise CallError(f"min_gain {self.min_gain}: it is a part of the whole, from 0 to below 1 (0.01 for 1 %)")


def advise(
    model: ModelSource,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    *,
    min_gain: float = MIN_GAIN,
    verify: bool = True,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> list[Advice]:
    """What would make a model faster, the largest gain first; `advised` also gives the model rewritten."""
    return list(advised(model, deployment, AdviceRequest(min_gain, verify), dims=dims, shapes=shapes).advice)


def advised(
    model: ModelSource,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    request: AdviceRequest = AdviceRequest(),  # noqa: B008 - it is frozen
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    observe: Observe | None = None,
) -> Advised:
    """All advice on a model and the model with what can be applied; `observe(done, of, rule)` hears how far it is."""
    chosen = Deployment.of(deployment)
    loaded = read(model, dims=dims, shapes=shapes)
    loaded.require_static()
    loaded = as_converted(loaded)
    trial = _Trial(chosen)
    graphs = timed_graphs(loaded, chosen)
    timed = estimate(graphs, chosen)
    before = timed.latency_ms * 1e3
    trial.weigh(graphs, timed, request.min_gain)
    rules = [rule for rule in RULES if _is_for(rule, trial)]
    saw = observe or (lambda done, of, rule: None)
    tried: list[_Tried] = []
    for n, rule in enumerate(rules):
        saw(n, len(rules) + 2, rule.name)
        if (trial_result := trial(loaded, rule, before)) is not None and trial_result.gains(before):
            tried.append(trial_result)
    saw(len(rules), len(rules) + 2, "precision")
    precisions = [_precision_advice(rule, graphs, chosen, before) for rule in PRECISION_RULES]
    precisions += [_quantize_advice(loaded, chosen, before), _host_advice(graphs, chosen, timed)]
    saw(len(rules) + 1, len(rules) + 2, "all together")
    together = _Together(trial, loaded, before, [t for t in tried if t.rule.keeps_function], request.verify)
    advice = [t.advice(before) for t in tried] + [a for a in precisions if a is not None]
    advice = [
        replace(a, error=together.errors.get(a.rule))
        for a in advice
        if a.accuracy or a.gain >= max(request.min_gain, 1e-9)
    ]
    advice.sort(key=lambda a: (a.accuracy and a.gain < request.min_gain, -a.gain_us))
    return Advised(
        loaded.name,
        timed.soc,
        timed.precision,
        timed.runtime,
        before,
        tuple(advice),
        together.us,
        tuple(together.applied),
        tuple(together.dropped),
        together.model,
        together.error,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Tried:
    """A model rewritten by a rule where that gains, and its latency."""

    rule: RewriteRule
    model: Model
    us: float
    changes: list[Rewrite]

    def gains(self, before: float) -> bool:
        """True where it is faster; what is for the numbers' sake need not be."""
        return self.us < before or (self.rule.accuracy and self.us <= before)

    def advice(self, before: float) -> Advice:
        """The rule's advice."""
        rule, changes = self.rule, self.changes
        return Advice(
            rule.name,
            rule.title,
            tuple(dict.fromkeys(node for change in changes for node in change.nodes)),
            tuple(change.what for change in changes),
            rule.why,
            rule.source,
            rule.how,
            rule.keeps_function,
            before,
            self.us,
            accuracy=rule.accuracy,
        )


class _Trial:
    """How models are timed, and which kinds of places were found to gain."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.backend = deployment, deployment.timed_backend()
        self._gains: dict[tuple[str, Hashable], bool] = {}
        self._times: dict[str, float] = {}
        self._least_us = 0.0

    def weigh(self, graphs: TimedGraphs, timed: Estimate, min_gain: float) -> None:
        """Learn what the model's nodes take: kinds of places that take little are tried together, not one by one."""
        shares = {share.node: share.us for share in timed.timeline.bottlenecks()}
        for graph in graphs.graphs:
            for node in graph:
                for name in node.source:
                    self._times[name] = self._times.get(name, 0.0) + shares.get(node.name, 0.0)
        self._least_us = min_gain * _TRIED_ALONE * timed.latency_ms * 1e3

    def _takes(self, places: Sequence[Rewrite]) -> float:
        return sum(self._times.get(name, 0.0) for name in {name for place in places for name in place.nodes})

    def _batches(self, kinds: Mapping[Hashable, Sequence[Rewrite]]) -> list[tuple[Hashable, ...]]:
        """Kinds to try at a time: those that take long alone, the others together."""
        large = [(key,) for key, places in kinds.items() if self._takes(places) >= self._least_us]
        small = tuple(key for key in kinds if (key,) not in large)
        return [*large, small] if small else list(large)

    def us(self, model: Model) -> float:
        """The latency of a model."""
        return estimate(model, self.deployment).latency_ms * 1e3

    def _with(self, model: Model, rule: RewriteRule, keys: set[Hashable]) -> tuple[Model, float, list[Rewrite]]:
        """A copy with a rule applied; its latency is infinite where it cannot be timed, or does not fit."""
        rewritten = model.copied()
        changes = apply(rewritten.ir, rule, keys)
        try:
            return rewritten, self.us(rewritten), changes
        except (UnsupportedError, CapacityError):
            return rewritten, math.inf, changes

    def __call__(self, model: Model, rule: RewriteRule, before: float) -> _Tried | None:
        """The model with a rule applied where that gains; each kind of place is tried once, alone."""
        kinds: dict[Hashable, list[Rewrite]] = {}
        for place in find(model.ir, rule):
            kinds.setdefault(place.key, []).append(place)
        tried: dict[frozenset[Hashable], tuple[Model, float, list[Rewrite]]] = {}
        if len(kinds) > 1 and not rule.accuracy:
            for batch in self._batches({k: p for k, p in kinds.items() if (rule.name, k) not in self._gains}):
                tried[frozenset(batch)] = self._with(model, rule, set(batch))
                self._gains.update(((rule.name, key), tried[frozenset(batch)][1] < before) for key in batch)
        keys = {key for key in kinds if self._gains.get((rule.name, key), True)}
        if not keys:
            return None
        rewritten, us, changes = tried.get(frozenset(keys)) or self._with(model, rule, keys)
        return _Tried(rule, rewritten, us, changes) if changes and us < math.inf else None


class _Together:
    """Every rewrite that keeps the function and gains, one on top of the other, checked against the original."""

    def __init__(self, trial: _Trial, model: Model, before: float, tried: Sequence[_Tried], verify: bool) -> None:
        self.model, self.us = model, before
        self.applied: list[str] = []
        self.dropped: list[tuple[str, str]] = []
        self.errors: dict[str, float] = {}
        self.error: float | None = None
        self._original, self._trial, self._verify = model, trial, verify
        self._reference: Reference | None = None
        rules = [rule for rule in RULES if rule.keeps_function and _is_for(rule, trial)]
        for n in range(MOST_ROUNDS):
            candidates = tried if n == 0 else [t for rule in rules if (t := self._tried(rule)) is not None]
            if not candidates:
                break
            self._round(sorted(candidates, key=lambda t: t.us))

    def _tried(self, rule: RewriteRule) -> _Tried | None:
        tried = None if rule.name in dict(self.dropped) else self._trial(self.model, rule, self.us)
        return tried if tried is not None and tried.gains(self.us) else None

    def _round(self, candidates: Sequence[_Tried]) -> None:
        """Take all that gain and compare once; where the outputs differ, again with a comparison for each."""
        model, us = self.model, self.us
        taken = self._take(candidates, compare_each=False)
        error, why = self._compared(self.model) if taken and self._verify else (None, "")
        if why:
            self.model, self.us = model, us
            taken = self._take(candidates, compare_each=True)
        elif error is not None:
            self.error = error
            self.errors.update(dict.fromkeys(taken, error))
        self.applied += [rule for rule in taken if rule not in self.applied]

    def _take(self, candidates: Sequence[_Tried], compare_each: bool) -> list[str]:
        taken: list[str] = []
        for first in candidates:
            tried = self._tried(first.rule) if taken else first  # what was taken made another model of it
            if tried is None:
                continue
            if compare_each:
                error, why = self._compared(tried.model)
                if why:
                    self.dropped.append((tried.rule.name, why))
                    continue
                if error is not None:
                    self.errors[tried.rule.name] = self.error = error
            self.model, self.us = tried.model, tried.us
            taken.append(tried.rule.name)
        return taken

    def _compared(self, model: Model) -> tuple[float | None, str]:
        """The largest difference from the original's outputs (None where nothing can be said) and what is wrong."""
        from hexforge.analysis.agreement import Reference

        try:
            self._reference = self._reference or Reference(self._original)
            error, fits = self._reference.error(model)
        except HexforgeError as problem:
            return None, f"cannot be compared: {problem}"
        if math.isnan(error):
            self._verify = False
            self.dropped.append(("verification", "the original's outputs are not finite, so nothing can be compared"))
            return None, ""
        return error, "" if fits else f"outputs differ by {error:.1e} of their range"


def _is_for(rule: RewriteRule, trial: _Trial) -> bool:
    return not rule.runtimes or trial.deployment.runtime in rule.runtimes


def _precision_advice(rule: PrecisionRule, timed: TimedGraphs, deployment: Deployment, before: float) -> Advice | None:
    if len(timed.graphs) != 1:
        return None
    tried = rule.tried(timed.graphs[0], replace(deployment, precision=AS_IS) if timed.promised else deployment)
    if tried is None:
        return None
    nodes, after = tried
    return Advice(
        rule.name, rule.title, nodes, (f"{len(nodes)} nodes",), rule.why, rule.source, rule.how, False, before, after
    )


PROMISED = ("w8a8", "w8a16")
"""Precisions that a float model is told to be quantized to."""
CALLED_WITH = 8
"""Samples of a call, where the host's share is spread over several."""
HOST_SHARE = 0.4
"""Of an inference, from which on the host's share is worth advice."""


def _quantize_advice(model: Model, deployment: Deployment, before: float) -> Advice | None:
    """What quantizing a float model would gain, as `quantize` builds it."""
    if deployment.precision not in (AS_IS, FLOAT) or is_quantized(model.ir):
        return None
    times: dict[str, float] = {}
    for precision in PROMISED:
        try:
            times[precision] = estimate(model, replace(deployment, precision=precision)).latency_ms * 1e3
        except (UnsupportedError, CapacityError):
            continue
    if not times:
        return None
    best = min(times, key=lambda precision: times[precision])
    promises = tuple(f"{precision}: {us / 1e3:.3f} ms promised" for precision, us in times.items())
    name = "MODEL" if model.path is None else model.path.name
    return Advice(
        "quantize",
        f"Quantize the float model to {best}",
        (),
        promises,
        "The HTP multiplies integers several times faster than float16, and moves half or a quarter of the bytes.",
        "the estimate of the model that `hexforge quantize` would write, input and output conversions included",
        f"hexforge quantize {name} --data FOLDER --recipe {best}_channel, which says how much accuracy it costs.",
        False,
        before,
        times[best],
    )


def _host_advice(graphs: TimedGraphs, deployment: Deployment, timed: Estimate) -> Advice | None:
    """Several samples in a call, where calling takes as long as computing."""
    line, before = timed.timeline, timed.latency_ms * 1e3
    share = 1 - line.accelerator_us * line.factor / before if before else 0.0
    if share < HOST_SHARE:
        return None
    try:
        after = estimate(graphs, deployment, batch=CALLED_WITH).latency_ms * 1e3 / CALLED_WITH
    except (UnsupportedError, CapacityError):
        return None
    return Advice(
        "samples-per-call",
        f"Give the NPU {CALLED_WITH} samples a call: the host takes {100 * share:.0f} % of each",
        (),
        (f"the NPU computes for {line.accelerator_us / 1e3:.3f} ms of {before / 1e3:.3f} ms",),
        "A call crosses to the NPU and back whatever it computes; several samples share one crossing.",
        "the call's measured overhead; times are for each sample",
        "Export the model with a larger batch, or put it into one graph with what runs before and after it; shared "
        "memory for inputs and outputs and rpc_control_latency make the crossing itself cheaper.",
        False,
        before,
        after,
    )
