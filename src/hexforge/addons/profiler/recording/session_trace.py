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

from hexforge.addons.profiler.record import INPUT, OUTPUT, SIMULATED, GraphProfile, ProfiledRun
from hexforge.chrome_trace import ChromeTrace


class Trace:
    """Events of one session; written once, by `end`."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        self._path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        self._trace = ChromeTrace()
        self._lock = threading.Lock()
        self._open = True

    @contextmanager
    def span(self, category: str, name: str, **arguments: str) -> Iterator[None]:
        """Record how long the block takes."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            start_us = (begin - self.start_ns) // 1000
            self._add(category, name, start_us, start_us + (time.monotonic_ns() - begin) // 1000, arguments)

    def ops(self, graph: GraphProfile, run: ProfiledRun, begin_ns: int, provider: str, source: str) -> None:
        """A span for each op of a run that began then: by the chip's clock where that is simulated."""
        at = float((begin_ns - self.start_ns) // 1000)
        for index, (op, cost) in enumerate(zip(graph.ops, run.costs, strict=True)):
            at += cost.wait / graph.clock_mhz
            us = cost.cycles / graph.clock_mhz
            if op.name and op.id not in (INPUT, OUTPUT):
                clock = f"simulated {graph.chip}" if source == SIMULATED else "measured"
                arguments = {
                    "op_name": op.type, "provider": provider, "graph": graph.name, "node_index": str(index),
                    "cycles": str(cost.cycles), "clock": clock, "onnx_nodes": ", ".join(op.sources),
                }  # fmt: skip
                self._add("Node", f"{op.name}_kernel_time", at, at + us, arguments)
            at += us

    def _add(self, category: str, name: str, start_us: float, end_us: float, arguments: dict[str, str]) -> None:
        with self._lock:
            if self._open:
                self._trace.span(os.getpid(), threading.get_native_id(), name, start_us, end_us, arguments, category)

    def end(self) -> str:
        """Write the file and return its name; later events are dropped."""
        with self._lock:
            if self._open:
                self._open = False
                self._path.write_text(json.dumps(self._trace.events, indent=0), encoding="utf-8")
        return str(self._path)
