# SPDX-License-Identifier: Apache-2.0
"""The fit: costs that rows were made with are found again, also where some rows are far off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hexforge.addons.latency.fitting import BASE, HEAVY, CostFit, FitProblem
from hexforge.addons.latency.fixed_paths import BOUNDS, PRIOR
from hexforge.addons.latency.least_squares import minimize, robust_residuals
from hexforge.addons.latency.terms import PARAMETER_INDEX, PARAMETER_NAMES
from hexforge.backends.htp.time import cost
from hexforge.errors import CallError
from tests.addons.latency.synthetic import Known, known

CERTAIN = [*(f"share.{kind}" for kind in cost.MATRIX), *(f"hvx.{kind}" for kind in cost.VECTOR)]
"""Parameters that some of the synthetic models lean on."""


@pytest.fixture(scope="module")
def made() -> Known:
    return known(seed=1, families=48)


def fitted(problem: FitProblem, members: int = 0) -> CostFit:
    return problem.fit(np.ones(len(problem.rows), bool), members, off=frozenset())


def off(fit: CostFit, made: Known, names: list[str]) -> float:
    """The largest logarithmic error of some parameters."""
    where = [PARAMETER_INDEX[name] for name in names]
    return float(np.abs(fit.parameters[where] - made.costs.parameters[where]).max())


def test_the_costs_that_rows_were_made_with_are_found(made: Known) -> None:
    fit = fitted(made.problem())
    where = [PARAMETER_INDEX[name] for name in CERTAIN]
    assert np.median(np.abs(PRIOR[where] - made.costs.parameters[where])) > 0.15  # what is believed at first is not it
    assert off(fit, made, CERTAIN) < 0.1
    problem = made.problem()
    assert np.abs(problem.predict(fit, np.arange(len(made.rows))) - problem.log_us).max() < 0.03


def test_the_factors_of_chips_are_found(made: Known) -> None:
    fit = fitted(made.problem())
    assert set(fit.chips) == set(BASE)
    assert not fit.chips[BASE[0]].any()  # the reference is what the others are relative to
    for chip in BASE[1:]:
        assert fit.chips[chip][:3] == pytest.approx(made.costs.chips[chip][:3], abs=0.05)


def test_parameters_stay_in_their_bounds(made: Known) -> None:
    rows = [replace(row, latency_us=row.latency_us * 1e4) for row in made.rows]
    fit = fitted(made.problem(rows))
    assert (fit.parameters >= BOUNDS[0] - 1e-9).all()
    assert (fit.parameters <= BOUNDS[1] + 1e-9).all()


def test_few_rows_that_are_far_off_do_not_bend_the_rest(made: Known) -> None:
    rows = [replace(row, latency_us=row.latency_us * 8) if i % 20 == 0 else row for i, row in enumerate(made.rows)]
    assert off(fitted(made.problem(rows)), made, CERTAIN) < 0.1


def test_the_bag_has_as_many_fits_as_are_asked_for_and_they_differ() -> None:
    noisy = known(seed=2, noise=0.1)
    fit = fitted(noisy.problem(), members=3)
    assert fit.members.shape == (3, len(PARAMETER_NAMES))
    assert fit.members.std(0).max() > 1e-3
    assert fit.parameters == pytest.approx(fit.members.mean(0))


def test_a_fit_is_the_same_every_time(made: Known) -> None:
    assert (fitted(made.problem()).members == fitted(made.problem()).members).all()


def test_each_model_of_a_chip_weighs_the_same_at_a_precision(made: Known) -> None:
    problem = made.problem()
    rows = problem.rows_of_chip[BASE[0]]
    sums: dict[tuple[str, str], float] = {}
    for i, weight in zip(rows, problem.row_weights(rows), strict=True):
        key = made.rows[i].model, made.rows[i].precision
        sums[key] = sums.get(key, 0.0) + weight**2
    assert sums == {key: pytest.approx(HEAVY.get(key[1], 1.0)) for key in sums}


def test_models_without_a_family_are_refused(made: Known) -> None:
    with pytest.raises(CallError, match="family0_model0: in no family"):
        FitProblem(made.models, made.rows, {k: v for k, v in made.families.items() if k != "family0_model0"})


def test_base_chips_without_rows_are_refused(made: Known) -> None:
    rows = [row for row in made.rows if row.chip != BASE[2]]
    with pytest.raises(CallError, match=f"{BASE[2]}: without rows"):
        fitted(made.problem(rows))


def test_minimize_finds_the_least_squares_within_bounds() -> None:
    matrix, target = np.array([[2.0, 1.0], [1.0, 3.0], [1.0, 1.0]]), np.array([1.0, 2.0, 0.5])

    def residuals(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return matrix @ x - target, matrix

    free = np.full(2, np.inf)
    best = np.linalg.lstsq(matrix, target, rcond=None)[0]
    assert minimize(np.zeros(2), residuals, 50, (-free, free)) == pytest.approx(best, abs=1e-3)
    assert minimize(np.zeros(2), residuals, 50, (-free, np.array([np.inf, 0.4])))[1] <= 0.4


def test_far_rows_pull_less() -> None:
    errors = np.array([1e-9, 0.01, 0.1, 1.0, 3.0])
    residuals, slope = robust_residuals(errors)
    step = 1e-7
    numeric = (robust_residuals(errors + step)[0] - robust_residuals(errors - step)[0]) / (2 * step)
    assert slope == pytest.approx(numeric, rel=1e-4)
    pull = residuals * slope
    assert pull[2] > pull[1] > pull[0]
    assert pull[2] > pull[3] > pull[4]
