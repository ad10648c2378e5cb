# SPDX-License-Identifier: Apache-2.0
"""The trace format as Perfetto and chrome://tracing read it, as a check."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

FIELDS = {
    "X": {"ph", "pid", "tid", "name", "ts", "dur", "args"},
    "M": {"ph", "pid", "tid", "name", "args"},
    "C": {"ph", "pid", "tid", "name", "ts", "args"},
    "s": {"ph", "pid", "tid", "name", "cat", "id", "ts"},
    "f": {"ph", "pid", "tid", "name", "cat", "id", "ts", "bp"},
}
SLACK = 2e-4
"""Times are rounded to a tenth of a nanosecond."""


def check_trace(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Fields of each phase, slices that nest, named lanes, flows that begin and end in slices; events by phase."""
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        assert event.keys() == FIELDS[event["ph"]]
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        assert all(type(event[key]) is int for key in ("pid", "tid"))
        by[event["ph"]].append(event)
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for e in by["X"]:
        lanes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    named = {(e["pid"], e["tid"]) for e in by["M"] if e["name"] == "thread_name"}
    assert lanes.keys() <= named
    assert {pid for pid, _ in lanes} <= {e["pid"] for e in by["M"] if e["name"] == "process_name"}
    for slices in lanes.values():
        open_ends: list[float] = []
        for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= start + SLACK:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + SLACK, "slices of a lane overlap"
            open_ends.append(end)
    ends = {e["id"]: e for e in by["f"]}
    assert len(ends) == len(by["s"]) == len(by["f"])
    for e in by["s"]:
        closing = ends[e["id"]]
        assert (e["name"], e["cat"]) == (closing["name"], closing["cat"])
        assert e["ts"] <= closing["ts"] + SLACK
        for at in (e, closing):
            assert any(a - SLACK <= at["ts"] <= b + SLACK for a, b in lanes[at["pid"], at["tid"]])
    for e in by["C"]:
        assert all(isinstance(v, int | float) for v in e["args"].values())
    return by
