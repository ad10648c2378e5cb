# SPDX-License-Identifier: Apache-2.0
"""Measured rows as `hexforge.estimate` predicts them, with the costs of fits that saw neither their family nor kind."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

import hexforge
from hexforge.addons.latency.cost_file import costs_of, text_of
from hexforge.addons.latency.fitting import MEMBERS, CostFit, FitProblem
from hexforge.addons.latency.held_out import HeldOut, half_widths
from hexforge.addons.latency.known_work import certainties, known_work
from hexforge.addons.latency.measurements import Measurement
from hexforge.chips.deployment import Deployment
from hexforge.errors import HexforgeError


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """What the public call says of a measured row."""

    row: int
    latency_us: float
    band: float
    fold: str = ""
    """Whose fit predicted it."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows to predict, and the fit of the others."""

    name: str
    test: np.ndarray
    fit: CostFit
    train: np.ndarray


def family_folds(problem: FitProblem, members: int = MEMBERS, off: Set[str] | None = None) -> list[Fold]:
    """A fold of families after the other left out; its switches are chosen without it, unless some are off."""
    masks = {f"fold {k}": problem.fold == k for k in sorted(set(problem.fold.tolist()))}
    return _folds(problem, masks, members, off)


def kind_folds(problem: FitProblem, members: int = 0) -> list[Fold]:
    """Every kind of model left out in turn: no transformer, no detector, no video model and so on; one fit for each."""
    kinds = [problem.families[row.model].kinds for row in problem.rows]
    names = sorted({kind for of_row in kinds for kind in of_row})
    return _folds(problem, {name: np.array([name in of_row for of_row in kinds]) for name in names}, members)


def _folds(
    problem: FitProblem, masks: Mapping[str, np.ndarray], members: int, off: Set[str] | None = None
) -> list[Fold]:
    return [
        Fold(name, np.nonzero(held)[0], problem.fit(~held, members, off=off), np.nonzero(~held)[0])
        for name, held in masks.items()
    ]


def write_costs(problem: FitProblem, folds: Sequence[Fold], folder: Path) -> list[Path]:
    """The file of costs of each fold, whose bands are as wide as the errors of the other folds ask for."""
    logs, known = np.full(len(problem.rows), np.nan), {}
    for fold in folds:
        mask = np.zeros(len(problem.rows), bool)
        mask[fold.train] = True
        logs[fold.test] = problem.predict(fold.fit, fold.test)
        known.update(zip(fold.test.tolist(), certainties(problem, fold.fit, mask, fold.test), strict=True))
    held_out = HeldOut(logs, [known[i] for i in range(len(problem.rows))])
    paths = []
    for fold in folds:
        others = np.setdiff1d(np.arange(len(problem.rows)), fold.test)
        contents = {
            **costs_of(fold.fit),
            **known_work(problem, fold.fit, fold.train),
            "band": {"half_width": half_widths(problem, held_out, others), "unmeasured_chip": 1.0},
        }
        paths.append(folder / f"{fold.name.replace(' ', '_')}.json")
        paths[-1].write_text(text_of(contents))
    return paths


_Asked: TypeAlias = tuple[int, Measurement, str, str]
"""The number of a row, the row, the file of costs to predict it with, and the fold that is the file's."""


def predict(
    problem: FitProblem, folds: Sequence[Fold], cost_files: Sequence[Path], data: Path, rows: np.ndarray | None = None
) -> list[PredictedRow]:
    """Rows of folds by `hexforge.estimate`, each with its fold's costs; several processes share the models."""
    by_model: dict[str, list[_Asked]] = defaultdict(list)
    wanted = None if rows is None else set(rows.tolist())
    for fold, file in zip(folds, cost_files, strict=True):
        for i in fold.test.tolist():
            if wanted is None or i in wanted:
                by_model[problem.rows[i].model].append((i, problem.rows[i], str(file), fold.name))
    asked = [(data / "topologies" / f"{model}.onnx", each) for model, each in by_model.items()]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return [row for rows_of_model in pool.map(_predict_model, asked) for row in rows_of_model]


def _predict_model(of_model: tuple[Path, Sequence[_Asked]]) -> list[PredictedRow]:
    """The rows of one model, which is read once; `estimates` gives what `estimate` does, to the last digit."""
    path, rows = of_model
    asked = [Deployment(row.chip, row.precision, row.runtime, cost_file=file) for _, row, file, _ in rows]
    predicted = []
    for (i, _, _, fold), estimate in zip(rows, hexforge.estimates(path, asked), strict=True):
        if isinstance(estimate, HexforgeError):
            raise estimate
        predicted.append(PredictedRow(i, estimate.latency_ms * 1e3, estimate.band, fold))
    return predicted
