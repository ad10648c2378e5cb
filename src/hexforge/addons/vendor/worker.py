# SPDX-License-Identifier: Apache-2.0
"""Worker: drives Qualcomm's package in a process of its own; `process` starts this file with the package's Python.

Only the documented API of onnxruntime and of onnxruntime-qnn is used. A line of JSON comes in for each thing to do, a
line of JSON goes out for it; arrays travel in files. The libraries write lines of their own, so standard output is
moved away from them first. This file imports nothing of hexforge, which that Python need not have.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

EP = "QNNExecutionProvider"


class Sessions:
    """The sessions that were opened, by number, and what can be asked of them."""

    def __init__(self) -> None:
        import onnxruntime
        import onnxruntime_qnn

        self._onnxruntime, self._package = onnxruntime, onnxruntime_qnn
        onnxruntime.register_execution_provider_library(EP, onnxruntime_qnn.get_library_path())
        self._open: dict[int, Any] = {}

    def about(self) -> dict[str, Any]:
        """Versions, devices and backend libraries."""
        from importlib.metadata import version

        paths = {"htp": "get_qnn_htp_path", "cpu": "get_qnn_cpu_path", "gpu": "get_qnn_gpu_path"}
        backends = {}
        for name, function in paths.items():
            call = getattr(self._package, function, None)
            backends[name] = bool(call is not None and Path(call()).exists())
        return {
            "version": version("onnxruntime-qnn"),
            "onnxruntime": version("onnxruntime"),
            "backends": backends,
            "devices": sorted({str(d.device.type).rpartition(".")[2] for d in self._devices()}),
        }

    def _devices(self) -> list[Any]:
        return [device for device in self._onnxruntime.get_ep_devices() if device.ep_name == EP]

    def open(
        self, number: int, model: str, provider_options: dict[str, str], entries: dict[str, str], log_level: int
    ) -> dict[str, Any]:
        """Make a session: which nodes each provider got, and what it reads and writes."""
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = log_level
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        chosen = dict(provider_options)
        if not {"backend_path", "backend_type"} & set(chosen):
            chosen["backend_path"] = self._package.get_qnn_htp_path()
        options.add_provider_for_devices(self._devices(), chosen)
        start = time.perf_counter()
        session = self._onnxruntime.InferenceSession(model, options)
        seconds = time.perf_counter() - start
        nodes: dict[str, list[list[str]]] = {}
        for part in session.get_provider_graph_assignment_info():
            nodes.setdefault(part.ep_name, []).extend([n.op_type, n.name] for n in part.get_nodes())
        self._open[number] = session
        return {
            "nodes": nodes,
            "seconds": seconds,
            "inputs": [[v.name, v.type, v.shape] for v in session.get_inputs()],
            "outputs": [[v.name, v.type, v.shape] for v in session.get_outputs()],
        }

    def run(self, number: int, names: list[str], feeds: str, outputs: str) -> dict[str, Any]:
        """Run a session on the arrays of a file; the outputs go to another, in their order."""
        import numpy as np

        with np.load(feeds, allow_pickle=False) as file:
            fed = {name: file[f"a{i}"] for i, name in enumerate(names)}
        start = time.perf_counter()
        results = self._open[number].run(None, fed)
        seconds = time.perf_counter() - start
        np.savez(outputs, **{f"a{i}": result for i, result in enumerate(results)})
        return {"seconds": seconds, "names": [value.name for value in self._open[number].get_outputs()]}

    def close(self, number: int) -> dict[str, Any]:
        """Let a session go."""
        self._open.pop(number, None)
        return {}


def limit_memory(most_bytes: int) -> None:
    """Let this process have so much address space at most, where the system can limit it."""
    if most_bytes and sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))


def limit_time(seconds: float) -> None:
    """Let this process compute so much longer at most, should nobody be there to end it."""
    if sys.platform != "win32":
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        allowed = int(used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _read(lines: SimpleQueue[str]) -> None:
    """Hand on what is asked; the end of it ends this process, whatever it is doing."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    sessions: Sessions | None = None
    while True:
        job = json.loads(lines.get())
        try:
            limit_time(job["most_s"])
            if sessions is None:
                limit_memory(job["most_bytes"])
                sessions = Sessions()
            answer = getattr(sessions, job["do"])(**job["with"])
        except MemoryError:
            answer = {"error": "out of memory", "kind": "MemoryError"}
        except Exception as error:  # onnxruntime's errors have no class in common
            answer = {"error": str(error), "kind": type(error).__name__}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
