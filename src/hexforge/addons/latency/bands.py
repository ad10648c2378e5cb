# SPDX-License-Identifier: Apache-2.0
"""Bands: how wide they are so that nine of ten rows of held-out families lie in them, and whether they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hexforge.addons.latency.fitting import CostFit, FitProblem
from hexforge.addons.latency.held_out import HeldOut, folds
from hexforge.addons.latency.terms import RATES
from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.schedule import RUNTIMES
from hexforge.chips import soc

QUANTILE = 0.9
"""The part of models that a band holds."""


def model_weights(problem: FitProblem, rows: Sequence[int]) -> np.ndarray:
    """Of each row, so that the models among rows weigh the same, however many devices measured them."""
    count = Counter(problem.rows[i].model for i in rows)
    return np.array([1 / count[problem.rows[i].model] for i in rows])


def half_widths(problem: FitProblem, held_out: HeldOut, rows: np.ndarray) -> dict[str, dict[str, float]]:
    """For each precision and runtime the width that holds nine of ten models, for a graph that all fits agree on."""
    scaled = np.abs(held_out.log_us - problem.log_us) / held_out.shape()
    widths: dict[str, dict[str, float]] = {}
    for rate in RATES:
        of_rate = [i for i in rows if problem.rows[i].precision == rate]
        widths[rate] = {}
        for runtime in RUNTIMES:
            here = [i for i in of_rate if problem.rows[i].runtime == runtime] or of_rate
            widths[rate][runtime] = _quantile(scaled[here], model_weights(problem, here)) if here else 0.0
    return widths


def _quantile(values: np.ndarray, weights: np.ndarray) -> float:
    """The value up to which QUANTILE of the weights lie."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, QUANTILE)), len(values) - 1)])


def inside_bands(problem: FitProblem, held_out: HeldOut) -> np.ndarray:
    """Whether each row lies in its band, with the widths of the other folds."""
    inside = np.zeros(len(problem.rows), bool)
    shape, error = held_out.shape(), np.abs(held_out.log_us - problem.log_us)
    for others, test in folds(problem.fold):
        widths = half_widths(problem, held_out, np.nonzero(others)[0])
        for i in test:
            row = problem.rows[i]
            inside[i] = error[i] <= widths[row.precision][row.runtime] * shape[i]
    return inside


def unmeasured_width(problem: FitProblem, fit: CostFit) -> float:
    """By how much more a chip is off whose rows nobody had: its factors as `cost.costs` would take them."""
    every = np.arange(len(problem.rows))
    seen = np.abs(problem.predict(fit, every) - problem.log_us)
    factors = {}
    for chip in fit.chips:
        others = [soc.require_chip(c) for c in fit.chips if c != chip]
        near = cost.nearest(soc.require_chip(chip), others)
        guess = np.array(fit.chips[near.name])
        guess[cost.FACTORS.index("dram")] += np.log(near.dram_gbps / soc.require_chip(chip).dram_gbps)
        factors[chip] = guess
    unseen = np.abs(problem.predict(CostFit(fit.members, factors), every) - problem.log_us)
    wider, own = np.quantile(unseen, QUANTILE), np.quantile(seen, QUANTILE)
    return float(np.sqrt(max(0.0, wider**2 - own**2)))
