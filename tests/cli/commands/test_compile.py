# SPDX-License-Identifier: Apache-2.0
"""`hexforge compile`: a file, a table, JSON, wrappers, and refusals as one message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.addons.tools import tool_command
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
    text = compiled(
        str(model), str(other), "-o", str(model.with_name("out.bin")), "--graph-name=a", "--graph-name=b", "--share"
    )
    assert "alone: a " in text
    assert "bytes saved" in text
    apart = compiled(str(model), str(other), "-o", str(model.with_name("out.bin")))
    assert "not shared, which --share would" in " ".join(apart.split())


@pytest.mark.feature("Weight sharing", guide="131-137")
@pytest.mark.parametrize("sections", [None, {}, {"weight_sharing_enabled": True}, {"weight_sharing_enabled": False}])
def test_compile_and_the_generator_agree_on_sharing(model: Path, sections: Any) -> None:
    other = model.with_name("other.onnx")
    other.write_bytes(quantized())
    config: list[str] = []
    if sections is not None:
        model.with_name("htp.json").write_text(json.dumps({"context": sections}))
        tool = {"backend_extensions": {"config_file_path": "htp.json"}}
        model.with_name("tool.json").write_text(json.dumps(tool))
        config = [str(model.with_name("tool.json"))]
    ours, theirs = model.with_name("ours.bin"), model.with_name("theirs.bin")
    compiled(str(model), str(other), "-o", str(ours), "--soc", "SM8650", *(f"--config-file={c}" for c in config))
    arguments = ["--model", f"{model},{other}", "--backend", "libQnnHtp.so", "--binary_file", "theirs"]
    arguments += ["--output_dir", str(model.parent), *(f"--config_file={c}" for c in config)]
    tool_command("qnn-context-binary-generator").main(arguments, standalone_mode=False)
    wanted = bool(sections and sections["weight_sharing_enabled"])
    assert [hexforge.Context(path).info.weight_sharing for path in (ours, theirs)] == [wanted, wanted]


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
