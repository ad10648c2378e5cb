# SPDX-License-Identifier: Apache-2.0
"""Recipe and precision are one word: what `quantize` takes, `estimate` takes, under either name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hexforge
from hexforge.chips.deployment import Deployment, known_precision
from hexforge.errors import CallError
from tests.cli.test_cli import run
from tests.digits import MODEL


@pytest.mark.parametrize(
    ("word", "precision"),
    [
        ("w8a8", "w8a8"), ("w8a8_channel", "w8a8"), ("w4a16_block", "w4a16"), ("w4a16_block[64]", "w4a16"),
        ("w8a16+equalize", "w8a16"), ("w8a16_channel+percentile=99.9", "w8a16"), ("fp16", "float"), ("float", "float"),
    ],
)  # fmt: skip
def test_a_recipe_is_the_precision_that_it_computes_in(word: str, precision: str) -> None:
    assert known_precision(word) == precision
    assert Deployment(precision=word).precision == precision


@pytest.mark.parametrize("word", ["w8a8_chanel", "float_channel", "w8", "_channel"])
def test_another_word_is_an_error(word: str) -> None:
    with pytest.raises(CallError, match="is not known; it is one of float, w8a8"):
        Deployment(precision=word)


@pytest.mark.parametrize("flag", ["--precision", "--recipe"])
def test_both_commands_know_both_flags(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", str(MODEL), flag, "w8a8_channel", "--json") == 0
    timed = json.loads(capsys.readouterr().out)
    assert timed["precision"] == "w8a8"
    assert timed["latency_ms"] == round(hexforge.estimate(MODEL, Deployment(precision="w8a8")).latency_ms, 4)
    arguments = ("--data", "random:4", "-o", str(tmp_path / "q.onnx"), "--json")
    assert run("quantize", str(MODEL), flag, "w8a8_channel", *arguments) == 0
    assert json.loads(capsys.readouterr().out)["recipe"] == "w8a8_channel"
