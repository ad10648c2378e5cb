# SPDX-License-Identifier: Apache-2.0
"""What is printed fits the screen: 80 columns, those of COLUMNS, or all of it in a pipe; the verdict comes first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from rich.cells import cell_len

import hexforge
from hexforge.cli.fitted_table import shorten_middle
from hexforge.cli.screen import console, table
from tests.cli.test_cli import model, run
from tests.digits import MODEL

LONG = "/backbone/layers.0/blocks.1/attention/output/projection/MatMul"


def printed(capsys: pytest.CaptureFixture[str], width: int, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(*arguments) == 0
    return capsys.readouterr().out


@given(st.text(), st.integers(5, 60))
def test_shortened_keeps_both_ends(text: str, width: int) -> None:
    short = shorten_middle(text, width)
    if cell_len(text) <= width:
        assert short == text
    else:
        head, _, tail = short.partition("…") if "…" not in text else ("", "", "")
        assert len(short) <= width
        assert text.startswith(head)
        assert text.endswith(tail)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", str(MODEL)), ("check", str(MODEL), "--all"), ("estimate", str(MODEL)), ("socs",), ("socs", "SM8650"),
        ("options",), ("ops",), ("estimate", str(MODEL), "--soc", "all"), ("run", str(MODEL)),
    ],
)  # fmt: skip
def test_nothing_is_wider_than_the_screen(
    arguments: tuple[str, ...], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, width, monkeypatch, *arguments).splitlines()
    assert max(map(cell_len, lines)) <= width


def test_a_column_that_matters_less_goes_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(LONG, "MatMul", "12.5", "1,000,000")]
    for width, heads in ((40, ["name", "op", "us"]), (300, ["name", "op", "us", "cycles"])):
        monkeypatch.setenv("COLUMNS", str(width))
        console().print(table("", ("name", "op", "us", "cycles"), rows, optional=("us", "cycles")))
        out = capsys.readouterr().out
        assert out.split("\n")[0].split() == heads
        assert (LONG in out) == (width == 300)
    monkeypatch.delenv("COLUMNS")
    console().print(table("", ("name", "op", "us", "cycles"), rows))
    assert LONG in capsys.readouterr().out  # a pipe cuts nothing


@pytest.fixture
def many_refused(tmp_path: Path) -> Path:
    """Twelve nodes that QNN has no op for, between twenty that it has."""
    nodes, at = [], "x"
    for i in range(32):
        op = "Hardmax" if i % 8 in (1, 3, 5) else "Relu"
        nodes.append(helper.make_node(op, [at], [f"t{i}"], f"{LONG}_{i}"))
        at = f"t{i}"
    nodes.append(helper.make_node("Identity", [at], ["y"], "end"))
    return model(tmp_path / "many.onnx", nodes)


def test_check_says_the_verdict_first_and_ten_nodes(
    many_refused: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(capsys, 80, monkeypatch, "check", str(many_refused))
    lines = out.splitlines()
    assert lines[0] == "many.onnx: 12 of 32 nodes are left to the CPU"
    assert max(map(cell_len, lines)) <= 80
    assert out.index("Hardmax") < out.index("Relu")
    assert "and 9 more" in out
    assert sum(line.rstrip().endswith("Relu") for line in lines) == 10
    assert "10 more groups of nodes on QNN: --all" in out
    every = printed(capsys, 80, monkeypatch, "check", str(many_refused), "--all")
    assert sum(line.rstrip().endswith("Relu") for line in every.splitlines()) == 20
    refused = printed(capsys, 300, monkeypatch, "check", str(many_refused), "--refused")
    assert "Relu" not in refused
    assert all(f"{LONG}_{i}" in refused for i in (1, 3, 5, 29))


def test_nodes_refused_alike_are_told_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = printed(capsys, 80, monkeypatch, "check", str(MODEL), "--soc", "QCS6490")
    assert out.startswith("digits.onnx: 8 of 8 nodes are left to the CPU")
    assert out.count("has no float math") == 1
    assert "and 5 more" in out


def test_estimate_says_what_is_not_in_it(
    many_refused: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(capsys, 80, monkeypatch, "estimate", str(many_refused))
    assert out.splitlines()[0].split(" on ")[0].endswith(" ms")
    assert out.index("NPU part only, 12 nodes on the CPU") < out.index("bound by")
    assert "Hardmax x12" in out
    assert f"{LONG}_1" in printed(capsys, 300, monkeypatch, "estimate", str(many_refused), "--refused")


def test_estimate_says_that_a_context_is_for_another_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = tmp_path / "digits.bin"
    hexforge.compile(MODEL, context, "SM8650")
    for soc, words in ("SM8550", "digits.bin: cannot run there: it was made for SM8650"), ("SM8650", ""):
        assert run("estimate", str(context), "--soc", soc, "--json") == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["soc"] == soc
        assert said.err.startswith(words) if words else not said.err
