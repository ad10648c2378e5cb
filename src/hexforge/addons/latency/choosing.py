# SPDX-License-Identifier: Apache-2.0
"""Choosing: which switches (`mechanisms`) are on, by folds inside the families at hand and by nothing else.

Every switch has a reason and a prior, and starts on at what the fit says. One is dropped where the families of the
inner folds are predicted better without it, the most harmful first; it comes back where they are better with it after
all. A switch that no inner family says anything about stays at its prior.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from hexforge.addons.latency.fixed_paths import FixedPaths
from hexforge.backends.htp.time.mechanisms import SWITCHES

INNER_FOLDS = 5
NEEDED = 1e-3
"""The part of the inner folds' error by which dropping a switch, or taking it back, must lower it."""
CLEAR = 0.2
"""The gain in percent from which on a switch stays on without being tried again."""
FEW_STEPS = 2
"""Steps of a fit that begins where the switch was the other way."""
FAR = 0.1
"""Logarithmic error of which the inner folds' score counts a half as much, and larger ones less."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen."""

    off: frozenset[str]
    gain: dict[str, float]
    """By how many percent the inner folds' error is lower with a switch than without it, where it was last tried."""
    helped: dict[str, int]
    """How many families are predicted better with it."""


class _InnerFolds:
    def __init__(
        self, fixed: FixedPaths, x: np.ndarray, weights: np.ndarray, fold: np.ndarray, family: np.ndarray
    ) -> None:
        self._fixed, self._weights = fixed, weights
        self._rows = np.nonzero(weights)[0]
        numbers = {number: i % INNER_FOLDS for i, number in enumerate(sorted(set(fold[self._rows].tolist())))}
        inner = np.array([numbers.get(number, -1) for number in fold.tolist()])
        self._held = [inner == k for k in range(INNER_FOLDS) if (inner[self._rows] == k).any()]
        names = sorted(set(family[self._rows].tolist()))
        self._family = np.array([names.index(name) for name in family[self._rows].tolist()])
        self._log_us = fixed.measured(self._rows)
        self.fits = [fixed.fit(x, np.where(held, 0.0, weights), frozenset()) for held in self._held]

    def try_off(self, off: Set[str]) -> tuple[np.ndarray, list[np.ndarray]]:
        """The error of each family where it is held out and some switches are off, and the fits."""
        fits = [
            self._fixed.fit(x, np.where(held, 0.0, self._weights), off, FEW_STEPS)
            for x, held in zip(self.fits, self._held, strict=True)
        ]
        logs = np.zeros(len(self._weights))
        for x, held in zip(fits, self._held, strict=True):
            here = np.nonzero(held & (self._weights > 0))[0]
            logs[here] = self._fixed.log_of(x, here)
        errors = np.log1p((np.abs(logs[self._rows] - self._log_us)) / FAR)
        return np.bincount(self._family, self._weights[self._rows] ** 2 * errors), fits


def choose(fixed: FixedPaths, x: np.ndarray, weights: np.ndarray, fold: np.ndarray, family: np.ndarray) -> Choice:
    """Switches for the rows whose weights are not 0, from a fit `x` of them with every switch on."""
    inner = _InnerFolds(fixed, x, weights, fold, family)
    off: frozenset[str] = frozenset()
    now, _ = inner.try_off(off)
    gain, helped = {}, {}

    def without(name: str) -> np.ndarray:
        other, _ = inner.try_off(off | {name})
        gain[name] = 100 * float((other.sum() - now.sum()) / now.sum())
        helped[name] = int((other - now > 1e-3 * other).sum())
        return other

    for name in SWITCHES:
        without(name)
    for name in sorted((name for name in SWITCHES if gain[name] < CLEAR), key=lambda name: gain[name]):
        other = without(name)
        if other.sum() < now.sum() * (1 - NEEDED):
            off, now = off | {name}, other
    for name in sorted(off):
        with_it, _ = inner.try_off(off - {name})
        if with_it.sum() < now.sum() * (1 - NEEDED):
            off, now = off - {name}, with_it
    return Choice(off, gain, helped)
