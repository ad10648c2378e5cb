# SPDX-License-Identifier: Apache-2.0
"""`hexforge compare`: tables, JSON, the page, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hexforge.cli import app, main
from tests.digits import MODEL, held_out
from tests.models.quantize import quantized


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A quantized model and a folder of samples."""
    folder = tmp_path_factory.mktemp("compare")
    data = folder / "data"
    data.mkdir()
    for i, picture in enumerate(held_out()[0][:8]):
        np.save(data / f"{i}.npy", picture)
    quantized(MODEL, folder / "digits.qdq.onnx", "a8w8", [{"image": p} for p in held_out()[0][:8]])
    return folder / "digits.qdq.onnx", data


def test_tables(files: tuple[Path, Path]) -> None:
    model, data = files
    done = CliRunner().invoke(app, ["compare", str(MODEL), str(model), "--data", str(data), "--sensitivity", "one"])
    assert done.exit_code == 0, done.output
    out = done.stdout
    assert out.index("logits") < out.index("relu2") < out.index("image") < out.index("conv2.weight")
    assert "only this layer" in out
    assert "dB SQNR: the output that lost most" in out


def test_json_and_page(files: tuple[Path, Path], tmp_path: Path) -> None:
    model, data = files
    page = tmp_path / "page.html"
    arguments = ["compare", str(MODEL), str(model), "--data", str(data), "--limit", "3", "--backend", "ort", "--json"]
    arguments += ["--sensitivity", "all-but-one", "--report", str(page)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["samples"], found["backend"], found["unmatched"]) == (3, "ort", 0)
    assert found["outputs"][0]["running"]["sqnr_db"] == found["sqnr_db"] > 20
    assert {row["name"] for row in found["layers"]} == {"input image", "conv1", "conv2", "fc"}
    text = page.read_text("utf-8")
    assert "Sensitivity of layers" in text
    assert "conv2.weight" in text


def test_refusals(files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = files
    for arguments, said in (
        (["--data", str(tmp_path)], "no samples in it"),
        (["--data", str(data), "--backend", "npu"], "there are htp, cpu, ir, gpu, ort"),
        (["--data", str(data), "--sensitivity", "two"], "there are none, one, all-but-one"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["compare", str(MODEL), str(model), *arguments])
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err
