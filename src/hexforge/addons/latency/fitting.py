# SPDX-License-Identifier: Apache-2.0
"""The fit: parameters on the rows of some families, several times, and what makes a chip.

Each model weighs the same at a precision. What is believed of a parameter before the fit is a residual of its own, so
that a kind of work that few graphs have stays where it was believed: that is the partial pooling over precisions
(deviations around 1) and over chips (factors around their mean, and around their kin). Which switches are on is chosen
by folds of the families that are fitted, and no others (`choosing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from hexforge.addons.latency.choosing import Choice, choose
from hexforge.addons.latency.critical_path import BatchTimeline, CriticalPaths
from hexforge.addons.latency.fixed_paths import FACTOR_COUNT, PRIOR, FixedPaths
from hexforge.addons.latency.least_squares import minimize, robust_residuals
from hexforge.addons.latency.measurements import MeasuredFamily, Measurement
from hexforge.addons.latency.terms import FACTORS_OF_TERMS, PARAMETERS_OF_RUNTIMES, RATES, serial_of, unit_us
from hexforge.addons.latency.tiled_graphs import ModelKey, TileSource, key_of
from hexforge.backends.htp.time.tile import PRECISIONS
from hexforge.chips import soc
from hexforge.chips.deployment import RUNTIMES
from hexforge.errors import CallError

BASE = ("SM8650", "SM8750", "SM8550", "SC8380XP")
"""Chips whose rows fit the parameters together; the first is the reference."""
TOGETHER = 0.25
"""How far a chip's factors of time are from their mean, as a logarithm, before its rows say so."""
ELSEWHERE = 0.5
"""The same for what the host does: it is another processor."""
KIN = 0.3
"""How far the mean of a chip's factors is from that of the chip of its architecture with the most rows."""
LIGHT: Mapping[str, float] = {"tflite": 0.5}
"""Runtimes whose rows weigh less than others: a tflite graph is made by another converter, and differs more."""
HEAVY: Mapping[str, float] = {"w8a8": 1.5, "w8a16": 1.5}
"""Precisions whose rows weigh more than float ones, which are of twice as many models."""
MEMBERS, SEEN_PART = 8, 0.85
"""Fits of a bag, and the part of the families each of them sees."""
ACCELERATOR_FACTORS = 4
"""How many of the factors, the first, are of the accelerator."""
MEAN = np.where(np.arange(FACTOR_COUNT) < ACCELERATOR_FACTORS, 1 / ACCELERATOR_FACTORS, 0.0)
CHIP_BELIEF = np.eye(FACTOR_COUNT)
"""Factors of units from their mean, the host's from that mean, a runtime's from none."""
CHIP_BELIEF[:-1] -= MEAN
CHIP_BELIEF /= np.where(np.arange(FACTOR_COUNT) < ACCELERATOR_FACTORS, TOGETHER, ELSEWHERE)[:, None]


@dataclass(frozen=True, slots=True)
class CostFit:
    """Logarithms: the parameters each member of the bag has, and every chip's factors for their mean."""

    members: np.ndarray
    chips: Mapping[str, np.ndarray]
    off: frozenset[str] = frozenset()
    """Switches that are off."""

    @property
    def parameters(self) -> np.ndarray:
        """What is used: the geometric mean of the members."""
        return np.asarray(self.members.mean(0))


class FitProblem:
    """Measured rows with their graphs, ready to be fitted."""

    def __init__(self, models: TileSource, rows: Sequence[Measurement], families: Mapping[str, MeasuredFamily]) -> None:
        unknown = sorted({r.model for r in rows} - families.keys())
        if unknown:
            raise CallError(f"{', '.join(unknown)}: in no family, so that nothing could hold them out")
        self.rows, self.families = rows, families
        self.chips = sorted({r.chip for r in rows}, key=lambda c: (c not in BASE, c != BASE[0], c))
        self.family = np.array([families[r.model].name for r in rows])
        self.fold = np.array([families[r.model].fold for r in rows])
        self.log_us = np.log([r.latency_us for r in rows])
        self.rate = np.array([RATES.index(PRECISIONS[r.precision].rate) for r in rows])
        self.runtime = np.array([RUNTIMES.index(r.runtime) for r in rows])
        self.rows_of_chip = {c: np.array([i for i, r in enumerate(rows) if r.chip == c]) for c in self.chips}
        keys = [key_of(r) for r in rows]
        by_size: dict[int, list[ModelKey]] = {}
        for k in keys:
            by_size.setdefault(k[3], []).append(k)
        timelines = {size: BatchTimeline(models, some) for size, some in by_size.items()}
        self.timeline = {c: timelines[keys[self.rows_of_chip[c][0]][3]] for c in self.chips}
        self.graph_index = np.array([timelines[k[3]].position[k] for k in keys])

    def row_weights(self, rows: np.ndarray) -> np.ndarray:
        """Each model of a chip weighs the same at a precision."""
        count = Counter((self.rows[i].model, self.rows[i].precision) for i in rows)
        each = [count[self.rows[i].model, self.rows[i].precision] for i in rows]
        kind = [LIGHT.get(self.rows[i].runtime, 1.0) * HEAVY.get(self.rows[i].precision, 1.0) for i in rows]
        return np.asarray(np.sqrt(np.array(kind) / np.array(each, float)))

    def paths(self, wanted: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> list[CriticalPaths]:
        """What the end waits for on chips, with parameters and factors; those of one timeline together."""
        paths: dict[int, CriticalPaths] = {}
        for timeline in dict.fromkeys(self.timeline[chip] for chip, _, _ in wanted):
            here = [i for i, (chip, _, _) in enumerate(wanted) if self.timeline[chip] is timeline]
            for begin in range(0, len(here), 32):
                some = here[begin : begin + 32]
                paths.update(zip(some, timeline.paths([wanted[i][1:] for i in some]), strict=True))
        return [paths[i] for i in range(len(wanted))]

    def predict(self, fit: CostFit, rows: np.ndarray) -> np.ndarray:
        """The logarithm of the latency of rows."""
        logs, result = fit.parameters, np.zeros(len(rows))
        chips = [c for c in self.chips if np.isin(rows, self.rows_of_chip[c]).any()]
        for chip, path in zip(chips, self.paths([(c, logs, fit.chips[c]) for c in chips]), strict=True):
            mine = np.isin(rows, self.rows_of_chip[chip])
            us = path.us(self.graph_index[rows[mine]], unit_us(logs, fit.chips[chip]), serial_of(logs))
            result[mine] = np.log(us) + (PARAMETERS_OF_RUNTIMES @ logs)[self.runtime[rows[mine]]]
        return result

    def fit(self, train: np.ndarray, members: int = MEMBERS, seed: int = 0, off: Set[str] | None = None) -> CostFit:
        """A bag of fits on rows (True), each on a part of their families; then the factors of the other chips.

        Switches that are not said to be off are chosen by folds of the families among these rows.
        """
        missing = [chip for chip in BASE if not train[self.rows_of_chip.get(chip, np.array([], int))].any()]
        if missing:
            raise CallError(f"{', '.join(missing)}: without rows; the costs are fitted to those of {', '.join(BASE)}")
        rows, fixed, x = self.kept_paths(train)
        if off is None:
            off = choose(fixed, x, self.base_weights(train), self.fold[rows], self.family[rows]).off
        whole = fixed.fit(x, self.base_weights(train), off)
        names = sorted(set(self.family[train]))
        random = np.random.default_rng(seed)
        each = [] if members else [whole]
        for _ in range(members):
            seen = random.choice(names, max(1, round(SEEN_PART * len(names))), replace=False)
            each.append(fixed.fit(whole, self.base_weights(train & np.isin(self.family, seen)), off))
        size = len(PRIOR)
        logs, factors = np.stack([x[:size] for x in each]), self._factors_of(whole)
        return CostFit(logs, self._chips(train, logs.mean(0), dict(zip(BASE, factors, strict=True))), frozenset(off))

    def choose(self, train: np.ndarray) -> Choice:
        """The switches that the families of some rows keep."""
        rows, fixed, x = self.kept_paths(train)
        return choose(fixed, x, self.base_weights(train), self.fold[rows], self.family[rows])

    def kept_paths(self, train: np.ndarray) -> tuple[np.ndarray, FixedPaths, np.ndarray]:
        """The rows of BASE, their paths where every switch is on and the rows of `train` are fitted, and that fit."""
        rows = np.concatenate([self.rows_of_chip[chip] for chip in BASE])
        x = np.concatenate([PRIOR, np.zeros((len(BASE) - 1) * FACTOR_COUNT)])
        graphs = [self.graph_index[self.rows_of_chip[chip]] for chip in BASE]
        for _ in range(3):
            paths = self.paths([(c, x[: len(PRIOR)], f) for c, f in zip(BASE, self._factors_of(x), strict=True)])
            fixed = FixedPaths(paths, graphs, self.rate[rows], self.runtime[rows], self.log_us[rows], CHIP_BELIEF)
            x = fixed.fit(x, self.base_weights(train), frozenset())
        return rows, fixed, x

    def base_weights(self, train: np.ndarray) -> np.ndarray:
        """The weight of each row of BASE, 0 for what is not in `train`."""
        weights = []
        for here in (self.rows_of_chip[chip] for chip in BASE):
            weights.append(np.zeros(len(here)))
            weights[-1][train[here]] = self.row_weights(here[train[here]]) / np.sqrt(len(BASE))
        return np.concatenate(weights)

    @staticmethod
    def _factors_of(x: np.ndarray) -> np.ndarray:
        """The factors of BASE in what is fitted."""
        return np.vstack([np.zeros(FACTOR_COUNT), x[len(PRIOR) :].reshape(-1, FACTOR_COUNT)])

    def _chips(self, train: np.ndarray, logs: np.ndarray, base: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The factors of every chip but the reference for known parameters, those with most rows first."""
        known = {BASE[0]: np.zeros(FACTOR_COUNT)}
        count = {chip: int(train[self.rows_of_chip[chip]].sum()) for chip in self.chips}
        starts = {chip: base.get(chip, np.zeros(FACTOR_COUNT)) for chip in self.chips}
        order = sorted((c for c in self.chips if c not in known and count[c]), key=lambda c: (-count[c], c))
        for _ in range(3):
            paths = dict(zip(order, self.paths([(c, logs, starts[c]) for c in order]), strict=True))
            for chip in order:
                kin = related_chip(chip, count)
                mean = None if kin is None or kin not in known else float(MEAN @ known[kin])
                here = self.rows_of_chip[chip][train[self.rows_of_chip[chip]]]
                starts[chip] = known[chip] = self._factors(paths[chip], here, logs, starts[chip], mean)
        return known

    def _factors(
        self, path: CriticalPaths, here: np.ndarray, logs: np.ndarray, start: np.ndarray, kin: float | None
    ) -> np.ndarray:
        graphs = self.graph_index[here]
        us = path.amounts[graphs] * unit_us(logs, np.zeros(FACTOR_COUNT))
        added = path.sync_us[graphs] + (serial_of(logs) - path.serial) * path.overlapped_us[graphs]
        target = self.log_us[here] - PARAMETERS_OF_RUNTIMES[self.runtime[here]] @ logs
        weight = self.row_weights(here)

        def residuals(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            each = us * np.exp(FACTORS_OF_TERMS @ x)
            whole = each.sum(1) + added
            pulled, by_error = robust_residuals(np.log(whole) - target)
            near, by_factor = chip_residuals(x)
            parts = [pulled * weight, near]
            slopes = [(each @ FACTORS_OF_TERMS) / whole[:, None] * (by_error * weight)[:, None], by_factor]
            if kin is not None:
                parts.append(np.array([MEAN @ x - kin]) / KIN)
                slopes.append(MEAN[None] / KIN)
            return np.concatenate(parts), np.concatenate(slopes)

        free = np.full(FACTOR_COUNT, np.inf)
        return minimize(start, residuals, 10, (-free, free))


def related_chip(chip: str, count: Mapping[str, int]) -> str | None:
    """The chip of the same architecture with the most rows, where it has more than this one."""
    arch = {name: soc.require_chip(name).htp_arch for name in count}
    alike = [c for c in count if arch[c] == arch[chip] and (count[c], c) > (count[chip], chip)]
    return max(alike, key=lambda c: (count[c], c), default=None)


def chip_residuals(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far a chip's factors are from each other, and how that changes with each."""
    return CHIP_BELIEF @ factors, CHIP_BELIEF
