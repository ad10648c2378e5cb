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
            event = {
                "cat": category,
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "ts": (begin - self.start_ns) // 1000,
                "dur": (time.monotonic_ns() - begin) // 1000,
                "ph": "X",
                "name": name,
                "args": arguments,
            }
            with self._lock:
                if self._open:
                    self._events.append(event)

    def end(self) -> str:
        """Write the file and return its name; later events are dropped."""
        with self._lock:
            if self._open:
                self._open = False
                self._path.write_text(json.dumps(self._events, indent=0), encoding="utf-8")
        return str(self._path)
