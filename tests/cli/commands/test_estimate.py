# SPDX-License-Identifier: Apache-2.0
"""`hexforge estimate`: a number, a table, JSON, a trace, and clear refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import hexforge
from hexforge.chips.deployment import Deployment
from hexforge.cli.commands.estimate import estimate
from hexforge.cli.request_options import CommandGroup
from hexforge.errors import CallError, HexforgeError, UnsupportedError

app = CommandGroup()
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
    model = saved(tmp_path / "m.onnx")
    with pytest.raises(CallError, match="not a known chip"):
        hexforge.estimate(model, Deployment("SM9999", "w8a8"))
    with pytest.raises(UnsupportedError, match=r"QCS6490 .* has no float math"):
        hexforge.estimate(model, "QCS6490")
    (left,) = hexforge.estimate(saved(tmp_path / "d.onnx", "Det")).left_on_cpu
    assert left.op_type == "Det"
    for wrong in (0, 1.5, "2"):
        with pytest.raises(CallError, match="both are at least 1"):
            hexforge.estimate(model, batch=wrong)  # type: ignore[arg-type]
    with pytest.raises(CallError, match=r"config is a hexforge\.GraphConfig"):
        hexforge.estimate(model, Deployment(config={"vtcm_mb": 1}))  # type: ignore[arg-type]
    with pytest.raises(CallError, match=r"precision 'int8' is not known.*as-is"):
        hexforge.estimate(model, Deployment(precision="int8"))


def refused(*arguments: str | Path) -> str:
    """What the command says no with."""
    with pytest.raises(HexforgeError) as said:
        CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    return str(said.value)


def test_a_refusal_leaves_files_as_they_are(tmp_path: Path) -> None:
    model, page = saved(tmp_path / "m.onnx"), tmp_path / "page.html"
    before = model.read_bytes()
    assert "files of their own" in refused(model, "--report", model)
    assert "files of their own" in refused(model, "--trace", tmp_path / "." / "m.onnx")
    assert "files of their own" in refused(model, "--trace", page, "--report", page)
    assert "name them with --co-running" in refused(model, "--priority", "high")
    assert "there are none; quantize first" in refused(model, "--weights-packing", "--precision", "w8a8")
    assert "one chip" in refused(model, "--soc", "all", "--report", page)
    assert "cannot be written" in refused(model, "--trace", tmp_path / "none" / "t.json")
    assert model.read_bytes() == before
    assert not page.exists()


def test_what_some_chips_cannot_do_does_not_hide_the_others(tmp_path: Path) -> None:
    model = saved(tmp_path / "m.onnx")
    flags = ["--soc", "all", "--precision", "w8a8", "--json"]
    said = json.loads(CliRunner().invoke(app, [str(model), *flags, "--vtcm-mb", "8"]).stdout)
    assert "has 2 MB" in said["refused"]["QCS6490"]
    assert said["latency_ms"]["SM8650"] > 0
    assert "runtime 'trt' is not known" in refused(model, *flags, "--runtime", "trt")
    assert "99 MB of VTCM" in refused(model, *flags, "--vtcm-mb", "99")


def test_the_page_compares_chips(tmp_path: Path) -> None:
    model, page = saved(tmp_path / "m.onnx"), tmp_path / "page.html"
    done = CliRunner().invoke(app, [str(model), "--report", str(page)])
    assert done.exit_code == 0, done.output
    assert '"title":"Chips"' in page.read_text()


def test_python_and_the_command_say_the_same(tmp_path: Path) -> None:
    model, trace = saved(tmp_path / "m.onnx"), tmp_path / "t.json.gz"
    flags = [
        "--soc",
        "SM8850",
        "--precision",
        "w8a8",
        "--runtime",
        "onnx",
        "--performance-mode",
        "balanced",
        "--batch",
        "2",
    ]
    flags += ["--vtcm-mb", "2", "--hvx-threads", "2", "--threads", "2", "--trace", str(trace), "--json"]
    done = CliRunner().invoke(app, [str(model), *flags])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    config, power = hexforge.GraphConfig(vtcm_mb=2, num_hvx_threads=2), hexforge.Power("balanced")
    found = hexforge.estimate(model, Deployment("SM8850", "w8a8", "onnx", config, power), batch=2, threads=2)
    as_built = hexforge.estimate(
        model, Deployment("SM8850", "w8a8", "onnx", config, power), batch=2, threads=2, built=True
    )
    assert said.pop("built_ms") == round(as_built.latency_ms, 4)
    assert said == json.loads(json.dumps(found.to_json()))
    assert said["latency_ms"] == pytest.approx(found.latency_ms, abs=1e-4)
    assert len(found.rows) == len(said["ops"])
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes >= {"HMX", "HVX", "DMA", "host", "critical path"}


def said_idle(model: Path, *options: str) -> list[str]:
    done = CliRunner().invoke(app, [str(model), "--json", *options])
    assert done.exit_code == 0, done.output
    found: list[str] = json.loads(done.stdout).get("without_effect", [])
    return found


@pytest.mark.feature("VTCM in MB", guide="472-481", door="tools")
@pytest.mark.feature("Optimization level", guide="456-462, 523, 1234-1238", door="tools")
def test_an_option_that_changes_no_time_says_so_and_why(tmp_path: Path) -> None:
    """Each line is found by timing the model without the option: one that acts has none."""
    small = saved(tmp_path / "m.onnx")
    said = said_idle(small, "--precision", "w8a8", "--vtcm-mb", "4", "--optimization", "3", "--hvx-threads", "1")
    assert [line.partition(" ")[0] for line in said] == ["--optimization", "--vtcm-mb"]
    assert "nothing moves for want of it" in said[1]
    assert not said_idle(small, "--precision", "w8a8", "--optimization", "2")  # which is the default
    assert not said_idle(small, "--precision", "w8a8", "--hvx-threads", "1")
    shown = CliRunner().invoke(app, [str(small), "--precision", "w8a8", "--vtcm-mb", "4"])
    assert "--vtcm-mb changes no time" in shown.stderr
    assert "changes no time" not in shown.stdout


@pytest.mark.feature("Fold ReLU off", guide="483-489", door="tools")
def test_fold_relu_off_acts_on_activations_that_are_there_and_says_where_there_are_none(tmp_path: Path) -> None:
    model, made = saved(tmp_path / "m.onnx"), tmp_path / "q.onnx"
    assert not said_idle(model, "--precision", "w8a8", "--fold-relu-off")
    hexforge.quantize(model, "random:2", "w8a8", made)
    (said,) = said_idle(made, "--fold-relu-off")
    assert said.startswith("--fold-relu-off changes no time: no activation follows a convolution")
