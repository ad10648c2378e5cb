# SPDX-License-Identifier: Apache-2.0
"""Known work: which kinds of work the measured families lean on, and how well a fit knows what it predicts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from hexforge.addons.latency.cost_file import costs_of
from hexforge.addons.latency.fitting import CostFit, FitProblem
from hexforge.addons.latency.terms import CALL, HMX_KINDS, HMX_TERMS, HVX_KINDS, RATES, WORK_TERMS, unit_us
from hexforge.backends.htp.time import band, cost
from hexforge.backends.htp.time.tile import PRECISIONS
from hexforge.chips import soc
from hexforge.chips.deployment import RUNTIMES

WorkTime = tuple[str, str, float]
"""Matrix rate, kind of work, microseconds."""


def work_of(amounts: np.ndarray, unit: np.ndarray, rate: str) -> list[WorkTime]:
    """A graph's path as times by kind of work."""
    us = amounts * unit
    index = RATES.index(rate)
    work: list[WorkTime] = []
    for k, kind in enumerate(HMX_KINDS):
        work.append((rate, kind, us[index * len(HMX_KINDS) + k]))
    for k, kind in enumerate(HVX_KINDS):
        work.append((rate, kind, us[HMX_TERMS + index * len(HVX_KINDS) + k]))
    rest = us[WORK_TERMS:]
    return [
        *work,
        (rate, "task", rest[0]),
        (rate, "dram", rest[1]),
        (rate, "host.call", float(us[CALL:-1].sum())),
        (rate, "host.io", rest[-1]),
    ]


def work_times(problem: FitProblem, fit: CostFit, rows: np.ndarray) -> list[list[WorkTime]]:
    """The times by kind of work of rows."""
    chips = [c for c in problem.chips if np.isin(rows, problem.rows_of_chip[c]).any()]
    paths = dict(zip(chips, problem.paths([(c, fit.parameters, fit.chips[c]) for c in chips]), strict=True))
    times = []
    for i in rows:
        row = problem.rows[i]
        unit = unit_us(fit.parameters, fit.chips[row.chip])
        amounts = paths[row.chip].amounts[problem.graph_index[i]]
        times.append(work_of(amounts, unit, PRECISIONS[row.precision].rate))
    return times


def support(problem: FitProblem, fit: CostFit, rows: np.ndarray) -> dict[str, dict[str, int]]:
    """For each precision and kind of work, how many families lean on it."""
    leaning: dict[tuple[str, str], set[str]] = defaultdict(set)
    on_reference = rows[[problem.rows[i].chip == cost.REFERENCE for i in rows]]
    for i, work in zip(on_reference, work_times(problem, fit, on_reference), strict=True):
        whole = sum(us for _, _, us in work)
        for rate, kind, us in work:
            if us >= band.LEANS * whole:
                leaning[rate, kind].add(problem.family[i])
    return {rate: {kind: len(names) for (r, kind), names in sorted(leaning.items()) if r == rate} for rate in RATES}


def profiles(problem: FitProblem, fit: CostFit, rows: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """For each precision and model among rows the part of its time in each kind of work, in the order of band.NAMES.

    A model is measured on several chips through several runtimes; the first chip's and runtime's is taken.
    """
    chip, runtime = problem.chips.index, RUNTIMES.index
    order = sorted(rows.tolist(), key=lambda i: (chip(problem.rows[i].chip), runtime(problem.rows[i].runtime)))
    first = {(problem.rows[i].precision, problem.rows[i].model): i for i in reversed(order)}
    chosen = sorted(first)
    works = work_times(problem, fit, np.array([first[key] for key in chosen], int))
    by_rate: dict[str, dict[str, list[float]]] = {rate: {} for rate in RATES}
    for (precision, model), work in zip(chosen, works, strict=True):
        by_rate[PRECISIONS[precision].rate][model] = [round(float(part), 3) for part in band.profile(work)]
    return by_rate


def known_work(problem: FitProblem, fit: CostFit, rows: np.ndarray) -> dict[str, Any]:
    """What a file of costs says of the work that rows have."""
    return {
        "support": support(problem, fit, rows),
        "profile_kinds": list(band.NAMES),
        "profiles": profiles(problem, fit, rows),
    }


def certainties(problem: FitProblem, fit: CostFit, train: np.ndarray, rows: np.ndarray) -> list[band.Certainty]:
    """What a fit knows about its predictions of rows."""
    seen = np.nonzero(train)[0]
    supported = support(problem, fit, seen)
    measured = {rate: np.array(list(each.values())) for rate, each in profiles(problem, fit, seen).items()}
    file = costs_of(fit)
    costs = {chip: cost.costs(soc.require_chip(chip), file) for chip in fit.chips}
    return [
        band.certainty(work, costs[problem.rows[i].chip], supported, measured)
        for i, work in zip(rows, work_times(problem, fit, rows), strict=True)
    ]
