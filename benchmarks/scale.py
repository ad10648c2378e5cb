# SPDX-License-Identifier: Apache-2.0
"""What spreading costs: `python -m benchmarks.scale [overhead] [memory] [calls] [--samples 1000000] [--rounds 2]`.

`overhead` evaluates the same samples on local processes and on as many of Ray's actors, on the same processors, in
turns: once few and once many, so that what lies between is what a sample costs and the rest what starting costs, in
time and in processor time of all processes, Ray's own among them. `memory` streams many small samples out of Parquet
shards and reads what this process and the workers have of their own in memory, on local processes and on Ray. `calls`
measures what the process that asks spends on a list of tasks, and what a worker's start costs. Needs the extra
`cluster`. Ray's workers have the priority of local processes here: Ray gives them a lower one, which would count where
other work takes the same processors.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.cluster.ray_actors import actors
from hexforge.analysis.workers import ProcessWorker, WorkerCode, WorkerPool, Workers

PARTS = ("overhead", "memory", "calls")
WIDTH = 16
ROWS = 10_000
"""Samples of a shard."""
MARKS = 10
"""How often memory is read."""
STORE_BYTES = 200 << 20
LISTS = 1000
"""Lists of tasks that are handed out to be timed."""


@dataclass(frozen=True, slots=True)
class Case:
    """Samples and a model whose overhead is measured."""

    name: str
    backend: str
    shape: tuple[int, ...]
    few: int
    many: int
    shard: int
    """Samples of a shard."""
    write: Callable[[Path], Path]


def save_model(path: Path, nodes: list[Any], ends: tuple[list[int], list[int]], weights: list[Any]) -> Path:
    """A model from x to y."""
    shown = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("xy", ends, strict=True)]
    graph = helper.make_graph(nodes, path.stem, shown[:1], shown[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def product_model(path: Path) -> Path:
    """One product of a vector."""
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return save_model(path, nodes, ([1, WIDTH], [1, WIDTH]), [numpy_helper.from_array(weight, "w")])


def picture_model(path: Path) -> Path:
    """Four convolutions of a picture of 32 x 32, then ten classes: 4 million products."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i, (inner, outer, stride) in enumerate(((3, 16, 1), (16, 32, 2), (32, 64, 2), (64, 64, 1))):
        weight = random.standard_normal((outer, inner, 3, 3)) / (9 * inner) ** 0.5
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{i}"))
        pads: dict[str, Any] = {"pads": [1, 1, 1, 1], "strides": [stride, stride]}
        nodes += [
            helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], **pads),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"]),
        ]
        last = f"r{i}"
    weights.append(numpy_helper.from_array((random.standard_normal((64, 10)) / 8).astype(np.float32), "w"))
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["p"]))
    nodes += [helper.make_node("Flatten", ["p"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    return save_model(path, nodes, ([1, 3, 32, 32], [1, 10]), weights)


CASES = (
    Case("tiny: 16 numbers, one product in onnxruntime", "ort", (WIDTH,), 10_000, 110_000, 10_000, product_model),
    Case(
        "small: a picture of 3 x 32 x 32, four convolutions on htp", "htp", (3, 32, 32), 500, 20_500, 250, picture_model
    ),
)


def write_shards(folder: Path, count: int, shape: tuple[int, ...], shard: int = ROWS) -> Path:
    """Parquet shards of samples with labels."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    random, size = np.random.default_rng(1), int(np.prod(shape))
    for number, start in enumerate(range(0, count, shard)):
        rows = min(shard, count - start)
        values = pa.array(random.standard_normal(rows * size, np.float32))
        column = pa.FixedSizeListArray.from_arrays(values, size)
        labels = pa.array(np.arange(start, start + rows) % 10)
        parquet.write_table(pa.table({"x": column, "label": labels}), folder / f"{number:05}.parquet")
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
        model = product_model(folder / "model.onnx")
        shards = write_shards(folder / "shards", samples, (WIDTH,))
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
                    share = len(rows) * 100 // MARKS
                    print(
                        f"  after {share:3} %: driver {rows[-1][0]:6.0f} MiB, largest worker {rows[-1][1]:6.0f} MiB",
                        flush=True,
                    )

            print(f"{words}:")
            found = hexforge.evaluate(
                model, shards, "dataset", backend="ort", jobs=jobs, cluster=cluster, progress=seen
            )
            took = time.perf_counter() - began
            grown = [last - first for first, last in zip(rows[1], rows[-1], strict=True)]
            print(f"  growth from 20 % to 100 %: driver {grown[0]:+.0f} MiB, worker {grown[1]:+.0f} MiB")
            print(f"  {found.samples:,} samples in {took:.0f} s, {took / found.samples * 1e6:.0f} us a sample")


def start_ray(jobs: int) -> None:
    """Ray on this machine, with as many processors."""
    import ray

    if not ray.is_initialized():
        ray.init(
            address="local", num_cpus=jobs, include_dashboard=False, log_to_driver=False, logging_level="error",
            object_store_memory=STORE_BYTES, _system_config={"worker_niceness": 0},
        )  # fmt: skip


def processor_seconds() -> dict[int, float]:
    """What this process and all that it has started have computed, by process."""
    parents, seconds, tick = {}, {}, os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(") ")[2].split() if entry.name.isdecimal() else None
        except OSError:
            continue
        if fields is not None:
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / tick
    mine = dict[int, float]()
    for process, own in seconds.items():
        above = process
        while above and above != os.getpid():
            above = parents.get(above, 0)
        if above:
            mine[process] = own
    return mine


@contextmanager
def metered() -> Iterator[SimpleNamespace]:
    """The `seconds` and `processor_seconds` of what is done inside, processes that end on the way included."""
    cost, ended = SimpleNamespace(), threading.Event()
    before, seen = processor_seconds(), dict[int, float]()

    def watch() -> None:
        while not ended.wait(0.5):
            seen.update(processor_seconds())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    began = time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - began
    ended.set()
    watching.join()
    seen.update(processor_seconds())
    cost.processor_seconds = sum(own - before.get(process, 0.0) for process, own in seen.items())


def overhead(jobs: int, rounds: int) -> None:
    """Time the same evaluations on local processes and on Ray, in turns."""
    start_ray(jobs)
    for case in CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = case.write(folder / "model.onnx")
            sets = [write_shards(folder / str(n), n, case.shape, case.shard) for n in (case.few, case.many)]
            best: dict[str, list[tuple[float, float]]] = {}
            for _ in range(rounds):
                for words, cluster in (("--jobs", False), ("Ray", True)):
                    costs = []
                    for shards in sets:
                        with metered() as cost:
                            hexforge.evaluate(
                                model, shards, "dataset", backend=case.backend, jobs=jobs, cluster=cluster
                            )
                        costs.append((cost.seconds, cost.processor_seconds))
                    known = best.setdefault(words, costs)
                    best[words] = [(min(a[0], b[0]), min(a[1], b[1])) for a, b in zip(known, costs, strict=True)]
        print(f"{case.name}; {case.few:,} and {case.many:,} samples on {jobs} processes, the best of {rounds} rounds")
        each = {}
        for words, (few, many) in best.items():
            each[words] = [(m - f) / (case.many - case.few) * 1e6 for f, m in zip(few, many, strict=True)]
            start = [f - case.few * e / 1e6 for f, e in zip(few, each[words], strict=True)]
            print(
                f"  {words:7} {each[words][0]:7.1f} us a sample, {each[words][1]:7.1f} us of processors; to start "
                f"{start[0]:4.1f} s, {start[1]:4.1f} s of processors"
            )
        more = [ray / local - 1 for local, ray in zip(each["--jobs"], each["Ray"], strict=True)]
        print(f"  Ray over --jobs: {more[0]:+.1%} in time, {more[1]:+.1%} in processor time")


def gives_back() -> Callable[[int], int]:
    """The function of a task that is no work."""
    return lambda task: task


def calls(jobs: int) -> None:
    """Time lists of tasks that are no work, as the process that asks sees them."""
    start_ray(jobs)
    code = WorkerCode(gives_back, ())
    for words, (start, count) in (
        ("local processes", (partial(ProcessWorker, code), jobs)),
        ("Ray", actors(code, Workers(jobs, cluster=True))[:2]),
    ):
        pool = WorkerPool(start, count)
        with metered() as started:
            for future in [pool.submit([1]) for _ in range(count)]:
                future.result()
        own = time.process_time()
        with metered() as called:
            for future in [pool.submit([1]) for _ in range(LISTS)]:
                future.result()
        own = time.process_time() - own
        pool.close()
        print(
            f"{words}: {count} workers start in {started.seconds:.1f} s, {started.processor_seconds / count:.1f} s of "
            f"processors each; a list costs {1e3 * called.processor_seconds / LISTS:.2f} ms of processors, "
            f"{1e3 * own / LISTS:.2f} ms of them in the process that asks"
        )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples that `memory` streams")
    parser.add_argument("--rounds", type=int, default=2, help="how often `overhead` measures")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if "overhead" in given.parts:
        overhead(given.jobs, given.rounds)
    if "memory" in given.parts:
        memory(given.samples, given.jobs)
    if "calls" in given.parts:
        calls(given.jobs)


if __name__ == "__main__":
    main()
