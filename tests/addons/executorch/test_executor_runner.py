# SPDX-License-Identifier: Apache-2.0
"""`hexforge executor-runner`: its files, its log, its errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.executorch.formats.qnn_options import KEY
from hexforge.cli import main
from tests.addons.executorch.pte_files import Plan, Tensor, compile_spec, context_blob, counting, delegated, pte

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pte").write_bytes(pte(delegated()))
    X.tofile("a.raw")
    (X + 1).tofile("b.raw")
    Path("list.txt").write_text("a.raw\nb.raw\n")
    return tmp_path


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["executor-runner", "--model_path", "model.pte", *arguments])
    assert not ended.value.code


def refused(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["executor-runner", "--model_path", "model.pte", *arguments])
    assert ended.value.code == 2


def test_a_file_for_each_output_of_each_inference(folder: Path) -> None:
    run("--input_list_path", "list.txt", "--iteration", "2", "--warm_up", "1", "--performance_output_path", "o/ms.txt")
    for number, expected in enumerate((2 * X, 2 * X + 2)):
        found = np.fromfile(folder / "outputs" / f"output_{number}_0.raw", np.float32)
        np.testing.assert_array_equal(found, expected.reshape(-1))
    assert float(Path("o/ms.txt").read_text()) > 0
    assert Path("etdump.etdp").read_bytes()[8:12] == b"ED00"
    assert sorted(p.name for p in folder.iterdir() if p.suffix == ".part") == []


def test_ones_without_a_list(folder: Path) -> None:
    run("--output_folder_path", "there", "--heap_profiling_path", "heap.txt")
    assert set(np.fromfile("there/output_0_0.raw", np.float32)) == {2.0}
    names = [line.split(",")[0] for line in Path("heap.txt").read_text().splitlines()]
    assert names == ["before_context_created", "after_context_freed"]


def test_ones_where_the_usual_list_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("--input_list_path", "input_list.txt")
    assert set(np.fromfile("outputs/output_0_0.raw", np.float32)) == {2.0}
    assert (
        "<W> input_list_path: there is no input_list.txt; every number of the inputs is one" in capsys.readouterr().out
    )


def test_the_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("--htp_performance_mode", "2", "--log_level", "4", "--shared_buffer", "--lpai_fps", "3")
    shown = capsys.readouterr().out
    assert "[Qnn ExecuTorch]:  <V> performance mode burst" in shown
    assert "coreVoltageCornerMin 160" in shown
    assert "<W> lpai_*: hexforge has no LPAI backend; these flags do nothing" in shown


@pytest.mark.parametrize(("flags", "shown"), [((), True), (("--log_level", "3"), False), (("--log_level", "4"), True)])
def test_the_log_is_as_loud_as_the_delegates_were_compiled(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], shown: bool
) -> None:
    """`debug=True` of a compile spec is level 5; a flag wins over it."""
    plan = replace(delegated(), specs={KEY: compile_spec(log_level=5)})
    Path("model.pte").write_bytes(pte(plan))
    run(*flags)
    assert ("<V> performance mode default" in capsys.readouterr().out) == shown


def test_buffers_last_from_line_to_line(folder: Path) -> None:
    like = Tensor(np.float32, (4,))
    plan = Plan([like, like], [0], [1], [("delegate", 0, [0, 1])], delegates=[("QnnBackend", context_blob(counting()))])
    Path("model.pte").write_bytes(pte(plan))
    np.ones(4, np.float32).tofile("one.raw")
    Path("list.txt").write_text("one.raw\none.raw\n")
    run("--input_list_path", "list.txt")
    assert np.fromfile("outputs/output_1_0.raw", np.float32)[0] == 2.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--method_index", "3"), "has the methods 0 to 0 (forward), not 3"),
        (("--input_list_path", "none.txt"), "none.txt: cannot be read"),
        (("--input_list_path", "two.txt"), "two.txt, line 1: names 2 files"),
        (("--input_list_path", "short.txt"), "short.raw has 4 bytes"),
        (("--input_list_path", "list.txt", "--output_shape_path", "shapes.txt"), "output 0 has the sizes [2, 3]"),
        (("--input_list_path", "list.txt", "--input_shape_path", "strange.txt"), "sizes are numbers"),
        (("--model_path", "list.txt"), "is not an ExecuTorch program"),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    Path("two.txt").write_text("a.raw b.raw\n")
    Path("short.raw").write_bytes(b"1234")
    Path("short.txt").write_text("short.raw\n")
    Path("shapes.txt").write_text("3, 3\n")
    Path("strange.txt").write_text("a, b\n")
    refused(*arguments)
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert not Path("outputs/output_0_0.raw").exists()
