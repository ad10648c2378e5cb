# SPDX-License-Identifier: Apache-2.0
"""A .pte in the commands that take models, and in hexforge.estimate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.addons.executorch.running.pte_graphs import lowered_methods
from hexforge.cli import main
from hexforge.errors import UnsupportedError
from tests.addons.executorch.pte_files import Plan, Tensor, context_blob, delegated, doubling, pte
from tests.digits import MODEL

LIKE = Tensor(np.float32, (2, 3))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.pte"
    path.write_bytes(pte(delegated()))
    return path


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Two delegates with an operator between them that is left to the CPU."""
    data = context_blob(doubling("forward"))
    plan = Plan(
        [LIKE] * 4, [0], [3], [("delegate", 0, [0, 1]), ("kernel", 0, [1, 2, 2]), ("delegate", 1, [2, 3])],
        operators=["aten::sin.out"], delegates=[("QnnBackend", data), ("QnnBackend", data)],
    )  # fmt: skip
    path = tmp_path / "cut.pte"
    path.write_bytes(pte(plan))
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code
    return capsys.readouterr().out


def test_check_says_where_each_operator_went(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "check", str(cut), "--json"))
    assert found["totals"]["placed"] == 2
    assert found["totals"]["qnn_graphs"] == 2
    (left,) = [row for row in found["nodes"] if row["reason"]]
    assert left["op"] == "aten::sin.out"
    assert "partitioner never delegates" in left["reason"]
    assert "1 of 3 nodes are left to the CPU" in told(capsys, "check", str(cut))


def test_info(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (method,) = json.loads(told(capsys, "info", str(cut), "--json"))["methods"]
    assert method["instructions"] == {"DelegateCall": 2, "KernelCall": 1}
    assert [d["graph"] for d in method["delegates"]] == ["forward", "forward"]
    assert "left to the CPU" in told(capsys, "info", str(cut))


def test_show(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ElementWiseAdd" in told(capsys, "show", str(whole))


def test_estimate_of_the_file_is_that_of_its_graphs(whole: Path, cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (hexforge.estimate(path, "SM8650") for path in (whole, cut))
    assert two.timeline.rpc_us == pytest.approx(2 * one.timeline.rpc_us)
    assert [row.op_type for row in two.left_on_cpu] == ["aten::sin.out"]
    found = json.loads(told(capsys, "estimate", str(whole), "--soc", "SM8650", "--json"))
    assert found["latency_ms"] == round(one.latency_ms, 4)


def test_advice_counts_calls(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "advise", str(cut), "--json"))
    assert found["advice"][0]["rule"] == "one_delegate"


def test_run_and_bench(whole: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    told(capsys, "run", str(whole), "-i", f"input_0={tmp_path / 'x.npy'}", "-o", str(tmp_path / "out"))
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "output_0.npy"), 2 * np.ones((2, 3)))
    assert json.loads(told(capsys, "bench", str(whole), "-n", "2", "--json"))["iterations"] == 2


def test_compare(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "compare", str(whole), str(whole), "--data", "random:2", "--json"))
    assert found["decisions"]["agreement"] == 1
    assert found["decisions"]["alarms"] == []
    assert found["samples"] == 2
    assert found["outputs"][0]["max_error"] == 0


@pytest.mark.parametrize("command", ["check", "info", "show", "estimate", "advise", "run", "bench"])
def test_files_that_are_not_ours(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data, said in (
        ("other.pte", pte(delegated(b"blob", "XnnpackBackend")), "is for 'XnnpackBackend'"),
        ("vendor.pte", pte(delegated(b"\0" * 300)), "hexforge did not make"),
        ("short.pte", pte(delegated())[:-300], "is cut short"),
        ("old.pte", pte(delegated(), magic=b"ET11"), "is of version 'ET11'"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(SystemExit) as ended:
            main([command, str(path)])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err.replace("\n", " ")


def test_diff_takes_files_that_hold_contexts(
    whole: Path, cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = json.loads(told(capsys, "diff", str(whole), str(whole), "--json"))
    assert same["kind"] == "context"
    assert all(layer["before"] == layer["after"] for layer in same["layers"])
    other = hexforge.diff(whole, cut)
    assert [layer.name for layer in other.changed_layers if layer.after is not None and layer.after.where == "CPU"]
    held = lowered_methods(whole)[0].delegates[0].context
    context = tmp_path / "held.bin"
    context.write_bytes(bytes(held.container.view))
    against = hexforge.diff(whole, context)
    assert not against.changed_layers
    assert {fact.name for fact in against.facts if fact.differs} <= {"file_bytes"}


def test_diff_says_what_a_file_has_not(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "bare.pte"
    bare.write_bytes(pte(Plan([LIKE] * 2, [0], [1], [("kernel", 0, [0, 1, 1])], operators=["aten::sin.out"])))
    with pytest.raises(UnsupportedError, match=r"no QNN delegate is in it \(aten::sin.out on the CPU\)"):
        hexforge.diff(whole, bare)
    with pytest.raises(SystemExit) as ended:
        main(["diff", str(whole), str(MODEL)])
    assert ended.value.code == 2
    assert "give two of one kind" in capsys.readouterr().err.replace("\n", " ")
