# SPDX-License-Identifier: Apache-2.0
"""The fit of the terms to measured rows: parameters for all chips, two factors for each chip, two for each runtime.

Errors are logarithmic with Cauchy's loss; the rows of one model on one chip through one runtime weigh as much as one.
What is believed is a residual of its own: a chip is like others of its architecture, a runtime like the other on the
same chip, only so far as rows do not ask for more.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.addons.latency.least_squares import minimize, robust_residuals
from hexforge.addons.llm.time.measurements import RUNTIMES, LlmMeasurement
from hexforge.addons.llm.time.terms import (
    FACTORS,
    NAMES,
    PARAMETERS,
    SLOW_HOST,
    LlmWork,
    chunk_time,
    token_time,
    work_of,
)
from hexforge.chips.soc import require_chip

CHIP_SPREAD, ARCH_SPREAD, RUNTIME_SPREAD = 0.7, 0.3, 0.25
"""How far (logarithmic) a chip is believed to be from the mean of all, from others of its architecture, and with one
runtime from what it is with both. Chosen on the families that are not aside, of 0.1 to 0.4 for the last."""
SCALE = 0.07
"""Logarithmic error that counts as one: what one shape differs by under several names is more."""
STEPS, ROUNDS, NUDGE = 60, 3, 1e-5
VARIANTS = ("float_product", "float_byte", "speculative")
"""Parameters that only rows with float activations or a draft have."""


@dataclass(frozen=True, slots=True)
class LlmFit:
    """What a fit found, as logarithms: parameters, factors of chips, and what each runtime adds to those."""

    chips: tuple[str, ...]
    parameters: np.ndarray
    factors: np.ndarray
    """One row for each of FACTORS, one column for each chip."""
    deviations: np.ndarray
    """For each of FACTORS and of RUNTIMES one number for each chip."""

    @property
    def values(self) -> dict[str, float]:
        """The parameters by name."""
        return {name: float(value) for name, value in zip(NAMES, np.exp(self.parameters), strict=True)}

    def predict(self, rows: Sequence[LlmMeasurement]) -> tuple[np.ndarray, np.ndarray]:
        """Milliseconds of a chunk and of a token for each row."""
        chunk, token = _Rows(rows, self.chips).log_times(self.parameters, self.factors, self.deviations)
        return np.exp(chunk), np.exp(token)


class _Rows:
    """Rows as arrays."""

    def __init__(self, rows: Sequence[LlmMeasurement], chips: Sequence[str]) -> None:
        works = [work_of(r.shape, r.precision, r.graph_context, r.filled) for r in rows]
        fields = [f.name for f in dataclasses.fields(LlmWork)]
        columns = {name: np.array([float(getattr(w, name)) for w in works]) for name in fields}
        columns["waits_for_host"] = np.array([float(r.shape.vision and (r.chip, r.runtime) == SLOW_HOST) for r in rows])
        columns["speculative"] = np.array([float(r.speculative) for r in rows])
        self.work = LlmWork(**columns)
        self.chip = np.array([chips.index(r.chip) for r in rows], int)
        self.runtime = np.array([RUNTIMES.index(r.runtime) for r in rows], int)
        self.log_chunk = np.log([r.chunk_ms for r in rows])
        self.log_token = np.log([r.token_ms for r in rows])
        alike = Counter((r.model, r.precision, r.chip, r.runtime) for r in rows)
        self.weight = np.array([alike[r.model, r.precision, r.chip, r.runtime] ** -0.5 for r in rows])

    def log_times(
        self, parameters: np.ndarray, factors: np.ndarray, deviations: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        values = dict(zip(NAMES, np.exp(parameters), strict=True))
        compute, memory = (
            np.exp(factors[k, self.chip] + deviations[k, self.runtime, self.chip]) for k in range(len(FACTORS))
        )
        chunk = sum(chunk_time(values, self.work, compute))
        token = sum(token_time(values, self.work, compute, memory))
        return np.log(chunk), np.log(token)


def fit_rows(rows: Sequence[LlmMeasurement], chips: Sequence[str] | None = None) -> LlmFit:
    """Fit all parameters; a chip of `chips` without rows gets what its architecture has.

    Rows with float activations or a draft are fitted second, to the parameters that only they have.
    """
    names = tuple(chips) if chips is not None else tuple(sorted({r.chip for r in rows if r.judged}))
    table = _Rows([r for r in rows if r.judged], names)
    believed = np.log([p.prior for p in PARAMETERS])
    spread = np.array([p.spread for p in PARAMETERS])
    of_arch = _arch_means(names)
    count, width = len(PARAMETERS), len(names)
    shapes = (count, 2 * width, 4 * width)

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parameters, factors, deviations = np.split(x, np.cumsum(shapes)[:-1])
        return parameters, factors.reshape(2, width), deviations.reshape(2, len(RUNTIMES), width)

    def residuals(x: np.ndarray) -> np.ndarray:
        parameters, factors, deviations = parts(x)
        chunk, token = table.log_times(parameters, factors, deviations)
        errors, _ = robust_residuals(np.concatenate([chunk - table.log_chunk, token - table.log_token]), SCALE)
        return np.concatenate(
            [
                errors * np.tile(table.weight, 2),
                (parameters - believed) / spread,
                factors.ravel() / CHIP_SPREAD,
                (factors - factors @ of_arch).ravel() / ARCH_SPREAD,
                deviations.ravel() / RUNTIME_SPREAD,
            ]
        )

    x = _minimum(residuals, np.concatenate([believed, np.zeros(sum(shapes[1:]))]))
    return _with_variants(LlmFit(names, *parts(x)), [r for r in rows if not r.judged and r.chip in names])


def _with_variants(fit: LlmFit, rows: Sequence[LlmMeasurement]) -> LlmFit:
    """The fit with the parameters of float activations and of drafts; what was believed where no row has them."""
    free = [NAMES.index(name) for name in VARIANTS]
    believed = np.array([np.log(PARAMETERS[i].prior) for i in free])
    spread = np.array([PARAMETERS[i].spread for i in free])
    parameters = fit.parameters.copy()
    if rows:
        table = _Rows(rows, fit.chips)

        def residuals(x: np.ndarray) -> np.ndarray:
            parameters[free] = x
            chunk, token = table.log_times(parameters, fit.factors, fit.deviations)
            errors, _ = robust_residuals(np.concatenate([chunk - table.log_chunk, token - table.log_token]), SCALE)
            return np.concatenate([errors * np.tile(table.weight, 2), (x - believed) / spread])

        parameters[free] = _minimum(residuals, believed)
    return dataclasses.replace(fit, parameters=parameters)


def _minimum(residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """Where the sum of squares is least, by slopes that are measured."""

    def with_slopes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        here = residuals(x)
        slopes = [(residuals(x + NUDGE * unit) - here) / NUDGE for unit in np.eye(len(x))]
        return here, np.array(slopes).T

    x, bounds = start, (np.full(len(start), -12.0), np.full(len(start), 12.0))
    for _ in range(ROUNDS):
        x = minimize(x, with_slopes, STEPS, bounds)
    return x


def _arch_means(chips: Sequence[str]) -> np.ndarray:
    """The matrix that makes of chips' factors the mean of their architecture."""
    archs = [require_chip(chip).htp_arch for chip in chips]
    same = np.array([[float(a == b) for b in archs] for a in archs])
    means: np.ndarray = same / same.sum(axis=0)
    return means


def predict_families_held_out(
    rows: Sequence[LlmMeasurement], chips: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds of a chunk and of a token, each row's by a fit without its family."""
    groups = [r.family for r in rows]
    chips = chips or sorted({r.chip for r in rows})
    chunk, token = np.zeros(len(rows)), np.zeros(len(rows))
    for group in sorted(set(groups)):
        held = [i for i, g in enumerate(groups) if g == group]
        fit = fit_rows([r for r, g in zip(rows, groups, strict=True) if g != group], chips)
        chunk[held], token[held] = fit.predict([rows[i] for i in held])
    return chunk, token
