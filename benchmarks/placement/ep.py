# SPDX-License-Identifier: Apache-2.0
"""The installed EP's placement of models, kept in a file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.peers.provider_process import EP, Answer, ProviderProcess, version

__all__ = ["EP", "OPTIONS", "Answer", "ExecutionProvider", "version"]

KEPT = Path(__file__).parents[2] / "build" / "placement" / "ep.json"
OPTIONS = {"soc_model": "60", "enable_htp_fp16_precision": "1", "offload_graph_io_quantization": "0"}
"""The chip every model is asked for; float models need one, and float16 precision. Every node is asked about, those
that quantize inputs and outputs too, which by default it leaves to the CPU unasked.
"""


class ExecutionProvider:
    """Answers for models, from the file or from the provider, which is started when it is first needed."""

    def __init__(self, kept: Path = KEPT, timeout_s: float = 60, log: Path | None = None) -> None:
        self._kept, self._log = kept, log
        self._process = ProviderProcess(OPTIONS, timeout_s, log)
        self._answers: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
        self._version = version()
        self._new = 0

    def __enter__(self) -> ExecutionProvider:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.stop()
        self._keep()

    def ask(self, model: bytes) -> Answer:
        """The EP's placement of a model."""
        key = hashlib.sha256(f"{self._version} {OPTIONS} ".encode() + model).hexdigest()[:32]
        if key not in self._answers or self._log is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                path.write_bytes(model)
                answer = dataclasses.asdict(self._process.ask(path))
            self._answers[key] = {kind: answer[kind] for kind in ("nodes", "error")}
            self._new += 1
            if self._new % 20 == 0:
                self._keep()
        return Answer(**self._answers[key])

    def _keep(self) -> None:
        if self._new:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            beside = self._kept.with_suffix(".new")
            beside.write_text(json.dumps(self._answers))
            beside.replace(self._kept)
