# SPDX-License-Identifier: Apache-2.0
"""ManagedSession: runs at once, switches to a better context between runs, keeps running where that fails."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.errors import CallError, HexforgeError, UnsupportedError
from hexforge.runtime.contexts import manage
from hexforge.runtime.contexts.compatibility import Verdict  # type: ignore[attr-defined]
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.manage import ManagedSession
from hexforge.runtime.contexts.request import ContextRequest
from tests.ort.models import mixed, quantized

X = {"x": np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 8)}


def wanted(source: bytes = quantized()) -> Any:
    return hexforge.InferenceSession(source, providers=["QNNExecutionProvider"]).run(None, X)[0]


class Gate:
    """Holds the preparation in the background until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail: HexforgeError | None = None) -> None:
        self.open = threading.Event()
        original = manage.compile  # type: ignore[attr-defined]

        def gated(*args: Any, **how: Any) -> Any:
            if how.get("progress") is not None:  # the one in the background
                assert self.open.wait(60)
                if fail is not None:
                    raise fail
            return original(*args, **how)

        monkeypatch.setattr(manage, "compile", gated)


@pytest.mark.feature("Context binary management", guide="3001-3057")
def test_starts_fast_and_switches_while_threads_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, path, want = Gate(monkeypatch), tmp_path / "m.bin", wanted()
    changed: list[ManagedSession] = []
    with ManagedSession(quantized(), path, on_change=changed.append) as session:
        assert session.verdict is Verdict.SUBOPTIMAL
        assert session.context_source == "prepared at level 1"
        assert session.graph.settings["optimization"] == 1
        assert not path.exists()  # a fast prepare is not saved
        runs, wrong, levels = [0] * 4, [], set()
        end = threading.Event()

        def infer(number: int) -> None:
            while not end.is_set():
                level = session.graph.settings["optimization"]
                if not np.array_equal(session.run(["y"], X)[0], want):
                    wrong.append(level)
                levels.add(level)
                runs[number] += 1

        threads = [threading.Thread(target=infer, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        gate.open.set()
        assert session.wait(60)
        before = list(runs)
        while any(now < then + 3 for now, then in zip(runs, before, strict=True)):
            time.sleep(0.001)
        end.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert 3 in levels
        assert session.verdict is Verdict.OPTIMAL
        assert session.error is None
    assert changed == [session]
    assert Context(path).graphs[0].settings["optimization"] == 3
    assert list(tmp_path.iterdir()) == [path]
    with ManagedSession(quantized(), path) as again:  # nothing left to do
        assert again.verdict is Verdict.OPTIMAL
        assert again.wait(0)
        assert again.context_source.endswith("(saved)")
        np.testing.assert_array_equal(again.run(None, X)[0], want)


def test_a_sub_optimal_context_runs_until_the_better_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, path, want = Gate(monkeypatch), tmp_path / "m.bin", wanted()
    compile(quantized(), path, "SM8550", ContextRequest(graph_names=("model_0",)))
    with ManagedSession(quantized(), path, "SM8650") as session:
        assert session.context_source.endswith("(saved)")
        assert "made for SM8550 (v73), older" in session.reasons[0]
        assert session.verdict is Verdict.SUBOPTIMAL
        np.testing.assert_array_equal(session.run(None, X)[0], want)
        gate.open.set()
        assert session.wait(60)
        np.testing.assert_array_equal(session.run(None, X)[0], want)
    assert [t.name for t in Context(path).info.targets] == ["SM8650"]


@pytest.mark.parametrize("kind", ["newer chip", "damaged", "another model", "other sizes", "lower level"])
def test_a_context_that_is_not_good_enough_is_made_anew(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.bin"
    source, soc, level = quantized(), "SM8650", 3
    if kind == "newer chip":
        soc = "SM8850"
    if kind == "another model":
        source = quantized(0.2)
    if kind == "lower level":
        level = 2
    shapes = {"x": [1, 8]} if kind == "other sizes" else None
    compile(
        source,
        path,
        Deployment(soc, config=GraphConfig(optimization=level)),
        ContextRequest(graph_names=("model_0",)),
        shapes=shapes,
    )
    if kind == "damaged":
        data = bytearray(path.read_bytes())
        data[-10] ^= 1
        path.write_bytes(data)
    with ManagedSession(quantized(), path) as session:
        assert session.reasons
        assert session.wait(60)
        np.testing.assert_array_equal(session.run(None, X)[0], wanted())
    assert hexforge.validate(path, "SM8650").verdict is Verdict.OPTIMAL
    assert Context(path).graphs[0].settings["optimization"] == 3


def test_a_failure_in_the_background_is_reported_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.bin"
    gate = Gate(monkeypatch, UnsupportedError("no room for a better one"))
    told: list[ManagedSession] = []
    with ManagedSession(quantized(), path, on_change=told.append) as session:
        gate.open.set()
        assert not session.wait(60)
        assert "no room" in str(session.error)
        np.testing.assert_array_equal(session.run(None, X)[0], wanted())
        with pytest.raises(CallError, match="has no output 'z'; it has y"):
            session.run(["z"], X)
    assert told == [session]
    assert not path.exists()
    assert "the one that runs stays" in caplog.text


def test_a_folder_that_cannot_be_written_keeps_the_session_running(tmp_path: Path) -> None:
    with ManagedSession(quantized(), tmp_path / "none" / "m.bin") as session:
        assert not session.wait(60)
        assert "cannot be written" in str(session.error)
        np.testing.assert_array_equal(session.run(None, X)[0], wanted())


def test_closing_stops_the_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, path = Gate(monkeypatch), tmp_path / "m.bin"
    session = ManagedSession(quantized(), path)
    session._stop.set()
    gate.open.set()
    session.close()
    assert session.error is None
    assert not session.wait(0)
    assert not path.exists()


def test_a_model_that_cannot_start_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="refuses 2 of 4 nodes"):
        ManagedSession(mixed(), tmp_path / "m.bin")
