# SPDX-License-Identifier: Apache-2.0
"""Sweeps: which models, the same rows as estimates, resumed where they stopped, and what changed."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.cluster import sweep_run
from hexforge.addons.cluster.sweep_request import SweepRequest
from hexforge.addons.cluster.sweep_run import sweep
from hexforge.addons.cluster.sweep_table import Sweep, SweepRow, read_sweep
from hexforge.addons.cluster.swept_models import models_of
from hexforge.analysis.mapped_tasks import try_tasks
from hexforge.errors import CallError, FormatError, HexforgeError
from tests.cli.test_cli import run

REQUEST = SweepRequest(("SM8650", "QCS6490"), ("float", "w8a8"))


def write_model(path: Path, width: int, batch: int | str = 1) -> Path:
    """A convolution and a Relu, of some width."""
    weight = numpy_helper.from_array(np.full((width, 3, 3, 3), 0.1, np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("Relu", ["c"], ["y"], "relu")]
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, width, 14, 14])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models, one of them with an open batch, and a file that is none."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "small.onnx", 8)
    write_model(folder / "large.onnx", 64)
    write_model(folder / "open.onnx", 16, "batch")
    (folder / "broken.onnx").write_bytes(b"this is no model")
    return folder


@pytest.fixture(scope="module")
def swept(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, Path]:
    """All of them, and the file of what is finished."""
    state = tmp_path_factory.mktemp("state") / "state"
    return sweep([folder], REQUEST, finished=state), state


def test_rows_are_what_estimates_are(swept: tuple[Sweep, Path], folder: Path) -> None:
    rows = {row.key: row for row in swept[0]}
    assert len(rows) == 4 * 2 * 2
    for name in ("small", "large"):
        for deployment in REQUEST.deployments():
            row = rows[name, deployment.precision, deployment.soc]
            if row.error:
                with pytest.raises(HexforgeError) as caught:
                    hexforge.estimate(folder / f"{name}.onnx", deployment, cpu_part=False)
                assert row.error.split() == str(caught.value).split(), "with its reason"
                continue
            alone = hexforge.estimate(folder / f"{name}.onnx", deployment, cpu_part=False)
            assert (row.latency_ms, row.high_ms) == (round(alone.latency_ms, 4), round(alone.high_ms, 4))
            assert row.weight_bytes == alone.timeline.weight_bytes


def test_an_open_batch_is_one_and_a_broken_file_is_a_row_that_says_so(swept: tuple[Sweep, Path]) -> None:
    of_open = [row for row in swept[0] if row.model == "open"]
    assert any(row.latency_ms for row in of_open)
    broken = [row for row in swept[0] if row.model == "broken"]
    assert len(broken) == 4
    assert all(row.latency_ms is None and "broken.onnx" in row.error for row in broken)


def test_what_is_finished_is_not_done_again_unless_it_changed(swept: tuple[Sweep, Path], folder: Path) -> None:
    again = sweep([folder], REQUEST, finished=swept[1])
    assert again.rows == swept[0].rows
    assert again.reused == 4
    kept = (folder / "small.onnx").read_bytes()
    try:
        write_model(folder / "small.onnx", 1024)
        changed = sweep([folder], REQUEST, finished=swept[1])
    finally:
        (folder / "small.onnx").write_bytes(kept)
    assert changed.reused == 3
    assert {change.row.model for change in changed.changes(swept[0])} == {"small"}
    with pytest.raises(CallError, match="another job"):
        sweep([folder], replace(REQUEST, runtime="onnx"), finished=swept[1])


def test_what_is_finished_counts_for_other_chips_and_precisions(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    models = [folder / "small.onnx", folder / "large.onnx"]
    first = sweep(models, SweepRequest(("SM8650",), ("w8a8",)), finished=state)
    more = sweep(models, SweepRequest(("SM8650", "SM8750"), ("w8a8", "float")), finished=state)
    assert (first.reused, more.reused) == (0, 0)
    assert more.rows == sweep(models, SweepRequest(("SM8650", "SM8750"), ("w8a8", "float"))).rows
    less = sweep(models, SweepRequest(("SM8750",), ("float",)), finished=state)
    assert less.reused == 2
    assert set(less.rows) < set(more.rows)


def test_files_with_one_content_are_timed_once_and_rows_name_their_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "models"
    here.mkdir()
    for name, source in (("a", "small"), ("b", "small"), ("c", "broken"), ("d", "broken")):
        (here / f"{name}.onnx").write_bytes((folder / f"{source}.onnx").read_bytes())
    tasks: list[Any] = []

    def counted(make: Any, arguments: Any, given: Any, *rest: Any, **more: Any) -> Any:
        tasks.extend(given)
        return try_tasks(make, arguments, given, *rest, **more)

    monkeypatch.setattr(sweep_run, "try_tasks", counted)
    result = sweep([here], REQUEST, finished=tmp_path / "state")
    assert len(tasks) == 2
    named = {row.model: row.error.partition(":")[0].rpartition("/")[2] for row in result if row.error}
    assert named == {name: f"{name}.onnx" for name in "abcd"}
    (here / "a.onnx").rename(here / "e.onnx")
    (here / "c.onnx").rename(here / "f.onnx")
    again = sweep([here], REQUEST, finished=tmp_path / "state")
    assert (len(tasks), again.reused, again.unread) == (2, 4, ("d", "f"))
    named = {row.model: row.error.partition(":")[0].rpartition("/")[2] for row in again if row.error}
    assert named == {name: f"{name}.onnx" for name in "bdef"}


def test_the_exit_code_is_one_where_a_model_cannot_be_read(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ("--soc", "SM8650", "--precision", "w8a8", "--jobs", "1")
    assert run("sweep", str(folder / "small.onnx"), *options) == 0
    state = str(tmp_path / "state")
    for _ in range(2):
        assert run("sweep", str(folder / "small.onnx"), str(folder / "broken.onnx"), *options, "--state", state) == 1
        assert "broken.onnx" in capsys.readouterr().out


def test_a_file_of_ones_own_is_no_state_and_stays(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "notes.txt"
    own.write_text("no end of line")
    with pytest.raises(FormatError, match="is no file of finished work"):
        sweep([folder / "small.onnx"], REQUEST, finished=own)
    assert own.read_text() == "no end of line"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "'quoted", "plain"])
def test_a_name_is_no_formula_in_a_table(tmp_path: Path, name: str) -> None:
    sweep = Sweep((SweepRow(name, "w8a8", "SM8650", -1.0),))
    (tmp_path / "rows.csv").write_text(sweep.to_csv())
    row = sweep.to_csv().splitlines()[1]
    assert row.startswith("plain," if name == "plain" else f"'{name},")
    assert ",-1.0," in row
    assert read_sweep(tmp_path / "rows.csv").rows == sweep.rows


@pytest.mark.parametrize("broken", ["fifo", "link"])
def test_what_is_no_file_is_no_model(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "m.onnx"
    if broken == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "nothing")
    with pytest.raises(CallError, match="no such file, folder or pattern"):
        models_of([path])


def test_a_sweep_whose_process_is_killed_goes_on(swept: tuple[Sweep, Path], folder: Path, tmp_path: Path) -> None:
    state, table = tmp_path / "state", tmp_path / "rows.csv"
    command = [
        sys.executable, "-m", "hexforge", "sweep", str(folder), "--soc", "SM8650,QCS6490", "--precision", "float,w8a8",
        "--state", str(state), "--csv", str(table), "--jobs", "1",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while (not state.exists() or state.read_bytes().count(b"\n") < 2) and time.monotonic() < end:
            assert process.poll() is None or state.exists()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    done = max(state.read_bytes().count(b"\n") - 1, 0)
    assert 1 <= done <= 4
    result = json.loads(subprocess.run([*command, "--json"], check=False, capture_output=True, text=True).stdout)
    assert result["reused"] == done
    assert read_sweep(table).rows == swept[0].rows


def test_tables_are_read_as_they_were_written(swept: tuple[Sweep, Path], tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(swept[0].to_csv())
    assert read_sweep(table).rows == swept[0].rows
    assert len(list(csv.reader(io.StringIO(table.read_text())))) == 17
    for wrong in ("", "model,soc\na,b\n", "\0", swept[0].to_csv().replace("SM8650,", "SM8650,x", 1)):
        table.write_text(wrong)
        with pytest.raises(FormatError, match="no table of a sweep"):
            read_sweep(table)


def test_changes_name_what_got_slower_first() -> None:
    before = Sweep(tuple(SweepRow(m, "w8a8", "SM8650", 1.0) for m in "abcd"))
    after = Sweep(
        (
            SweepRow("a", "w8a8", "SM8650", 1.001),
            SweepRow("b", "w8a8", "SM8650", 0.5, nodes_on_cpu=2),
            SweepRow("c", "w8a8", "SM8650", 2.0),
            SweepRow("e", "w8a8", "SM8650", error="does not fit"),
        )
    )
    told = [str(change) for change in after.changes(before)]
    assert told[:2] == ["d w8a8 SM8650: is gone", "e w8a8 SM8650: is new"]
    assert told[2:] == [
        "c w8a8 SM8650: 1.0 ms, now 2.0 (+100.0%)",
        "b w8a8 SM8650: 1.0 ms, now 0.5 (-50.0%), 2 nodes more on the CPU",
    ]


def test_lists_manifests_patterns_and_folders_name_models(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"# models\n{folder}/small.onnx\n\n{folder}/[lo]*.onnx\n")
    manifest = {"models": [{"model": f"{folder}/open.onnx", "name": "mine", "dims": {"batch": 2}}]}
    (tmp_path / "models.json").write_text(json.dumps(manifest))
    assert [m.name for m in models_of([tmp_path / "list.txt"])] == ["small", "large", "open"]
    assert [(m.name, m.dims) for m in models_of([tmp_path / "models.json"])] == [("mine", {"batch": 2})]
    assert len(models_of([folder, str(folder / "*.onnx")])) == 4
    other = tmp_path / "other"
    other.mkdir()
    write_model(other / "small.onnx", 4)
    assert {m.name for m in models_of([folder / "small.onnx", other])} == {f"{folder.name}/small", "other/small"}


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("m.json", "{", "not JSON: Expecting"),
        ("m.json", '{"model": "a"}', "no list of models"),
        ("m.json", '["missing.onnx"]', "there is no file"),
        ("m.json", '[{"model": "m.json", "dim": 1}]', r"models\[0\].dim: unknown key; did you mean 'dims'"),
        ("m.json", '[{"model": "m.json", "dims": {"h": "x"}}]', r"dims.h is 'x': expected a whole number"),
        (
            "m.json",
            '[{"model": "m.json", "shapes": {"h": [1, true]}}]',
            r"shapes.h\[1\] is True: expected a whole number",
        ),
        ("m.yaml", "- [", "while parsing"),
        ("m.txt", "nothing.onnx", "no such file"),
        ("m.txt", "no\0thing.onnx", "no such file"),
        ("m.yaml", '- "no\\0thing.onnx"', "there is no file"),
        ("m.yaml", "- no\0thing.onnx", "no YAML"),
        ("m.yaml", "models: !!timestamp now", "no YAML"),
        ("m.yaml", "models: !!bool perhaps", "no YAML"),
        ("m.yaml", "models: !!int ''", "no YAML"),
        ("m.yaml", "models: !!float ''", "no YAML"),
        ("m.yaml", "models: !!binary é", "no YAML"),
        ("m.txt", "", "no model to sweep"),
    ],
)
def test_a_wrong_list_says_what_is_wrong(tmp_path: Path, name: str, text: str, fault: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(HexforgeError, match=fault):
        models_of([tmp_path / name])
