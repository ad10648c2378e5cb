# SPDX-License-Identifier: Apache-2.0
"""The installed EP's placement of models: asked in a child process that may crash or hang, and kept in a file."""

from __future__ import annotations

import hashlib
import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from benchmarks.peers.vendor import PYTHON

CHILD = Path(__file__).with_name("ep_child.py")
KEPT = Path(__file__).parents[2] / "build" / "placement" / "ep.json"
OPTIONS = {"soc_model": "60", "enable_htp_fp16_precision": "1", "offload_graph_io_quantization": "0"}
"""The chip every model is asked for; float models need one, and float16 precision. Every node is asked about, those
that quantize inputs and outputs too, which by default it leaves to the CPU unasked.
"""

EP = "QNNExecutionProvider"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the EP did with a model."""

    nodes: dict[str, list[list[str]]] = field(default_factory=dict)
    """provider -> [op type, name] of its nodes, after onnxruntime's own rewriting."""
    error: str = ""
    """Why there is no session."""

    @property
    def whole(self) -> bool:
        """True where the EP took every node that onnxruntime left in the model."""
        return not self.error and set(self.nodes) == {EP}

    @property
    def unread(self) -> bool:
        """True where onnxruntime refused the model itself, so that the EP was never asked."""
        return "Load model from" in self.error or "INVALID_GRAPH" in self.error

    @property
    def empty(self) -> bool:
        """True where onnxruntime folded the whole model away, so that there was nothing to place."""
        return not self.error and not self.nodes


class ExecutionProvider:
    """Answers for models, from the file or from the child, which is started when it is first needed."""

    def __init__(self, kept: Path = KEPT, timeout_s: float = 60, log: Path | None = None) -> None:
        self._kept, self._timeout_s, self._log = kept, timeout_s, log
        self._answers: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._version = version()
        self._new = 0

    def __enter__(self) -> ExecutionProvider:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        self._keep()

    def ask(self, model: bytes) -> Answer:
        """The EP's placement of a model."""
        key = hashlib.sha256(f"{self._version} {OPTIONS} ".encode() + model).hexdigest()[:32]
        if key not in self._answers or self._log is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                path.write_bytes(model)
                self._answers[key] = self._fresh(path)
            self._new += 1
            if self._new % 20 == 0:
                self._keep()
        return Answer(**self._answers[key])

    def _fresh(self, path: Path) -> dict[str, Any]:
        child = self._started()
        assert child.stdin is not None
        try:
            child.stdin.write(f"{path}\n")
            child.stdin.flush()
            line = self._lines.get(timeout=self._timeout_s)
        except queue.Empty:
            self._stop()
            return {"error": f"no answer after {self._timeout_s:g} s"}
        except BrokenPipeError:
            line = None
        if line is None:
            code = child.wait()
            self._stop()
            return {"error": f"the process ended with {code}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            errors: int | IO[str] = subprocess.DEVNULL if self._log is None else self._log.open("w")
            self._child = subprocess.Popen(
                [PYTHON, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=tempfile.gettempdir(),
            )  # fmt: skip
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            job = {"provider_options": OPTIONS, "log_level": 3 if self._log is None else 0}
            self._child.stdin.write(json.dumps(job) + "\n")
            self._lines = queue.Queue()
            threading.Thread(target=_read, args=(self._child.stdout, self._lines), daemon=True).start()
        return self._child

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _keep(self) -> None:
        if self._new:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            beside = self._kept.with_suffix(".new")
            beside.write_text(json.dumps(self._answers))
            beside.replace(self._kept)


def _read(lines: Iterable[str], answers: queue.Queue[str | None]) -> None:
    for line in lines:
        answers.put(line)
    answers.put(None)


def version() -> str:
    """The versions of the installed onnxruntime-qnn and onnxruntime."""
    asked = "from importlib.metadata import version as v; print(v('onnxruntime-qnn'), v('onnxruntime'))"
    return subprocess.run([PYTHON, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
