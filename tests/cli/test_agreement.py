# SPDX-License-Identifier: Apache-2.0
"""Commands agree with each other: what is placed, what a graph holds, how much vector memory there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hexforge
from tests.cli.test_cli import run
from tests.digits import MODEL


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    run(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_check_counts_the_transposes_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "check", str(MODEL))
    ops = [op for row in found["nodes"] for op in row["qnn_ops"]]
    assert len(ops) == found["totals"]["qnn_ops"]
    assert ops.count("Transpose") == 1  # the one before flattening; those between convolutions cancel


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    target = tmp_path / "q.onnx"
    assert hexforge.quantize(MODEL, "random:2", "w8a8", target).placed_whole
    return target


def test_quantize_and_check_agree_on_what_is_placed(quantized: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loose, strict = said(capsys, "check", str(quantized)), said(capsys, "check", str(quantized), "--strict")
    assert strict["totals"]["refused"] == strict["totals"]["offloaded"] == 0
    assert loose["totals"]["refused"] == loose["totals"]["offloaded"] == 2
    run("check", str(quantized))
    assert "2 by offload_graph_io_quantization" in " ".join(capsys.readouterr().out.split())


def test_vector_memory_is_a_budget_of_a_size(quantized: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "estimate", str(quantized), "--soc", "SM8650", "--vtcm-mb", "2")
    assert found["vtcm_peak_bytes"] <= found["vtcm_budget_bytes"] <= 2 << 20
    assert found["vtcm_size_bytes"] == 8 << 20
    run("estimate", str(quantized), "--soc", "SM8650")
    out = capsys.readouterr().out
    assert "of a budget of" in out
    assert "(the chip has 8" in out
