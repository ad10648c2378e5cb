# SPDX-License-Identifier: Apache-2.0
"""A model whose batch is open: every command of quality takes it, and what one says to type next can be typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from hexforge.cli import main
from tests.ort.models import FLOAT, model, node


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints; it must succeed."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    printed = capsys.readouterr()
    assert not caught.value.code, printed.err
    return printed.out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name has spaces, with a model and samples."""
    made = tmp_path / "my models"
    (made / "my samples").mkdir(parents=True)
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Sigmoid", ["c"], ["y"])]
    (made / "m.onnx").write_bytes(
        model(nodes, {"x": (FLOAT, ("batch", 3, 8, 8))}, {"y": (FLOAT, ("batch", 8, 6, 6))}, {"w": weights})
    )
    for i in range(5):
        sample = np.random.default_rng(i).normal(size=(1, 3, 8, 8)).astype(np.float32)
        np.save(made / "my samples" / f"{i}.npy", sample)
    return made


def test_each_command_takes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original, samples, made = (str(folder / name) for name in ("m.onnx", "my samples", "q.onnx"))
    said = run(capsys, "quantize", original, "--data", samples, "-o", made).splitlines()[-1]
    command = shlex.split(said.partition(" (")[0])
    assert command[:2] == ["next:", "hexforge"]
    assert run(capsys, *command[2:])
    assert "dB SQNR" in run(capsys, "compare", original, made, "--data", samples)
    assert "recommended" in run(capsys, "search", original, "--data", samples, "--budget", "2", "--jobs", "1")
    assert "sqnr" in run(capsys, "eval", original, "--data", samples, "--metric", f"sqnr:{original}")


def test_sizes_are_repeated_in_what_comes_next(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original, made = str(folder / "m.onnx"), str(folder / "q.onnx")
    said = run(capsys, "quantize", original, "--data", "random:5", "--dim", "batch=2", "-o", made).splitlines()[-1]
    assert "--data FOLDER --dim batch=2" in said
    assert "dB SQNR" in run(capsys, "compare", original, made, "--data", "random:2")
    assert "sqnr" in run(
        capsys, "eval", original, "--data", "random:2", "--dim", "batch=2", "--metric", f"sqnr:{original}"
    )
