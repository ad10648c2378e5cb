"""Advise: what would make a model faster on a chip, each idea tried by rewriting the model and simulating it again."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hexforge.backends.htp.options import GraphConfig
from hexforge.backends.htp.power import Power
from hexforge.errors import CallError, CapacityError, HexforgeError, UnsupportedError
from hexforge.frontends.onnx import Model, read
from hexforge.frontends.onnx.rewrites import RULES, Change, Rule, apply, find
from hexforge.ir import Graph
from hexforge.runtime.estimate import AS_IS, estimate, graph_of
from hexforge.runtime.mixed import PRECISION_RULES

if TYPE_CHECKING:
    from hexforge.frontends.onnx.reader import ModelSource

MIN_GAIN = 0.01
MOST_ROUNDS = 2
"""Rewrites make room for each other: a Div that became a Mul can go into a convolution."""
MOST_VERIFIED = 1 << 31
"""Bytes of weights up to which a model is run to compare it."""


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


def advise(
    model: ModelSource,
    soc: str = "SM8650",
    precision: str = AS_IS,
    runtime: str = "qnn_dlc",
    *,
    min_gain: float = MIN_GAIN,
    verify: bool = True,
    config: GraphConfig | None = None,
    power: Power | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> list[Advice]:
    """What would make a model faster, the largest gain first; `advised` also gives the model rewritten."""
    found = advised(
        model, soc, precision, runtime, min_gain=min_gain, verify=verify, config=config, power=power, dims=dims,
        shapes=shapes,
    )  # fmt: skip
    return list(found.advice)


def advised(
    model: ModelSource,
    soc: str = "SM8650",
    precision: str = AS_IS,
    runtime: str = "qnn_dlc",
    *,
    min_gain: float = MIN_GAIN,
    verify: bool = True,
    config: GraphConfig | None = None,
    power: Power | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    observe: Observe | None = None,
) -> Advised:
    """All advice on a model and the model with what can be applied; `observe(done, of, rule)` hears how far it is."""
    if not 0 <= min_gain < 1:
        raise CallError(f"min_gain {min_gain}: it is a part of the whole, from 0 to below 1 (0.01 for 1 %)")
    loaded = read(model, dims=dims, shapes=shapes)
    loaded.require_static()
    trial = _Trial(soc, precision, runtime, config, power)
    rules = [rule for rule in RULES if not rule.runtimes or runtime in rule.runtimes]
    steps = len(rules) + 2
    saw = observe or (lambda done, of, rule: None)
    graph = trial.graph(loaded)
    before = trial.graph_us(graph)
    found: list[Advice] = []
    for n, rule in enumerate(rules):
        saw(n, steps, rule.name)
        advice = trial.advice(loaded, rule, before)
        if advice is not None and (advice.accuracy or (advice.gain_us > 0 and advice.gain >= min_gain)):
            found.append(advice)
    saw(len(rules), steps, "precision")
    found += [
        a
        for r in PRECISION_RULES
        if (a := _precision_advice(r, graph, trial, before)) is not None and a.gain >= min_gain
    ]
    saw(len(rules) + 1, steps, "together")
    together = _Together(trial, loaded, before, [r for r in rules if r.keeps_function], verify)
    errors = together.errors
    found = [replace(a, error=errors.get(a.rule)) if a.keeps_function else a for a in found]
    found.sort(key=lambda a: (a.accuracy and a.gain < min_gain, -a.gain_us))
    saw(steps, steps, "")
    return Advised(
        loaded.name, estimate(graph, soc, precision, runtime).soc, precision, runtime, before, tuple(found),
        together.us, tuple(together.applied), tuple(together.dropped), together.model, together.error,
    )  # fmt: skip


class _Trial:
    """How models are timed."""

    def __init__(self, soc: str, precision: str, runtime: str, config: GraphConfig | None, power: Power | None) -> None:
        self.soc, self.precision, self.runtime, self.config, self.power = soc, precision, runtime, config, power

    def graph(self, model: Model) -> Graph:
        """The QNN graph of a model, which is left as it is."""
        return graph_of(copied(model))

    def graph_us(self, graph: Graph) -> float:
        """The latency of a QNN graph."""
        found = estimate(graph, self.soc, self.precision, self.runtime, config=self.config, power=self.power)
        return found.latency_ms * 1e3

    def us(self, model: Model) -> float | None:
        """The latency of a model; None where it cannot be timed, or does not fit."""
        try:
            return self.graph_us(self.graph(model))
        except (UnsupportedError, CapacityError):
            return None

    def chosen(self, model: Model, rule: Rule, before: float) -> tuple[Model, float, list[Change]] | None:
        """The model rewritten where that gains, its latency and what was changed; each kind of place is tried alone."""
        places = find(model.ir, rule)
        kinds = list(dict.fromkeys(place.key for place in places))
        if not kinds:
            return None
        keys: set[Hashable] = set(kinds)
        if len(kinds) > 1 and not rule.accuracy:
            keys = {key for key in kinds if (us := self._with(model, rule, {key})[1]) is not None and us < before}
        if not keys:
            return None
        made, us, changes = self._with(model, rule, keys)
        return None if us is None or not changes else (made, us, changes)

    def _with(self, model: Model, rule: Rule, keys: set[Hashable]) -> tuple[Model, float | None, list[Change]]:
        made = copied(model)
        changes = apply(made.ir, rule, keys)
        return made, self.us(made), changes

    def advice(self, model: Model, rule: Rule, before: float) -> Advice | None:
        """What a rule gains by itself."""
        found = self.chosen(model, rule, before)
        if found is None:
            return None
        _, us, changes = found
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
            us,
            accuracy=rule.accuracy,
        )


class _Together:
    """Every rewrite that keeps the function and gains, one on top of the other, each checked against the original."""

    def __init__(self, trial: _Trial, model: Model, before: float, rules: Sequence[Rule], verify: bool) -> None:
        self.model, self.us = model, before
        self.applied: list[str] = []
        self.dropped: list[tuple[str, str]] = []
        self.errors: dict[str, float] = {}
        self.error: float | None = None
        self._reference = self._made_reference(model) if verify else None
        for _ in range(MOST_ROUNDS):
            candidates = []
            for rule in rules:
                if rule.name in dict(self.dropped):
                    continue
                found = trial.chosen(self.model, rule, self.us)
                if found is not None and (found[1] < self.us or (rule.accuracy and found[1] <= self.us)):
                    candidates.append((self.us - found[1], rule))
            candidates.sort(key=lambda pair: -pair[0])
            changed = False
            for _, rule in candidates:
                changed |= self._take(trial, rule)
            if not changed:
                break

    def _made_reference(self, model: Model) -> Any:
        from hexforge.runtime.agreement import Reference

        try:
            return Reference(model)
        except HexforgeError as error:
            self.dropped.append(("verification", f"the original does not run on the CPU: {error}"))
            return None

    def _take(self, trial: _Trial, rule: Rule) -> bool:
        found = trial.chosen(self.model, rule, self.us)
        if found is None or not (found[1] < self.us or (rule.accuracy and found[1] <= self.us)):
            return False
        made, us, _ = found
        if self._reference is not None:
            try:
                error = self._reference.error(made)
            except HexforgeError as problem:
                self.dropped.append((rule.name, f"the result does not run on the CPU: {problem}"))
                return False
            if math.isnan(error):  # as with weights that are all alike: numbers overflow, and nothing can be compared
                self._reference = None
                self.dropped.append(
                    ("verification", "the original's outputs are not finite, so nothing can be compared")
                )
                return self._take(trial, rule)
            self.errors[rule.name] = max(error, self.errors.get(rule.name, 0.0))
            if error > self._reference.tolerance:
                self.dropped.append((rule.name, f"outputs differ by {error:.1e} of their range"))
                return False
            self.error = error
        self.model, self.us = made, us
        self.error = self.error if self._reference is not None else None
        if rule.name not in self.applied:
            self.applied.append(rule.name)
        return True


def copied(model: Model) -> Model:
    """A model that can be edited without the original hearing of it; constants are shared."""
    return replace(model, ir=model.ir.clone())


def _precision_advice(rule: Any, graph: Graph, trial: _Trial, before: float) -> Advice | None:
    found = rule.tried(graph, trial.soc, trial.precision, trial.runtime, trial.config, trial.power)
    if found is None:
        return None
    nodes, after = found
    return Advice(
        rule.name, rule.title, nodes, (f"{len(nodes)} nodes",), rule.why, rule.source, rule.how, False, before, after
    )
