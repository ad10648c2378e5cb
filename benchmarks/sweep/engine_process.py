# SPDX-License-Identifier: Apache-2.0
"""An engine in a process of its own, which is given one model after the other, and runs when it is its turn.

    python -m benchmarks.sweep.engine_process NAME [LEVEL]

Threads of one engine never run while another is measured. A turn says the least wall time of one inference in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.peers.engines import hexforge_session

Array = np.ndarray[Any, Any]
_KINDS = {
    "float": np.float32, "float16": np.float16, "double": np.float64, "int64": np.int64, "int32": np.int32,
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8,
}  # fmt: skip


class EngineProcess:
    """The other side of it."""

    def __init__(self, name: str, level: str = "") -> None:
        self.name = name
        command = [sys.executable, "-m", "benchmarks.sweep.engine_process", name, level]
        self._child = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()

    def load(self, path: Path, threads: int) -> str:
        """Open a model instead of the one before; what is wrong with it, or nothing."""
        return str(self._ask(load=str(path), threads=threads).get("error", ""))

    def turn(self, seconds: float) -> float:
        """Run for about so long; milliseconds of the shortest inference."""
        return float(self._ask(turn=seconds)["ms"])

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(request) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.name} ended with {self._child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def feeds(session: Any, seed: int = 7) -> dict[str, Array]:
    """Random inputs of a session of either engine."""
    random, made = np.random.default_rng(seed), {}
    for each in session.get_inputs():
        dtype = np.dtype(_KINDS[each.type.removeprefix("tensor(").removesuffix(")")])
        values = random.standard_normal(each.shape) if dtype.kind == "f" else random.integers(0, 2, each.shape)
        made[each.name] = values.astype(dtype)
    return made


def open_session(name: str, path: str, threads: int) -> Any:
    """A session of either engine as a user gets it."""
    if name == "hexforge":
        return hexforge_session(Path(path), threads)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _child(name: str, level: str = "") -> int:
    if level and name == "hexforge":
        from hexforge import _native

        _native.set_level(level)
    session, given = None, {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "load" in request:
                session = None
                session = open_session(name, request["load"], request["threads"])
                given = feeds(session)
                session.run(None, given)
            else:
                answer["ms"] = _least_ms(session, given, request["turn"])
        except Exception as error:  # each engine has errors of its own
            answer["error"] = (str(error).strip().splitlines() or [repr(error)])[0]
        print(json.dumps(answer), flush=True)
    return 0


def _least_ms(session: Any, given: dict[str, Array], seconds: float) -> float:
    session.run(None, given)
    least, start = float("inf"), time.perf_counter()
    while (now := time.perf_counter()) - start < seconds or least == float("inf"):
        session.run(None, given)
        least = min(least, time.perf_counter() - now)
    return least * 1e3


if __name__ == "__main__":
    raise SystemExit(_child(*sys.argv[1:]))
