# SPDX-License-Identifier: Apache-2.0
"""What spreading costs: `python -m benchmarks.scale [overhead] [memory] [--samples 1000000] [--jobs 2]`.

`overhead` evaluates the same samples on local processes and on as many of Ray's actors, on the same processors: the
last three quarters of them, when all workers work, and with all that it takes to start. `memory` streams many small
samples out of Parquet shards and reads what this process and the workers have of their own in memory, on local
processes and on Ray. Needs the extra `cluster`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hexforge

PARTS = ("overhead", "memory")
ROUNDS = 3
WIDTH = 16
ROWS = 10_000
"""Samples of a shard."""
MARKS = 10
"""How often memory is read."""


def write_model(path: Path, width: int, products: int) -> Path:
    """Products of a vector, one after the other."""
    random = np.random.default_rng(0)
    names = ["x", *(f"t{i}" for i in range(products - 1)), "y"]
    weights = [
        numpy_helper.from_array((random.standard_normal((width, width)) / width**0.5).astype(np.float32), f"w{i}")
        for i in range(products)
    ]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(products)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width]) for name in "xy"]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def write_shards(folder: Path, count: int, width: int) -> Path:
    """Parquet shards of samples with labels."""
    import pyarrow as pa
    from pyarrow import parquet

    random = np.random.default_rng(1)
    for shard, start in enumerate(range(0, count, ROWS)):
        rows = min(ROWS, count - start)
        values = pa.array(random.standard_normal(rows * width).astype(np.float32))
        column = pa.FixedSizeListArray.from_arrays(values, width)
        labels = pa.array(np.arange(start, start + rows) % width)
        parquet.write_table(pa.table({"x": column, "label": labels}), folder / f"{shard:05}.parquet")
    return folder


def own_bytes(process: int) -> int:
    """What a process has of its own in memory, without what it shares with others."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"RssAnon:\s+(\d+) kB", text)
    return int(match[1]) * 1024 if match else 0


def ray_processes() -> list[int]:
    """Processes that work for Ray."""
    names = {int(p.name): p / "cmdline" for p in Path("/proc").iterdir() if p.name.isdecimal()}
    found = []
    for process, name in names.items():
        try:
            if name.read_bytes().startswith((b"ray::_Actor", b"ray::Read", b"ray::_map_task", b"ray::MapWorker")):
                found.append(process)
        except OSError:
            continue
    return found


def memory(samples: int, jobs: int) -> None:
    """Stream samples and print what is in memory, every tenth of the way."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_model(folder / "model.onnx", WIDTH, 1)
        (folder / "shards").mkdir()
        shards = write_shards(folder / "shards", samples, WIDTH)
        for words, cluster in (("local processes", False), ("Ray", True)):
            if cluster:
                start_ray(jobs)
            children: Callable[[], list[int]] = (
                ray_processes if cluster else lambda: [p.pid or 0 for p in multiprocessing.active_children()]
            )
            rows: list[tuple[float, float]] = []
            began = time.perf_counter()

            def seen(done: int, total: int, rows: Any = rows, children: Any = children) -> None:
                if done % max(1, total // MARKS) == 0:
                    driver = own_bytes(os.getpid())
                    rows.append((driver / 2**20, max(map(own_bytes, children()), default=0) / 2**20))

            found = hexforge.evaluate(
                model, shards, "dataset", backend="ort", jobs=jobs, cluster=cluster, progress=seen
            )
            took = time.perf_counter() - began
            print(f"{found.samples:,} samples on {words}: {took:.0f} s, {took / found.samples * 1e6:.0f} us a sample")
            for part, (driver, worker) in enumerate(rows, 1):
                print(f"  after {part * 100 // MARKS:3} %: driver {driver:6.0f} MiB, largest worker {worker:6.0f} MiB")
            grown = [last - first for first, last in zip(rows[1], rows[-1], strict=True)]
            print(f"  growth from 20 % to 100 %: driver {grown[0]:+.0f} MiB, worker {grown[1]:+.0f} MiB")


def start_ray(jobs: int) -> None:
    """Ray on this machine, with as many processors."""
    import ray

    if not ray.is_initialized():
        ray.init(address="local", num_cpus=jobs, include_dashboard=False, log_to_driver=False, logging_level="error")


def overhead(jobs: int, samples: int) -> None:
    """Time the same evaluation on local processes and on Ray, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_model(folder / "model.onnx", 1024, 8)
        (folder / "shards").mkdir()
        shards = write_shards(folder / "shards", samples, 1024)
        best: dict[str, tuple[float, float]] = {}
        start_ray(jobs)
        for _ in range(ROUNDS):
            for words, cluster in (("--jobs", False), ("Ray", True)):
                times: list[float] = []

                def seen(done: int, of: int, times: list[float] = times) -> None:
                    times.append(time.perf_counter())

                began = time.perf_counter()
                hexforge.evaluate(model, shards, "dataset", backend="htp", jobs=jobs, cluster=cluster, progress=seen)
                half = len(times) // 4  # by then all workers work
                steady, whole = times[-1] - times[half], time.perf_counter() - began
                known = best.get(words, (steady, whole))
                best[words] = min(known[0], steady), min(known[1], whole)
    print(f"{samples} samples on {jobs} processes; the best of {ROUNDS} rounds")
    for words, (steady, whole) in best.items():
        print(f"  {words:8} {steady:7.2f} s for the last three quarters, {whole:7.2f} s with starting")
    more, seconds = best["Ray"][0] / best["--jobs"][0] - 1, best["Ray"][1] - best["--jobs"][1]
    print(f"  Ray takes {more:+.1%} more than --jobs; with starting {seconds:+.1f} s")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples that `memory` streams")
    parser.add_argument("--tasks", type=int, default=2000, help="samples that `overhead` evaluates")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if "overhead" in given.parts:
        overhead(given.jobs, given.tasks)
    if "memory" in given.parts:
        memory(given.samples, given.jobs)


if __name__ == "__main__":
    main()
