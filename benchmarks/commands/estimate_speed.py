# SPDX-License-Identifier: Apache-2.0
"""How long an estimate takes, and how that grows with the model: `python -m benchmarks.commands.estimate_speed`.

One core, process CPU time, from the file to the timeline: ResNet50 (at most 0.1 s), BERT-base (3 s), a chain of 5,000
nodes (15 s). The peer is onnxruntime making a session of the same file, the least anyone does with a model before it
runs; the floor is reading the file. Growth: seconds per node for chains of 625 to 10,000 nodes; n log n at most.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.chips.deployment import Deployment
from hexforge.latency.measurements import DATA

TOPOLOGIES = DATA / "topologies"
LIMITS = {"resnet50": 0.1, "bert_base_uncased_hf": 3.0, "chain of 5000": 15.0}


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


def main() -> None:
    """Print the table and the growth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    hexforge.estimate(TOPOLOGIES / "resnet18.onnx", Deployment(precision="w8a8"))  # imports
    with tempfile.TemporaryDirectory() as folder:
        files = {name: TOPOLOGIES / f"{name}.onnx" for name in ("resnet50", "bert_base_uncased_hf")}
        files["chain of 5000"] = chain(5000, Path(folder))
        print(
            f"{'model':24} {'estimate s':>10} {'limit s':>8} {'onnxruntime session s':>22} {'ratio':>6} {'read s':>7}"
        )
        for name, path in files.items():
            mine = cpu_seconds(lambda path=path: hexforge.estimate(path, Deployment(precision="w8a8")), given.rounds)  # type: ignore[misc]
            peer = cpu_seconds(lambda path=path: session(path), given.rounds)  # type: ignore[misc]
            read = cpu_seconds(lambda path=path: onnx.load(path), given.rounds)  # type: ignore[misc]
            print(f"{name:24} {mine:10.2f} {LIMITS[name]:8.1f} {peer:22.2f} {mine / peer:6.2f} {read:7.3f}", flush=True)
        print(f"\n{'nodes':>6} {'s':>7} {'us a node':>10} {'us a node / log2 nodes':>23}")
        sizes, seconds = (625, 1250, 2500, 5000, 10000), []
        for nodes in sizes:
            path = chain(nodes, Path(folder))
            seconds.append(
                cpu_seconds(lambda path=path: hexforge.estimate(path, Deployment(precision="w8a8")), given.rounds)  # type: ignore[misc]
            )
            each = 1e6 * seconds[-1] / nodes
            print(f"{nodes:6} {seconds[-1]:7.2f} {each:10.1f} {each / math.log2(nodes):23.2f}", flush=True)
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        print(f"grows as nodes ** {slope:.2f}; n log n over this range is nodes ** 1.13")


if __name__ == "__main__":
    main()
