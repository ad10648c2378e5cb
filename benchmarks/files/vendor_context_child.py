# SPDX-License-Identifier: Apache-2.0
"""Compiles a model into a context model and loads that again with the vendor's package; `contexts.py` starts this."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnxruntime
import onnxruntime_qnn

EP = "QNNExecutionProvider"
SOC_MODEL = "60"


def session(path: str, **entries: str) -> float:
    """Milliseconds to make a session."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for key, value in entries.items():
        options.add_session_config_entry(f"ep.{key}", value)
    chosen = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "soc_model": SOC_MODEL}
    options.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == EP], chosen)
    start = time.perf_counter()
    onnxruntime.InferenceSession(path, options)
    return 1e3 * (time.perf_counter() - start)


def loaded(path: str, rounds: int) -> None:
    """Milliseconds of each load in this process, which did not compile; the first does not count."""
    print(json.dumps([session(path) for _ in range(rounds + 1)][1:]), flush=True)


def main() -> None:
    """One line of JSON: milliseconds to compile, milliseconds of each load, bytes of the context."""
    model, rounds = sys.argv[1], int(sys.argv[2])
    onnxruntime.register_execution_provider_library(EP, onnxruntime_qnn.get_library_path())
    if "--load" in sys.argv:
        loaded(model, rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "c_ctx.onnx"
        compiled = session(model, context_enable="1", context_file_path=str(made))
        size = sum(p.stat().st_size for p in Path(folder).iterdir())
        child = [sys.executable, __file__, str(made), str(rounds), "--load"]
        done = subprocess.run(child, capture_output=True, text=True, check=True)
        loads = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    print(json.dumps({"compile_ms": compiled, "load_ms": loads, "bytes": size}), flush=True)


if __name__ == "__main__":
    main()
