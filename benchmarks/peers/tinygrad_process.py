# SPDX-License-Identifier: Apache-2.0
"""tinygrad as a peer of the gpu backend: a process for each model and device that measures when it is told to.

Its weights are on the device and its kernels jitted before anything is measured, and no search for better kernels runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.models.gpu_architectures import feeds


def median_ms(run: Callable[[], object], seconds: float) -> float:
    """The median of runs that take about so long together."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


def serve(path: Path) -> None:
    """Prepare a model, say so on a line, and answer every line of seconds with the milliseconds of a run.

    `resident`: inputs and results stay on the device; `hosted`: both are arrays of the host, as in our own runs.
    """
    from tinygrad import Device, GlobalCounters, Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    runner = OnnxRunner(str(path))
    for value in runner.graph_values.values():  # else every run copies them from the file
        if isinstance(value, Tensor):
            value.realize()
    arrays = feeds(path)
    jitted = TinyJit(lambda **inputs: next(iter(runner(inputs).values())).realize())
    data = {name: Tensor(array).realize() for name, array in arrays.items()}
    for _ in range(4):
        result = jitted(**data).numpy()
    GlobalCounters.reset()
    jitted(**data)
    device = Device[Device.DEFAULT]
    renderer = type(device.renderer).__name__
    ready = {"renderer": renderer, "kernels": GlobalCounters.kernel_count, "result": result.ravel()[:64].tolist()}
    print(json.dumps(ready), flush=True)

    def resident() -> None:
        jitted(**data)
        device.synchronize()

    def hosted() -> None:
        jitted(**{name: Tensor(array).realize() for name, array in arrays.items()}).numpy()

    for line in sys.stdin:
        seconds = float(line)
        print(json.dumps({"resident": median_ms(resident, seconds), "hosted": median_ms(hosted, seconds)}), flush=True)


class Tinygrad:
    """tinygrad with one model on one device (CL, CUDA), in a process of its own."""

    def __init__(self, path: Path, device: str) -> None:
        self.name = f"tinygrad {device}"
        self.failure = ""
        self.about: dict[str, object] = {}
        self.times: list[dict[str, float]] = []
        command = [sys.executable, "-m", "benchmarks.peers.tinygrad_process", str(path)]
        environment = {**os.environ, "DEV": device}
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  (open as long as the process)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, env=environment
        )

    def prepare(self, until: float) -> None:
        """Wait until it is ready, at most to that time of time.monotonic."""
        timer = threading.Timer(max(0.1, until - time.monotonic()), self._process.kill)
        timer.start()
        self.about = self._answer("nothing said in time")
        timer.cancel()

    def measure(self, seconds: float) -> None:
        """Measure once, if it works."""
        if self.failure or self._process.stdin is None:
            return
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        if answer := self._answer("it ended"):
            self.times.append({k: float(str(v)) for k, v in answer.items()})

    def best(self, kind: str) -> float | str:
        """The best time of a kind, or why there is none."""
        return min(t[kind] for t in self.times) if self.times else self.failure or "not measured"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self, otherwise: str) -> dict[str, object]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        self._process.wait()
        self._said.seek(0)
        said = self._said.read().strip().splitlines()
        self.failure = said[-1][:160] if said else otherwise
        return {}


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
