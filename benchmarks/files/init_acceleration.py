# SPDX-License-Identifier: Apache-2.0
"""What init_acceleration wins when a large context is loaded: `python -m benchmarks.files.init_acceleration`.

Loads with and without it take turns in one process, over a file that the system has in memory; the least of all rounds
is compared. The last column is how many processors worked for it on average: beside other programs it falls to 1 and
less, and little can be won. The device's virtual time for the same pair is an assumption, not a measurement.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.device.contexts.loading import ACCELERATED
from hexforge.backend import processors
from hexforge.runtime.contexts.load_contexts import ContextConfig, load_context

WIDTH = 2048


def large_context(folder: Path, layers: int) -> Path:
    """A context of so many float products, 8 MB each."""
    random = np.random.default_rng(0)
    nodes, constants, now = [], [], "x"
    for i in range(layers):
        weight = random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 40
        constants.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [now, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"]))
        now = f"r{i}"
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, WIDTH])
    made = helper.make_tensor_value_info(now, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "large", [given], [made], constants)
    model, path = folder / "large.onnx", folder / "large.bin"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    hexforge.compile(model, path, "SM8650")
    return path


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = large_context(Path(folder), given.layers)
        size = path.stat().st_size
        best: dict[bool, tuple[float, float]] = {False: (math.inf, 0.0), True: (math.inf, 0.0)}
        for _ in range(given.rounds):
            for accelerated in (False, True):
                wall, worked = time.perf_counter(), time.process_time()
                load_context(path, ContextConfig(init_acceleration=accelerated))
                taken = time.perf_counter() - wall, time.process_time() - worked
                best[accelerated] = min(best[accelerated], taken)
    print(f"{size / 1e6:.0f} MB, {processors()} processors, least of {given.rounds} rounds")
    print(f"{'init_acceleration':18} {'wall ms':>8} {'GB/s':>6} {'processors':>10}")
    for accelerated, (wall, worked) in best.items():
        print(f"{'on' if accelerated else 'off':18} {1e3 * wall:8.1f} {size / 1e9 / wall:6.2f} {worked / wall:10.2f}")
    ratio = best[True][0] / best[False][0]
    print(f"ratio of the walls {ratio:.2f}; the device's virtual time {ACCELERATED:.2f} (assumed)")


if __name__ == "__main__":
    main()
