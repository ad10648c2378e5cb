# SPDX-License-Identifier: Apache-2.0
"""Models that run together on one chip, as `hexforge estimate --co-running` says and draws it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.addons.device.scheduling.concurrent import simulate_estimates
from hexforge.errors import CallError
from tests.cli.commands.test_estimate import app, refused, saved


def test_models_share_a_chip_by_priority(tmp_path: Path) -> None:
    model, other = saved(tmp_path / "m.onnx"), saved(tmp_path / "other.onnx", "Sigmoid")
    flags = [str(model), "--priority", "high", "--co-running", f"{other}:low", "--json"]
    done = CliRunner().invoke(app, flags)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    first, second = said["together"]
    assert (first["model"], second["model"]) == ("m", "other")
    assert first["mean_ms"] < second["mean_ms"]
    assert first["mean_ms"] >= said["latency_ms"] - 1e-3
    for more in (["--runtime", "tflite"], ["--runtime", "onnx", "--interval-ms", "20"]):
        said = json.loads(CliRunner().invoke(app, [*flags, *more]).stdout)
        assert said["together"][0]["mean_ms"] >= said["latency_ms"] - 1e-3
    assert said["together"][0]["per_second"] == pytest.approx(50, rel=0.15)  # ten inferences, nine intervals
    trace = tmp_path / "trace.json"
    assert CliRunner().invoke(app, [*flags, "--trace", str(trace)]).exit_code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    lanes = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert lanes >= {(0, "HMX"), (1, "m HTP"), (1, "other HTP"), (1, "m host")}
    runs = {(e["tid"], e["name"]) for e in events if e["pid"] == 1 and e["name"].startswith("run ")}
    assert len(runs) == 2 * 10  # ten inferences of each model
    one = hexforge.estimate(model)
    slower = hexforge.estimate(model, hexforge.Deployment(power=hexforge.Power("balanced")))
    with pytest.raises(CallError, match="share its clocks"):
        simulate_estimates([one, slower])
    with pytest.raises(CallError, match="same one"):
        simulate_estimates([one, hexforge.estimate(other, "SM8550")])
    with pytest.raises(CallError, match="priority 'urgent' is not known"):
        simulate_estimates([one, one], ["urgent"])


def test_priorities_that_there_are_not(tmp_path: Path) -> None:
    model, page = saved(tmp_path / "m.onnx"), tmp_path / "page.html"
    assert "priority 'urgent'" in refused(model, "--co-running", f"{model}:urgent", "--report", page)
    assert "priority ''" in refused(model, "--co-running", f"{model}:", "--report", page)
    assert not page.exists()
