# SPDX-License-Identifier: Apache-2.0
"""How long loading and placing a model takes, and how much memory: `python -m benchmarks.files.loading [MODEL ...]`.

Each figure comes from a fresh process, which first imports everything and takes that as its baseline; the memory is the
growth of its peak. Targets for ResNet-50 (25 M parameters): under 2 s, and under 3 times the file's size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.arguments import add_names
from benchmarks.process_cost import peak_bytes

REPEATS = 3
MOST_SECONDS = 2.0
MOST_RATIO = 3.0


def _read() -> Callable[[str], str]:
    from hexforge.model.reader import read

    return lambda path: f"{len(read(path).ir.graph)} nodes"


def _place() -> Callable[[str], str]:
    from hexforge.backends.cpu import CpuBackend
    from hexforge.model.reader import read
    from hexforge.runtime.prepare import prepare_model

    def run(path: str) -> str:
        model = read(path)
        placements = prepare_model(model, CpuBackend()).placed.placements
        return f"{sum(p.taken for p in placements)} of {len(placements)} units taken"

    return run


def _session() -> Callable[[str], str]:
    import hexforge

    def run(path: str) -> str:
        session = hexforge.InferenceSession(path, providers=[("QNNExecutionProvider", {"backend_type": "cpu"})])
        return f"providers {len(session.get_providers())}"

    return run


def _onnxruntime() -> Callable[[str], str]:
    import onnxruntime

    def run(path: str) -> str:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return f"{len(session.get_outputs())} output"

    return run


STEPS = {
    "hexforge read": _read,
    "hexforge read + units + place (cpu)": _place,
    "hexforge session (cpu)": _session,
    "onnxruntime session": _onnxruntime,
}


def _measure(step: str, path: str) -> None:
    """In the fresh process: time and growth of the peak, as one line of JSON."""
    run = STEPS[step]()
    _warm(run)
    before, start = peak_bytes(), time.perf_counter()
    said = run(path)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "bytes": peak_bytes() - before, "said": said}))


def _warm(run: Callable[[str], str]) -> None:
    """Load a model of one node, so that what is imported on first use belongs to the baseline."""
    from onnx import TensorProto, helper

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "warm", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm.onnx"
        path.write_bytes(model.SerializeToString())
        run(str(path))


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a target is missed."""
    from rich.console import Console
    from rich.table import Table

    from benchmarks.models.architectures import MODELS

    parser = argparse.ArgumentParser(description=__doc__)
    add_names(parser, "model", MODELS)
    table = Table("model", "step", "time, s", "memory, MB", "memory / file", "time / onnxruntime", "result")
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in parser.parse_args(arguments).models:
            path = Path(folder) / f"{name}.onnx"
            MODELS[name](path)
            size = path.stat().st_size
            measured = {step: _best(step, path) for step in STEPS}
            theirs = measured["onnxruntime session"]["seconds"]
            for step, figures in measured.items():
                ratio = figures["bytes"] / size
                table.add_row(
                    f"{name} ({size / 1e6:.0f} MB)", step, f"{figures['seconds']:.2f}", f"{figures['bytes'] / 1e6:.0f}",
                    f"{ratio:.2f}", f"{figures['seconds'] / theirs:.1f}", str(figures["said"]),
                )  # fmt: skip
                if step.endswith("place (cpu)") and (figures["seconds"] > MOST_SECONDS or ratio > MOST_RATIO):
                    missed.append(name)
    Console(width=150).print(table)
    print(f"targets (read + units + place): under {MOST_SECONDS:g} s and {MOST_RATIO:g} times the file:", end=" ")
    print(f"missed by {', '.join(missed)}" if missed else "met")
    return 1 if missed else 0


def _best(step: str, path: Path) -> dict[str, float]:
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, "-m", "benchmarks.files.loading", "--measure", step, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{step}: {done.stderr.strip().splitlines()[-1]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    best: dict[str, float] = min(runs, key=lambda r: float(r["seconds"]))
    return best


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _measure(sys.argv[2], sys.argv[3])
    else:
        raise SystemExit(main(sys.argv[1:]))
