# SPDX-License-Identifier: Apache-2.0
"""`hexforge optimize`: one command, a folder, a verdict in the terminal, JSON, and words where it is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import run
from tests.digits import MODEL, held_out


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    pictures, labels = held_out()
    (folder / "samples").mkdir()
    for i in range(32):
        np.save(folder / "samples" / f"{i:02}.npy", pictures[i])
    (folder / "labels.txt").write_text("\n".join(str(labels[i]) for i in range(32)))
    return folder


def test_a_folder_and_a_verdict(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    given = ("--data", str(data / "samples"), "--budget", "6", "--samples", "8")
    assert run("optimize", str(MODEL), *given, "--soc", "galaxy s24") == 0
    out = capsys.readouterr().out
    assert " ms on SM8650, " in out.splitlines()[0]
    assert max(map(len, out.splitlines())) <= 80
    names = {path.name for path in (tmp_path / "digits.SM8650").iterdir()}
    assert names >= {"digits.qdq.onnx", "digits.bin", "digits.float.onnx", "recipe.json", "report.html", "result.json"}
    assert not [name for name in names if name.endswith(".part")]
    labelled = ("--labels", str(data / "labels.txt"), "-o", "labelled", "--json")
    assert run("optimize", str(MODEL), *given, *labelled) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["metric"] == "top1"
    assert said["score"] > 0.9
    assert said["files"][0] == "labelled/digits.qdq.onnx"


def test_stopped_it_says_where_to_go_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hexforge.addons.tuning.optimize.quantize", stop)
    given = ("--data", str(data / "samples"), "--budget", "4", "--samples", "4", "-o", str(tmp_path / "out"))
    assert run("optimize", str(MODEL), *given) == 130
    err = capsys.readouterr().err
    assert "goes on from there" in err
    assert (tmp_path / "out" / "search.state.json").exists()


def test_a_wrong_chip_is_one_message(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("optimize", str(MODEL), "--data", str(data / "samples"), "--soc", "8 Gem 3") == 2
    assert "did you mean Snapdragon 8 Gen 3? (SM8650)" in capsys.readouterr().err
