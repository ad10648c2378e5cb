# SPDX-License-Identifier: Apache-2.0
"""Trace: what a session spent its time on, as the JSON that onnxruntime's profiling writes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hexforge.formats.profile.record import INPUT, OUTPUT, SIMULATED, GraphProfile, ProfiledRun


class Trace:
    """Events of one session; written once, by `end`."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        self._path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._open = True

    @contextmanager
    def span(self, category: str, name: str, **arguments: str) -> Iterator[None]:
        """Record how long the block takes."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            self._add([self._event(category, name, begin, (time.monotonic_ns() - begin) // 1000, arguments)])

    def ops(self, graph: GraphProfile, run: ProfiledRun, begin_ns: int, provider: str, source: str) -> None:
        """A span for each op of a run that began then: by the chip's clock where that is simulated."""
        at, found = 0.0, []
        for index, (op, cost) in enumerate(zip(graph.ops, run.costs, strict=True)):
            at += cost.wait / graph.clock_mhz
            us = cost.cycles / graph.clock_mhz
            if op.name and op.id not in (INPUT, OUTPUT):
                clock = f"simulated {graph.chip}" if source == SIMULATED else "measured"
                arguments = {
                    "op_name": op.type, "provider": provider, "graph": graph.name, "node_index": str(index),
                    "cycles": str(cost.cycles), "clock": clock, "onnx_nodes": ", ".join(op.sources),
                }  # fmt: skip
                found.append(self._event("Node", f"{op.name}_kernel_time", begin_ns, us, arguments, at))
            at += us
        self._add(found)

    def _event(
        self, category: str, name: str, begin_ns: int, us: float, arguments: dict[str, str], after_us: float = 0.0
    ) -> dict[str, Any]:
        return {
            "cat": category,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "ts": (begin_ns - self.start_ns) // 1000 + round(after_us, 3)
            if after_us
            else (begin_ns - self.start_ns) // 1000,
            "dur": us if isinstance(us, int) else round(us, 3),
            "ph": "X",
            "name": name,
            "args": arguments,
        }

    def _add(self, events: list[dict[str, Any]]) -> None:
        with self._lock:
            if self._open:
                self._events += events

    def end(self) -> str:
        """Write the file and return its name; later events are dropped."""
        with self._lock:
            if self._open:
                self._open = False
                self._path.write_text(json.dumps(self._events, indent=0), encoding="utf-8")
        return str(self._path)
