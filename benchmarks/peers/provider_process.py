# SPDX-License-Identifier: Apache-2.0
"""The installed provider (`make vendor`) in a process of its own, which may crash or hang: what it does with models."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from benchmarks.peers.vendor import PYTHON

Array = np.ndarray[Any, Any]

CHILD = Path(__file__).with_name("provider_child.py")
EP = "QNNExecutionProvider"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider did with a model."""

    nodes: dict[str, list[list[str]]] = field(default_factory=dict)
    """provider -> [op type, name] of its nodes, after onnxruntime's own rewriting."""
    error: str = ""
    """Why there is no session."""
    run_error: str = ""
    """Why the session did not run."""
    cpu_s: list[float] = field(default_factory=list)
    """Processor time of each run."""
    outputs: dict[str, Array] = field(default_factory=dict)
    """What came out of the last run."""

    @property
    def whole(self) -> bool:
        """True where the provider took every node that onnxruntime left in the model."""
        return not self.error and set(self.nodes) == {EP}

    @property
    def unread(self) -> bool:
        """True where onnxruntime refused the model itself, so that the provider was never asked."""
        return "Load model from" in self.error or "INVALID_GRAPH" in self.error

    @property
    def empty(self) -> bool:
        """True where onnxruntime folded the whole model away, so that there was nothing to place."""
        return not self.error and not self.nodes


class ProviderProcess:
    """The provider, started when it is first needed, and again after a crash."""

    def __init__(self, provider_options: Mapping[str, str], timeout_s: float = 60, log: Path | None = None,
                 environment: Mapping[str, str] | None = None) -> None:  # fmt: skip
        self._options, self._timeout_s, self._log, self._environment = provider_options, timeout_s, log, environment
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def ask(self, model: Path, feeds: Mapping[str, Array] | None = None, runs: int = 1,
            session_options: Mapping[str, str] | None = None) -> Answer:  # fmt: skip
        """Open a model, and run it where inputs are given."""
        with tempfile.TemporaryDirectory() as name:
            given, made = Path(name) / "feeds.npz", Path(name) / "outputs.npz"
            if feeds is not None:
                np.savez(given, **feeds)  # type: ignore[arg-type]
            row = self._answer({
                "model": str(model), "feeds": None if feeds is None else str(given), "outputs": str(made), "runs": runs,
                "provider_options": dict(self._options), "session_options": dict(session_options or {}),
                "log_level": 3 if self._log is None else 0,
            })  # fmt: skip
            outputs = {}
            if made.exists():
                with np.load(made) as file:
                    outputs = dict(file)
        return Answer(**row, outputs=outputs)

    def stop(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            if self._reader is not None:
                self._reader.join()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self._child = None

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        child = self._started()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            line = self._lines.get(timeout=self._timeout_s)
        except queue.Empty:
            self.stop()
            return {"error": f"no answer after {self._timeout_s:g} s"}
        except BrokenPipeError:
            line = None
        if line is None:
            code = child.wait()
            self.stop()
            return {"error": f"the process ended with {code}"}
        row: dict[str, Any] = json.loads(line)
        return row

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            errors: int | IO[str] = subprocess.DEVNULL if self._log is None else self._log.open("w")
            self._child = subprocess.Popen(
                [PYTHON, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=tempfile.gettempdir(), env=self._environment,
            )  # fmt: skip
            assert self._child.stdout is not None
            self._lines = queue.Queue()
            self._reader = threading.Thread(target=_read, args=(self._child.stdout, self._lines), daemon=True)
            self._reader.start()
        return self._child


def _read(lines: Iterable[str], answers: queue.Queue[str | None]) -> None:
    for line in lines:
        answers.put(line)
    answers.put(None)


def version() -> str:
    """The versions of the installed onnxruntime-qnn and onnxruntime."""
    asked = "from importlib.metadata import version as v; print(v('onnxruntime-qnn'), v('onnxruntime'))"
    return subprocess.run([PYTHON, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
