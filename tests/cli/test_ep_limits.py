# SPDX-License-Identifier: Apache-2.0
"""The EP's limits where users meet them: rows of a session, the session option, `hexforge check`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import hexforge
import hexforge.ort as ort
from hexforge.cli import app
from hexforge.errors import UnsupportedError
from hexforge.frontends.onnx.ep_limits import EP_VERSION

HTP = ("QNNExecutionProvider", {"backend_type": "htp", "soc_model": "60"})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three nodes, of which the EP refuses the second."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("LpNormalization", ["a"], ["b"], name="second", p=1),
        helper.make_node("Abs", ["b"], ["y"], name="third"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 4, 6)) for name in "xy"]
    graph = helper.make_graph(nodes, "test", values[:1], values[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def session(model: Path, *, provider: tuple[str, dict[str, str]] = HTP, **entries: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return ort.InferenceSession(str(model), options, providers=[provider])


def test_rows_say_what_the_ep_refuses(model: Path) -> None:
    rows = session(model).placements
    assert [bool(row.ep_refuses) for row in rows] == [False, True, False]
    assert [row.reason for row in rows] == [None] * 3
    assert rows[1].ep_refuses.startswith(f"QNN EP {EP_VERSION} refuses it: p other than 2; ")


def test_the_option_leaves_to_the_cpu_what_the_ep_refuses(model: Path) -> None:
    feeds = {"x": np.linspace(0.1, 1, 48, dtype=np.float32).reshape(2, 4, 6)}
    obeying, free = session(model, hexforge__obey_ep_limits="1"), session(model)
    assert [row.where[:3] for row in obeying.placements] == ["QNN", "CPU", "QNN"]
    assert obeying.placements[1].reason == obeying.placements[1].ep_refuses
    np.testing.assert_allclose(obeying.run(None, feeds)[0], free.run(None, feeds)[0], atol=1e-3)


def test_without_fallback_the_option_is_an_error_that_names_the_node(model: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"second.*p other than 2"):
        session(model, hexforge__obey_ep_limits="1", session__disable_cpu_ep_fallback="1")


def test_the_cpu_backend_has_no_limits_of_the_ep(model: Path) -> None:
    rows = session(model, provider=("QNNExecutionProvider", {"backend_type": "cpu"})).placements
    assert not any(row.ep_refuses for row in rows)


def test_check_ends_with_both_verdicts(model: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(model), "--backend", "htp", "--strict"])
    assert said.exit_code == 0, said.output
    assert said.output.startswith("model.onnx: the QNN EP leaves 1 of 3 nodes to the CPU, 1 of which the chip takes\n")
    assert "runs whole on the NPU" not in said.output
    assert f"by the QNN EP {EP_VERSION}: 2 of 3 nodes" in said.output
    assert "not by the EP" in said.output


@pytest.mark.parametrize("chosen", [("--backend", "cpu"), ("--option", "backend_path=libQnnCpu.so")])
def test_check_names_the_backend_where_it_is_no_npu(model: Path, chosen: tuple[str, str]) -> None:
    said = CliRunner().invoke(app, ["check", str(model), *chosen])
    assert said.exit_code == 0, said.output
    assert f"runs whole on the backend {chosen[1].removeprefix('backend_path=')}" in said.output
    assert "NPU" not in said.output


def test_strict_ep_places_as_the_ep_does(model: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(model), "--backend", "htp", "--strict-ep", "--json"])
    assert said.exit_code == 1
    found = json.loads(said.output)
    assert found["ep_version"] == EP_VERSION
    assert found["totals"]["refused"] == found["totals"]["refused_by_ep"] == 1
    assert [bool(row["ep_refuses"]) for row in found["nodes"]] == [False, True, False]
    assert found["nodes"][1]["runs_on"] == "CPUExecutionProvider"


def test_check_of_the_cpu_backend_says_nothing_of_the_ep(model: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(model), "--backend", "cpu"])
    assert said.exit_code == 0, said.output
    assert "QNN EP" not in said.output


def test_an_estimate_says_what_the_ep_leaves_to_the_cpu(model: Path) -> None:
    timed = hexforge.estimate(model)
    assert [row.node for row in timed.ep_refused] == ["second"]
    assert timed.left_on_cpu == ()
    assert str(timed).endswith("the QNN EP leaves 1 of its nodes to the CPU")
    assert [row["node"] for row in timed.to_json()["ep_refused"]] == ["second"]
    said = " ".join(CliRunner().invoke(app, ["estimate", str(model)]).output.split())
    assert f"the QNN EP {EP_VERSION} leaves 1 of its nodes to the CPU: LpNormalization second: QNN EP" in said


def test_check_quantize_and_run_count_one_number_of_nodes_on_the_cpu(tmp_path: Path) -> None:
    """A session quantizes inputs and outputs on the CPU, which is no refusal: it is counted apart."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("LpNormalization", ["a"], ["b"], name="second", p=1),
        helper.make_node("Sigmoid", ["b"], ["y"], name="third"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 4, 6)) for name in "xy"]
    graph = helper.make_graph(nodes, "test", values[:1], values[1:])
    given, made = tmp_path / "model.onnx", tmp_path / "q.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), given)
    quantized = hexforge.quantize(given, "random:4", "w8a8", made)
    strict = hexforge.check(made, strict=True)
    by_ep = {node.unit for node in strict.nodes if node.ep_refuses and node.runs_on == "QNNExecutionProvider"}
    assert len(quantized.ep_refused) == len(by_ep)
    assert len(quantized.refused) == len({node.unit for node in strict.refused}) == 0
    loose = hexforge.check(made)
    run = CliRunner().invoke(app, ["run", str(made)])
    assert run.exit_code == 0, run.output
    assert loose.totals["refused"] == loose.totals["offloaded"]
    assert "nodes on the CPU" not in run.output
    assert f"{loose.totals['offloaded']} more that quantize inputs and outputs there" in " ".join(run.output.split())
