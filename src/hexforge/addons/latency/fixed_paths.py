# SPDX-License-Identifier: Apache-2.0
"""Rows whose critical paths are kept: a latency is then a sum of amounts times costs, and a fit takes half a second.

Errors are logarithmic; a row far off pulls less the farther it is (Cauchy's loss), so that a graph with a mechanism the
model lacks does not bend the others. What is believed of a parameter before the fit is a residual of its own. Newton's
steps weigh each row by how near it is, which never overestimates how far to go.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from hexforge.addons.latency.critical_path import CriticalPaths
from hexforge.addons.latency.least_squares import SCALE, TAIL
from hexforge.addons.latency.terms import (
    FACTORS_OF_TERMS,
    OFF,
    PARAMETER_INDEX,
    PARAMETERS_OF_RUNTIMES,
    PARAMETERS_OF_TERMS,
    SERIAL,
    TERMS_OF_RATES,
    serial_of,
)
from hexforge.backends.htp.time import cost

PRIOR = np.log([p.prior for p in cost.PARAMETERS])
SPREAD = np.array([p.spread for p in cost.PARAMETERS])
BOUNDS = np.log([p.bounds for p in cost.PARAMETERS]).T
BELIEF = 0.5
"""Weight of what is believed, against errors in units of SCALE."""
FACTOR_COUNT = len(cost.FACTORS)
ENOUGH = 2e-4
"""The part of the loss below which a step is the last."""


class FixedPaths:
    """Rows of some chips, the reference first; `x` is the parameters' logarithms, then the other chips' factors."""

    def __init__(
        self,
        paths: Sequence[CriticalPaths],
        graphs: Sequence[np.ndarray],
        rates: np.ndarray,
        runtimes: np.ndarray,
        log_us: np.ndarray,
        chip_belief: np.ndarray,
    ) -> None:
        self._log_us, self._runtime = log_us, PARAMETERS_OF_RUNTIMES[runtimes]
        pairs = list(zip(paths, graphs, strict=True))
        amounts = np.concatenate([path.amounts[graph] for path, graph in pairs])
        self._rate = rates
        self._amounts = np.stack([amounts[i, TERMS_OF_RATES[rate]] for i, rate in enumerate(rates)])
        self._overlapped = np.concatenate([path.overlapped_us[graph] for path, graph in pairs])
        self._added = np.concatenate(
            [path.sync_us[graph] - path.serial * path.overlapped_us[graph] for path, graph in pairs]
        )
        self._chip = np.repeat(np.arange(len(pairs)), [len(graph) for _, graph in pairs])
        size = len(PRIOR)
        self._belief = np.zeros((size + (len(pairs) - 1) * FACTOR_COUNT,) * 2)
        self._belief[np.arange(size), np.arange(size)] = BELIEF / SPREAD
        for k in range(1, len(pairs)):
            own = slice(size + (k - 1) * FACTOR_COUNT, size + k * FACTOR_COUNT)
            self._belief[own, own] = chip_belief

    def measured(self, rows: np.ndarray) -> np.ndarray:
        """The logarithms of what was measured."""
        return np.asarray(self._log_us[rows])

    def log_of(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The logarithms of rows' latencies."""
        return self._parts(x, rows)[0]

    def fit(self, x: np.ndarray, weights: np.ndarray, off: Set[str], steps: int = 20) -> np.ndarray:
        """Parameters and factors that fit the rows whose weights are not 0, with some switches off."""
        rows = np.nonzero(weights)[0]
        weight, target, size = weights[rows] ** 2, self._log_us[rows], len(PRIOR)
        frozen = [PARAMETER_INDEX[name] for name in sorted(off)]
        x, free = x.copy(), np.ones(len(x), bool)
        x[frozen], free[frozen] = OFF[frozen], False
        believed = np.concatenate([np.where(free[:size], PRIOR, OFF), np.zeros(len(x) - size)])
        low, high = np.full(len(x), -9.0), np.full(len(x), 9.0)
        low[:size], high[:size] = np.where(free[:size], BOUNDS, OFF)
        curvature_of_belief = self._belief.T @ self._belief

        def loss(log_us: np.ndarray, at: np.ndarray) -> float:
            apart = self._belief @ (at - believed)
            return float(weight @ (TAIL**2 * np.log1p(((log_us - target) / SCALE / TAIL) ** 2)) + apart @ apart)

        damping, (log_us, slope) = 1e-3, self._slope(x, rows)
        now = loss(log_us, x)
        for _ in range(steps):
            error = (log_us - target) / SCALE
            near = weight / (1 + (error / TAIL) ** 2)
            curvature = (slope.T * near) @ slope / SCALE**2 + curvature_of_belief
            downhill = slope.T @ (near * error) / SCALE + curvature_of_belief @ (x - believed)
            for _ in range(8):
                damped = curvature + damping * np.diag(np.diag(curvature))
                step = np.zeros(len(x))
                step[free] = -np.linalg.solve(damped[np.ix_(free, free)], downhill[free])
                tried = np.clip(x + np.clip(step, -0.7, 0.7), low, high)
                after = loss(self.log_of(tried, rows), tried)
                if after < now:
                    break
                damping *= 6
            else:
                break
            gained, x, now, damping = now - after, tried, after, max(damping / 6, 1e-6)
            if gained < ENOUGH * now:
                break
            log_us, slope = self._slope(x, rows)
        return x

    def _parts(self, x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = len(PRIOR)
        factors = np.vstack([np.zeros(FACTOR_COUNT), x[size:].reshape(-1, FACTOR_COUNT)])
        unit = np.exp(PARAMETERS_OF_TERMS @ x[:size] + factors @ FACTORS_OF_TERMS.T)
        each = self._amounts[rows] * unit[:, TERMS_OF_RATES][self._chip[rows], self._rate[rows]]
        us = np.maximum(each.sum(1) + self._added[rows] + serial_of(x) * self._overlapped[rows], 1.0)
        return np.log(us) + self._runtime[rows] @ x[:size], each, us

    def _slope(self, x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_us, each, us = self._parts(x, rows)
        part, size = each / us[:, None], len(PRIOR)
        slope = np.zeros((len(rows), len(x)))
        slope[:, :size] = self._runtime[rows]
        of_factors = np.zeros((len(rows), FACTOR_COUNT))
        for rate, terms in enumerate(TERMS_OF_RATES):
            here = self._rate[rows] == rate
            slope[here, :size] += part[here] @ PARAMETERS_OF_TERMS[terms]
            of_factors[here] = part[here] @ FACTORS_OF_TERMS[terms]
        if serial_of(x) < 1:
            slope[:, SERIAL] += serial_of(x) * self._overlapped[rows] / us
        for k in range(1, self._chip.max() + 1):
            here = self._chip[rows] == k
            slope[here, size + (k - 1) * FACTOR_COUNT : size + k * FACTOR_COUNT] = of_factors[here]
        return log_us, slope
