# SPDX-License-Identifier: Apache-2.0
"""`hexforge compile`: a file, a table, JSON, wrappers, and refusals as one message."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.cli import app, main
from tests.ort.models import mixed, quantized


def compiled(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["compile", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(quantized())
    return path


def test_json_and_what_is_in_the_file(model: Path) -> None:
    out = model.with_name("out.bin")
    said = json.loads(
        compiled(str(model), "-o", str(out), "--soc", "SM8650", "--soc", "SM8750", "--hvx-threads", "2", "--json")
    )
    assert said["bytes"] == out.stat().st_size
    assert said["socs"] == ["SM8650", "SM8750"]
    assert said["graphs"][0]["num_hvx_threads"] == 2
    assert hexforge.Context(out).graphs[0].name == "tiny"


def test_two_models_say_what_sharing_saves(model: Path) -> None:
    other = model.with_name("other.onnx")
    other.write_bytes(quantized())
    text = compiled(str(model), str(other), "-o", str(model.with_name("out.bin")), "--graph-name=a", "--graph-name=b")
    assert "alone: a " in text
    assert "bytes saved" in text
    apart = compiled(str(model), str(other), "-o", str(model.with_name("out.bin")), "--no-share")
    assert "weights are not shared" in apart


def test_wrappers_run_in_a_session(model: Path) -> None:
    x = {"x": np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 8)}
    want = hexforge.InferenceSession(model, providers=["QNNExecutionProvider"]).run(None, x)[0]
    said = json.loads(compiled(str(model), "-o", str(model.with_name("out.bin")), "--wrap", "--json"))
    (wrapper,) = said["wrappers"]
    np.testing.assert_array_equal(
        hexforge.InferenceSession(wrapper, providers=["QNNExecutionProvider"]).run(None, x)[0], want
    )


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "m.onnx", tmp_path / "m.bin"
    model.write_bytes(mixed())
    with pytest.raises(SystemExit) as ended:
        main(["compile", str(model), "-o", str(out)])
    assert ended.value.code == 2
    assert "refuses 2 of 4 nodes" in capsys.readouterr().err
    assert not out.exists()
    text = compiled(str(model), "-o", str(out), "--allow-partial")
    assert "left to the CPU, not in the file" in text
    assert "nonzero" in text
    assert out.exists()


def test_a_flag_and_an_option_of_one_meaning_must_agree(model: Path, tmp_path: Path) -> None:
    arguments = (str(model), "-o", str(tmp_path / "c.bin"), "--optimization", "1", "--option")
    done = CliRunner().invoke(app, ["compile", *arguments, "htp_graph_finalization_optimization_mode=2"])
    assert "--optimization 1 and the option htp_graph_finalization_optimization_mode=2" in str(done.exception)
    assert "level" in compiled(*arguments, "htp_graph_finalization_optimization_mode=1")
