# SPDX-License-Identifier: Apache-2.0
"""Sessions as onnxruntime's: errors to catch, memory infos, warnings about files, and its wrapper script."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as real

import hexforge
from hexforge.cli import main
from hexforge.errors import CallError, FormatError, HexforgeError, UnsupportedError
from hexforge.ort.errors import as_onnxruntime
from tests.ort.models import mixed, quantized, session

QNN = [("QNNExecutionProvider", {"backend_type": "htp"})]
SCRIPT = Path(onnxruntime.__file__).parent / "tools" / "qnn" / "gen_qnn_ctx_onnx_model.py"


def test_a_missing_file(tmp_path: Path) -> None:
    for providers in (QNN, ["CPUExecutionProvider"]):
        with pytest.raises(real.NoSuchFile):
            hexforge.InferenceSession(str(tmp_path / "none.onnx"), providers=providers)
    with pytest.raises(HexforgeError):
        hexforge.InferenceSession(str(tmp_path / "none.onnx"), providers=QNN)


def test_wrong_feeds_options_and_files(tmp_path: Path) -> None:
    made = session(quantized())
    name = made.get_inputs()[0].name
    for feeds in ({name: np.zeros((1, 2, 3), np.float32)}, {"nothing": np.zeros(1, np.float32)}, {}):
        with pytest.raises(real.InvalidArgument):
            made.run(None, feeds)
        with pytest.raises(CallError):
            made.run(None, feeds)
    with pytest.raises(real.InvalidArgument, match="no_such_option"):
        session(quantized(), {"no_such_option": "1"})
    damaged = tmp_path / "m.onnx"
    damaged.write_bytes(b"\xff" * 64)
    with pytest.raises(real.InvalidProtobuf) as said:
        hexforge.InferenceSession(damaged, providers=QNN)
    assert isinstance(said.value, FormatError)


def test_what_the_backend_refuses() -> None:
    with pytest.raises(real.Fail) as said:  # as onnxruntime does where fallback is disabled
        session(mixed(), session__disable_cpu_ep_fallback="1")
    assert isinstance(said.value, UnsupportedError)


def test_code_and_offset_stay() -> None:
    made = as_onnxruntime(FormatError("bad", 7, 5))
    assert isinstance(made, FormatError)
    assert (made.offset, made.code, str(made)) == (7, 5, "bad (at byte 7)")
    assert as_onnxruntime(made) is made


def test_memory_infos_are_onnxruntimes() -> None:
    made = session(quantized())
    own = onnxruntime.InferenceSession(quantized(), providers=["CPUExecutionProvider"])
    for name in ("get_input_memory_infos", "get_output_memory_infos"):
        ours, theirs = getattr(made, name)(), getattr(own, name)()
        assert [(m.name, m.device_id, m.mem_type) for m in ours] == [(m.name, m.device_id, m.mem_type) for m in theirs]
    assert len(made.get_input_epdevices()) == len(made.get_inputs())


@pytest.mark.parametrize("options", [{"json_qnn_graph_dir": "."}, {"dump_qnn_ir_dlc_dir": "dlc"}])
def test_an_option_that_promises_a_file_and_writes_none_warns(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hexforge"):
        session(quantized(), options)
    assert "has no effect" in caplog.text


@pytest.mark.skipif(not SCRIPT.exists(), reason="this onnxruntime has no wrapper script")
def test_onnxruntimes_wrapper_script_takes_our_contexts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S003: one context of two graphs, its description as JSON, and a model around each graph."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(f"{name}.onnx").write_bytes(quantized())
    for arguments in (["compile", "one.onnx", "two.onnx", "-o", "both.bin"], ["info", "both.bin", "--json"]):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main(arguments)
    Path("both.json").write_text(capsys.readouterr().out)
    graphs = [graph["info"]["graphName"] for graph in json.loads(Path("both.json").read_text())["info"]["graphs"]]
    assert len(graphs) == 2
    subprocess.run([sys.executable, str(SCRIPT), "-b", "both.bin", "-q", "both.json"], check=True, capture_output=True)
    wrappers = sorted(tmp_path.glob("*_qnn_ctx*.onnx"))
    assert len(wrappers) == 2
    expected = hexforge.InferenceSession(Path("one.onnx"), providers=QNN)
    feeds: dict[str, Any] = {i.name: np.ones(i.shape, np.float32) for i in expected.get_inputs()}
    for wrapper in wrappers:
        made = hexforge.InferenceSession(wrapper, providers=QNN)
        for ours, theirs in zip(made.run(None, feeds), expected.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
