# SPDX-License-Identifier: Apache-2.0
"""A budget checked: what is over it fails, what got worse fails, and what cannot be measured fails with a message."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import yaml

from hexforge.addons.budgets import limits as budgets
from hexforge.addons.budgets.gate import GateCheck, gate
from hexforge.analysis.workers import Workers
from hexforge.errors import CallError, FormatError
from tests import ROOT
from tests.cli.test_cli import run

DIGITS = ROOT / "tests" / "digits"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(DIGITS / "digits.onnx", tmp_path / "digits.onnx")
    held = np.load(DIGITS / "digits_heldout.npz")
    np.savez(tmp_path / "held.npz", image=held["pictures"].astype(np.float32)[:60])
    np.save(tmp_path / "labels.npy", held["labels"][:60])
    return tmp_path


def written(folder: Path, **limits: Any) -> Path:
    path = folder / "budget.yaml"
    path.write_text(yaml.safe_dump({"regression_percent": 5, "models": [{"model": "digits.onnx", **limits}]}))
    return path


def test_energy_and_memory_have_budgets(folder: Path) -> None:
    def checks(**limits: float) -> dict[str, bool]:
        return {check.what: not check.fault for check in gate(written(folder, soc="SM8650", **limits)).checks}

    assert not any("energy" in what or "memory" in what for what in checks())
    within, beyond = checks(energy_mj=10.0, memory_mb=100.0), checks(energy_mj=1e-9, memory_mb=1e-9)
    for what in ("energy_mj on SM8650 (assumed)", "memory_mb on SM8650"):
        assert within[what]
        assert not beyond[what]


def test_what_is_within_its_budget_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metric = {"data": "held.npz", "labels": "labels.npy", "at_least": 0.9}
    limits = {"latency_ms": 1.0, "refused_nodes": 0, "ep_refused_nodes": 0, "context_mb": 1, "metric": metric}
    path = written(folder, soc=["SM8650", "SM8750"], **limits)
    assert run("gate", str(path), "--save-baseline", str(folder / "b.json"), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["passes"]
    assert {check["what"] for check in said["checks"]} == {
        "latency_ms on SM8650", "latency_ms on SM8750", "refused_nodes", "ep_refused_nodes", "context_mb",
        "spill_fill_mb", "top1",
    }  # fmt: skip
    assert len(json.loads((folder / "b.json").read_text())["figures"]) == 7


def test_what_is_over_it_fails_in_every_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(folder, latency_ms=0.001)
    files = ("--junit", str(folder / "g.xml"), "--markdown", str(folder / "g.md"))
    assert run("gate", str(path), *files) == 1
    assert "is above the limit 0.001" in " ".join(capsys.readouterr().out.split())
    suite = ET.parse(folder / "g.xml").getroot()[0]
    assert suite.get("failures") == "1"
    assert "**1 of 2 checks fail**" in (folder / "g.md").read_text()


def test_a_regression_fails_without_a_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, base = written(folder), folder / "b.json"
    assert run("gate", str(path), "--save-baseline", str(base)) == 0
    figures = json.loads(base.read_text())["figures"]
    key = "digits.onnx: latency_ms on SM8650"
    base.write_text(json.dumps({"figures": figures | {key: figures[key] * 0.9}}))
    assert run("gate", str(path), "--baseline", str(base)) == 1
    assert "worse than the baseline" in " ".join(capsys.readouterr().out.split())
    base.write_text(json.dumps({"figures": figures | {key: figures[key] * 0.97}}))
    assert run("gate", str(path), "--baseline", str(base)) == 0


def test_what_cannot_be_measured_fails_with_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(folder, sqnr_db={"reference": "absent.onnx", "data": "held.npz", "at_least": 30})
    assert run("gate", str(path)) == 1
    assert "absent.onnx" in capsys.readouterr().out.replace("\n", "")


def test_a_score_that_falls_is_worse() -> None:
    score = GateCheck("m", "top1", 0.80, 0.75, higher_is_better=True, baseline=0.9, regression_percent=5)
    assert "worse than the baseline" in score.fault
    assert not GateCheck("m", "top1", 0.80, 0.75, higher_is_better=True, baseline=0.82, regression_percent=5).fault
    assert "is below the limit" in GateCheck("m", "top1", 0.7, 0.75, higher_is_better=True).fault


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"models": [{"model": "m", "latency": 3}]}, "unknown key; did you mean 'latency_ms'"),
        ({"models": []}, "at least 1"),
        ({"models": [{"model": "m", "latency_ms": {"SM8750": 3}}]}, "which soc does not list"),
        (
            {"models": [{"model": "m", "refused_nodes": -1}]},
            "refused_nodes is -1: expected a whole number of at least 0",
        ),
    ],
)
def test_a_bad_budget_is_said(tmp_path: Path, data: Any, words: str) -> None:
    path = tmp_path / "budget.json"
    path.write_text(json.dumps(data))
    with pytest.raises(CallError, match=words):
        budgets.load(path)


def test_what_is_no_budget(tmp_path: Path) -> None:
    for text in ("- a", "{a: [", "\x00"):
        (tmp_path / "b.yaml").write_text(text)
        with pytest.raises(FormatError):
            budgets.load(tmp_path / "b.yaml")


def test_one_chip_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "budget.yaml"
    path.write_text("models: [{model: m.onnx, soc: SM8550, latency_ms: {SM8550: 1.0}}]")
    assert budgets.load(path).models[0].soc == ["SM8550"]


def open_model(folder: Path) -> None:
    """y = w x for pictures of any size, w an input too."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 1, h, k] x, float[1] w) => (float[n, 1, h, k] y) {
        z = Relu(x) y = Mul(z, w) }"""
    onnx.save(onnx.parser.parse_model(text), folder / "open.onnx")


def test_inputs_are_fixed_and_pictures_are_made_as_the_budget_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_model(folder)
    (folder / "held").mkdir()
    for number in range(3):
        grey = np.full((6, 5), 40 * number, np.uint8)
        pytest.importorskip("PIL.Image").fromarray(grey).save(folder / "held" / f"{number}.png")
    np.save(folder / "w.npy", np.array([3.0], np.float32))
    (folder / "mine.py").write_text("def mean(outputs, label):\n    return float(outputs['y'].mean())\n")
    metric = {"data": "held", "name": str(folder / "mine.py") + ":mean", "at_least": 39.9}
    path = folder / "budget.yaml"

    def checked(**more: Any) -> list[dict[str, Any]]:
        item = {"model": "open.onnx", "metric": metric, "dims": {"n": 1}, "shapes": {"x": [1, 1, 4, 4]}, **more}
        path.write_text(yaml.safe_dump({"models": [item]}))
        run("gate", str(path), "--json")
        checks: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["checks"]
        return checks

    for pin in (3, [3.0], "w.npy"):
        checks = checked(pins={"w": pin}, pictures={"scale": 1 / 3, "mean": 0.0}, context_mb=1)
        assert all(check["passes"] for check in checks), checks
        (score,) = (check for check in checks if "mean" in check["what"])
        assert score["value"] == pytest.approx(40, abs=0.2)
    faults = " ".join(check["fault"] for check in checked(pins={"w": "held/0.png"}))
    assert "pins.w: 'held/0.png': not a .npy file of numbers" in faults
    metric["data"] = "w.npy"
    faults = " ".join(check["fault"] for check in checked(pins={"w": 3}, pictures={"scale": 1.0}))
    assert "w.npy holds none" in faults


def test_several_processes_measure_the_same(folder: Path) -> None:
    shutil.copy(folder / "digits.onnx", folder / "again.onnx")
    data = {"reference": "digits.onnx", "data": "held.npz", "at_least": 10, "limit": 4}
    models = [
        {"model": "digits.onnx", "latency_ms": 10},
        {"model": "again.onnx", "sqnr_db": data, "metric": {"name": "top1", "data": "held.npz", "labels": "labels.npy",
                                                             "at_least": 0.5, "limit": 8}},
        {"model": "damaged.onnx"},
    ]  # fmt: skip
    (folder / "damaged.onnx").write_bytes(b"no model")
    path = folder / "budget.yaml"
    path.write_text(yaml.safe_dump({"models": models}))
    alone = gate(path)
    assert gate(path, workers=Workers(2)) == alone
    assert {check.model for check in alone.checks if check.error} == {"damaged.onnx"}


def test_a_model_that_is_not_there_is_an_error_of_the_call(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "budget.yaml"
    path.write_text(yaml.safe_dump({"models": [{"model": "digits.onnx"}, {"model": "absent.onnx"}]}))
    assert run("gate", str(path)) == 2
    assert "there is no absent.onnx beside it" in " ".join(capsys.readouterr().err.split())


def test_a_model_that_was_renamed_is_not_silently_new(folder: Path) -> None:
    base = folder / "b.json"
    assert run("gate", str(written(folder)), "--save-baseline", str(base)) == 0
    assert gate(written(folder), base).notes == ()
    (folder / "digits.onnx").rename(folder / "numbers.onnx")
    path = folder / "budget.yaml"
    path.write_text(yaml.safe_dump({"models": [{"model": "numbers.onnx"}]}))
    assert run("gate", str(path), "--baseline", str(base), "--json", "--markdown", str(folder / "g.md")) == 0
    assert "was it called 'digits.onnx'?" in (folder / "g.md").read_text()
    new, gone = gate(path, base).notes
    assert new.startswith("numbers.onnx: the baseline has no figures of it")
    assert gone == "digits.onnx: is in the baseline, and the budget does not name it"
