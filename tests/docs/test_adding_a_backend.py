# SPDX-License-Identifier: Apache-2.0
"""The backend of docs/adding_a_backend.md, word by word: it runs, is checked, saved and timed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model
from typer.testing import CliRunner

import hexforge
from hexforge.cli import app
from hexforge.runtime import registry
from tests import ROOT

PAGE = (ROOT / "docs" / "adding_a_backend.md").read_text(encoding="utf-8")
WEIGHTS = (np.arange(32, dtype=np.float32) - 15).reshape(8, 4)


def blocks(language: str) -> list[str]:
    """The blocks of code of the page in one language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the code of the page has left behind, run from top to bottom beside a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
        helper.make_node("Relu", ["product"], ["y"], "relu"),
    ]
    _save(nodes, [numpy_helper.from_array(WEIGHTS, "w")], "model.onnx")
    scale, zero = (
        numpy_helper.from_array(np.array(0.1, np.float32), "scale"),
        numpy_helper.from_array(np.array(128, np.uint8), "zero"),
    )
    halves = [
        helper.make_node(kind, [source, "scale", "zero"], [target], f"{kind}_{target}")
        for kind, source, target in (
            ("QuantizeLinear", "x", "xq"),
            ("DequantizeLinear", "xq", "xd"),
            ("QuantizeLinear", "r", "rq"),
            ("DequantizeLinear", "rq", "y"),
        )
    ]
    _save(
        [*halves[:2], helper.make_node("Relu", ["xd"], ["r"], "relu"), *halves[2:]], [scale, zero], "quantized.onnx", 8
    )
    left: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "adding_a_backend.md", "exec"), left)
    return left


def _save(nodes: list[Any], constants: list[Any], name: str, width: int = 4) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, width))
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name)


def test_the_backend_is_short() -> None:
    assert len(blocks("python")[0].splitlines()) < 100


def test_it_runs_and_a_context_gives_the_same(names: dict[str, Any]) -> None:
    expected = np.maximum(np.ones((1, 8), np.float32) @ WEIGHTS, 0)
    assert np.array_equal(names["outputs"][0], expected)
    (again,) = names["again"].values()
    assert np.array_equal(again, expected)
    assert type(names["program"]).__name__ == "PlainProgram"
    assert {row.where for row in names["session"].placements} == {"QNNExecutionProvider"}


def test_it_is_timed(names: dict[str, Any]) -> None:
    estimate = names["estimate"]
    assert (estimate.soc, estimate.deployment.backend) == ("plain-1", "plain")
    us = [10 + (32 + 128 + 16) / 4096, 10 + (16 + 16) / 4096]
    assert [row.us for row in estimate.rows] == pytest.approx(us)
    assert estimate.latency_ms == pytest.approx((sum(us) + 50) / 1e3)
    assert json.dumps(estimate.to_json())
    with pytest.raises(hexforge.CallError, match="'SM8650' is no chip of the plain backend; it has plain-1"):
        hexforge.estimate("model.onnx", hexforge.Deployment(backend="plain"))
    with pytest.raises(hexforge.UnsupportedError, match="the cpu backend does not say how long a graph takes"):
        hexforge.estimate("model.onnx", hexforge.Deployment(backend="cpu"))


def test_it_is_checked(names: dict[str, Any]) -> None:
    lines = [line.removeprefix("$ hexforge ") for block in blocks("console") for line in block.splitlines()]
    whole, refused = (CliRunner().invoke(app, [*shlex.split(line), "--json"]) for line in lines)
    assert (whole.exit_code, refused.exit_code) == (0, 0), (whole.output, refused.output)
    assert json.loads(whole.stdout)["totals"]["placed"] == 2
    reasons = {row["reason"] for row in json.loads(refused.stdout)["nodes"] if row["op"] == "Relu"}
    assert reasons == {"Relu: tensor 'xq' is quantized; the plain backend takes float32"}


def test_a_name_is_given_once(names: dict[str, Any]) -> None:
    for name in ("plain", "htp", "genie"):
        with pytest.raises(hexforge.CallError, match=f"there is a backend '{name}' already"):
            hexforge.register_backend(name, names["PlainBackend"])
    with pytest.raises(hexforge.CallError, match="did you mean 'plain'"):
        registry.backend("plane")
