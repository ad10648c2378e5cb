# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a process that runs ResNet-50 A8: `python -m benchmarks.htp.memory [FILE] [--json] [--context]`.

Measured in a fresh process, step by step: the bare interpreter, hexforge imported and a model of one node run once (so
what is imported on first use is in), the model loaded, the model run 20 times. The peak while running is counted from a
reset of the kernel's high-water mark after loading; the target is for that peak above the bare interpreter.

`--context` compares sessions of the model with sessions of a context that was compiled from it: the memory that a
process has for itself (anonymous), and its share of all (pages of a mapped file count once, however many sessions map
them).
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import ROOT

MOST_MB = 120.0
_RUNS = 20


def _status(field: str) -> float:
    """A figure of this process in MB: VmRSS, VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024 / 1e6


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # makes VmHWM the present VmRSS


def _small_model() -> bytes:
    """A model that is run first, so that what is imported on first use is in."""
    from onnx import TensorProto, helper

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Sigmoid", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "warm", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _child(path: str, threads: int) -> dict[str, float]:
    """In the fresh process, before anything else is imported."""
    figures = {"interpreter": _status("VmRSS")}
    import numpy as np

    import hexforge

    def session(source: str | bytes) -> hexforge.InferenceSession:
        options = hexforge.SessionOptions()
        options.intra_op_num_threads = threads
        return hexforge.InferenceSession(source, options, providers=["QNNExecutionProvider"])

    session(_small_model()).run(None, {"x": np.zeros((1, 8), np.float32)})
    gc.collect()
    figures["imports"] = _status("VmRSS")
    _reset_peak()
    model = session(path)
    figures["peak of loading"] = _status("VmHWM")
    gc.collect()
    figures["loaded"] = _status("VmRSS")
    _reset_peak()
    random = np.random.default_rng(0)
    feeds = {i.name: random.random(tuple(map(int, i.shape)), np.float32) for i in model.get_inputs()}
    for _ in range(_RUNS):
        model.run(None, feeds)
    figures["peak of running"] = _status("VmHWM")
    figures["arenas"] = sum(getattr(s.runner, "arena_bytes", 0) for s in model.stages) / 1e6
    return figures


def _sessions(path: str, context: str) -> list[tuple[int, float, float]]:
    """In a fresh process: anonymous memory and the share of all in MB, of one, two and four sessions that have run.

    Where `context` is named, it is written instead.
    """
    import numpy as np

    import hexforge

    def session(source: str | bytes = path, **entries: str) -> hexforge.InferenceSession:
        options = hexforge.SessionOptions()
        options.intra_op_num_threads = 1
        for key, value in entries.items():
            options.add_session_config_entry(f"ep.context_{key}", value)
        return hexforge.InferenceSession(source, options, providers=["QNNExecutionProvider"])

    def figures() -> tuple[float, float]:
        lines = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
        gc.collect()
        return tuple(int(lines[key].split()[0]) * 1024 / 1e6 for key in ("Private_Dirty", "Pss"))  # type: ignore[return-value]

    if context:
        session(enable="1", file_path=context, embed_mode="0")
        return []
    session(_small_model()).run(None, {"x": np.zeros((1, 8), np.float32)})
    before, growth, held = figures(), [], []
    for count in (1, 2, 4):
        held += [session() for _ in range(count - len(held))]
        feeds = {i.name: np.zeros(tuple(map(int, i.shape)), np.float32) for i in held[0].get_inputs()}
        for one in held:
            one.run(None, feeds)
        now = figures()
        growth.append((count, now[0] - before[0], now[1] - before[1]))
    return growth


def compare_contexts(path: Path) -> None:
    """Print what sessions of the model take, and sessions of its context."""
    with tempfile.TemporaryDirectory() as folder:
        context = str(Path(folder) / "context.onnx")
        steps = (("", [str(path), context]), ("the model", [str(path), ""]), ("its context", [context, ""]))
        for name, arguments in steps:
            command = [sys.executable, "-m", "benchmarks.htp.memory", "--sessions", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            if done.returncode:
                raise SystemExit(f"{path}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
            for count, anonymous, share in json.loads(done.stdout.splitlines()[-1]):
                print(f"{count} sessions of {name}: {anonymous:.1f} MB anonymous, {share:.1f} MB in all")


def measure(path: Path, threads: int = 1) -> dict[str, float]:
    """MB of a fresh process at each step; SystemExit with its words if it fails."""
    command = [sys.executable, "-m", "benchmarks.htp.memory", "--child", str(path), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{path}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main(arguments: list[str]) -> int:
    """Print the figures; 1 if the target is missed."""
    from rich.console import Console
    from rich.table import Table

    from benchmarks.models.quantized import file

    as_json = "--json" in arguments
    paths = [Path(a) for a in arguments if not a.startswith("--")]
    path = (paths[0] if paths else file("resnet50", "a8w8-int8")).absolute()
    if "--context" in arguments:
        compare_contexts(path)
        return 0
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
    elif sys.argv[1:2] == ["--sessions"]:
        print(json.dumps(_sessions(sys.argv[2], sys.argv[3])))
    else:
        raise SystemExit(main(sys.argv[1:]))
