# SPDX-License-Identifier: Apache-2.0
"""Choosing switches: what costs nothing is dropped, what costs much is kept, and the outer families are not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hexforge.addons.latency.terms import PARAMETER_INDEX, unit_us
from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.mechanisms import MECHANISMS, NOTHING, SWITCHES
from tests.addons.latency.synthetic import Known, known

FREE = ("hvx.split", "hvx.border_transpose", "hvx.large_attention")
"""Switches that are dear before a fit, and cost nothing in the rows that were made."""
DEAR = ("hvx.batchnorm", "hvx.sorted", "hvx.scalar")


@pytest.fixture(scope="module")
def made() -> Known:
    return known(seed=5, families=16, noise=0.05, off=FREE)


def test_switches_that_cost_nothing_are_dropped_and_others_kept(made: Known) -> None:
    problem = made.problem()
    choice = problem.choose(np.ones(len(made.rows), bool))
    assert len(set(FREE) & choice.off) >= 2
    assert not set(DEAR) & choice.off
    assert choice.gain.keys() == choice.helped.keys() == set(SWITCHES)
    assert min(choice.gain[name] for name in DEAR) > max(choice.gain[name] for name in FREE)


def test_the_choice_does_not_see_what_is_held_out(made: Known) -> None:
    train = np.array([made.families[row.model].fold != 0 for row in made.rows])
    before = made.problem().choose(train)
    rows = [row if t else replace(row, latency_us=row.latency_us * 5) for row, t in zip(made.rows, train, strict=True)]
    assert made.problem(rows).choose(train) == before


def test_a_fit_keeps_what_was_chosen_and_prices_nothing_else(made: Known) -> None:
    fit = made.problem().fit(np.ones(len(made.rows), bool), members=2)
    assert fit.off
    for name in fit.off:
        worth = cost.PARAMETERS[PARAMETER_INDEX[name]].off
        assert np.exp(fit.members[:, PARAMETER_INDEX[name]]) == pytest.approx(worth)
    assert unit_us(fit.parameters, np.zeros(len(cost.FACTORS))).min() >= 0


def test_every_mechanism_has_a_reason_and_is_a_parameter_that_can_be_off() -> None:
    assert len({m.reason for m in MECHANISMS}) == len(MECHANISMS)
    for m in MECHANISMS:
        parameter = cost.PARAMETERS[PARAMETER_INDEX[m.name]]
        assert (parameter.prior, parameter.spread, parameter.off) == (m.prior, m.spread, m.off)
        assert m.off == (1.0 if m.name.startswith("deviation.") else NOTHING)
