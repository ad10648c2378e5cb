# SPDX-License-Identifier: Apache-2.0
"""What sessions cost beside their kernels: `python -m benchmarks.htp.sessions [--rounds N] [--seconds S]`.

A run of one tiny node, what eight sessions that have run use of the processor while nothing is asked of them, and eight
sessions in eight threads against one. hexforge and onnxruntime each have a process of their own and take turns; of the
rounds the best counts, which other load on the machine disturbed least. The last column is hexforge's share of
onnxruntime's figure: less is better but for runs a second.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.peers.engines import hexforge_session

ENGINES = ("hexforge", "onnxruntime")
SESSIONS = 8
CHANNELS, SIZE, LAYERS = 64, 28, 6
ROWS = {
    "tiny_us": "a run of one Relu of 16 floats, us",
    "idle_ms": f"CPU time of {SESSIONS} idle sessions of 2 threads in a second, ms",
    "one": "convolutions, one session: runs a second",
    "eight": f"the same, {SESSIONS} sessions in {SESSIONS} threads: runs a second",
}


def tiny() -> onnx.ModelProto:
    """One node on 16 numbers."""
    return model([helper.make_node("Relu", ["x"], ["y"])], [1, 16], [])


def convolutions() -> onnx.ModelProto:
    """Layers of 3x3 convolutions, about 170 million products and sums."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(LAYERS):
        weight = random.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) / (3 * CHANNELS**0.5)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        out = "y" if i == LAYERS - 1 else f"r{i}"
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [out]))
        last = out
    return model(nodes, [1, CHANNELS, SIZE, SIZE], weights)


def model(nodes: list[Any], shape: list[int], weights: list[Any]) -> onnx.ModelProto:
    """A model from x to y, which has the same shape."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "sessions", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def session(engine: str, path: Path, threads: int) -> Any:
    """A session of an engine."""
    if engine == ENGINES[0]:
        return hexforge_session(path, threads)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measured(engine: str, folder: Path, seconds: float) -> dict[str, float]:
    """All figures of an engine, in this process."""
    short, long = {"x": np.ones((1, 16), np.float32)}, {"x": np.ones((1, CHANNELS, SIZE, SIZE), np.float32)}
    one = session(engine, folder / "tiny.onnx", 1)
    blocks = [_seconds(one, short, 300) for _ in range(max(3, int(seconds * 50)))]
    threaded = [session(engine, folder / "convolutions.onnx", 2) for _ in range(SESSIONS)]
    for each in threaded:
        each.run(None, long)
    time.sleep(0.1)  # threads that stay awake after a run sleep by then
    before = _processor_s()
    time.sleep(seconds)
    idle = (_processor_s() - before) / seconds
    several = [session(engine, folder / "convolutions.onnx", 1) for _ in range(SESSIONS)]
    return {
        "tiny_us": 1e6 * min(blocks),
        "idle_ms": 1e3 * idle,
        "one": _throughput(several[:1], long, seconds),
        "eight": _throughput(several, long, seconds),
    }


def _seconds(one: Any, feeds: dict[str, Any], runs: int) -> float:
    """Of one run, in a block of them."""
    begin = time.perf_counter()
    for _ in range(runs):
        one.run(None, feeds)
    return (time.perf_counter() - begin) / runs


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _throughput(sessions: list[Any], feeds: dict[str, Any], seconds: float) -> float:
    """Runs a second of sessions that each have a thread of their own."""
    end, counts = time.perf_counter() + seconds, [0] * len(sessions)

    def work(index: int) -> None:
        while time.perf_counter() < end:
            sessions[index].run(None, feeds)
            counts[index] += 1

    begin = time.perf_counter()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def main() -> None:
    """Measure both engines in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        print(json.dumps(measured(given.engine, given.folder, given.seconds)))
        return
    best: dict[str, dict[str, float]] = {engine: {} for engine in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(tiny(), Path(folder) / "tiny.onnx")
        onnx.save(convolutions(), Path(folder) / "convolutions.onnx")
        for _ in range(given.rounds):
            for engine in ENGINES:
                command = [sys.executable, "-m", "benchmarks.htp.sessions", "--engine", engine, "--folder", folder]
                done = subprocess.run([*command, "--seconds", str(given.seconds)], check=True, capture_output=True)
                for key, figure in json.loads(done.stdout).items():
                    choose = min if key.endswith(("_us", "_ms")) else max
                    best[engine][key] = choose(best[engine].get(key, figure), figure)
    ours, theirs = best[ENGINES[0]], best[ENGINES[1]]
    print(f"{'':58}{ENGINES[0]:>12}{ENGINES[1]:>14}{'ratio':>9}")
    for key, name in ROWS.items():
        ratio = ours[key] / theirs[key] if theirs[key] else float("nan")
        print(f"{name:58}{ours[key]:12.2f}{theirs[key]:14.2f}{ratio:9.2f}")
    gains = [best[engine]["eight"] / best[engine]["one"] for engine in ENGINES]
    print(f"{f'{SESSIONS} sessions against one':58}{gains[0]:12.2f}{gains[1]:14.2f}{gains[0] / gains[1]:9.2f}")


if __name__ == "__main__":
    main()
