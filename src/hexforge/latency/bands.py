# SPDX-License-Identifier: Apache-2.0
"""Bands: how wide they are so that nine of ten rows of held-out families lie in them, and whether they do."""

from __future__ import annotations

import numpy as np

from hexforge.backends.htp.time import cost
from hexforge.chips import soc
from hexforge.latency.fitting import CostFit, FitProblem
from hexforge.latency.held_out import HeldOut, folds
from hexforge.latency.terms import RATES

QUANTILE = 0.9
"""The part of rows that a band holds."""


def half_widths(problem: FitProblem, held_out: HeldOut, rows: np.ndarray) -> dict[str, float]:
    """For each precision the width that nine of ten errors of rows are within, for a graph all fits agree on."""
    scaled = np.abs(held_out.log_us - problem.log_us) / held_out.shape()
    widths = {}
    for rate in RATES:
        here = [i for i in rows if problem.rows[i].precision == rate]
        widths[rate] = float(np.quantile(scaled[here], QUANTILE)) if here else 0.0
    return widths


def inside_bands(problem: FitProblem, held_out: HeldOut) -> np.ndarray:
    """Whether each row lies in its band, with the widths of the other folds."""
    inside = np.zeros(len(problem.rows), bool)
    shape, error = held_out.shape(), np.abs(held_out.log_us - problem.log_us)
    for others, test in folds(problem.fold):
        widths = half_widths(problem, held_out, np.nonzero(others)[0])
        for i in test:
            inside[i] = error[i] <= widths[problem.rows[i].precision] * shape[i]
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
