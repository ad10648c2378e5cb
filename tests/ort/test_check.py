# SPDX-License-Identifier: Apache-2.0
"""`hexforge.check` says as data what `hexforge check` prints and what a session does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.cli import main
from hexforge.demo import MODEL
from hexforge.errors import CallError
from tests.ort.models import FLOAT, model, node


def test_it_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["check", str(MODEL), "--soc", "Galaxy S24", "--json"])
    assert end.value.code in (None, 0)
    assert hexforge.check(MODEL, "Galaxy S24").to_json() == json.loads(capsys.readouterr().out)


def test_it_is_where_a_session_runs_the_nodes() -> None:
    session = hexforge.InferenceSession(str(MODEL), providers=[("QNNExecutionProvider", {"soc_model": "SM8650"})])
    checked = hexforge.check(MODEL, "SM8650")
    assert [(n.node, n.runs_on) for n in checked.nodes] == [(row.node, row.where) for row in session.placements]
    assert checked.refused == ()
    assert checked.backend == {"backend_type": "htp", "soc_model": "SM8650"}


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"], name="relu"), node("Det", ["a"], ["y"], name="det")]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(nodes, {"x": (FLOAT, [1, 3, 3])}, {"y": (FLOAT, [1])}))
    checked = hexforge.check(path)
    assert [n.node for n in checked.refused] == ["det"]
    assert checked.refused[0].reason
    assert checked.totals["refused"] == 1


def test_sizes_and_constants_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    add = node("Add", ["x", "c"], ["y"], name="add")
    path.write_bytes(model([add], {"x": (FLOAT, ["n", 3]), "c": (FLOAT, [3])}, {"y": (FLOAT, ["n", 3])}))
    cpu = {"backend_type": "cpu"}
    with pytest.raises(CallError, match="dimension 0"):
        hexforge.check(path, options=cpu)
    checked = hexforge.check(path, options=cpu, dims={"n": 2}, constants={"c": np.ones(3, np.float32)})
    assert [n.qnn_ops for n in checked.nodes] == [("ElementWiseAdd",)]
    assert checked.ep_version is None
