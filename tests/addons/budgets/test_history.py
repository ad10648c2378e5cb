# SPDX-License-Identifier: Apache-2.0
"""The store of figures: runs of gates and sweeps are kept and shown; damaged stores are refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hexforge.addons.budgets.history_command import histories
from hexforge.analysis.figure_store import StoredFigure, new_figures, store_figures, stored_figures
from hexforge.demo import MODEL
from hexforge.errors import CallError, FormatError
from tests.cli.test_cli import run

BUDGET = "models:\n  - {model: night.onnx, soc: SM8650, precision: w8a8, latency_ms: 10}\n"


def figure(day: int, value: float, what: str = "latency_ms on SM8650", model: str = "m.onnx") -> StoredFigure:
    """A figure of a day."""
    return StoredFigure(f"2026-01-{day:02}T00:00:00Z", f"{day:040x}", model, what, value, "gate", "0.1.0")


def test_gates_and_sweeps_are_kept_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two gates and a sweep of two commits: history has each figure, its commits and a page."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(MODEL, tmp_path)
    (tmp_path / "budget.yaml").write_text(BUDGET)
    for commit in ("a" * 40, "b" * 40):
        monkeypatch.setenv("GITHUB_SHA", commit)
        assert run("gate", "budget.yaml", "--store", "figures") == 0
    assert (
        run("sweep", "night.onnx", "--soc", "SM8650", "--precision", "w8a8", "--jobs", "1", "--store", "figures") == 0
    )
    capsys.readouterr()
    assert run("history", "figures", "--report", "history.html", "--json") == 0
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"latency_ms on SM8650", "refused_nodes", "latency_ms on SM8650 at w8a8"}
    gated = rows["latency_ms on SM8650"]
    assert [figure["commit"][0] for figure in gated["figures"]] == ["a", "b"]
    assert gated["first"] == gated["last"] == pytest.approx(rows["latency_ms on SM8650 at w8a8"]["last"], abs=1e-3)
    assert "night.onnx" in (tmp_path / "history.html").read_text()


def test_history_names_the_commit_that_moved_a_figure() -> None:
    """The largest step counts, not the first or the last run."""
    rows = histories([figure(1, 2.0), figure(2, 2.1), figure(3, 4.0), figure(4, 4.1), figure(1, 0, "refused_nodes")])
    assert [row.what for row in rows] == ["latency_ms on SM8650", "refused_nodes"]
    assert rows[0].moved_at == figure(3, 0).commit
    assert rows[0].change_percent == pytest.approx(105)
    assert rows[1].moved_at == ""
    assert rows[1].change_percent is None
    assert [len(row.runs) for row in histories([figure(1, 1), figure(2, 2)], last=1)] == [1]


def test_store_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    """Files of any name and order give runs in the order of their times; a URL is a store as a folder is."""
    for day in (3, 1, 2):
        store_figures(tmp_path.as_uri(), [figure(day, float(day))])
    assert [row.value for row in stored_figures(str(tmp_path))] == [1, 2, 3]
    assert stored_figures(tmp_path.as_uri()) == stored_figures(str(tmp_path))


def test_figures_are_of_the_commit_of_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder under no version control has no commit, and its figures are kept all the same."""
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (made,) = new_figures([("m", "w", 1)], "gate", tmp_path)
    assert replace(made, when="") == StoredFigure("", "", "m", "w", 1.0, "gate", made.hexforge)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """A folder that is not there, a damaged file and one of other columns end with what and where."""
    from pyarrow import Table, parquet

    with pytest.raises(CallError, match="is no folder"):
        stored_figures(str(tmp_path / "none"))
    with pytest.raises(CallError, match="no figure to keep"):
        store_figures(str(tmp_path), [])
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FormatError, match=r"x\.parquet: is no run"):
        stored_figures(str(tmp_path))
    parquet.write_table(Table.from_pylist([{"a": 1}]), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match=r"x\.parquet: is no run"):
        stored_figures(str(tmp_path))
