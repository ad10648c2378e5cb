# SPDX-License-Identifier: Apache-2.0
"""`hexforge diff`: sentences and tables, JSON, a page, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hexforge
from hexforge.cli import main
from tests.digits import MODEL


def compared(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["diff", *arguments])
    assert stopped.value.code == code
    printed = capsys.readouterr()
    return printed.err if code else printed.out


@pytest.fixture
def estimates(tmp_path: Path) -> tuple[str, str]:
    for soc in ("SM8650", "SM8550"):
        (tmp_path / f"{soc}.json").write_text(json.dumps(hexforge.estimate(MODEL, soc).to_json()))
    return str(tmp_path / "SM8650.json"), str(tmp_path / "SM8550.json")


def test_sentences_and_tables(estimates: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = compared(capsys, *estimates)
    assert text.startswith("SM8550.json takes ")
    for part in ("longer than SM8650.json.", "Set otherwise: soc SM8650 → SM8550", "layers changed", "Calls to the"):
        assert part in text
    assert "Both are the same" in compared(capsys, estimates[0], estimates[0])


def test_json_and_a_page(estimates: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    told = json.loads(compared(capsys, *estimates, "--json", "--report", str(page)))
    assert told["kind"] == "estimate"
    assert told["latency_us"]["after"] > told["latency_us"]["before"]
    assert "SM8550.json takes" in page.read_text()


def test_what_cannot_be_is_said(estimates: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "give two of one kind" in compared(capsys, estimates[0], str(MODEL), code=2)
    assert "there is no such file" in compared(capsys, estimates[0], "missing.bin", code=2)
    assert "neither of the two" in compared(capsys, *estimates, "--report", estimates[1], code=2)
