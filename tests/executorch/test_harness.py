# SPDX-License-Identifier: Apache-2.0
"""The harness of ExecuTorch's own tests: what hangs or dies fails alone, and nothing of it is left."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("executorch")
pytestmark = pytest.mark.executorch

from benchmarks.executorch_pool import Suite, shared  # noqa: E402

SUITE = Suite("TestEndless", "tests.executorch.endless", "")
TESTS = ("test_a_fine", "test_b_endless", "test_c_dies", "test_d_fine")


def test_a_test_that_hangs_or_dies_fails_alone() -> None:
    wanted = [(SUITE, test) for test in TESTS]
    found = {one.test: one for _, one in shared(wanted, 1, limit=40, no_skips=False, seed=0)}
    assert [found[test].result for test in TESTS] == ["passed", "failed", "failed", "passed"]
    assert found["test_b_endless"].why == "took longer than 40 s"
    assert found["test_c_dies"].why == "its process ended with code 3"
    for running in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert b"# of an endless test" not in running.read_bytes()
        except OSError:
            continue
