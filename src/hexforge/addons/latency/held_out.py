# SPDX-License-Identifier: Apache-2.0
"""Held out: every row predicted by fits that saw neither its family nor one with its backbone.

What is known about each prediction (how far the fits of the bag differ, which work is little known) is kept with it,
so that the bands are checked on the same rows, each fold with widths from the other folds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.addons.latency.fitting import MEMBERS, FitProblem
from hexforge.addons.latency.support import certainties
from hexforge.backends.htp.time import band


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
