# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.tflite.real_models [NAME ...]`: every .tflite of the packages, in LiteRT and here.

For each: nodes and those on the CPU, the estimate at runtime=tflite, how far the ONNX model is from LiteRT's reference
kernels and those are from LiteRT's own XNNPACK, in parts of the largest number, and the processor time of onnxruntime
with the ONNX model and of a session on the simulated NPU, each in parts of XNNPACK's, on one thread and in turns. Needs
ai-edge-litert (`make litert`).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime

import hexforge
from benchmarks.tflite.packages import files
from hexforge.addons.tflite.compare import difference, feeds_of, run_litert
from hexforge.addons.tflite.convert import onnx_model
from hexforge.addons.tflite.model_file import parse
from hexforge.errors import HexforgeError

TOLERANCE = 1e-4
NOISE = 4.0
"""How many times LiteRT's own difference between its kernels ours may be; sums are in another order in each."""
_TURNS = 9


@dataclass
class Row:
    """What came of a file."""

    nodes: int = 0
    on_cpu: int = 0
    ms: float = 0.0
    apart: float | None = None
    noise: float | None = None
    ratio: float | None = None
    on_npu: float | None = None
    problem: str = ""

    @property
    def verdict(self) -> str:
        """ok, or what is wrong."""
        if self.problem:
            return self.problem
        if self.apart is None or self.noise is None:
            return "LiteRT does not run it"
        return "ok" if self.apart <= max(TOLERANCE, NOISE * self.noise) else "DIFFERS"


def row_of(path: Path) -> Row:
    """One file."""
    row, data = Row(), path.read_bytes()
    try:
        made = onnx_model(parse(data, path.name)).SerializeToString()
        checked = hexforge.check(path)
        row.nodes, row.on_cpu = checked.totals["nodes"], checked.totals["refused"]
        row.ms = hexforge.estimate(path, hexforge.Deployment("SM8650", "as-is", "tflite")).latency_ms
    except HexforgeError as error:
        row.problem = str(error).split(";")[0].split("\n")[-1].strip()[:70]
        return row
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    try:
        inputs, wanted = run_litert(data)
        _, usual = run_litert(data, inputs, reference=False)
    except (RuntimeError, ValueError):
        return row
    feeds = feeds_of(session, inputs)
    got = session.run(None, feeds)
    row.apart = max(difference(w, g) for w, g in zip(wanted, got, strict=False))
    row.noise = max(difference(w, u) for w, u in zip(wanted, usual, strict=True))
    theirs = litert_call(data, inputs)
    row.ratio = in_turns(lambda: session.run(None, feeds), theirs)
    settings = hexforge.SessionOptions()
    settings.intra_op_num_threads = 1
    npu = [("QNNExecutionProvider", {"backend_type": "htp"})]
    simulated = hexforge.InferenceSession(path, settings, providers=npu)
    row.on_npu = in_turns(lambda: simulated.run(None, feeds), theirs)
    return row


def litert_call(data: bytes, inputs: list[Any]) -> Callable[[], Any]:
    """LiteRT with XNNPACK, ready to run."""
    from ai_edge_litert.interpreter import Interpreter

    judge = Interpreter(model_content=data, num_threads=1)
    judge.allocate_tensors()
    for detail, values in zip(judge.get_input_details(), inputs, strict=True):
        judge.set_tensor(detail["index"], values)
    return judge.invoke


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any]) -> float:
    """The time of the first in parts of the second, as the median of pairs of runs one after the other."""
    ours(), theirs()
    ratios = []
    for _ in range(_TURNS):
        marks = [time.process_time()]
        for call in (ours, theirs):
            call()
            marks.append(time.process_time())
        ratios.append((marks[1] - marks[0]) / max(marks[2] - marks[1], 1e-9))
    return statistics.median(ratios)


def main() -> None:
    """Print the table; exit code 1 where a file is neither right nor refused."""
    rows = {}
    for path in files():
        name = f"{path.parent.name}/{path.stem}"
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        row = rows[name] = row_of(path)
        numbers = [f"{value:.1e}" if value is not None else "-" for value in (row.apart, row.noise)]
        times = ["-" if ratio is None else f"{ratio:.2f}" for ratio in (row.ratio, row.on_npu)]
        print(f"{name[:62]:62} {row.nodes:5} {row.on_cpu:4} {row.ms:8.3f} {numbers[0]:>8} {numbers[1]:>8} "
              f"{times[0]:>6} {times[1]:>6}  {row.verdict}", flush=True)  # fmt: skip
    ratios = [row.ratio for row in rows.values() if row.ratio is not None]
    on_npu = [row.on_npu for row in rows.values() if row.on_npu is not None]
    verdicts = [row.verdict for row in rows.values()]
    print(f"{len(rows)} files: {verdicts.count('ok')} ok, {verdicts.count('DIFFERS')} differ, "
          f"{verdicts.count('LiteRT does not run it')} that LiteRT's Python does not run, "
          f"{sum(bool(row.problem) for row in rows.values())} refused; "
          f"whole on the NPU {sum(row.nodes > 0 and not row.on_cpu for row in rows.values())}; in parts of XNNPACK's "
          f"time onnxruntime takes {statistics.median(ratios):.2f} (median), a session on the simulated NPU "
          f"{statistics.median(on_npu):.2f}")  # fmt: skip
    sys.exit("DIFFERS" in verdicts)


if __name__ == "__main__":
    main()
