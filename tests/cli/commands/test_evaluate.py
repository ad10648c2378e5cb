# SPDX-License-Identifier: Apache-2.0
"""`hexforge eval`: the score in a table and as JSON, metrics of one's own, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hexforge.cli import app, main
from tests.digits import MODEL, held_out


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval")
    (folder / "data").mkdir()
    pictures, labels = held_out()
    for i in range(12):
        np.save(folder / "data" / f"{i}.npy", pictures[i])
    (folder / "labels.txt").write_text("\n".join(map(str, labels[:12])))
    (folder / "wrong.csv").write_text("file,label\n" + "\n".join(f"{i}.npy,{(labels[i] + 1) % 10}" for i in range(12)))
    (folder / "mine.py").write_text("def size(outputs, label):\n    return outputs['logits'].size\n")
    return folder


def test_table_and_json(data: Path) -> None:
    arguments = ["eval", str(MODEL), "--data", str(data / "data"), "--labels"]
    done = CliRunner().invoke(app, [*arguments, str(data / "labels.txt")])
    assert done.exit_code == 0, done.output
    assert "1.0000" in done.stdout
    for backend in ("htp", "cpu", "ort"):
        done = CliRunner().invoke(app, [*arguments, str(data / "wrong.csv"), "--backend", backend, "--json"])
        found = json.loads(done.stdout)
        assert (found["score"], found["metric"], found["samples"]) == (0.0, "top1", 12)


def test_a_metric_of_ones_own_and_jobs(data: Path) -> None:
    arguments = ["eval", str(MODEL), "--data", str(data / "data"), "--metric", f"{data / 'mine.py'}:size"]
    done = CliRunner().invoke(app, [*arguments, "--jobs", "2", "--limit", "5", "--json"])
    assert json.loads(done.stdout) | {"model": ""} == {
        "score": 10.0, "metric": f"{data / 'mine.py'}:size", "samples": 5, "model": "", "backend": "htp",
    }  # fmt: skip


def test_refusals(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        ([], "needs labels"),
        (["--labels", str(data / "nowhere.txt")], "No such file"),
        (["--metric", "best"], "there are top1"),
        (["--metric", f"{data / 'mine.py'}:other"], "has no 'other'"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["eval", str(MODEL), "--data", str(data / "data"), *arguments])
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err
