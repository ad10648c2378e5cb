# SPDX-License-Identifier: Apache-2.0
"""How long estimates take, of one chip, of many, and of larger models: `python -m benchmarks.estimate_speed [--json]`.

One core, process CPU time, the least of some rounds, from the file to the timeline.

    one       one estimate. The peer is onnxruntime making a session of the same file, the least anyone does with a
              model before it runs; the floor is reading the file's bytes.
    sweep     `hexforge.estimates` of 20 chips, and of all chips at three precisions. The peer is one estimate of the
              same model in the same run: 20 chips may take 3 times as long.
    command   `hexforge estimate MODEL --soc all`, from the start of the process to its end.
    growth    chains of 625 to 10,000 nodes; n log n at most.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.latency.measurements import DATA
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import SOCS

TOPOLOGIES = DATA / "topologies"
PRECISION = "w8a8"
CHIPS = 20
LIMITS = {
    "resnet50": 0.4, "beit": 1.0, "detr_resnet50": 1.0, "conditional_detr_resnet50": 1.0, "bert_base_uncased_hf": 3.0,
    "chain of 5000": 15.0,
}  # fmt: skip
"""Seconds that one estimate may take."""
SWEEP_LIMIT = 3.0
"""Times one estimate that 20 chips may take."""
COMMAND_LIMIT = 3.0
"""Seconds that `--soc all` may take for ResNet50."""
PARTS = ("one", "sweep", "command", "growth")

Row = dict[str, Any]


def chain(nodes: int, folder: Path) -> Path:
    """A residual network of about so many nodes: convolutions, activations and sums."""
    weight = numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), "w")
    made, value = [], "x"
    while len(made) < nodes:
        i = len(made)
        made.append(helper.make_node("Conv", [value, "w"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        made.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"relu{i}"))
        made.append(helper.make_node("Sigmoid", [f"r{i}"], [f"s{i}"], f"sigmoid{i}"))
        made.append(helper.make_node("Add", [f"s{i}", value], [f"a{i}"], f"add{i}"))
        value = f"a{i}"
    shape = [1, 16, 28, 28]
    graph = helper.make_graph(
        made,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        [weight],
    )
    path = folder / f"chain{nodes}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    """The least process CPU time of some rounds."""
    best = math.inf
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def session(path: Path) -> onnxruntime.InferenceSession:
    """What the peer does."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def estimate(path: Path, precision: str = PRECISION) -> object:
    """One estimate, as people ask for it."""
    return hexforge.estimate(path, Deployment(precision=precision), cpu_part=False)


def sweep(path: Path, chips: Iterable[str], precisions: Sequence[str]) -> list[object]:
    """The estimates of several chips and precisions."""
    wanted = [Deployment(chip, precision) for precision in precisions for chip in chips]
    return list(hexforge.estimates(path, wanted, cpu_part=False))


def one_estimate(files: dict[str, Path], rounds: int) -> list[Row]:
    """One estimate of each file, its peer and its floor."""
    rows = []
    for name, path in files.items():
        mine = cpu_seconds(partial(estimate, path), rounds)
        peer = cpu_seconds(partial(session, path), rounds)
        read = cpu_seconds(partial(onnx.load, path), rounds)
        rows.append(
            {
                "model": name, "estimate_s": mine, "limit_s": LIMITS[name], "onnxruntime_session_s": peer,
                "ratio": mine / peer, "read_s": read,
            }
        )  # fmt: skip
        print_rows(rows[-1:], header=len(rows) == 1)
    return rows


def sweeps(files: dict[str, Path], rounds: int) -> list[Row]:
    """Many chips of each file against one."""
    every = [chip.name for chip in SOCS]
    twenty = every[:CHIPS]
    rows = []
    for name, path in files.items():
        one = cpu_seconds(partial(estimate, path), rounds)
        many = cpu_seconds(partial(sweep, path, twenty, [PRECISION]), rounds)
        whole = cpu_seconds(partial(sweep, path, every, ["float", "w8a8", "w8a16"]), 1)
        rows.append(
            {
                "model": name, "one_s": one, f"{CHIPS}_chips_s": many, "ratio": many / one, "limit": SWEEP_LIMIT,
                f"{len(every)}_chips_3_precisions_s": whole, "core_ms_an_estimate": 1e3 * whole / (3 * len(every)),
            }
        )  # fmt: skip
        print_rows(rows[-1:], header=len(rows) == 1)
    return rows


def command(path: Path) -> list[Row]:
    """The command for all chips, a process of its own; the peer is the command for one chip."""
    seconds = []
    for chips in ("SM8650", "all"):
        before = os.times()
        program = [sys.executable, "-m", "hexforge", "estimate", str(path), "--soc", chips, "--json"]
        subprocess.run(program, check=True, capture_output=True)
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    one, many = seconds
    rows = [{"model": path.stem, "one_chip_s": one, "all_chips_s": many, "ratio": many / one, "limit_s": COMMAND_LIMIT}]
    print_rows(rows)
    return rows


def growth(folder: Path, rounds: int) -> list[Row]:
    """How long chains take by their length."""
    rows = []
    for nodes in (625, 1250, 2500, 5000, 10000):
        path = chain(nodes, folder)
        seconds = cpu_seconds(partial(estimate, path), rounds)
        each = 1e6 * seconds / nodes
        rows.append({"nodes": nodes, "s": seconds, "us_a_node": each, "over_log2": each / math.log2(nodes)})
        print_rows(rows[-1:], header=len(rows) == 1)
    slope = np.polyfit(np.log([row["nodes"] for row in rows]), np.log([row["s"] for row in rows]), 1)[0]
    say(f"grows as nodes ** {slope:.2f}; n log n over this range is nodes ** 1.13")
    return rows


def print_rows(rows: Sequence[Row], header: bool = True) -> None:
    """Rows of a table, which standard error has where standard output is JSON."""
    width = max(len(name) for name in LIMITS)
    if header:
        say(
            "\n"
            + " ".join(f"{key:>{max(width, len(key))}}" if i else f"{key:{width}}" for i, key in enumerate(rows[0]))
        )
    for row in rows:
        cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()]
        pairs = zip(row, cells, strict=True)
        say(" ".join(f"{c:>{max(width, len(key))}}" if i else f"{c:{width}}" for i, (key, c) in enumerate(pairs)))


def say(line: str) -> None:
    """A line for people."""
    print(line, file=sys.stderr if "--json" in sys.argv else sys.stdout, flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="the tables as JSON on standard output")
    given = parser.parse_args()
    wanted = given.parts or PARTS
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    estimate(TOPOLOGIES / "resnet18.onnx")  # imports
    files = {name: TOPOLOGIES / f"{name}.onnx" for name in LIMITS if not name.startswith("chain")}
    tables: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "one" in wanted:
            tables["one"] = one_estimate({**files, "chain of 5000": chain(5000, Path(folder))}, given.rounds)
        if "sweep" in wanted:
            tables["sweep"] = sweeps(files, given.rounds)
        if "command" in wanted:
            tables["command"] = command(files["resnet50"])
        if "growth" in wanted:
            tables["growth"] = growth(Path(folder), given.rounds)
    if given.json:
        print(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
