# SPDX-License-Identifier: Apache-2.0
"""`hexforge profile` writes every file of a profile; bad arguments are one message and leave nothing behind."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import jsonschema
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from hexforge.addons.profiler import log
from hexforge.addons.profiler.profile_text import parse, parse_all
from hexforge.cli import app
from hexforge.errors import HexforgeError
from tests.addons.profiler.test_linting import check_invariants
from tests.addons.profiler.test_views import check_netron
from tests.addons.profiler.traces import check_trace
from tests.models import showcase


@pytest.fixture
def models(tmp_path: Path) -> Path:
    before, after = showcase.sub(64)
    (tmp_path / "before.onnx").write_bytes(before)
    (tmp_path / "after.onnx").write_bytes(after)
    return tmp_path


def profile(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["profile", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.feature("Showcase models 1-3", guide="1809-2379", door="tools")
@pytest.mark.feature("Netron JSON", guide="2537-2551", door="tools")
def test_every_file(models: Path) -> None:
    out = models / "out"
    said = profile(str(models / "before.onnx"), "--soc", "SM8650", "-o", str(out), "--flows")
    assert "ElementWiseSubtract" in said
    names = {path.name for path in out.iterdir()}
    assert names == {
        "qnn-profiling-data_0.log", "profile.txt", "before_schematic.bin", "chrometrace.json", "chrometrace_htp.json",
        "chrometrace_qnn_htp_analysis_summary.html", "before_qnn_htp_analysis_summary.json", "qhas_schema.json",
    }  # fmt: skip
    report = parse((out / "profile.txt").read_text())
    check_invariants(report)
    summary = json.loads((out / "before_qnn_htp_analysis_summary.json").read_text())
    jsonschema.validate(summary, json.loads((out / "qhas_schema.json").read_text()))
    assert {r["qnn_op"]: r["cycles"] for r in summary["qnn_ops"]} == {op.label: op.cycles for op in report.ops}
    assert check_trace(json.loads((out / "chrometrace.json").read_text()))["s"]
    check_netron(json.loads((out / "chrometrace_htp.json").read_text()))
    page = (out / "chrometrace_qnn_htp_analysis_summary.html").read_text()
    assert "Sub of two branches becomes a convolution" in page


def test_a_log_again_and_compared(models: Path) -> None:
    first, second = models / "one", models / "two"
    profile(str(models / "before.onnx"), "-o", str(first), "--no-advise", "--level", "linting")
    profile(str(models / "after.onnx"), "-o", str(second), "--no-advise", "--compare",
            str(first / "qnn-profiling-data_0.log"))  # fmt: skip
    page = (second / "chrometrace_qnn_htp_analysis_summary.html").read_text()
    assert "Before and after" in page
    third = models / "three"
    profile(str(first / "qnn-profiling-data_0.log"), "-o", str(third))
    for name in ("profile.txt", "qnn-profiling-data_0.log"):
        assert (third / name).read_bytes() == (first / name).read_bytes()


def test_says_what_is_not_in_it(models: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="a,\n1"), helper.make_node("Det", ["a"], ["d"], name="det"),
             helper.make_node("Sigmoid", ["d"], ["y"], name="s")]  # fmt: skip
    made = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 10
    onnx.save(made, models / "mixed.onnx")
    assert "not in it: 1 node" in profile(str(models / "mixed.onnx"), "-o", str(models / "out"))
    found = log.read(models / "out" / "qnn-profiling-data_0.log")
    assert (found.left_out, len(found.graphs)) == (1, 2)
    for report in parse_all((models / "out" / "profile.txt").read_text()):
        check_invariants(report)
    check_trace(json.loads((models / "out" / "chrometrace.json").read_text()))


def test_zoomed(models: Path) -> None:
    out = models / "out"
    profile(
        str(models / "before.onnx"), "-o", str(out), "--no-advise", "--zoom-start", "convLeft1", "--zoom-end", "sub"
    )
    found = log.read(out / "qnn-profiling-data_0.log")
    assert not any("Right" in op.name for op in found.graphs[0].ops)


def test_measured_here(models: Path) -> None:
    out = models / "out"
    said = profile(str(models / "before.onnx"), "-o", str(out), "--measure", "cpu", "--runs", "2")
    assert "measured" in said
    found = log.read(out / "qnn-profiling-data_0.log")
    assert (found.source, len(found.graphs[0].runs)) == ("measured", 2)
    check_trace(json.loads((out / "chrometrace.json").read_text()))


@pytest.mark.feature("Runtrace", guide="2583-2593", door="tools")
@pytest.mark.feature("Yielding and pre-emption", guide="2696-2698", door="tools")
def test_co_running_and_gzip(models: Path) -> None:
    out = models / "out"
    (models / "large.onnx").write_bytes(showcase.div(256)[0])
    other = f"{models / 'after.onnx'}:high"
    profile(
        str(models / "large.onnx"), "-o", str(out), "--no-advise", "--co-running", other, "--priority", "low", "--gzip"
    )
    trace = json.loads(gzip.decompress((out / "chrometrace.json.gz").read_bytes()))
    lanes = {e["args"]["name"] for e in check_trace(trace)["M"] if e["name"] == "thread_name"}
    assert {"large Runtraces", "large Yields", "after Runtraces"} <= lanes


def test_a_context(models: Path) -> None:
    CliRunner().invoke(
        app,
        ["compile", str(models / "before.onnx"), "-o", str(models / "c.bin"), "--soc", "SM8650"],
        catch_exceptions=False,
    )
    profile(str(models / "c.bin"), "-o", str(models / "out"))
    graph = log.read(models / "out" / "qnn-profiling-data_0.log").graphs[0]
    assert {"sub"} <= {s for op in graph.ops for s in op.sources}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--level", "lintin"], "did you mean 'linting'"),
        (["--priority", "high"], "--co-running"),
        (["--zoom-start", "convLeft"], "did you mean"),
        (["--measure", "cpu", "--co-running", "x"], "simulated"),
        (["--co-running", "nowhere.onnx"], "no such file"),
        (["--soc", "SM1"], "SM1"),
    ],
)
def test_refusals(models: Path, arguments: list[str], says: str) -> None:
    out = models / "out"
    with pytest.raises(HexforgeError, match=says):
        CliRunner().invoke(
            app, ["profile", str(models / "before.onnx"), "-o", str(out), *arguments], catch_exceptions=False
        )
    assert not out.exists()
