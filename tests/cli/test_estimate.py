"""`hexforge estimate`: a number, a table, JSON, a trace, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from hexforge.cli.estimate import estimate, estimated, graph_of
from hexforge.errors import CallError, UnsupportedError

app = typer.Typer()
app.command()(estimate)


def saved(path: Path, op: str = "Relu") -> Path:
    weight = numpy_helper.from_array(np.ones((16, 3, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node(op, ["c"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 32, 32])
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight]), ir_version=9)
    model.opset_import[0].version = 17
    onnx.save(model, path)
    return path


def test_json_has_the_latency_at_its_top_and_the_trace_is_written(tmp_path: Path) -> None:
    model, trace = saved(tmp_path / "m.onnx"), tmp_path / "t.json"
    done = CliRunner().invoke(app, [str(model), "--precision", "w8a8", "--json", "--trace", str(trace)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["low_ms"] < found["latency_ms"] < found["high_ms"]
    assert found["soc"] == "SM8650"
    assert sum(row["share"] for row in found["ops"]) == pytest.approx(1, abs=1e-3)
    assert json.loads(trace.read_text())["traceEvents"]


def test_table_and_every_chip(tmp_path: Path) -> None:
    model = saved(tmp_path / "m.onnx")
    assert "bound by" in CliRunner().invoke(app, [str(model)]).stdout
    compared = CliRunner().invoke(app, [str(model), "--soc", "all", "--json"])
    chips = json.loads(compared.stdout)["latency_ms"]
    assert chips["SM8750"] < chips["SM8450"]
    assert "QCS6490" not in chips  # it has no float16


def test_refusals_are_clear(tmp_path: Path) -> None:
    graph = graph_of(saved(tmp_path / "m.onnx"))
    with pytest.raises(CallError, match="not a known chip"):
        estimated(graph, "m", "SM9999", "w8a8", "qnn_dlc")
    with pytest.raises(CallError, match="no float16"):
        estimated(graph, "m", "QCS6490", "as-is", "qnn_dlc")
    with pytest.raises(UnsupportedError, match="Det"):
        graph_of(saved(tmp_path / "d.onnx", "Det"))
