# SPDX-License-Identifier: Apache-2.0
"""What QNN's C API costs: a context in a C program beside the same graph in our session, in turns.

`python -m benchmarks.capi [MODEL ...] [--variant float] [--runs 40] [--rounds 5]`. Both have one core, and so one
thread. Of each model: the processor time of a run of `InferenceSession` and of `graphExecute` (the median of a round,
of all rounds the best; microseconds), their ratio, and what loading the context takes in C (milliseconds). Results are
compared bit by bit. The session is told to have Quantize and Dequantize of its border in its graph, as the context has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import hexforge
from benchmarks import ROOT
from benchmarks.arguments import add_names
from benchmarks.models.quantized import MODELS, VARIANTS, file
from hexforge.addons.capi.library import include_path, lib_path
from hexforge.ir import Array
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.request import ContextRequest

CLIENT = ROOT / "examples" / "capi" / "run_context.c"
OPTIONS = {"backend_type": "htp", "offload_graph_io_quantization": "0"}


def built(folder: Path) -> Path:
    """The C program."""
    program = folder / "run_context"
    command = ["cc", "-std=c11", "-O2", f"-I{include_path()}", str(CLIENT), "-o", str(program), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return program


def session_us(session: Any, feeds: dict[str, Array], runs: int) -> float:
    """The median of some runs."""
    times = []
    for _ in range(runs):
        begin = time.process_time_ns()
        session.run(None, feeds)
        times.append(time.process_time_ns() - begin)
    return statistics.median(times) / 1000


def measure(name: str, variant: str, program: Path, folder: Path, runs: int, rounds: int) -> str:
    """A row of the table."""
    model, context = file(name, variant), folder / f"{name}.bin"
    row = compile(model, context, "htp", ContextRequest(graph_names=("model",))).context.graphs[0]
    session = hexforge.InferenceSession(model, providers=[("QNNExecutionProvider", OPTIONS)])
    feeds = MODELS[name].feeds(7)
    results = dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))
    for target, tensors, arrays in (("in", row.inputs, feeds), ("out", row.outputs, results)):
        (folder / target).write_bytes(b"".join(np.ascontiguousarray(arrays[tensor]).tobytes() for tensor, _ in tensors))
    paths = [str(path) for path in (program, lib_path(), context, folder / "in", folder / "out")]
    command = [*paths[:3], "model", "1", str(runs), *paths[3:]]
    ours, theirs, opened = [], [], []
    for _ in range(rounds):
        ours.append(session_us(session, feeds, runs))
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert not said["python"], "Python was loaded to execute a context"
        theirs.append(said["cpu_us"])
        opened.append(said["open_us"])
    ratio = min(theirs) / min(ours)
    return f"| {name} {variant} | {min(ours):,.0f} | {min(theirs):,.0f} | {ratio:.3f} | {min(opened) / 1000:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", MODELS, ("squeezenet", "mobilenet_v2", "resnet50"))
    parser.add_argument("--variant", choices=VARIANTS, default="float")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = built(folder)
        print("| model | session us | C API us | ratio | load ms |")
        print("|---|---:|---:|---:|---:|")
        for model in given.models:
            print(measure(model, given.variant, program, folder, given.runs, given.rounds), flush=True)


if __name__ == "__main__":
    main()
