# SPDX-License-Identifier: Apache-2.0
"""Rewrite trial: a model rewritten by a rule and timed again, and all rewrites that gain one on top of the other."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexforge.addons.tuning.advice.result import SLOWER, Advice
from hexforge.addons.tuning.advice.whole_cost import IMPOSSIBLE, WholeCost, whole_cost
from hexforge.addons.tuning.rewrites import Rewrite, RewriteRule, apply, find
from hexforge.analysis.estimate import Estimate
from hexforge.analysis.timed_graphs import TimedGraphs
from hexforge.chips.deployment import Deployment
from hexforge.errors import HexforgeError
from hexforge.model.reader import Model

if TYPE_CHECKING:
    from hexforge.addons.tuning.advice.agreement import ReferenceOutputs

_TRIED_ALONE = 3.0
"""Times the least gain: kinds of places that take so long are tried one by one."""
MOST_ROUNDS = 2
"""Rewrites make room for each other: a Div that became a Mul can go into a convolution."""


@dataclass(frozen=True, slots=True, eq=False)
class TriedRewrite:
    """A model rewritten by a rule where that gains, and its latency."""

    rule: RewriteRule
    model: Model
    cost: WholeCost
    changes: list[Rewrite]

    def gains(self, before: WholeCost) -> bool:
        """True where it is faster; what is for the numbers' sake need not be."""
        return self.cost < before or (self.rule.accuracy and self.cost <= before)

    def brings(self, before: WholeCost) -> int:
        """Nodes that come onto the NPU."""
        return max(before.cpu_nodes - self.cost.cpu_nodes, 0)

    def advice(self, before: WholeCost) -> Advice:
        """The rule's advice."""
        rule, changes = self.rule, self.changes
        slower = "" if self.gains(before) else SLOWER
        return Advice(
            rule.name,
            rule.title + slower,
            tuple(dict.fromkeys(node for change in changes for node in change.nodes)),
            tuple(change.what for change in changes),
            rule.why,
            rule.source,
            rule.how,
            rule.keeps_function,
            before.us,
            self.cost.us,
            accuracy=rule.accuracy,
            brings=self.brings(before),
        )


class RewriteTrial:
    """How models are timed, and which kinds of places were found to gain."""

    def __init__(self, deployment: Deployment, cpu_part: bool = True) -> None:
        self.deployment, self.cpu_part = deployment, cpu_part
        self._gains: dict[tuple[str, Hashable], bool] = {}
        self._times: dict[str, float] = {}
        self._least_us = 0.0

    def learn_node_times(self, graphs: TimedGraphs, timed: Estimate, min_gain: float) -> None:
        """Learn what the model's nodes take: kinds of places that take little are tried together, not one by one."""
        shares = {share.node: share.us for share in timed.timeline.bottlenecks()}
        for graph in graphs.graphs:
            for node in graph:
                for name in node.source:
                    self._times[name] = self._times.get(name, 0.0) + shares.get(node.name, 0.0)
        self._least_us = min_gain * _TRIED_ALONE * timed.latency_ms * 1e3

    def _time_of_places(self, places: Sequence[Rewrite]) -> float:
        return sum(self._times.get(name, 0.0) for name in {name for place in places for name in place.nodes})

    def _batches(self, kinds: Mapping[Hashable, Sequence[Rewrite]]) -> list[tuple[Hashable, ...]]:
        """Kinds to try at a time: those that take long alone, the others together."""
        large = [(key,) for key, places in kinds.items() if self._time_of_places(places) >= self._least_us]
        small = tuple(key for key in kinds if (key,) not in large)
        return [*large, small] if small else list(large)

    def _rewrite_and_time(
        self, model: Model, rule: RewriteRule, keys: set[Hashable], before: WholeCost
    ) -> tuple[Model, WholeCost, list[Rewrite]]:
        """A copy with a rule applied, and what it costs."""
        rewritten = model.copied()
        changes = apply(rewritten.ir, rule, keys)
        return rewritten, whole_cost(rewritten, self.deployment, self.cpu_part, before), changes

    def __call__(self, model: Model, rule: RewriteRule, before: WholeCost) -> TriedRewrite | None:
        """The model with a rule applied where that gains; each kind of place is tried once, alone.

        What brings nodes onto the NPU is tried as a whole first, as one that stays behind still cuts the graph, and is
        given back even where it is slower.
        """
        kinds: dict[Hashable, list[Rewrite]] = {}
        for place in find(model.ir, rule):
            kinds.setdefault(place.key, []).append(place)
        tried: dict[frozenset[Hashable], tuple[Model, WholeCost, list[Rewrite]]] = {}
        slower: TriedRewrite | None = None
        if kinds and before.cpu_nodes:
            whole, cost, changes = tried[frozenset(kinds)] = self._rewrite_and_time(model, rule, set(kinds), before)
            if cost.cpu_nodes < before.cpu_nodes and cost < IMPOSSIBLE:
                slower = TriedRewrite(rule, whole, cost, changes)
                if cost < before:
                    return slower
        if len(kinds) > 1 and not rule.accuracy:
            for batch in self._batches({k: p for k, p in kinds.items() if (rule.name, k) not in self._gains}):
                tried[frozenset(batch)] = self._rewrite_and_time(model, rule, set(batch), before)
                self._gains.update(((rule.name, key), tried[frozenset(batch)][1] < before) for key in batch)
        keys = {key for key in kinds if self._gains.get((rule.name, key), True)}
        if not keys:
            return slower
        rewritten, cost, changes = tried.get(frozenset(keys)) or self._rewrite_and_time(model, rule, keys, before)
        return TriedRewrite(rule, rewritten, cost, changes) if changes and cost < IMPOSSIBLE else None


class AllRewrites:
    """Every rewrite that keeps the function and gains, one on top of the other, checked against the original."""

    def __init__(
        self, trial: RewriteTrial, rules: Sequence[RewriteRule], model: Model, before: WholeCost,
        tried: Sequence[TriedRewrite], verify: bool,
    ) -> None:  # fmt: skip
        """`rules` are those that keep the function; `tried` is what they gained on the original, each alone."""
        self.model, self.cost = model, before
        self.applied: list[str] = []
        self.dropped: list[tuple[str, str]] = []
        self.errors: dict[str, float] = {}
        self.error: float | None = None
        self._original, self._trial, self._verify = model, trial, verify
        self._reference: ReferenceOutputs | None = None
        for rough in [t for t in tried if t.rule.tolerance]:
            self._apply_rough(rough)
        exact = [t for t in tried if not t.rule.tolerance]
        for n in range(MOST_ROUNDS):
            fresh = n == 0 and not self.applied
            candidates = exact if fresh else [t for rule in rules if (t := self._try_rule(rule)) is not None]
            if not candidates:
                break
            self._apply_candidates(sorted(candidates, key=lambda t: t.cost))

    def _try_rule(self, rule: RewriteRule) -> TriedRewrite | None:
        tried = None if rule.name in dict(self.dropped) else self._trial(self.model, rule, self.cost)
        return tried if tried is not None and tried.gains(self.cost) else None

    def _apply_rough(self, tried: TriedRewrite) -> None:
        """Take a rewrite that leaves out roundings of the model; what follows is compared with what it gives."""
        error, why = self._compare_with_original(tried.model, tried.rule.tolerance) if self._verify else (None, "")
        if why:
            self.dropped.append((tried.rule.name, why))
            return
        if error is not None:
            self.errors[tried.rule.name] = self.error = error
        self.model, self.cost = tried.model, tried.cost
        self.applied.append(tried.rule.name)
        self._original, self._reference = tried.model, None

    def _apply_candidates(self, candidates: Sequence[TriedRewrite]) -> None:
        """Take all that gain and compare once; where the outputs differ, again with a comparison for each."""
        model, cost = self.model, self.cost
        taken = self._apply_gaining(candidates, compare_each=False)
        error, why = self._compare_with_original(self.model) if taken and self._verify else (None, "")
        if why:
            self.model, self.cost = model, cost
            taken = self._apply_gaining(candidates, compare_each=True)
        elif error is not None:
            self.error = max(error, self.error or 0.0)
            self.errors.update(dict.fromkeys(taken, error))
        self.applied += [rule for rule in taken if rule not in self.applied]

    def _apply_gaining(self, candidates: Sequence[TriedRewrite], compare_each: bool) -> list[str]:
        taken: list[str] = []
        for first in candidates:
            tried = self._try_rule(first.rule) if taken else first  # what was taken made another model of it
            if tried is None:
                continue
            if compare_each:
                error, why = self._compare_with_original(tried.model)
                if why:
                    self.dropped.append((tried.rule.name, why))
                    continue
                if error is not None:
                    self.errors[tried.rule.name] = error
                    self.error = max(error, self.error or 0.0)
            self.model, self.cost = tried.model, tried.cost
            taken.append(tried.rule.name)
        return taken

    def _compare_with_original(self, model: Model, tolerance: float = 0.0) -> tuple[float | None, str]:
        """The largest difference from the original's outputs (None where nothing can be said) and what is wrong."""
        from hexforge.addons.tuning.advice.agreement import ReferenceOutputs

        try:
            self._reference = self._reference or ReferenceOutputs(self._original)
            error, fits = self._reference.error(model)
        except HexforgeError as problem:
            return None, f"cannot be compared: {problem}"
        if math.isnan(error):
            self._verify = False
            self.dropped.append(("verification", "the original's outputs are not finite, so nothing can be compared"))
            return None, ""
        return error, "" if fits or error <= tolerance else f"outputs differ by {error:.1e} of their range"
