# SPDX-License-Identifier: Apache-2.0
"""Numbers that float16 cannot hold are named before a run, and the first tensor that is not finite after one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import hexforge
from hexforge.analysis.quality.runners import runner
from hexforge.backends.htp.backend import HtpBackend
from hexforge.cli import app
from hexforge.runtime.nonfinite import first_nonfinite
from hexforge.runtime.opening import open_stages


def model(nodes: list[Any], **constants: Any) -> bytes:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (4,)) for n in ("x", "y")]
    held = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def log_of(op: str = "Add", epsilon: float = 1e-12) -> bytes:
    nodes = [
        helper.make_node(op, ["x", "e"], ["safe"], "guard"),
        helper.make_node("Log", ["safe"], ["l"], "log"),
        helper.make_node("Mul", ["l", "k"], ["y"], "scale"),
    ]
    return model(nodes, e=epsilon, k=0.5)


CASES = {
    "an epsilon": (log_of(), "guard", "constant 'e' is 1e-12, which is 0 in float16"),
    "a floor": (log_of("Max"), "guard", "constant 'e' is 1e-12"),
    "a bound": (
        model([helper.make_node("Clip", ["x", "lo"], ["c"], "clip"), helper.make_node("Log", ["c"], ["y"])], lo=1e-12),
        "clip",
        "min_value 1e-12 is 0 in float16",
    ),
    "a mask": (model([helper.make_node("Add", ["x", "m"], ["y"], "mask")], m=-1e9), "mask", "-1e+09, which is -65536"),
}


@pytest.mark.parametrize("name", CASES)
def test_check_names_what_is_unsafe(tmp_path: Path, name: str) -> None:
    made, node, words = CASES[name]
    (tmp_path / "m.onnx").write_bytes(made)
    found = CliRunner().invoke(app, ["check", str(tmp_path / "m.onnx"), "--json"])
    rows = {row["node"]: row["unsafe"] for row in json.loads(found.stdout)["nodes"]}
    assert words in rows.pop(node)[0]
    assert not any(rows.values())
    shown = CliRunner().invoke(app, ["check", str(tmp_path / "m.onnx")]).stdout
    assert "unsafe numbers" in shown


def test_what_float16_holds_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(log_of(epsilon=1e-6))
    found = CliRunner().invoke(app, ["check", str(tmp_path / "m.onnx"), "--json"])
    assert not any(row["unsafe"] for row in json.loads(found.stdout)["nodes"])
    assert not any(
        row["unsafe"]
        for row in json.loads(
            CliRunner().invoke(app, ["check", str(tmp_path / "m.onnx"), "--json", "--backend", "cpu"]).stdout
        )["nodes"]
    )


def test_the_first_tensor_that_is_not_finite() -> None:
    backend = HtpBackend()
    plan, _ = open_stages(log_of(), backend)
    first = first_nonfinite(plan, backend, {"x": np.array([1, 0, 2, 0], np.float32)})
    assert first is not None
    assert first.op == "ElementWiseLog"
    assert "log" in first.nodes
    assert (first.nan, first.infinite, first.beyond, first.elements) == (0, 0, 2, 4)
    assert "2 of 4 past 65504" in str(first)
    assert first_nonfinite(plan, backend, {"x": np.ones(4, np.float32)}) is None
    given = first_nonfinite(plan, backend, {"x": np.array([1, np.nan, 2, 0], np.float32)})
    assert given is not None
    assert given.tensor == "x"


def test_run_and_eval_say_so(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(log_of())
    np.save(tmp_path / "x.npy", np.array([1, 0, 2, 0], np.float32))
    shown = CliRunner().invoke(app, ["run", str(tmp_path / "m.onnx"), "-i", f"x={tmp_path / 'x.npy'}"]).stdout
    assert "numbers past 65504" in shown
    assert "ElementWiseLog" in shown
    run = runner(log_of(), "htp")
    with pytest.warns(UserWarning, match="ElementWiseLog"):
        run({"x": np.array([1, 0, 2, 0], np.float32)})


def test_a_session_notes_that_numbers_overflowed() -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"], "square")]
    session = hexforge.InferenceSession(model(nodes), providers=[("QNNExecutionProvider", {"backend_type": "htp"})])
    for number in (1.0, 255.0):
        session.run(None, {"x": np.full(4, number, np.float32)})
        assert not any("65504" in note for note in session.notes)
    session.run(None, {"x": np.array([1, 256, 2, 3], np.float32)})  # 65536: masks are made of it
    assert not any("65504" in note for note in session.notes)
    session.run(None, {"x": np.array([1, 300, 2, 3], np.float32)})
    assert sum("65504" in note for note in session.notes) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_every_kernel_notices_an_overflow(threads: int) -> None:
    """On every thread, whichever unit rounds: a product, a sum of equal shapes, a convolution, a table, a reduction."""
    large = np.ones((1, 16, 64, 64), np.float32)
    weights = (np.eye(16, dtype=np.float32) * 3)[:, :, None, None]
    graphs = {
        "Mul": ([helper.make_node("Mul", ["x", "x"], ["y"])], {}, 300.0),
        "Add": ([helper.make_node("Add", ["k", "x"], ["y"])], {"k": large * np.float32(3e4)}, 4e4),
        "Conv": ([helper.make_node("Conv", ["x", "w"], ["y"])], {"w": weights}, 3e4),
        "Exp": ([helper.make_node("Exp", ["x"], ["y"])], {}, 11.5),
        "ReduceSum": ([helper.make_node("ReduceSum", ["x"], ["y"])], {}, 10.0),
    }
    for name, (nodes, constants, size) in graphs.items():
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", large.shape), ("y", None))]
        held = [numpy_helper.from_array(a, n) for n, a in constants.items()]
        graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], held)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
        options = hexforge.SessionOptions()
        options.intra_op_num_threads = threads
        provider = ("QNNExecutionProvider", {"backend_type": "htp"})
        session = hexforge.InferenceSession(made, options, providers=[provider])
        session.run(None, {"x": large * np.float32(1e-3)})
        assert not session.notes, name
        session.run(None, {"x": large * np.float32(size)})
        assert any("65504" in note for note in session.notes), name
