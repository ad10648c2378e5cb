# SPDX-License-Identifier: Apache-2.0
"""Evaluations that were stopped go on: the same score, no sample run twice, and no state of other samples believed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.analysis.quality import evaluate as evaluating
from hexforge.errors import CallError
from tests.addons.cluster.ray_clusters import NotingEngine
from tests.digits import MODEL, held_out

PICTURES, LABELS = held_out()
METRIC = "def far(outputs, label):\n    return float(outputs['logits'].max()) / 3\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty pictures, one of which cannot be read."""
    made = tmp_path / "set"
    made.mkdir()
    for i in range(30):
        np.save(made / f"{i}.npy", PICTURES[i])
    (made / "11.npy").write_bytes(b"no array")
    return made


def noting(folder: Path) -> NotingEngine:
    """An engine that counts its runs."""
    folder.mkdir()
    return NotingEngine(str(folder), seconds=0)


@pytest.mark.parametrize(("metric", "jobs"), [("top1", 1), (f"sqnr:{MODEL}", 1), ("METRIC.py:far", 1), ("top1", 2)])
def test_it_goes_on_where_it_was_stopped(
    folder: Path, tmp_path: Path, metric: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "_EVERY_S", 0.0)
    (tmp_path / "METRIC.py").write_text(METRIC)
    chosen = metric.replace("METRIC.py", str(tmp_path / "METRIC.py"))
    labels, state = LABELS[:30].tolist(), tmp_path / "state"
    expected = hexforge.evaluate(MODEL, folder, labels, chosen, backend=noting(tmp_path / "whole"))
    assert (expected.samples, expected.left_out) == (29, 1)

    def stopping(done: int, total: int) -> None:
        if done == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hexforge.evaluate(
            MODEL, folder, labels, chosen, backend=noting(tmp_path / "first"), jobs=jobs, state=state, progress=stopping
        )
    rest = noting(tmp_path / "rest")
    seen: list[int] = []
    found = hexforge.evaluate(
        MODEL, folder, labels, chosen, backend=rest, state=state, progress=lambda done, total: seen.append(done)
    )
    assert found == expected
    assert sum(rest.runs().values()) == 30 - 17, "finished samples were run again"
    assert seen == list(range(18, 31))
    again = noting(tmp_path / "again")
    assert hexforge.evaluate(MODEL, folder, labels, chosen, backend=again, state=state) == expected
    assert not again.runs()


def test_a_state_of_other_samples_labels_or_metrics_is_refused(folder: Path, tmp_path: Path) -> None:
    state, labels = tmp_path / "state", LABELS[:30].tolist()
    hexforge.evaluate(MODEL, folder, labels, backend="ort", state=state)
    other_labels = [9 - label for label in labels]
    with pytest.raises(CallError, match="is of another job"):
        hexforge.evaluate(MODEL, folder, other_labels, backend="ort", state=state)
    with pytest.raises(CallError, match="is of another job"):
        hexforge.evaluate(MODEL, folder, labels, "top5", backend="ort", state=state)
    os.utime(folder / "3.npy", (1, 1))
    with pytest.raises(CallError, match="is of another job"):
        hexforge.evaluate(MODEL, folder, labels, backend="ort", state=state)


def test_what_cannot_be_kept_says_so(folder: Path, tmp_path: Path) -> None:
    state, labels = tmp_path / "state", LABELS[:30].tolist()
    with pytest.raises(CallError, match="metric classification: cannot go on from a state"):
        hexforge.evaluate(MODEL, folder, metric=f"classification:{MODEL}", backend="ort", state=state)
    with pytest.raises(CallError, match="needs a metric by its name"):
        hexforge.evaluate(MODEL, folder, labels, lambda outputs, label: 1.0, backend="ort", state=state)
    with pytest.raises(CallError, match="a state needs samples that are kept in files"):
        hexforge.evaluate(MODEL, list(PICTURES[:30]), labels, backend="ort", state=state)
    assert not state.exists()
