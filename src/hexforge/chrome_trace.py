# SPDX-License-Identifier: Apache-2.0
"""ChromeTrace: spans, counters and flows as the JSON that Chrome's and Perfetto's trace viewers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIGITS = 4
"""Times are in microseconds, rounded to as many digits."""
Place = tuple[int, int, float]
"""Process, thread, and microseconds."""


class ChromeTrace:
    """Events on their way into a file; processes and threads are numbers that may have names."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._names: list[dict[str, Any]] = []
        self._flows = 0

    def span(
        self,
        pid: int,
        tid: int,
        name: str,
        start_us: float,
        end_us: float,
        args: Mapping[str, Any] | None = None,
        category: str = "",
    ) -> None:
        """Something that takes a time."""
        start, end = round(start_us, DIGITS), round(end_us, DIGITS)
        event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start, "dur": round(end - start, DIGITS)}
        self.events.append({**event, **({"cat": category} if category else {}), "args": dict(args or {})})

    def counter(self, pid: int, name: str, at_us: float, unit: str, value: float) -> None:
        """An amount that holds from then on."""
        at, args = round(at_us, DIGITS), {unit: round(value, DIGITS)}
        self.events.append({"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": at, "args": args})

    def flow(self, name: str, source: Place, target: Place) -> None:
        """An arrow from one span to another."""
        self._flows += 1
        for phase, (pid, tid, us), more in (("s", source, {}), ("f", target, {"bp": "e"})):
            at = {"pid": pid, "tid": tid, "ts": round(us, DIGITS)}
            self.events.append({"ph": phase, **at, "name": name, "cat": name, "id": self._flows, **more})

    def name_process(self, pid: int, name: str) -> None:
        """The title of a process; processes are shown in the order of their numbers."""
        self._name("process", pid, 0, name, pid)

    def name_thread(self, pid: int, tid: int, name: str) -> None:
        """The title of a thread; threads are shown in the order of their numbers."""
        self._name("thread", pid, tid, name, tid)

    def _name(self, kind: str, pid: int, tid: int, name: str, index: int) -> None:
        for key, args in ((f"{kind}_name", {"name": name}), (f"{kind}_sort_index", {"sort_index": index})):
            self._names.append({"ph": "M", "pid": pid, "tid": tid, "name": key, "args": args})

    def to_json(self, unit: str = "ms") -> dict[str, Any]:
        """The file's content; `unit` is what times are shown in."""
        return {"traceEvents": [*self._names, *self.events], "displayTimeUnit": unit}
