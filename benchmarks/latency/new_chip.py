# SPDX-License-Identifier: Apache-2.0
"""A chip nobody measured, learnt from a few rows of it, as `hexforge calibrate` does: what that says of its other rows.

Every chip that the parameters are not fitted to is left out in turn: it begins as the nearest of the others, as an
estimate of a chip without rows does. Some of its rows (one a model, drawn anew each time) move its factors by
`calibration.fit_factors`, and all its other rows are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.latency.calibration import fit_factors
from hexforge.addons.latency.fitting import BASE, CostFit, FitProblem
from hexforge.addons.latency.held_out import folds, nearest_factors
from hexforge.addons.latency.measurements import read_families, read_measurements
from hexforge.addons.latency.terms import PARAMETERS_OF_RUNTIMES, serial_of, unit_us
from hexforge.addons.latency.tiled_graphs import TiledGraphs
from hexforge.backends.htp.time.cost import FACTORS
from hexforge.ir import Graph

COUNTS = (0, 5, 10, 20)
DRAWS = 8
"""How often rows are drawn for each chip and count."""
LEAST = 60
"""Rows a chip has at least: of fewer, too few are left to predict."""


class NewChip:
    """The rows of one chip, by the factors of the nearest other chip and what they are multiplied by."""

    def __init__(self, problem: FitProblem, fits: Mapping[int, CostFit], chip: str) -> None:
        self.rows = problem.rows_of_chip[chip]
        self.log_us = problem.log_us[self.rows]
        self.model = np.array([problem.rows[i].model for i in self.rows])
        self._parts = []
        for number, fit in fits.items():
            mine = np.nonzero((problem.fold[self.rows] == number) | (number < 0))[0]
            factors = nearest_factors(fit, chip)
            (path,) = problem.paths([(chip, fit.parameters, factors)])
            runtime = PARAMETERS_OF_RUNTIMES[problem.runtime[self.rows[mine]]] @ fit.parameters
            self._parts.append((mine, fit.parameters, factors, path, problem.graph_index[self.rows[mine]], runtime))

    def log_of(self, multiplied: Mapping[str, float]) -> np.ndarray:
        """The rows' predicted latencies, as logarithms, where the factors are multiplied by these."""
        logs, more = np.zeros(len(self.rows)), np.log([multiplied.get(name, 1.0) for name in FACTORS])
        for mine, parameters, factors, path, graphs, runtime in self._parts:
            us = path.us(graphs, unit_us(parameters, factors + more), serial_of(parameters))
            logs[mine] = np.log(us) + runtime
        return logs

    def errors(self, count: int, random: np.random.Generator) -> np.ndarray:
        """The errors of all rows but those of `count` models that one row each is learnt from."""
        models = random.choice(np.unique(self.model), count, replace=False)
        learnt = np.array([random.choice(np.nonzero(self.model == model)[0]) for model in models], int)
        multiplied: Mapping[str, float] = {}
        if count:
            measured = np.exp(self.log_us[learnt]) / 1e3
            multiplied = fit_factors(list(measured), lambda m: np.exp(self.log_of(m)[learnt]) / 1e3)
        rest = np.setdiff1d(np.arange(len(self.rows)), learnt)
        return np.asarray(np.abs(np.exp(self.log_of(multiplied) - self.log_us)[rest] - 1))


def new_chips(data: Path, graphs: dict[str, Graph]) -> dict[str, Any]:
    """Median and mean error of the other rows by how many were learnt from: families that were fitted, and not."""
    problem = FitProblem(TiledGraphs(data, graphs), read_measurements(data), read_families(data))
    every = np.ones(len(problem.rows), bool)
    whole = problem.fit(every, members=0)
    apart = {int(problem.fold[test[0]]): problem.fit(train, 0, off=whole.off) for train, test in folds(problem.fold)}
    chips = [chip for chip in problem.chips if chip not in BASE and len(problem.rows_of_chip[chip]) >= LEAST]
    table: dict[str, Any] = {"chips": chips}
    for name, fits in (("families fitted", {-1: whole}), ("families not fitted", apart)):
        of_chip = [NewChip(problem, fits, chip) for chip in chips]
        table[name] = {}
        for count in COUNTS:
            random = np.random.default_rng(count)
            drawn = [chip.errors(count, random) for chip in of_chip for _ in range(DRAWS)]
            medians = [float(np.median(errors)) for errors in drawn]
            table[name][str(count)] = {
                "median": round(float(np.median(np.concatenate(drawn))), 4),
                "mean": round(float(np.concatenate(drawn).mean()), 4),
                "worst_chip": round(max(np.array(medians).reshape(len(chips), DRAWS).mean(1)), 4),
            }
    return table
