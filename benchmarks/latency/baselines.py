# SPDX-License-Identifier: Apache-2.0
"""What a simulator has to beat, on the same folds: multiply-accumulates alone, a roofline, gradient-boosted trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import least_squares
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from hexforge.addons.latency.fitting import FitProblem
from hexforge.addons.latency.held_out import folds
from hexforge.addons.latency.terms import HMX_KINDS, HVX_KINDS, RATES
from hexforge.addons.latency.tiled_graphs import TiledGraphs, key_of


class Baselines:
    """The rows' graphs as a few sums."""

    def __init__(self, problem: FitProblem, models: TiledGraphs) -> None:
        self.problem = problem
        tasks = {k: models[k].tasks for k in {key_of(r) for r in problem.rows}}
        sums = {}
        for k, each in tasks.items():
            macs = sum(n for t in each for kind, n in t.hmx.items() if kind != "dilation")
            moved = sum(t.weight_bytes + t.out_bytes for t in each) / 1e6
            kinds = [sum(t.hmx.get(kind, 0.0) for t in each) for kind in HMX_KINDS]
            kinds += [sum(t.hvx.get(kind, 0.0) for t in each) for kind in HVX_KINDS]
            weights, spilled = (sum(getattr(t, name) for t in each) / 1e6 for name in ("weight_bytes", "spill_bytes"))
            sums[k] = (macs, moved, [len(each), weights, spilled, models[k].io_elements / 1e6, *kinds])
        self.macs = np.array([sums[key_of(r)][0] for r in problem.rows])
        self.moved = np.array([sums[key_of(r)][1] for r in problem.rows])
        self.rate = np.array([RATES.index(r.precision) for r in problem.rows])
        self.chip = np.array([problem.chips.index(r.chip) for r in problem.rows])
        features = np.log1p(
            np.array([[*sums[key_of(r)][2], sums[key_of(r)][0], sums[key_of(r)][1]] for r in problem.rows]) * 1e3
        )
        one_hot = np.eye(len(problem.chips))[self.chip]
        self.features = np.hstack([features, np.eye(3)[self.rate], np.eye(3)[problem.runtime], one_hot])

    def held_out(self, fit: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Each fold predicted from the others; `fit` takes rows to learn from and rows to predict."""
        logs = np.zeros(len(self.problem.rows))
        for train, test in folds(self.problem.fold):
            logs[test] = fit(np.nonzero(train)[0], test)
        return logs

    def macs_only(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """A time for each multiply-accumulate of a precision, a call, a factor for each chip."""
        return self._robust(lambda x, i: np.exp(x[:3])[self.rate[i]] * self.macs[i] + np.exp(x[3]), train, test)

    def roofline(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """The longer of multiply-accumulates and bytes, each with a time for a precision; a call; chips."""

        def us(x: np.ndarray, i: np.ndarray) -> np.ndarray:
            work, moved = np.exp(x[:3])[self.rate[i]] * self.macs[i], np.exp(x[4:7])[self.rate[i]] * self.moved[i]
            return np.asarray(np.maximum(work, moved) + np.exp(x[3]))

        return self._robust(us, train, test)

    def _robust(
        self, us: Callable[[np.ndarray, np.ndarray], np.ndarray], train: np.ndarray, test: np.ndarray
    ) -> np.ndarray:
        start = np.concatenate([np.log([125, 32, 65, 60, 10, 10, 10]), np.zeros(len(self.problem.chips))])

        def logs(x: np.ndarray, i: np.ndarray) -> np.ndarray:
            return np.log(us(x, i)) + x[7:][self.chip[i]]

        def residuals(x: np.ndarray) -> np.ndarray:
            return np.concatenate([logs(x, train) - self.problem.log_us[train], 0.1 * (x - start)])

        return logs(least_squares(residuals, start, loss="soft_l1", f_scale=0.2).x, test)

    def boosted(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """scikit-learn's gradient-boosted trees on sums of every kind of work."""
        trees = HistGradientBoostingRegressor(
            loss="absolute_error", learning_rate=0.08, max_iter=250, min_samples_leaf=10, random_state=0
        )
        with threadpool_limits(1):  # many threads wait for each other where cores are shared
            return np.asarray(trees.fit(self.features[train], self.problem.log_us[train]).predict(self.features[test]))
