# SPDX-License-Identifier: Apache-2.0
"""The public call: `benchmarks.latency` times by it alone, fits predict what it gives, README quotes the results."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest

import hexforge
from benchmarks.latency import public_call
from benchmarks.latency.__main__ import RESULTS
from hexforge.addons.latency.cost_file import digest_of, fit_of, text_of
from hexforge.addons.latency.fitting import BASE, FitProblem
from hexforge.addons.latency.measurements import DATA, MEASURED_PRECISIONS, Measurement, read_families
from hexforge.addons.latency.tiled_graphs import TiledGraphs
from hexforge.backends.htp.time import cost
from hexforge.chips.deployment import Deployment
from hexforge.errors import FormatError
from tests import ROOT

MODELS = ("squeezenet1_1", "mobile_facenet", "minilm_v2", "face_det_lite", "yolov4")
RUNTIMES = ("qnn_dlc", "onnx", "tflite")


def figure(part: str, precision: str, name: str) -> str:
    """A figure of the results in percent, as the documents have it."""
    return f"{100 * json.loads(RESULTS.read_text())[part]['qnn_dlc'][precision][name]:.1f}"


def test_a_fit_predicts_what_the_public_call_gives() -> None:
    cells = [(m, p, r, c) for m in MODELS for p in MEASURED_PRECISIONS for r in RUNTIMES for c in (BASE[0], BASE[3])]
    rows = [Measurement(m, p, r, f"device {c}", c, 1.0) for m, p, r, c in cells]
    problem = FitProblem(TiledGraphs(DATA), rows, read_families())
    fast = np.exp(problem.predict(fit_of(cost.fitted()), np.arange(len(rows))))
    asked = [Deployment(row.chip, row.precision, row.runtime) for row in rows]
    for model in MODELS:
        here = [i for i, row in enumerate(rows) if row.model == model]
        estimates = hexforge.estimates(DATA / "topologies" / f"{model}.onnx", [asked[i] for i in here])
        for i, one in zip(here, estimates, strict=True):
            assert isinstance(one, hexforge.Estimate)
            # the compiler may leave a part of VTCM, which a fit does not try
            assert one.latency_ms * 1e3 == pytest.approx(fast[i], rel=5e-3), asked[i]


def test_the_benchmark_predicts_rows_by_the_public_call_and_a_fold_by_its_own_costs(tmp_path: Path) -> None:
    slow = {**cost.fitted(), "parameters": {**cost.fitted()["parameters"], "host.call": 5000.0}}
    file = tmp_path / "slow.json"
    file.write_text(text_of(slow))
    row = Measurement("squeezenet1_1", "w8a8", "onnx", "a device", "SM8650", 1.0)
    path = DATA / "topologies" / "squeezenet1_1.onnx"
    (predicted,) = public_call._predict_model((path, [(7, row, str(file), "a fold")]))
    one = hexforge.estimate(path, Deployment("SM8650", "w8a8", "onnx", cost_file=str(file)))
    assert predicted == public_call.PredictedRow(7, one.latency_ms * 1e3, one.band, "a fold")
    assert one.latency_ms > 4 > hexforge.estimate(path, Deployment("SM8650", "w8a8", "onnx")).latency_ms
    calls = ast.walk(ast.parse(Path(public_call.__file__).read_text()))
    modules = {node.module for node in calls if isinstance(node, ast.ImportFrom) and node.module}
    timed_elsewhere = ("hexforge.backends", "hexforge.analysis", "hexforge.runtime")
    assert not [name for name in modules if name.startswith(timed_elsewhere)]


def test_a_file_that_holds_no_costs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    for text, why in (("{", "is no file of costs"), ('{"parameters": {}}', "has no chips")):
        file.write_text(text)
        with pytest.raises(FormatError, match=why):
            cost.fitted.__wrapped__(str(file))


def test_results_are_of_the_measurements_that_are_here() -> None:
    assert json.loads(RESULTS.read_text())["data"]["sha256"] == digest_of(DATA)


@pytest.mark.parametrize("name", ["README.md", "docs/time.md", "docs/figures.md"])
def test_documents_have_the_figures_that_the_benchmark_wrote_last(name: str) -> None:
    text = (ROOT / name).read_text()
    for precision in MEASURED_PRECISIONS:
        assert f"{figure('families', precision, 'median')} %" in text, precision
    if name != "README.md":
        for part in ("families", "boosted"):
            for precision in MEASURED_PRECISIONS:
                assert figure(part, precision, "mean") in text, (part, precision)
