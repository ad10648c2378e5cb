# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a process that runs ResNet-50 A8: `python -m benchmarks.memory [FILE] [--json]`.

Measured in a fresh process, step by step: the bare interpreter, hexforge imported and a model of one node run once (so
what is imported on first use is in), the model loaded, the model run 20 times. The peak while running is counted from a
reset of the kernel's high-water mark after loading; the target is for that peak above the bare interpreter.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_MB = 120.0
_RUNS = 20


def _status(field: str) -> float:
    """A figure of this process in MB: VmRSS, VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024 / 1e6


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # makes VmHWM the present VmRSS


def _child(path: str, threads: int) -> dict[str, float]:
    """In the fresh process, before anything else is imported."""
    figures = {"interpreter": _status("VmRSS")}
    import numpy as np
    from onnx import TensorProto, helper

    import hexforge

    def session(source: str | bytes) -> hexforge.InferenceSession:
        options = hexforge.SessionOptions()
        options.intra_op_num_threads = threads
        qnn = {"backend_type": "htp", "offload_graph_io_quantization": "0"}
        return hexforge.InferenceSession(source, options, providers=[("QNNExecutionProvider", qnn)])

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Sigmoid", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "warm", infos[:1], infos[1:])
    warm = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session(warm.SerializeToString()).run(None, {"x": np.zeros((1, 8), np.float32)})
    gc.collect()
    figures["imports"] = _status("VmRSS")
    _reset_peak()
    model = session(path)
    figures["peak of loading"] = _status("VmHWM")
    gc.collect()
    figures["loaded"] = _status("VmRSS")
    _reset_peak()
    random = np.random.default_rng(0)
    feeds = {i.name: random.random(tuple(map(int, i.shape)), np.float32) for i in model.get_inputs()}  # type: ignore[arg-type]
    for _ in range(_RUNS):
        model.run(None, feeds)
    figures["peak of running"] = _status("VmHWM")
    figures["arenas"] = sum(getattr(s.runner, "arena_bytes", 0) for s in model.stages) / 1e6
    return figures


def measure(path: Path, threads: int = 1) -> dict[str, float]:
    """MB of a fresh process at each step; SystemExit with its words if it fails."""
    command = [sys.executable, "-m", "benchmarks.memory", "--child", str(path), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{path}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main(arguments: list[str]) -> int:
    """Print the figures; 1 if the target is missed."""
    from rich.console import Console
    from rich.table import Table

    from benchmarks.quantized import file

    as_json = "--json" in arguments
    paths = [Path(a) for a in arguments if not a.startswith("--")]
    path = (paths[0] if paths else file("resnet50", "a8w8-int8")).absolute()
    figures = measure(path)
    used = figures["peak of running"] - figures["interpreter"]
    if as_json:
        print(json.dumps({"file": path.name, "mb": figures, "used_mb": used, "target_mb": MOST_MB}))
        return 1 if used > MOST_MB else 0
    table = Table("", "MB", "above the interpreter, MB", title=f"resident memory, {path.name}")
    for name, figure in figures.items():
        above = "" if name == "arenas" else f"{figure - figures['interpreter']:.1f}"
        table.add_row(name, f"{figure:.1f}", above)
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    own = figures["peak of running"] - figures["imports"]
    print(f"while running: {used:.1f} MB above the interpreter, {own:.1f} MB above the interpreter with its imports")
    verdicts = ["met" if figure <= MOST_MB else "missed" for figure in (used, own)]
    print(f"target: under {MOST_MB:g} MB: {verdicts[0]} above the bare interpreter, {verdicts[1]} above the imports")
    return 1 if used > MOST_MB else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(_child(sys.argv[2], int(sys.argv[3]))))
    else:
        raise SystemExit(main(sys.argv[1:]))
