# SPDX-License-Identifier: Apache-2.0
"""cost.json: the shipped file is of these measurements and whole; a fit survives being written and read."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hexforge.addons.latency.__main__ import file_contents
from hexforge.addons.latency.cost_file import SHIPPED, SOURCE, costs_of, differences, digest_of, fit_of, text_of
from hexforge.addons.latency.held_out import half_widths, predict_held_out
from hexforge.addons.latency.measurements import DATA, read_families, read_measurements
from hexforge.addons.latency.terms import RATES
from hexforge.backends.htp.time import cost
from hexforge.chips import soc
from tests.addons.latency.synthetic import known


def test_the_shipped_costs_are_those_of_the_measurements_that_are_here() -> None:
    data, rows = cost.fitted()["data"], read_measurements()
    assert data == {"rows": len(rows), "models": len(read_families()), "sha256": digest_of(DATA)}
    assert cost.fitted()["source"] == SOURCE
    assert set(cost.fitted()["chips"]) == {row.chip for row in rows}


def test_the_shipped_file_is_as_the_fit_writes_it() -> None:
    shipped = json.loads(SHIPPED.read_text())
    assert text_of(shipped) == SHIPPED.read_text()
    again = costs_of(fit_of(shipped))
    assert again["members"] == shipped["members"]
    assert again["chips"] == shipped["chips"]
    assert again["parameters"] == pytest.approx(shipped["parameters"], rel=1e-4)


def test_a_fit_is_written_with_its_errors_and_bands_and_read_again() -> None:
    made = known(seed=4, noise=0.1)
    problem = made.problem()
    fit = problem.fit(np.ones(len(made.rows), bool), members=2)
    held_out = predict_held_out(problem, members=2)
    contents = json.loads(text_of(file_contents(problem, fit, held_out, "a digest")))
    assert contents["data"] == {"rows": len(made.rows), "models": 24, "sha256": "a digest"}
    widths = half_widths(problem, held_out, np.arange(len(made.rows)))
    rounded = {rate: {name: round(width, 4) for name, width in widths[rate].items()} for rate in RATES}
    assert contents["band"]["half_width"] == rounded
    read = fit_of(contents)
    assert read.parameters == pytest.approx(fit.parameters, abs=1e-4)
    assert problem.predict(read, np.arange(9)) == pytest.approx(problem.predict(fit, np.arange(9)), abs=1e-3)
    costs = cost.costs(soc.require_chip("SM8750"), contents)
    dram = fit.parameters[[p.name for p in cost.PARAMETERS].index("dram")] + fit.chips["SM8750"][3]
    assert costs.values["dram"] == pytest.approx(np.exp(dram), rel=1e-4)


def test_files_that_differ_say_where() -> None:
    kept = {"parameters": {"dram": 15.0, "task": 0.2}, "members": {"dram": [15.0, 16.0]}}
    assert differences({**kept, "parameters": {"dram": 15.001, "task": 0.2}}, kept) == []
    assert differences({**kept, "parameters": {"dram": 18.0}}, kept) == [
        "parameters.task: is in one of them only",
        "parameters.dram: 18.0 is fitted, 15.0 is kept",
    ]
    assert differences({**kept, "members": {"dram": [15.0, 20.0]}}, kept) == [
        "members.dram.1: 20.0 is fitted, 16.0 is kept"
    ]
