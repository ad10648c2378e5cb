# SPDX-License-Identifier: Apache-2.0
"""The harness of ExecuTorch's own tests: what hangs or dies fails alone, and nothing of it is left."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

import pytest

from tests.addons.executorch.own_suite.pool import Conditions, Suite, shared

SUITE = Suite("TestEndless", "tests.addons.executorch.own_suite.endless", "")
TESTS = ("test_a_fine", "test_b_endless", "test_c_dies", "test_d_exits", "test_e_fine")


def running(mark: str) -> bool:
    """Whether a process has the mark in its command line."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in process.read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
def test_a_test_that_hangs_or_dies_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mark, seen = uuid.uuid4().hex, threading.Event()
    monkeypatch.setenv("ENDLESS_MARK", mark)

    def watch() -> None:
        end = time.monotonic() + 60
        while not seen.is_set() and time.monotonic() < end:
            if running(mark):
                seen.set()
            time.sleep(0.05)

    threading.Thread(target=watch, daemon=True).start()
    wanted = [(SUITE, test) for test in TESTS]
    outcomes = {
        one.test: one
        for _, one in shared(wanted, 1, Conditions(limit=5), program="tests.addons.executorch.own_suite.bare_worker")
    }
    assert [outcomes[test].result for test in TESTS] == ["passed", "failed", "failed", "passed", "passed"]
    assert outcomes["test_b_endless"].why == "took longer than 5 s"
    assert outcomes["test_c_dies"].why == "its process ended with code 3"
    assert seen.is_set()  # it had begun, and
    assert not running(mark)
