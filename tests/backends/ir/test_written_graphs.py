# SPDX-License-Identifier: Apache-2.0
"""The ir backend's options: graphs written as text with their weights, which qnn-net-run runs to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.tools import tool_command
from tests import ROOT

QNN = "QNNExecutionProvider"
DIGITS = ROOT / "tests" / "digits"


def session(folder: Path, **options: str) -> Any:
    given = {"soc_model": "57", "dump_qnn_ir_dlc_dir": str(folder), **options}
    strict = hexforge.SessionOptions()
    strict.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return hexforge.InferenceSession(DIGITS / "digits.onnx", strict, providers=[(QNN, given)])


@pytest.fixture
def picture() -> np.ndarray:
    return np.load(DIGITS / "digits_heldout.npz")["pictures"][:1].astype(np.float32)


def test_a_written_graph_runs_to_the_same_bits(
    tmp_path: Path, picture: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # spaces separate the paths of an input list, and a path here may have some
    made = session(tmp_path, dump_qnn_ir_dlc="1")
    (want,) = made.run(None, {made.get_inputs()[0].name: picture})
    (file,) = tmp_path.glob("*.qnn")
    picture.tofile(tmp_path / "x.raw")
    (tmp_path / "list.txt").write_text("x.raw\n")
    arguments = ["--model", str(file), "--backend", "libQnnHtp.so", "--input_list", str(tmp_path / "list.txt"),
                 "--output_dir", str(tmp_path / "out")]  # fmt: skip
    tool_command("qnn-net-run").main(arguments, standalone_mode=False)
    (raw,) = (tmp_path / "out" / "Result_0").glob("*.raw")
    assert raw.read_bytes() == want.tobytes()


@pytest.mark.parametrize(
    "options",
    [
        {"backend_type": "ir"},
        {"backend_path": "QnnIr.dll"},
        {"dump_qnn_ir_dlc": "1", "skip_backend_op_validation": "1", "qnn_ir_backend_path": "libQnnIr.so"},
    ],
)
def test_the_ir_backend_writes_and_does_not_run(options: dict[str, str], tmp_path: Path, picture: np.ndarray) -> None:
    made = session(tmp_path, **options)
    assert len(list(tmp_path.glob("*.qnn"))) == 1
    with pytest.raises(Exception, match="and runs none"):
        made.run(None, {made.get_inputs()[0].name: picture})


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="expected libQnnIr"):
        session(tmp_path, dump_qnn_ir_dlc="1", qnn_ir_backend_path="libQnnHtp.so")
    with pytest.raises(Exception, match="is for dump_qnn_ir_dlc=1"):
        session(tmp_path, skip_backend_op_validation="1")
    with pytest.raises(Exception, match="no such folder"):
        session(tmp_path / "absent", dump_qnn_ir_dlc="1")
