# SPDX-License-Identifier: Apache-2.0
"""Decisions and alarms in every command: a YOLO-style model whose scores share its boxes' scale is not passed on."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

import hexforge
from hexforge.addons.tuning.mixes import Point, SearchPoints, deciding_well
from hexforge.addons.tuning.optimize import optimize
from hexforge.addons.tuning.optimize_command import print_optimized
from hexforge.addons.tuning.optimized_page import optimized_page
from hexforge.addons.tuning.recommend import confirmed, recommend
from hexforge.addons.tuning.requests import OptimizeRequest, Scoring, SearchSpace
from hexforge.addons.tuning.search import SearchResult, search
from hexforge.analysis.quality.decision_agreement import DecisionAgreement
from hexforge.analysis.quality.decisions.verdict import Decisions, OutputDecisions
from hexforge.analysis.quality.evaluate import evaluate
from hexforge.cli.screen import console
from hexforge.errors import CallError
from hexforge.report import page
from hexforge.report.quality import quality_sections
from tests.addons.tuning.test_optimize import searched
from tests.analysis.quality.decisions.yolo_model import pictures, yolo_model
from tests.cli.test_cli import run
from tests.report.test_page import content

ONE_SCALE = "w8a8; Concat=w8a8"
"""Boxes and scores stay in one scale of 8 bits, which is said and so stands."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yolo")
    onnx.save(yolo_model(), path / "yolo.onnx")
    (path / "data").mkdir()
    for number, feeds in enumerate(pictures(10)):
        np.save(path / "data" / f"{number}.npy", feeds["image"])
    for name, recipe in (("dead", ONE_SCALE), ("alive", "w8a16")):
        hexforge.quantize(path / "yolo.onnx", str(path / "data"), recipe, path / f"{name}.onnx")
    return path


def test_quantize_says_it_loudly_and_what_works(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "q.onnx")
    arguments = ("quantize", str(folder / "yolo.onnx"), "--data", str(folder / "data"), "-o", out, "--recipe")
    assert run(*arguments, ONE_SCALE) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "decisions unusable (judged by 2 samples alone: give 15 or more): detection 0.0 %" in said
    assert "ALARM: channels 4-6 of output 'output0' are 0 in all samples" in said
    assert "output0, channels 4-6 (0.0003354 to" in said
    assert "--recipe w8a16_channel (do not use this file" in said
    assert "output output0: SQNR 5" in said  # SQNR stays beside it, and sees nothing
    assert run(*arguments, "w8a16") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "decisions good (judged by 2 samples alone: give 15 or more): detection 100 %" in said
    assert "ALARM" not in said
    assert "next: hexforge compile" in said


def test_json_has_decisions_groups_alarms_and_the_worst_sample(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = str(folder / "yolo.onnx"), str(folder / "dead.onnx")
    assert run("compare", *models, "--data", str(folder / "data"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    decisions = found["decisions"]
    assert (decisions["kind"], decisions["verdict"], decisions["agreement"]) == ("detection", "unusable", 0.0)
    assert decisions["alarms"][0]["channels"] == "4-6"
    assert decisions["worst_group"]["first"] == 4
    assert decisions["worst_sample"]["name"].endswith(".npy")
    assert found["sqnr_db"] > 45


def test_the_kind_is_overridden(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = str(folder / "yolo.onnx"), str(folder / "alive.onnx"), "--data", str(folder / "data")
    assert run("compare", *models, "--metric", "embedding", "--json") == 0
    assert json.loads(capsys.readouterr().out)["decisions"]["kind"] == "embedding"
    described = "detection:boxes=output0[0:4],scores=output0[4:7],threshold=0.5"
    assert run("compare", *models, "--metric", described, "--json") == 0
    assert json.loads(capsys.readouterr().out)["decisions"]["outputs"][0]["agreement"] == 1
    assert run("compare", *models, "--metric", "sqnr", "--json") == 0
    assert json.loads(capsys.readouterr().out)["decisions"] is None
    assert run("compare", *models, "--metric", "detektion") == 2
    assert "did you mean 'detection'" in capsys.readouterr().err


def test_the_page_shows_the_worst_sample_with_boxes(folder: Path) -> None:
    compared = hexforge.compare(folder / "yolo.onnx", folder / "dead.onnx", str(folder / "data"))
    (section,) = [s for s in quality_sections(compared) if s.title == "Decisions"]
    shown = content(page(hexforge.estimate(folder / "dead.onnx"), lead=[section]))["lead"][0]
    drawn = {part["draw"]: part for part in shown["parts"]}
    assert "unusable" in drawn["figures"]["verdict"]
    titles = [p["title"] for p in drawn["pictures"]["pictures"]]
    assert titles == ["Input", "Float model", "Quantized"]
    assert drawn["pictures"]["pictures"][0]["png"] != drawn["pictures"]["pictures"][1]["png"]  # boxes are drawn
    assert drawn["pictures"]["pictures"][2]["about"].startswith("no box of 0.25")
    assert any("are 0 in all samples" in step["text"] for step in drawn["steps"]["steps"])


def mixes(folder: Path, low: str) -> SearchResult:
    space = SearchSpace(low, "w8a16", groups=1, budget=2)
    return search(folder / "yolo.onnx", str(folder / "data"), "SM8650", space, Scoring(samples=4))


def test_search_recommends_nothing_with_an_alarm(folder: Path, tmp_path: Path) -> None:
    found = mixes(folder, ONE_SCALE)
    assert all(point.alarms for point in found.mixes.points.values())
    assert found.best is None
    assert found.mixes.front() == []
    assert "has an alarm: channels 4-6" in found.reason
    assert found.to_json()["best"] is None
    refused = recommend(found)
    assert (refused.kind, refused.recommended) == ("none", False)
    assert "Keep the model in float" in refused.reason


def test_the_state_of_a_search_keeps_alarms(folder: Path, tmp_path: Path) -> None:
    arguments = folder / "yolo.onnx", str(folder / "data"), "SM8650", SearchSpace(ONE_SCALE, "w8a16", 1, budget=2)
    first = search(*arguments, Scoring(samples=4), state=tmp_path / "state.json")
    again = search(*arguments, Scoring(samples=4), state=tmp_path / "state.json")
    assert again.mixes.points == first.mixes.points
    assert all(point.alarms for point in again.mixes.points.values())


def test_the_metric_of_a_search_is_a_kind_of_decisions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--data", str(folder / "data"), "--groups", "1", "--budget", "2", "--jobs", "1", "--low", ONE_SCALE)
    assert run("search", str(folder / "yolo.onnx"), *arguments, "--metric", "detection") == 0
    said = capsys.readouterr().out
    assert "alarm" in said
    assert "2 of 2 mixes are out, whatever their quality" in " ".join(said.split())


def test_optimize_never_recommends_an_alarm(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = OptimizeRequest(str(folder / "data"), budget=2, groups=1, samples=4, low=ONE_SCALE, high="w8a16")
    found = optimize(folder / "yolo.onnx", tmp_path / "out", request)
    assert not found.recommendation.recommended
    assert found.compiled is None
    assert not (tmp_path / "out" / "yolo.qdq.onnx").exists()
    assert (tmp_path / "out" / "yolo.unusable.onnx").exists()
    said = found.to_json()
    assert said["recommended"] is None
    assert said["not_recommended"]["kind"] == "none"
    assert said["decisions"]["verdict"] == "unusable"
    print_optimized(console(), found)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("NOT RECOMMENDED: Nothing is recommended: all 2 mixes have lost an output")
    shown = content(optimized_page(found))
    assert shown["lead"][0]["title"] == "Not recommended"
    usable = optimize(folder / "yolo.onnx", tmp_path / "out", OptimizeRequest(
        str(folder / "data"), budget=2, groups=1, samples=4, low="w8a8", high="w8a16", metric="detection"))  # fmt: skip
    assert usable.recommendation.recommended
    assert (usable.metric, usable.float_score, usable.score) == ("detection", 1.0, 1.0)
    assert not (tmp_path / "out" / "yolo.unusable.onnx").exists()


def test_eval_compares_decisions_with_a_reference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--data", str(folder / "data"), "--reference", str(folder / "yolo.onnx"))
    assert run("eval", str(folder / "dead.onnx"), *arguments, "--metric", "decisions") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "decisions unusable" in said
    assert "ALARM" in said
    assert "dB SQNR against" in said
    assert run("eval", str(folder / "alive.onnx"), *arguments, "--metric", "detection", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["metric"], found["score"]) == ("detection", 1.0)
    assert found["decisions"]["alarms"] == []
    beside = evaluate(
        folder / "alive.onnx", str(folder / "data"), metric=lambda outputs, label: 1.0, reference=folder / "yolo.onnx"
    )
    assert beside.decisions is not None
    assert (beside.score, beside.decisions.agreement) == (1.0, 1.0)
    with pytest.raises(CallError, match=r"name it, as in detection:FLOAT\.onnx"):
        evaluate(folder / "alive.onnx", str(folder / "data"), metric="detection")


@pytest.mark.parametrize("metric", ["detection", "sqnr"])
def test_eval_draws_the_worst_sample_as_compare_does(folder: Path, tmp_path: Path, metric: str) -> None:
    arguments = ("--data", str(folder / "data"), "--reference", str(folder / "yolo.onnx"), "--metric", metric)
    assert run("eval", str(folder / "dead.onnx"), *arguments, "--report", str(tmp_path / "eval.html")) == 0
    lead = content((tmp_path / "eval.html").read_text("utf-8"))["lead"]
    assert [section["title"] for section in lead[:2]] == ["Decisions", "Score"]
    compared = hexforge.compare(folder / "yolo.onnx", folder / "dead.onnx", str(folder / "data"))
    (expected,) = [s for s in quality_sections(compared) if s.title == "Decisions"]
    by_compare = content(page(hexforge.estimate(folder / "dead.onnx"), lead=[expected]))["lead"][0]
    drawn, as_there = (
        next(part for part in section["parts"] if part["draw"] == "pictures") for section in (lead[0], by_compare)
    )
    assert drawn == as_there
    assert drawn["pictures"][0]["png"] != drawn["pictures"][1]["png"]


def test_what_was_chosen_travels_to_other_processes(folder: Path) -> None:
    metric = DecisionAgreement.of("decisions", folder / "yolo.onnx")
    first, second = pictures(2)
    metric.prepare(first)
    there = pickle.loads(pickle.dumps(metric))  # as `spread` sends it
    assert there.judge.measures == metric.judge.measures
    outputs = {"output0": np.zeros((1, 7, 64), np.float32)}
    measured = pickle.loads(pickle.dumps(there.measure(second, outputs, None)))
    metric.update(measured, None)
    assert metric.result() == 0
    assert [alarm.kind for alarm in metric.decisions().alarms] == ["constant"]


def test_the_gate_fails_on_an_alarm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = folder / "budget.yaml"
    limits = {"reference": "yolo.onnx", "data": "data"}
    items = [
        {"model": "dead.onnx", "sqnr_db": limits | {"at_least": 30}},
        {"model": "alive.onnx", "sqnr_db": limits | {"at_least": 30}, "decisions": limits},
    ]
    budget.write_text(yaml.safe_dump({"models": items}))
    assert run("gate", str(budget), "--json") == 1
    checks = {(c["model"], c["what"]): c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["dead.onnx", "sqnr_db"]["passes"]  # which sees nothing of it
    assert not checks["dead.onnx", "alarms"]["passes"]
    assert "are 0 in all samples" in checks["dead.onnx", "alarms"]["fault"]
    assert checks["alive.onnx", "alarms"]["passes"]
    assert checks["alive.onnx", "detection agreement"]["value"] == 1
    assert run("gate", str(budget), "--json", "--metric", "embedding") == 1
    assert "embedding agreement" in capsys.readouterr().out


def test_a_mix_that_decides_well_is_not_poor_whatever_its_decibels() -> None:
    """A face detector at 14.8 dB whose decisions did not change was called unusable."""
    found = searched([(1.0, 12.0), (2.0, 14.8)])
    assert recommend(found).kind == "poor"
    points = found.mixes.points
    found.mixes.points = {c: Point(c, p.quality, p.latency_ms, 1.0) for c, p in points.items()}
    assert recommend(found).kind != "poor"
    assert "decisions 100 %" in recommend(found).reason
    found.mixes.points = {c: Point(c, 60.0, p.latency_ms, 0.5) for c, p in points.items()}
    assert recommend(found).kind == "poor"


@pytest.mark.parametrize(("agreement", "said"), [(0.97, ""), (0.9, "usable, not good"), (0.5, "too seldom")])
def test_a_recommendation_says_where_its_decisions_are_not_good(agreement: float, said: str) -> None:
    choice = recommend(searched([(1.0, 45.0), (2.0, 50.0)]))
    part = OutputDecisions("detection", ("y",), agreement, {}, (agreement,))
    found = confirmed(choice, Decisions((part,), (), (), 4, 45.0))
    assert (found.reason == choice.reason) == (not said)
    assert said in found.reason


def test_alarmed_points_are_on_no_front() -> None:
    seen = SearchPoints(1)
    seen.points = {
        frozenset(): Point(frozenset(), 50.0, 1.0, 1.0, ("dead",)),
        frozenset([0]): Point(frozenset([0]), 40.0, 2.0, 1.0),
    }
    assert [p.latency_ms for p in seen.front()] == [2.0]
    best = seen.best(30)
    assert best is not None
    assert best.latency_ms == 2.0


def test_of_a_front_those_count_that_decide_well() -> None:
    def point(ms: float, quality: float, agreement: float) -> Point:
        return Point(frozenset([int(ms)]), quality, ms, agreement)

    front = [point(1, 30, 0.7), point(2, 40, 0.99), point(3, 50, 1.0)]
    assert [p.latency_ms for p in deciding_well(front)] == [2, 3]
    nearly = [point(1, 30, 0.945), point(2, 40, 0.96)]  # no less than good where there is a good one
    assert [p.latency_ms for p in deciding_well(nearly)] == [2]
    assert [p.latency_ms for p in deciding_well([point(1, 30, 0.93), point(2, 40, 0.945)])] == [1, 2]
    unknown = [Point(frozenset([i]), 30.0 + i, 1.0 + i) for i in range(3)]
    assert deciding_well(unknown) == unknown
    assert math.isnan(unknown[0].agreement)


def test_a_mix_whose_outputs_are_no_numbers_is_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> object:
        return lambda feeds: {"output0": np.full((1, 7, 64), np.nan, np.float32)}

    monkeypatch.setattr("hexforge.addons.tuning.search.runner_of_parts", broken)
    found = mixes(folder, "w8a8")
    assert found.best is None
    assert "are no finite numbers" in found.reason
