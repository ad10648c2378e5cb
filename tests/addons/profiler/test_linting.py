# SPDX-License-Identifier: Apache-2.0
"""One grammar reads the five linting reports that QNN's guide prints, and writes them back letter by letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexforge.addons.profiler.profile_text import (
    ACCELERATOR,
    CRITICAL,
    RPC,
    ExecutionReport,
    execution_report,
    parse,
    parse_all,
)
from hexforge.addons.profiler.record import GraphProfile, OpCost, ProfiledOp, ProfiledRun
from hexforge.errors import FormatError

PUBLISHED = (Path(__file__).parent / "published_reports.txt").read_text()
LINTING_GUIDE = parse_all(PUBLISHED)
ROUNDING = 9
"""Cycles that the published sums are short of the critical path."""


def check_invariants(report: ExecutionReport, rounding: int = 0) -> None:
    """What holds for every linting report."""
    critical, rpc, accelerator = (report.figure(name) for name in (CRITICAL, RPC, ACCELERATOR))
    assert critical is not None
    assert rpc is not None
    assert accelerator is not None
    assert report.netrun_us > rpc > accelerator
    assert 0 <= critical - sum(op.cycles + (op.wait or 0) for op in report.ops) <= rounding
    for op in report.ops:
        assert op.wait is not None
        assert op.overlap is not None
        assert op.overlap_wait is not None
        assert op.overlap <= op.cycles
        assert op.overlap_wait <= op.wait
        assert max(len(op.beside), len(op.beside_wait)) <= 10
        assert set(op.resources) <= {"HVX", "HMX", "DMA"}


@pytest.mark.feature("Linting profile", guide="1749-1807")
def test_reads_and_writes_every_published_report() -> None:
    assert len(LINTING_GUIDE) == 5
    assert "\n".join(map(str, LINTING_GUIDE)) == PUBLISHED


@pytest.mark.parametrize("report", LINTING_GUIDE, ids=lambda r: str(r.netrun_us))
def test_published_reports_keep_the_invariants(report: ExecutionReport) -> None:
    check_invariants(report, ROUNDING)


def test_first_report() -> None:
    report = LINTING_GUIDE[0]
    assert (report.netrun_us, report.figure(RPC), report.figure(ACCELERATOR)) == (16792, 16242, 15190)
    sub = next(op for op in report.ops if op.label == "model_sub_sub:OpId_57")
    assert (sub.cycles, sub.wait, sub.overlap, sub.resources) == (2165162, 0, 465046, ("HVX",))
    assert sub.beside[:2] == ("model_sub_sub:OpId_57", "Output OpId_3")
    assert [op.label for op in report.ops[:2]] == ["Input OpId_2", "OpId_0"]


@given(st.lists(st.tuples(st.text(max_size=12), st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=6))
def test_any_names_and_cycles_read_back(rows: list[tuple[str, int, int]]) -> None:
    ops = tuple(ProfiledOp(4 + i, name, "Conv2d") for i, (name, _, _) in enumerate(rows))
    costs = tuple(
        OpCost(cycles, wait, cycles, wait, tuple(range(len(rows)))[:10], (0,), ("HVX", "DMA"))
        for _, cycles, wait in rows
    )
    run = ProfiledRun(0, 30.0, 20.0, 10.0, sum(c.cycles + c.wait for c in costs), costs=costs)
    report = execution_report(GraphProfile("g", "htp", "SM8650", 1000.0, ops=ops), run, "linting")
    assert parse(str(report)) == report
    if run.critical_cycles:
        check_invariants(report)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("Overlap time: 0  cycles", "Overlap tme: 0  cycles", "line 14"),
        ("   NetRun:  16792 us\n", "", "NetRun"),
        ("            Overlap (wait) time: 0  cycles\n            Resources:\n      OpId_0", "      OpId_0", "missing"),
        ("Total Inference Time:", "Total Time:", "line 3"),
    ],
)
def test_says_which_line_is_wrong(before: str, after: str, says: str) -> None:
    text = str(LINTING_GUIDE[0]).replace(before, after, 1)
    with pytest.raises(FormatError, match=says):
        parse(text)
