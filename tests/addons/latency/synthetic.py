# SPDX-License-Identifier: Apache-2.0
"""Models of random work whose latencies come from costs that are known, so that a fit can be judged by them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hexforge.addons.latency.fitting import BASE, CostFit, FitProblem
from hexforge.addons.latency.fixed_paths import PRIOR, SPREAD
from hexforge.addons.latency.measurements import MeasuredFamily, Measurement
from hexforge.addons.latency.terms import HMX_KINDS, HVX_KINDS, OFF, PARAMETER_INDEX
from hexforge.addons.latency.tiled_graphs import ModelKey, TiledGraph, key_of
from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.task_sequence import tiles
from hexforge.backends.htp.time.tile import PRECISIONS, Task

RUNTIMES = ("qnn_dlc", "onnx")


@dataclass(frozen=True, slots=True)
class Known:
    """Rows that were made with known costs."""

    models: Mapping[ModelKey, TiledGraph]
    rows: Sequence[Measurement]
    families: Mapping[str, MeasuredFamily]
    costs: CostFit

    def problem(self, rows: Sequence[Measurement] | None = None) -> FitProblem:
        """What is fitted: these rows, or others of the same models."""
        return FitProblem(self.models, self.rows if rows is None else rows, self.families)


def known(seed: int, families: int = 12, folds: int = 4, noise: float = 0.0, off: tuple[str, ...] = ()) -> Known:
    """Two models a family, each measured on the base chips at every precision through two runtimes.

    What switches that are off would price costs nothing.
    """
    random = np.random.default_rng(seed)
    logs = PRIOR + SPREAD * random.normal(size=len(PRIOR))
    logs[PARAMETER_INDEX["serial"]] = np.log(0.7)
    for name in off:
        logs[PARAMETER_INDEX[name]] = OFF[PARAMETER_INDEX[name]]
    names = [f"family{i}_model{k}" for i in range(families) for k in range(2)]
    of = {n: MeasuredFamily(n.split("_")[0], i // 2 % folds, ("net",), False) for i, n in enumerate(names)}
    cells = itertools.product(names, cost.RATES, RUNTIMES, BASE)
    blank = [Measurement(name, rate, runtime, f"device {chip}", chip, 1.0) for name, rate, runtime, chip in cells]
    work = {name: _tasks(random) for name in names}
    models = {key: _tiled(work[key[0]], key) for key in {key_of(row) for row in blank}}
    factors = {chip: random.normal(0, 0.2, len(cost.FACTORS)) * (chip != BASE[0]) for chip in BASE}
    costs = CostFit(logs[None], factors)
    us = np.exp(FitProblem(models, blank, of).predict(costs, np.arange(len(blank))))
    us = us * np.exp(random.normal(0, noise, len(us)))
    return Known(models, [replace(row, latency_us=float(u)) for row, u in zip(blank, us, strict=True)], of, costs)


def _tasks(random: np.random.Generator) -> list[Task]:
    """Between ten and thirty tasks that have the model's own few kinds of work in common, and are else of any kind."""
    own_matrix = str(random.choice(HMX_KINDS))
    own_vector = [str(kind) for kind in random.choice(HVX_KINDS, 2, replace=False)]
    tasks = []
    for number in range(int(random.integers(10, 30))):
        task = Task(f"t{number}", "Conv2d", PRECISIONS["float"], weight_bytes=int(random.lognormal(11, 2)))
        task.hmx[own_matrix] = float(random.lognormal(-1.5, 1.0))
        for kind in own_vector:
            task.hvx[kind] = float(random.lognormal(0.5, 1.0))
        task.add(str(random.choice(HVX_KINDS)), float(random.lognormal(-1.0, 1.0)))
        task.spill_bytes = int(random.lognormal(11, 2)) if random.random() < 0.3 else 0
        tasks.append(task)
    return tasks


def _tiled(tasks: Sequence[Task], key: ModelKey) -> TiledGraph:
    """The tasks at the precision of a key, cut into tiles for its VTCM."""
    own = [replace(task, precision=PRECISIONS[key[2]]) for task in tasks]
    return TiledGraph(own, tiles(own, key[3]), 150_000)
