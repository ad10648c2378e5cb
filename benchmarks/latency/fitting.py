# SPDX-License-Identifier: Apache-2.0
"""The fit: parameters on the rows of some families, several times, and what makes a chip.

Errors are logarithmic; a row far off pulls less the farther it is (Cauchy's loss), so that a graph with a mechanism the
model lacks does not bend the others. Each (model, precision) weighs the same. What is believed of a parameter before
the fit is a residual of its own, so that a kind of work that few graphs have stays where it was believed: that is the
partial pooling over precisions (deviations around 1) and over chips (factors around their mean, and around their kin).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.latency.rows import Family, Instances, Key, Measured, key
from benchmarks.latency.sweep import FACTOR, INCIDENCE, RUNTIME, SERIAL, Path, Sweep, coefficients, serial_of
from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.schedule import RUNTIMES
from hexforge.chips import soc

BASE = ("SM8650", "SM8750", "SM8550", "SC8380XP")
"""Chips whose rows fit the parameters together; the first is the reference."""
PRIOR = np.log([p.prior for p in cost.PARAMETERS])
SPREAD = np.array([p.spread for p in cost.PARAMETERS])
BOUNDS = np.log([p.bounds for p in cost.PARAMETERS]).T
BELIEF = 0.5
"""Weight of what is believed, against errors in units of SCALE."""
SCALE, TAIL = 0.07, 2.0
"""Logarithmic error that counts as one, and from how many on rows pull less. Chosen by inner folds of 0.05, 0.07, 0.1
and 0.15, and of 1, 2 and 3."""
TOGETHER = 0.25
"""How far a chip's factors of time are from their mean, as a logarithm, before its rows say so."""
ELSEWHERE = 0.5
"""The same for what the host does: it is another processor."""
KIN = 0.3
"""How far the mean of a chip's factors is from that of the chip of its architecture with the most rows."""
MEMBERS, PART = 8, 0.7
"""Fits of a bag, and the part of the families each of them sees."""
COUNT = len(cost.FACTORS)


@dataclass(frozen=True, slots=True)
class Fit:
    """Logarithms: the parameters each member of the bag has, and every chip's factors for their mean."""

    members: np.ndarray
    chips: Mapping[str, np.ndarray]

    @property
    def parameters(self) -> np.ndarray:
        """What is used: the geometric mean of the members."""
        return np.asarray(self.members.mean(0))


def robust(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residuals whose squares are the loss, and their derivative by the error."""
    z = errors / SCALE
    found = np.sign(z) * TAIL * np.sqrt(np.log1p((z / TAIL) ** 2))
    safe = np.where(np.abs(found) < 1e-9, 1.0, found)
    return found, np.where(np.abs(z) < 1e-6, 1.0, z / (1 + (z / TAIL) ** 2) / safe) / SCALE


def minimise(
    start: np.ndarray,
    residuals: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    steps: int,
    bounds: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Levenberg-Marquardt within bounds; `residuals` gives residuals and their Jacobian."""
    x, damping = start, 1e-2
    r, jacobian = residuals(x)
    for _ in range(steps):
        normal, before = jacobian.T @ jacobian, float(r @ r)
        for _ in range(5):
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), jacobian.T @ r)
            tried = np.clip(x + np.clip(step, -0.5, 0.5), *bounds)
            moved, slope = residuals(tried)
            if float(moved @ moved) < before:
                break
            damping *= 5
        else:
            return x
        x, r, jacobian, damping = tried, moved, slope, max(damping / 5, 1e-6)
        if before - float(r @ r) < 1e-3 * before:
            break
    return x


class Problem:
    """Rows with their graphs, ready to be fitted."""

    def __init__(self, instances: Instances, rows: Sequence[Measured], families: Mapping[str, Family]) -> None:
        self.rows, self.families = rows, families
        self.chips = sorted({r.chip for r in rows}, key=lambda c: (c not in BASE, c != BASE[0], c))
        self.family = np.array([families[r.model].name for r in rows])
        self.fold = np.array([families[r.model].fold for r in rows])
        self.log = np.log([r.us for r in rows])
        self.runtime = np.array([RUNTIMES.index(r.runtime) for r in rows])
        self.of_chip = {c: np.array([i for i, r in enumerate(rows) if r.chip == c]) for c in self.chips}
        keys = [key(r) for r in rows]
        by_size: dict[int, list[Key]] = {}
        for k in keys:
            by_size.setdefault(k[3], []).append(k)
        sweeps = {size: Sweep(instances, some) for size, some in by_size.items()}
        self.sweep = {c: sweeps[keys[self.of_chip[c][0]][3]] for c in self.chips}
        self.at = np.array([sweeps[k[3]].position[k] for k in keys])

    def weight(self, rows: np.ndarray) -> np.ndarray:
        """Each model and precision of a chip weighs the same."""
        count = Counter((self.rows[i].model, self.rows[i].precision) for i in rows)
        each = [count[self.rows[i].model, self.rows[i].precision] for i in rows]
        return np.asarray(1 / np.sqrt(np.array(each, float)))

    def paths(self, wanted: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> list[Path]:
        """What the end waits for on chips, with parameters and factors; those of one sweep together."""
        found: dict[int, Path] = {}
        for sweep in dict.fromkeys(self.sweep[chip] for chip, _, _ in wanted):
            here = [i for i, (chip, _, _) in enumerate(wanted) if self.sweep[chip] is sweep]
            for begin in range(0, len(here), 32):
                some = here[begin : begin + 32]
                found.update(zip(some, sweep.paths([wanted[i][1:] for i in some]), strict=True))
        return [found[i] for i in range(len(wanted))]

    def predict(self, fit: Fit, rows: np.ndarray) -> np.ndarray:
        """The logarithm of the latency of rows."""
        logs, result = fit.parameters, np.zeros(len(rows))
        chips = [c for c in self.chips if np.isin(rows, self.of_chip[c]).any()]
        for chip, path in zip(chips, self.paths([(c, logs, fit.chips[c]) for c in chips]), strict=True):
            mine = np.isin(rows, self.of_chip[chip])
            us = path.us(self.at[rows[mine]], coefficients(logs, fit.chips[chip]), serial_of(logs))
            result[mine] = np.log(us) + (RUNTIME @ logs)[self.runtime[rows[mine]]]
        return result

    def fit(self, train: np.ndarray, members: int = MEMBERS, seed: int = 0) -> Fit:
        """A bag of fits on rows (True), each on a part of their families; then the factors of the other chips."""
        names = sorted(set(self.family[train]))
        random = np.random.default_rng(seed)
        bag = [train]
        for _ in range(members):
            seen = random.choice(names, max(1, round(PART * len(names))), replace=False)
            bag.append(train & np.isin(self.family, seen))
        first = self._base([train], [PRIOR], [np.zeros((len(BASE), COUNT))], rounds=5)[0]
        start, factors = first
        each = [first] if members == 0 else self._base(bag[1:], [start] * members, [factors] * members, rounds=2)
        logs = np.stack([parameters for parameters, _ in each])
        return Fit(logs, self._chips(train, logs.mean(0), dict(zip(BASE, factors, strict=True))))

    def _base(
        self, bag: Sequence[np.ndarray], logs: Sequence[np.ndarray], factors: Sequence[np.ndarray], rounds: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Parameters, and the factors of BASE, on each of some sets of rows."""
        fits = list(zip(logs, factors, strict=True))
        rows = [[c[train[c]] for c in (self.of_chip[chip] for chip in BASE)] for train in bag]
        weights = [[self.weight(some) / np.sqrt(len(BASE)) for some in each] for each in rows]
        for _ in range(rounds):
            wanted = [(chip, x, f[k]) for x, f in fits for k, chip in enumerate(BASE)]
            paths = self.paths(wanted)
            for n, (x, f) in enumerate(fits):
                mine = paths[n * len(BASE) : (n + 1) * len(BASE)]
                fits[n] = self._solve(x, f, mine, rows[n], weights[n])
        return fits

    def _solve(
        self,
        logs: np.ndarray,
        factors: np.ndarray,
        paths: Sequence[Path],
        rows: Sequence[np.ndarray],
        weights: Sequence[np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        size, chips = len(logs), len(BASE)

        def residuals(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            parameters, chip_factors = x[:size], np.vstack([np.zeros(COUNT), x[size:].reshape(chips - 1, COUNT)])
            parts, slopes = [], []
            for k, (path, here, weight) in enumerate(zip(paths, rows, weights, strict=True)):
                unit, serial = coefficients(parameters, chip_factors[k]), serial_of(parameters)
                us = path.us(self.at[here], unit, serial)
                each = path.amounts[self.at[here]] * unit / us[:, None]
                slope = np.zeros((len(here), len(x)))
                slope[:, :size] = each @ INCIDENCE + RUNTIME[self.runtime[here]]
                if serial < 1:
                    slope[:, SERIAL] += serial * path.overlapped_us[self.at[here]] / us
                if k:
                    slope[:, size + (k - 1) * COUNT : size + k * COUNT] = each @ FACTOR
                error = np.log(us) + RUNTIME[self.runtime[here]] @ parameters - self.log[here]
                pulled, by_error = robust(error)
                parts.append(pulled * weight)
                slopes.append(slope * (by_error * weight)[:, None])
            parts.append((parameters - PRIOR) / SPREAD * BELIEF)
            slopes.append(np.eye(size, len(x)) * (BELIEF / SPREAD)[:, None])
            for k in range(1, chips):
                pulled, by_factor = apart(chip_factors[k])
                slope = np.zeros((COUNT, len(x)))
                slope[:, size + (k - 1) * COUNT : size + k * COUNT] = by_factor
                parts.append(pulled)
                slopes.append(slope)
            return np.concatenate(parts), np.concatenate(slopes)

        free = np.full((chips - 1) * COUNT, np.inf)
        bounds = (np.concatenate([BOUNDS[0], -free]), np.concatenate([BOUNDS[1], free]))
        x = minimise(np.concatenate([logs, factors[1:].ravel()]), residuals, 4, bounds)
        return x[:size], np.vstack([np.zeros(COUNT), x[size:].reshape(chips - 1, COUNT)])

    def _chips(self, train: np.ndarray, logs: np.ndarray, base: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The factors of every chip but the reference for known parameters, those with most rows first."""
        known = {BASE[0]: np.zeros(COUNT)}
        count = {chip: int(train[self.of_chip[chip]].sum()) for chip in self.chips}
        starts = {chip: base.get(chip, np.zeros(COUNT)) for chip in self.chips}
        order = sorted((c for c in self.chips if c not in known and count[c]), key=lambda c: (-count[c], c))
        for _ in range(3):
            paths = dict(zip(order, self.paths([(c, logs, starts[c]) for c in order]), strict=True))
            for chip in order:
                kin = like(chip, count)
                mean = None if kin is None or kin not in known else float(MEAN @ known[kin])
                here = self.of_chip[chip][train[self.of_chip[chip]]]
                starts[chip] = known[chip] = self._factors(paths[chip], here, logs, starts[chip], mean)
        return known

    def _factors(
        self, path: Path, here: np.ndarray, logs: np.ndarray, start: np.ndarray, kin: float | None
    ) -> np.ndarray:
        us = path.amounts[self.at[here]] * coefficients(logs, np.zeros(COUNT))
        added = path.sync_us[self.at[here]] + (serial_of(logs) - path.serial) * path.overlapped_us[self.at[here]]
        target = self.log[here] - RUNTIME[self.runtime[here]] @ logs
        weight = self.weight(here)

        def residuals(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            each = us * np.exp(FACTOR @ x)
            whole = each.sum(1) + added
            pulled, by_error = robust(np.log(whole) - target)
            near, by_factor = apart(x)
            parts = [pulled * weight, near]
            slopes = [(each @ FACTOR) / whole[:, None] * (by_error * weight)[:, None], by_factor]
            if kin is not None:
                parts.append(np.array([MEAN @ x - kin]) / KIN)
                slopes.append(MEAN[None] / KIN)
            return np.concatenate(parts), np.concatenate(slopes)

        free = np.full(COUNT, np.inf)
        return minimise(start, residuals, 10, (-free, free))


def apart(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far a chip's factors are from each other, and how that changes with each."""
    return APART @ factors, APART


UNITS = 4
"""How many of the factors, the first, are of the accelerator."""
MEAN = np.where(np.arange(COUNT) < UNITS, 1 / UNITS, 0.0)
APART = np.eye(COUNT)
"""Factors of units from their mean, the host's from that mean, a runtime's from none."""
APART[:-1] -= MEAN
APART /= np.where(np.arange(COUNT) < UNITS, TOGETHER, ELSEWHERE)[:, None]


def like(chip: str, count: Mapping[str, int]) -> str | None:
    """The chip of the same architecture with the most rows, where it has more than this one."""
    arch = {name: soc.named(name).htp_arch for name in count}
    alike = [c for c in count if arch[c] == arch[chip] and (count[c], c) > (count[chip], chip)]
    return max(alike, key=lambda c: (count[c], c), default=None)
