# SPDX-License-Identifier: Apache-2.0
"""Outer folds of families: every row predicted by fits that saw neither its family nor one with its backbone.

What is known about each prediction (how far the fits of the bag differ, which work is little known) is kept with it,
so that the bands are checked on the same rows, each fold with widths from the other folds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.latency.fitting import Fit, Problem
from benchmarks.latency.sweep import CALL, HMX, HMX_KINDS, HVX, HVX_KINDS, NAMES, RATES, coefficients
from hexforge.backends.htp.time import band, cost
from hexforge.backends.htp.time.tile import PRECISIONS
from hexforge.chips import soc

QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class Outer:
    """Rows predicted from outer folds."""

    log: np.ndarray
    """Logarithm of the predicted latency."""
    known: list[band.Certainty]

    def shape(self) -> np.ndarray:
        """How much wider each row's band is than that of a graph all fits agree on."""
        return np.array([band.shape(each) for each in self.known])


def as_file(fit: Fit) -> dict[str, Any]:
    """The part of cost.json that `cost.costs` reads."""
    logs = fit.parameters
    return {
        "parameters": {name: float(f"{np.exp(v):.6g}") for name, v in zip(NAMES, logs, strict=True)},
        "members": {
            name: [float(f"{np.exp(v):.5g}") for v in column] for name, column in zip(NAMES, fit.members.T, strict=True)
        },
        "chips": {
            chip: {n: float(f"{np.exp(v):.5g}") for n, v in zip(cost.FACTORS, factors, strict=True)}
            for chip, factors in sorted(fit.chips.items())
        },
    }


def work_of(amounts: np.ndarray, unit: np.ndarray, rate: str) -> list[tuple[str, str, float]]:
    """A graph's path as times by kind of work."""
    us = amounts * unit
    index, work = RATES.index(rate), []
    for k, kind in enumerate(HMX_KINDS):
        work.append((rate, kind, us[index * len(HMX_KINDS) + k]))
    for k, kind in enumerate(HVX_KINDS):
        work.append((rate, kind, us[HMX + index * len(HVX_KINDS) + k]))
    rest = us[HMX + HVX :]
    return [
        *work,
        (rate, "task", rest[0]),
        (rate, "dram", rest[1]),
        (rate, "host.call", float(us[CALL:-1].sum())),
        (rate, "host.io", rest[-1]),
    ]


def works(problem: Problem, fit: Fit, rows: np.ndarray) -> list[list[tuple[str, str, float]]]:
    """The times by kind of work of rows."""
    chips = [c for c in problem.chips if np.isin(rows, problem.of_chip[c]).any()]
    paths = dict(zip(chips, problem.paths([(c, fit.parameters, fit.chips[c]) for c in chips]), strict=True))
    found = []
    for i in rows:
        row = problem.rows[i]
        unit = coefficients(fit.parameters, fit.chips[row.chip])
        amounts = paths[row.chip].amounts[problem.at[i]]
        found.append(work_of(amounts, unit, PRECISIONS[row.precision].rate))
    return found


def support(problem: Problem, fit: Fit, rows: np.ndarray) -> dict[str, dict[str, int]]:
    """For each precision and kind of work, how many families lean on it."""
    leaning: dict[tuple[str, str], set[str]] = defaultdict(set)
    on_reference = rows[[problem.rows[i].chip == cost.REFERENCE for i in rows]]
    for i, work in zip(on_reference, works(problem, fit, on_reference), strict=True):
        whole = sum(us for _, _, us in work)
        for rate, kind, us in work:
            if us >= band.LEANS * whole:
                leaning[rate, kind].add(problem.family[i])
    return {rate: {kind: len(names) for (r, kind), names in sorted(leaning.items()) if r == rate} for rate in RATES}


def certainties(problem: Problem, fit: Fit, train: np.ndarray, rows: np.ndarray) -> list[band.Certainty]:
    """What a fit knows about its predictions of rows."""
    supported = support(problem, fit, np.nonzero(train)[0])
    file = as_file(fit)
    costs = {chip: cost.costs(soc.named(chip), file) for chip in fit.chips}
    return [
        band.certainty(work, costs[problem.rows[i].chip], supported)
        for i, work in zip(rows, works(problem, fit, rows), strict=True)
    ]


def outer(problem: Problem) -> Outer:
    """Every fold of families predicted by a bag of fits of the others."""
    logs = np.zeros(len(problem.rows))
    known: dict[int, band.Certainty] = {}
    for fold in sorted(set(problem.fold)):
        train, test = problem.fold != fold, np.nonzero(problem.fold == fold)[0]
        fit = problem.fit(train)
        logs[test] = problem.predict(fit, test)
        known.update(zip(test.tolist(), certainties(problem, fit, train, test), strict=True))
    return Outer(logs, [known[i] for i in range(len(logs))])


def half_widths(problem: Problem, found: Outer, rows: np.ndarray) -> dict[str, float]:
    """For each precision the width that nine of ten errors of rows are within, for a graph all fits agree on."""
    scaled = np.abs(found.log - problem.log) / found.shape()
    widths = {}
    for rate in RATES:
        here = [i for i in rows if problem.rows[i].precision == rate]
        widths[rate] = float(np.quantile(scaled[here], QUANTILE)) if here else 0.0
    return widths


def covered(problem: Problem, found: Outer) -> np.ndarray:
    """Whether each row lies in its band, with the widths of the other folds."""
    inside = np.zeros(len(problem.rows), bool)
    shape, error = found.shape(), np.abs(found.log - problem.log)
    for fold in sorted(set(problem.fold)):
        widths = half_widths(problem, found, np.nonzero(problem.fold != fold)[0])
        for i in np.nonzero(problem.fold == fold)[0]:
            inside[i] = error[i] <= widths[problem.rows[i].precision] * shape[i]
    return inside


def unmeasured(problem: Problem, fit: Fit) -> float:
    """By how much more a chip is off whose rows nobody had: its factors as `cost.costs` would take them."""
    every = np.arange(len(problem.rows))
    seen = np.abs(problem.predict(fit, every) - problem.log)
    factors = {}
    for chip in fit.chips:
        others = [soc.named(c) for c in fit.chips if c != chip]
        near = cost.nearest(soc.named(chip), others)
        guess = np.array(fit.chips[near.name])
        guess[cost.FACTORS.index("dram")] += np.log(near.dram_gbps / soc.named(chip).dram_gbps)
        factors[chip] = guess
    unseen = np.abs(problem.predict(Fit(fit.members, factors), every) - problem.log)
    wider, own = np.quantile(unseen, QUANTILE), np.quantile(seen, QUANTILE)
    return float(np.sqrt(max(0.0, wider**2 - own**2)))


def file(problem: Problem, fit: Fit, found: Outer, summary: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """What cost.json holds."""
    every = np.arange(len(problem.rows))
    models: Sequence[str] = sorted({r.model for r in problem.rows})
    return {
        "source": "fitted by benchmarks/latency/fit_costs.py on the measured latencies of qai-hub-models 0.65.0",
        "data": {"rows": len(problem.rows), "models": len(models), "sha256": digest},
        "reference": cost.REFERENCE,
        **as_file(fit),
        "support": support(problem, fit, every),
        "band": {
            "half_width": {k: round(v, 4) for k, v in half_widths(problem, found, every).items()},
            "unmeasured_chip": round(unmeasured(problem, fit), 4),
        },
        "error": summary,
    }
