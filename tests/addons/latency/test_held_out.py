# SPDX-License-Identifier: Apache-2.0
"""Held-out families: folds share neither models nor families, and what is held out cannot be seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hexforge.addons.latency.error_figures import figures, rank_correlation, select, summarize
from hexforge.addons.latency.fitting import BASE, CostFit, FitProblem
from hexforge.addons.latency.held_out import QUANTILE, HeldOut, folds, half_widths, predict_held_out, unmeasured_width
from hexforge.addons.latency.known_work import certainties, profiles, support
from hexforge.addons.latency.measurements import TARGET_DEVICES, read_families, read_measurements
from hexforge.backends.htp.time import band, cost
from hexforge.chips import soc
from tests.addons.latency.synthetic import Known, known


@pytest.fixture(scope="module")
def made() -> Known:
    return known(seed=3, noise=0.15)


def certain(count: int) -> list[band.Certainty]:
    return [band.Certainty(0.0, (), 0.0)] * count


def test_folds_of_the_measured_models_share_no_model_and_no_family() -> None:
    rows, families = read_measurements(), read_families()
    predicted = np.zeros(len(rows), int)
    for train, test in folds(np.array([families[row.model].fold for row in rows])):
        learnt = {rows[i].model for i in np.nonzero(train)[0]}
        asked = {rows[i].model for i in test}
        assert learnt
        assert not learnt & asked
        assert not {families[m].name for m in learnt} & {families[m].name for m in asked}
        predicted[test] += 1
    assert (predicted == 1).all()


def test_what_is_held_out_is_not_seen(made: Known) -> None:
    before = predict_held_out(made.problem(), members=2)
    fold = made.families["family0_model0"].fold
    held = np.array([made.families[row.model].fold == fold for row in made.rows])
    rows = [replace(row, latency_us=row.latency_us * 5) if h else row for row, h in zip(made.rows, held, strict=True)]
    after = predict_held_out(made.problem(rows), members=2)
    assert (after.log_us[held] == before.log_us[held]).all()
    assert [k for k, h in zip(after.known, held, strict=True) if h] == [
        k for k, h in zip(before.known, held, strict=True) if h
    ]
    assert np.abs(after.log_us[~held] - before.log_us[~held]).max() > 0.01  # the others did learn from it


def test_held_out_rows_are_predicted_nearly_as_well_as_their_noise(made: Known) -> None:
    problem = made.problem()
    errors = np.abs(np.exp(predict_held_out(problem, members=2).log_us - problem.log_us) - 1)
    assert np.median(errors) < 0.22


def inside_bands(problem: FitProblem, held_out: HeldOut) -> np.ndarray:
    """Whether each row lies in its band, with the widths of the other folds."""
    inside = np.zeros(len(problem.rows), bool)
    shape, error = held_out.shape(), np.abs(held_out.log_us - problem.log_us)
    for others, test in folds(problem.fold):
        widths = half_widths(problem, held_out, np.nonzero(others)[0])
        for i in test:
            row = problem.rows[i]
            inside[i] = error[i] <= widths[row.precision][row.runtime] * shape[i]
    return inside


@pytest.mark.parametrize("seed", range(4))
def test_bands_hold_nine_of_ten_rows_of_folds_that_did_not_set_their_width(made: Known, seed: int) -> None:
    problem, random = made.problem(), np.random.default_rng(seed)
    spreads = random.uniform(0.0, 0.3, len(problem.rows))
    known_rows = [band.Certainty(float(s), (), 0.0) for s in spreads]
    shape = np.array([band.band_shape(k) for k in known_rows])
    held_out = HeldOut(problem.log_us + random.normal(0, 0.1, len(shape)) * shape, known_rows)
    inside = inside_bands(problem, held_out)
    assert inside.mean() == pytest.approx(QUANTILE, abs=0.04)
    wide = shape > np.median(shape)
    assert inside[wide].mean() == pytest.approx(inside[~wide].mean(), abs=0.06)  # the shape says who needs a wide one


def test_a_fold_that_is_far_off_does_not_widen_its_own_band(made: Known) -> None:
    problem, random = made.problem(), np.random.default_rng(0)
    far = problem.fold == 0
    errors = random.normal(0, 0.1, len(far)) * np.where(far, 10, 1)
    inside = inside_bands(problem, HeldOut(problem.log_us + errors, certain(len(far))))
    assert inside[far].mean() < 0.5


def test_half_widths_are_quantiles_by_precision(made: Known) -> None:
    problem = made.problem()
    errors = np.where([r.precision == "w8a8" for r in made.rows], 0.2, 0.1)
    widths = half_widths(problem, HeldOut(problem.log_us - errors, certain(len(errors))), np.arange(len(errors)))
    assert {rate: set(np.round(list(of_rate.values()), 6)) for rate, of_rate in widths.items()} == {
        "float": {0.1},
        "w8a8": {0.2},
        "w8a16": {0.1},
    }


def test_a_model_with_many_rows_does_not_set_the_width_alone(made: Known) -> None:
    problem = made.problem()
    here = [i for i, r in enumerate(made.rows) if (r.precision, r.runtime) == ("float", "onnx")]
    many = [i for i in here if made.rows[i].model == "family0_model0"]
    rows = np.array([*many * 40, *(i for i in here if i not in many)])
    errors = np.where(np.isin(np.arange(len(made.rows)), many), 0.5, 0.1)
    widths = half_widths(problem, HeldOut(problem.log_us - errors, certain(len(errors))), rows)
    assert widths["float"]["onnx"] == pytest.approx(0.1)  # one of 24 models is off further


def test_a_chip_nobody_measured_is_off_by_what_its_memory_does_not_say(made: Known) -> None:
    assert unmeasured_width(made.problem(), made.costs) > 0.05
    by_memory = {chip: np.zeros(len(cost.FACTORS)) for chip in BASE}
    for chip, factors in by_memory.items():
        factors[cost.FACTORS.index("dram")] = np.log(
            soc.require_chip(BASE[0]).dram_gbps / soc.require_chip(chip).dram_gbps
        )
    alike = CostFit(made.costs.members, by_memory)
    us = np.exp(made.problem().predict(alike, np.arange(len(made.rows))))
    rows = [replace(row, latency_us=float(u)) for row, u in zip(made.rows, us, strict=True)]
    assert unmeasured_width(made.problem(rows), alike) == pytest.approx(0, abs=1e-6)


def test_support_counts_the_families_that_lean_on_a_kind_of_work(made: Known) -> None:
    problem = made.problem()
    counts = support(problem, made.costs, np.arange(len(made.rows)))
    assert 1 <= counts["float"]["conv"] <= 12
    one = np.array([i for i, row in enumerate(made.rows) if row.model.startswith("family3_")])
    assert set(support(problem, made.costs, one)["float"].values()) == {1}


def test_a_graph_is_compared_with_those_that_were_learnt_from(made: Known) -> None:
    problem, every = made.problem(), np.arange(len(made.rows))
    known = profiles(problem, made.costs, every)
    assert {rate: set(each) for rate, each in known.items() if each} == {
        rate: {row.model for row in made.rows if row.precision == rate} for rate in {row.precision for row in made.rows}
    }
    seen = certainties(problem, made.costs, np.ones(len(every), bool), every)
    first = [i for i, row in enumerate(made.rows) if row.chip == BASE[0] and row.runtime == "qnn_dlc"]
    assert max(seen[i].distance for i in first) < 0.02  # its own profile, but for its digits
    others = problem.fold != problem.fold[first[0]]
    held = certainties(problem, made.costs, others, np.nonzero(~others)[0])
    assert min(each.distance for each in held) >= 0
    assert max(each.distance for each in held) > 0.02


def test_figures_are_of_the_rows_that_are_asked_for(made: Known) -> None:
    problem = made.problem()
    rows = select(problem, "w8a8", (f"device {BASE[0]}",), "onnx")
    assert {(made.rows[i].precision, made.rows[i].chip, made.rows[i].runtime) for i in rows} == {
        ("w8a8", BASE[0], "onnx")
    }
    found = figures(problem, problem.log_us + np.log(1.25), rows)
    assert found["median"] == found["mean"] == found["p90"] == 0.25
    assert found["interval"] == [0.25, 0.25]
    assert found["rank"] == 1.0
    assert found["rows"] == len(rows) == 24


def test_the_summary_names_precisions_and_runtimes(made: Known) -> None:
    rows = [replace(row, device=TARGET_DEVICES[0]) for row in made.rows]
    found = summarize(made.problem(rows), made.problem().log_us)
    assert set(found) == {"float", "w8a8", "w8a16", "float onnx", "w8a8 onnx", "w8a16 onnx"}


def test_rank_correlation() -> None:
    assert rank_correlation(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 30, 40])) == pytest.approx(1)
    assert rank_correlation(np.array([1.0, 2, 3, 4]), np.array([4.0, 3, 2, 1])) == pytest.approx(-1)
    assert np.isnan(rank_correlation(np.array([1.0, 2]), np.array([1.0, 2])))
