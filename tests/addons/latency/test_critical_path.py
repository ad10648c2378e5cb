# SPDX-License-Identifier: Apache-2.0
"""Critical paths: what is fitted is what estimates run, and its derivatives are those of its times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.latency.cost_file import SHIPPED, fit_of
from hexforge.addons.latency.fitting import BASE, FitProblem
from hexforge.addons.latency.measurements import DATA, read_families, read_measurements
from hexforge.addons.latency.terms import PARAMETER_INDEX, PARAMETERS_OF_TERMS, serial_of, unit_us
from hexforge.addons.latency.tiled_graphs import TiledGraphs
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.simulate import simulate
from hexforge.backends.htp.time.tile import PRECISIONS
from hexforge.chips import soc
from hexforge.errors import CallError
from hexforge.ir import text
from tests.addons.latency.synthetic import known

SMALL = ("resnet18", "squeezenet1_1", "quicksrnetsmall")


def test_the_fit_times_graphs_as_estimates_do() -> None:
    measured = [row for row in read_measurements() if row.model in SMALL]
    rows = list({(row.model, row.chip, row.precision, row.runtime): row for row in measured}.values())
    models, fit = TiledGraphs(), fit_of(json.loads(SHIPPED.read_text()))
    logs = FitProblem(models, rows, read_families()).predict(fit, np.arange(len(rows)))
    assert len(rows) > 100
    for row, log in zip(rows, logs, strict=True):
        costs = cost.costs(soc.require_chip(row.chip))
        line = simulate(models.graph(row.model), costs, PRECISIONS[row.precision], row.runtime)
        assert np.exp(log) == pytest.approx(line.latency_us, rel=1e-4), row


@pytest.mark.parametrize("model", SMALL)
def test_graphs_are_those_that_estimates_time(model: str) -> None:
    theirs = graph_of(DATA / "topologies" / f"{model}.onnx")
    assert text.dumps(TiledGraphs().graph(model)) == text.dumps(theirs)


def test_a_model_without_a_graph_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="every measured model has a graph"):
        TiledGraphs(tmp_path).graph("resnet18")


def test_derivatives_along_the_path_are_those_of_the_times() -> None:
    made = known(seed=5, families=4)
    problem = made.problem()
    logs, chip = made.costs.parameters, BASE[1]
    factors = made.costs.chips[chip]
    timeline = problem.timeline[chip]
    graphs = np.arange(len(timeline.keys))

    def us(at: np.ndarray) -> np.ndarray:
        return timeline.paths([(at, factors)])[0].us(graphs, unit_us(at, factors), serial_of(at))

    path = timeline.paths([(logs, factors)])[0]
    slope = (path.amounts * unit_us(logs, factors)) @ PARAMETERS_OF_TERMS
    slope[:, PARAMETER_INDEX["serial"]] += serial_of(logs) * path.overlapped_us
    step = 1e-6
    for name in ("hmx.w8a8", "hvx.norm", "dram", "serial", "host.call"):
        moved = np.zeros_like(logs)
        moved[PARAMETER_INDEX[name]] = step
        numeric = (us(logs + moved) - us(logs - moved)) / (2 * step)
        assert slope[:, PARAMETER_INDEX[name]] == pytest.approx(numeric, rel=1e-3, abs=1e-2), name


def test_times_of_many_sets_are_those_of_each() -> None:
    made = known(seed=6, families=4)
    problem = made.problem()
    timeline = problem.timeline[BASE[0]]
    sets = [(made.costs.parameters + shift, made.costs.chips[BASE[0]]) for shift in (-0.3, 0.0, 0.3)]
    for together, one in zip(timeline.paths(sets), sets, strict=True):
        alone = timeline.paths([one])[0]
        assert (together.amounts == alone.amounts).all()
        assert (together.sync_us == alone.sync_us).all()
