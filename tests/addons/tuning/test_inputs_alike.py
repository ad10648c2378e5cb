# SPDX-License-Identifier: Apache-2.0
"""--dim, --shape and --pin are alike on every command that reads a model, picture options where data is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from typer.testing import CliRunner

from hexforge.cli import app
from tests.cli.test_cli import run

READ_MODELS = (
    "check", "run", "bench", "show", "estimate", "advise", "profile", "compile", "quantize", "compare", "eval",
    "search", "optimize", "fix-shapes",
)  # fmt: skip
READ_PICTURES = ("quantize", "compare", "eval", "search", "optimize")


def options_of(command: str) -> set[str]:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return {word.strip("│,") for word in done.output.split() if word.startswith("--")}


@pytest.mark.parametrize("command", READ_MODELS)
def test_inputs_are_fixed_alike(command: str) -> None:
    assert {"--dim", "--shape", "--pin"} <= options_of(command)


@pytest.mark.parametrize("command", READ_PICTURES)
def test_pictures_are_read_alike(command: str) -> None:
    assert {"--mean", "--std", "--scale", "--layout", "--resize", "--crop"} <= options_of(command)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of a picture and a gain, both of open sizes, and pictures."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Mul", ["x", "gain"], ["m"]),
        helper.make_node("Conv", ["m", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "side", "side"]),
        helper.make_tensor_value_info("gain", TensorProto.FLOAT, ["one"]),
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, "side", "side"])
    graph = helper.make_graph(nodes, "g", infos, [out], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    (tmp_path / "pictures").mkdir()
    for number in range(6):
        Image.fromarray(rng.integers(0, 256, (12, 10, 3), np.uint8)).save(tmp_path / "pictures" / f"{number}.png")
    return tmp_path


FIXED = ("--dim", "side=8", "--pin", "gain=0.5")
PICTURES = ("--mean", "0.5", "--std", "0.25")


def test_a_pinned_input_goes_the_whole_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, quantized, data = str(folder / "m.onnx"), str(folder / "q.onnx"), str(folder / "pictures")
    judged = ("--data", data, *PICTURES)
    assert run("quantize", model, *judged, "-o", quantized, *FIXED, "--json") == 0
    assert [value.name for value in onnx.load(quantized).graph.input] == ["x"]
    capsys.readouterr()
    assert run("compare", model, quantized, *judged, *FIXED, "--json") == 0
    assert json.loads(capsys.readouterr().out)["sqnr_db"] > 25
    (folder / "metric.py").write_text("def largest(outputs, label):\n    return float(outputs['y'].max())\n")
    scores = []
    for gain in ("0.5", "1"):
        pinned = ("--dim", "side=8", "--pin", f"gain={gain}")
        assert run("eval", model, *judged, *pinned, "--metric", f"{folder / 'metric.py'}:largest", "--json") == 0
        scores.append(json.loads(capsys.readouterr().out)["score"])
    assert scores[1] == pytest.approx(2 * scores[0], rel=1e-3)
    assert run("search", model, *judged, *FIXED, "--budget", "2", "--jobs", "1", "--json") == 0
    assert run("compile", model, "-o", str(folder / "m.bin"), *FIXED) == 0
    assert run("optimize", model, *judged, *FIXED, "--budget", "2", "-o", str(folder / "fast"), "--json") == 0
    assert [v.name for v in onnx.load(folder / "fast" / "m.qdq.onnx").graph.input] == ["x"]


def test_a_context_of_a_pinned_input_is_of_that_value(folder: Path) -> None:
    import hexforge
    from hexforge.runtime.contexts.context import Context
    from hexforge.runtime.contexts.context_builder import is_made_from

    how: dict[str, Any] = {"dims": {"n": 1, "side": 8}, "shapes": None, "constants": {"gain": [0.5]}}
    hexforge.compile(folder / "m.onnx", folder / "m.bin", "SM8650", **how)
    info = Context(folder / "m.bin").info
    assert is_made_from(info, "m", folder / "m.onnx", how)
    assert not is_made_from(info, "m", folder / "m.onnx", how | {"constants": {"gain": [0.25]}})
    assert not is_made_from(info, "m", folder / "m.onnx", how | {"constants": None})
