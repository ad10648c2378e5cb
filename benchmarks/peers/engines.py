# SPDX-License-Identifier: Apache-2.0
"""The engines that run in this process: hexforge, onnxruntime's CPU provider, and OpenVINO where it is installed."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import hexforge
from benchmarks import ROOT
from hexforge.backends.htp.numbers.program import HtpProgram

Array = np.ndarray[Any, Any]
Runner = Callable[[Mapping[str, Array]], dict[str, Array]]

_BLOCK_S = 0.04
"""An engine runs for about this long before the next one has its turn."""


def hexforge_session(path: Path, threads: int) -> hexforge.InferenceSession:
    """The model as a user gets it: QNNExecutionProvider with its default options."""
    options = hexforge.SessionOptions()
    options.intra_op_num_threads = threads
    return hexforge.InferenceSession(str(path), options, providers=["QNNExecutionProvider"])


def _hexforge(path: Path, threads: int) -> Runner:
    return _named(hexforge_session(path, threads))


def _onnxruntime(path: Path, threads: int) -> Runner:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return _named(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))


def _named(session: Any) -> Runner:
    names = [o.name for o in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, dict(feeds)), strict=True))


def _openvino(path: Path, threads: int) -> Runner:
    import openvino

    # float32 as asked, not the bfloat16 it chooses on CPUs with AMX
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(str(path), "CPU", config).create_infer_request()
    names = [next(iter(o.names)) for o in request.model_outputs]

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        request.infer(dict(feeds))
        return {name: request.get_output_tensor(i).data for i, name in enumerate(names)}

    return run


def settle_openvino(path: Path) -> str:
    """Find out, with a quantized model, whether OpenVINO runs here; what was done or is wrong, or nothing.

    On some virtual machines its AMX code dies of an illegal instruction: it is then held to AVX-512. That must happen
    before it is imported, and what dies takes its process along, so another process tries.
    """
    if "openvino" not in ENGINES:
        return "without OpenVINO: `make peers` installs it"
    code = "import sys; from pathlib import Path; from benchmarks.peers import engines; "
    code += "from benchmarks.models import quantized as q; "
    code += "engines.ENGINES['openvino'](Path(sys.argv[1]), 1)(q.MODELS[sys.argv[2]].feeds(0))"
    command = [sys.executable, "-c", code, str(path), path.name.partition(".")[0]]
    if not subprocess.run(command, capture_output=True, cwd=ROOT).returncode:
        return ""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
    done = subprocess.run(command, capture_output=True, cwd=ROOT, text=True)
    if not done.returncode:
        return "OpenVINO crashes with the instructions it chooses itself and is held to AVX-512"
    del ENGINES["openvino"], os.environ["ONEDNN_MAX_CPU_ISA"]
    return f"without OpenVINO, which ends with {done.returncode}: {' '.join(done.stderr.splitlines()[-1:])}"


ENGINES: dict[str, Callable[[Path, int], Runner]] = {"hexforge": _hexforge, "onnxruntime": _onnxruntime}
if importlib.util.find_spec("openvino") is not None:
    ENGINES["openvino"] = _openvino


@dataclass(slots=True)
class Times:
    """Milliseconds per inference, one figure per round."""

    ms: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The round that was disturbed least."""
        return min(self.ms)

    @property
    def median(self) -> float:
        """The round in the middle."""
        return statistics.median(self.ms)

    def __str__(self) -> str:
        return f"{self.best:.1f} / {self.median:.1f}" if self.ms else "-"


def interleaved(
    runners: Mapping[str, Runner],
    feeds: Mapping[str, Array],
    rounds: int,
    clock: Callable[[], float],
    between: Callable[[], None] = lambda: None,
) -> dict[str, Times]:
    """Each engine in turn, round by round, so that what else the machine does meets all of them alike."""
    repeats = {}
    for name, run in runners.items():
        run(feeds)
        start = time.perf_counter()
        run(feeds)
        repeats[name] = max(1, min(20, round(_BLOCK_S / (time.perf_counter() - start))))
    times = {name: Times() for name in runners}
    for _ in range(rounds):
        for name, run in runners.items():
            between()
            run(feeds)  # the first one finds the caches full of another engine's weights
            start = clock()
            for _ in range(repeats[name]):
                run(feeds)
            times[name].ms.append((clock() - start) / repeats[name] * 1e3)
    return times


def cpu_times(
    runners: Mapping[str, Runner], feeds: Mapping[str, Array], rounds: int, between: Callable[[], None]
) -> dict[str, Times]:
    """CPU time of the whole process per inference."""
    return interleaved(runners, feeds, rounds, time.process_time, between)


def programs(session: hexforge.InferenceSession) -> list[HtpProgram]:
    """The compiled graphs of a session on the htp backend."""
    return [stage.runner for stage in session.stages if isinstance(stage.runner, HtpProgram)]


def macs(session: hexforge.InferenceSession) -> int:
    """Multiply-accumulates of one inference."""
    return sum(node.op.work(node.call).macs for graph in session.graphs for node in graph.nodes)
