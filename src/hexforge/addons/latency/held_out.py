# SPDX-License-Identifier: Apache-2.0
"""Held out: every row predicted by fits that saw neither its family nor one with its backbone; and how wide bands are
so that nine of ten such rows lie in them.

What is known about each prediction (how far the fits of the bag differ, which work is little known) is kept with it,
so that the bands are checked on the same rows, each fold with widths from the other folds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hexforge.addons.latency.fitting import MEMBERS, CostFit, FitProblem
from hexforge.addons.latency.known_work import certainties
from hexforge.addons.latency.terms import RATES
from hexforge.backends.htp.time import band, cost
from hexforge.chips import soc
from hexforge.chips.deployment import RUNTIMES

QUANTILE = 0.9
"""The part of models that a band holds."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows predicted while their families were held out."""

    log_us: np.ndarray
    """Logarithm of the predicted latency."""
    known: Sequence[band.Certainty]

    def shape(self) -> np.ndarray:
        """How much wider each row's band is than that of a graph all fits agree on."""
        return np.array([band.band_shape(each) for each in self.known])


def folds(fold_of_row: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each fold, which rows are learnt from (True) and the numbers of those that are predicted."""
    for fold in sorted(set(fold_of_row.tolist())):
        yield fold_of_row != fold, np.nonzero(fold_of_row == fold)[0]


def predict_held_out(problem: FitProblem, members: int = MEMBERS) -> HeldOut:
    """Every fold of families predicted by a bag of fits of the others."""
    logs = np.zeros(len(problem.rows))
    known: dict[int, band.Certainty] = {}
    for train, test in folds(problem.fold):
        fit = problem.fit(train, members)
        logs[test] = problem.predict(fit, test)
        known.update(zip(test.tolist(), certainties(problem, fit, train, test), strict=True))
    return HeldOut(logs, [known[i] for i in range(len(logs))])


# -- bands -------------------------------------------------------------------------------------------------------------


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
            widths[rate][runtime] = share_quantile(scaled[here], model_weights(problem, here)) if here else 0.0
    return widths


def share_quantile(values: np.ndarray, weights: np.ndarray) -> float:
    """The value up to which QUANTILE of the weights lie."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, QUANTILE)), len(values) - 1)])


def unmeasured_width(problem: FitProblem, fit: CostFit) -> float:
    """By how much more a chip is off whose rows nobody had: its factors as `cost.costs` would take them."""
    every = np.arange(len(problem.rows))
    seen = np.abs(problem.predict(fit, every) - problem.log_us)
    factors = {chip: nearest_factors(fit, chip) for chip in fit.chips}
    unseen = np.abs(problem.predict(replace(fit, chips=factors), every) - problem.log_us)
    wider, own = np.quantile(unseen, QUANTILE), np.quantile(seen, QUANTILE)
    return float(np.sqrt(max(0.0, wider**2 - own**2)))


def nearest_factors(fit: CostFit, chip: str) -> np.ndarray:
    """The factors of a chip as `cost.costs` takes them where it was not measured: the nearest one's."""
    near = cost.nearest(soc.require_chip(chip), [soc.require_chip(c) for c in fit.chips if c != chip])
    guess = np.array(fit.chips[near.name])
    guess[cost.FACTORS.index("dram")] += np.log(near.dram_gbps / soc.require_chip(chip).dram_gbps)
    return guess
