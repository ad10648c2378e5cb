# SPDX-License-Identifier: Apache-2.0
"""The kernel: order, waiting, interruption; and the log's audit."""

from __future__ import annotations

from typing import Any

import pytest

from hexforge.addons.device.log import audit
from hexforge.addons.device.scheduling.clock import Pending, VirtualClock, Waits
from hexforge.errors import CallError, FormatError, HexforgeError


def test_events_happen_by_time_then_by_order() -> None:
    clock, seen = VirtualClock(), []
    for us, name in ((5, "c"), (1, "a"), (5, "d"), (3, "b")):
        clock.at(us, seen.append, name)
    gone = clock.at(2, seen.append, "never")
    clock.cancel(gone)
    clock.run(2.5)
    assert (seen, clock.now_us) == (["a"], 2.5)
    clock.run()
    assert (seen, clock.now_us, clock.count) == (["a", "b", "c", "d"], 5, 4)


def test_a_cancelled_event_lets_nothing_later_happen_early() -> None:
    clock, seen = VirtualClock(), []
    clock.cancel(clock.at(1, seen.append, "never"))
    clock.at(10, seen.append, "late")
    clock.run(5)
    assert seen == []


def test_tasks_wait_for_time_and_for_results() -> None:
    clock, seen = VirtualClock(), []
    gate = Pending()

    def one() -> Waits:
        yield 3.0
        gate.resolve("open")
        return 1

    def two() -> Waits:
        seen.append((yield gate))
        try:
            yield 100.0
        except CallError as error:
            seen.append(str(error))
        yield 1.0
        return 2

    second, first = clock.start(two()), clock.start(one())
    assert clock.wait(first) == 1
    second.interrupt(CallError("stop"))
    assert clock.wait(second) == 2
    assert (seen, clock.now_us) == (["open", "stop"], 4.0)
    with pytest.raises(HexforgeError, match="never comes"):
        clock.wait(Pending())


def entry(event: str, memory: int, **more: Any) -> dict[str, Any]:
    return {"at_us": 0.0, "event": event, "memory_bytes": memory, **more}


def test_the_audit_finds_what_does_not_add_up() -> None:
    opened = entry("session_open", 0, session=0, capacity_bytes=100)
    took = entry("allocate", 60, allocation=1, session=0, bytes=60, used_bytes=60)
    gave = entry("release", 0, allocation=1, session=0, bytes=60, used_bytes=0)
    closed = entry("session_close", 0, session=0)
    assert audit([opened, took]) == 60
    assert audit([opened, took, gave, closed]) == 0
    for wrong, message in (
        ([opened, {**took, "memory_bytes": 61}], "says 61 bytes"),
        ([opened, {**took, "used_bytes": 59}], "says 59 bytes"),
        ([opened, {**took, "bytes": 101, "used_bytes": 101, "memory_bytes": 101}], "101 of 100"),
        ([opened, took, gave, gave], "was not allocated"),
        ([opened, took, {**closed, "memory_bytes": 60}], "closes with 60"),
        ([{**opened, "at_us": 5.0}, took], "backwards"),
        ([opened, took, entry("anything", 59)], "says 59"),
    ):
        with pytest.raises(FormatError, match=message):
            audit(wrong)
