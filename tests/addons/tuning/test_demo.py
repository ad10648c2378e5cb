# SPDX-License-Identifier: Apache-2.0
"""The demo: its model gains what it says, the page shows a clear trade-off, and what ships is small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hexforge import demo
from hexforge.addons.tuning import demo_command as command
from hexforge.analysis.quality.picture_metrics import psnr_db
from tests.cli.test_cli import run
from tests.report.test_page import content


def test_what_ships_is_small() -> None:
    assert demo.MODEL.stat().st_size < 400_000
    assert sum(path.stat().st_size for path in demo.MODEL.parent.iterdir() if path.is_file()) < 1_000_000
    shots, wanted = demo.held_out()
    assert {shot.shape for shot in (*shots, *wanted, *demo.calibration())} == {(1, 3, 256, 256)}
    again, _ = demo.held_out()
    np.testing.assert_array_equal(shots[0], again[0])
    assert float(np.concatenate(shots).max()) < 0.3  # a short exposure
    assert all(psnr_db(demo.amplified(s), w, 1) < 27 for s, w in zip(shots, wanted, strict=True))


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "BUDGET", 3)  # both precisions throughout, and the first layers at the higher one
    assert run("demo") == 0
    out = capsys.readouterr().out
    assert "night.onnx: runs whole on the NPU" in out
    assert "7.2 dB gained" in out
    assert "htp backend" in out
    folder = tmp_path / "hexforge-demo"
    assert {p.name for p in folder.iterdir()} >= {"night.qdq.onnx", "night.bin", "night.float.onnx", "report.html"}
    assert "hexforge-demo/report.html" in out
    said = json.loads((folder / "result.json").read_text())
    assert said["speedup"] > 2
    assert said["float_score"] == pytest.approx(31.03, abs=0.05)
    assert said["float_score"] - said["score"] < 0.1
    fastest = next(p for p in said["search"]["points"] if not p["high"])
    assert said["score"] - fastest["quality"] > 5  # what eight bits throughout lose
    page = content((folder / "report.html").read_text())
    titles = [section["title"] for section in page["lead"]]
    assert titles == ["Recommendation", "Decisions", "Before and after", "Speed and quality", "What to change", "Files"]
    first, second = page["lead"][2]["parts"]
    assert [len(part["pictures"]) for part in (first, second)] == [3, 4]
    assert {"Placement", "Chips"} <= {section["title"] for section in page["sections"]}
    bars = page["lead"][0]["parts"][1]
    assert [label.split(",")[0] for label in bars["labels"]] == [
        "float",
        "w8a16_channel",
        "recommended",
        "w8a8_channel",
    ]
    assert bars["values"] == sorted(bars["values"], reverse=True)
    assert "float" in [series["name"] for series in page["lead"][3]["parts"][0]["series"]]


def test_demo_without_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("demo", "--no-files") == 0
    assert "▀" in capsys.readouterr().out  # the pictures, on a terminal with colours
    assert not list(tmp_path.iterdir())
