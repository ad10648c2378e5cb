# SPDX-License-Identifier: Apache-2.0
"""Contexts: load against compile and the vendor's own, shared pages and weights: `python -m benchmarks.files.contexts`.

ResNet50 A8W8 (26 MB). A load is `hexforge.InferenceSession` on the context model, every checksum verified, in a process
that did nothing else before; the vendor's likewise. Targets: at least 20 times faster than compiling, no slower than
the vendor's load (`make peers`), two graphs that share all weights at most 1.05 times one on disk and in memory, three
MobileNets of other resolutions likewise. Floor: reading the file's bytes and their checksums. Last, files whose weights
lie in half as many bytes as they are multiplied in, by the processor's time and with one thread: loading one, its first
run, which makes what only runs need, and the next.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

import hexforge
from benchmarks.models.quantized import file
from benchmarks.peers.vendor import PYTHON, missing
from hexforge.formats.container import Container

_LOADER = """
import sys, json
import numpy as np
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.registry import backend
from hexforge import _native
def memory():
    rows = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
    return {k: int(rows[k].split()[0]) * 1024 for k in ("Pss", "Rss", "Private_Dirty", "Private_Clean")}
htp = backend()
before = memory()
context = Context(sys.argv[1])
programs = context.programs(sys.argv[2].split(",") if len(sys.argv) > 2 else None, htp)
for name, program in programs.items():
    feeds = {n: np.zeros(t.shape, t.dtype.numpy) for n, t in context.graph(name).inputs}
    for _ in range(4):  # until every thread has its working memory
        program.run(feeds)
del feeds
_native.release_free_memory()  # of the feeds, which are not the context's
print(json.dumps({"before": before, "ready": True}), flush=True)
sys.stdin.readline()
print(json.dumps({"after": memory()}), flush=True)
sys.stdin.readline()
"""


PROVIDER = {"soc_model": "60"}
"""The chip; all else is the default, as the vendor's package is asked."""


def options(**entries: str) -> hexforge.SessionOptions:
    """Session options with config entries."""
    session_options = hexforge.SessionOptions()
    for key, value in entries.items():
        session_options.add_session_config_entry(key.replace("__", "."), value)
    return session_options


def timed(model: Path, **entries: str) -> float:
    """Milliseconds to make a session."""
    start = time.perf_counter()
    hexforge.InferenceSession(str(model), options(**entries), providers=[("QNNExecutionProvider", PROVIDER)])
    return 1e3 * (time.perf_counter() - start)


_LOADS = """
import sys, time, json
import hexforge
def load():
    start = time.perf_counter()
    options = {"soc_model": "60"}
    hexforge.InferenceSession(sys.argv[1], providers=[("QNNExecutionProvider", options)])
    return 1e3 * (time.perf_counter() - start)
print(json.dumps([load() for _ in range(int(sys.argv[2]) + 1)][1:]))
"""


def fresh(model: Path, rounds: int) -> list[float]:
    """Milliseconds of each load in a new process; the first brings the libraries in and does not count."""
    command = [sys.executable, "-c", _LOADS, str(model), str(rounds)]
    times_ms: list[float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return times_ms


def floor(path: Path) -> float:
    """Milliseconds to map a file and verify its checksums."""
    start = time.perf_counter()
    Container(path).verify()
    return 1e3 * (time.perf_counter() - start)


class Loader:
    """A process that loads a context, runs its graphs a few times and waits."""

    def __init__(self, path: Path, graphs: str = "") -> None:
        command = [sys.executable, "-c", _LOADER, str(path), *([graphs] if graphs else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.before = self._line()["before"]

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def grown(self) -> dict[str, int]:
        """Bytes its memory has grown by since before the load, as things are now."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        after = self._line()["after"]
        return {key: after[key] - self.before[key] for key in after}

    def end(self) -> None:
        """End it."""
        self.process.communicate("\n")


def sharing(path: Path) -> None:
    """Two processes on one file."""
    first = Loader(path)
    alone = first.grown()
    first.end()
    pair = [Loader(path), Loader(path)]
    both = [p.grown() for p in pair]
    for p in pair:
        p.end()
    print(
        f"one process: {alone['Rss'] / 1e6:.1f} MB more resident; two processes of one file: proportional share "
        f"{sum(b['Pss'] for b in both) / 1e6:.1f} MB together (unshared it would be {2 * alone['Rss'] / 1e6:.1f})"
    )


def sizes(title: str, models: list[Path], folder: Path) -> None:
    """One context of the first graph and one of all, on disk and in memory."""
    one, every = folder / f"{title}_one.bin", folder / f"{title}_all.bin"
    hexforge.compile(models[:1], one, "SM8650")
    hexforge.compile(models, every, "SM8650")
    disk = every.stat().st_size / one.stat().st_size
    grown = []
    for path in (one, every):
        loader = Loader(path)
        grown.append(loader.grown()["Rss"])
        loader.end()
    print(
        f"{title}: {len(models)} graphs {every.stat().st_size / 1e6:.2f} MB, one {one.stat().st_size / 1e6:.2f} MB: "
        f"{disk:.3f} times on disk; in memory {grown[1] / 1e6:.1f} and {grown[0] / 1e6:.1f} MB: "
        f"{grown[1] / grown[0]:.2f} times"
    )


_WIDENED = """
import sys, time, json
import numpy as np
from hexforge.formats.container import Container
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.registry import backend
htp, times = backend(), []
def passed(action):
    start = time.process_time()
    result = action()
    times.append(1e3 * (time.process_time() - start))
    return result
for _ in range(2):  # the first brings libraries in, and the file
    del times[:]
    passed(lambda: Container(sys.argv[1]).verify())
    context = Context(sys.argv[1])
    name = context.graphs[0].name
    program = passed(lambda: context.programs([name], htp)[name])
    program.running.threads = 1
    feeds = {n: np.zeros(t.shape, t.dtype.numpy) for n, t in context.graph(name).inputs}
    for _ in range(3):
        passed(lambda: program.run(feeds))
    del program, context
print(json.dumps([times[0], times[1], times[2], min(times[3:])]))
"""


def widened(folder: Path, rounds: int) -> None:
    """Files whose weights are widened on their way to the products."""
    models = {"ten float Convs 3x3 of 512": _convolutions(folder / "ten.onnx")}
    models |= {f"{name} A16W8": file(name, "a16w8") for name in ("resnet50", "mobilenet_v2", "yolov8n", "ppocr_rec")}
    models |= {f"{name} float": file(name, "float") for name in ("resnet50", "mobilenet_v2")}
    heads = f"{'model MB':>8} {'MB':>6} {'checksums':>10} {'load':>7} {'first run':>10} {'next':>7}"
    print(f"{'processor ms, best':26} {heads}")
    for title, model in models.items():
        binary = folder / "widened.bin"
        hexforge.compile(model, binary, "SM8650")
        command = [sys.executable, "-c", _WIDENED, str(binary)]
        runs = [
            json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for _ in range(rounds)
        ]
        checked, load, first, later = (min(each) for each in zip(*runs, strict=True))
        print(
            f"{title:26} {model.stat().st_size / 1e6:8.1f} {binary.stat().st_size / 1e6:6.1f} {checked:10.1f} "
            f"{load:7.1f} {first:10.1f} {later:7.1f}"
        )


def _convolutions(path: Path) -> Path:
    """Ten 3x3 convolutions of 512 channels one after the other: 23.6 million weights."""
    rng = np.random.default_rng(0)
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, 512, 14, 14)) for n in ("v0", "v10")]
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal((512, 512, 3, 3), np.float32) / 68, f"w{i}") for i in range(10)
    ]
    nodes = [onnx.helper.make_node("Conv", [f"v{i}", f"w{i}"], [f"v{i + 1}"], pads=[1] * 4) for i in range(10)]
    graph = onnx.helper.make_graph(nodes, "ten", ends[:1], ends[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-vendor", action="store_true")
    parser.add_argument("--widened", action="store_true", help="the last table alone")
    given = parser.parse_args()
    if given.widened:
        with tempfile.TemporaryDirectory() as name:
            widened(Path(name), min(3, given.rounds))
        return
    model = file("resnet50", "a8w8-int8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = folder / "r_ctx.onnx"
        timed(model)  # imports
        compiled = [timed(model) for _ in range(3)]
        timed(model, ep__context_enable="1", ep__context_file_path=str(made))
        binary = folder / "r_ctx_qnn.bin"
        theirs: dict[str, Any] = {}
        if not given.no_vendor and not missing():
            done = subprocess.run(
                [PYTHON, Path(__file__).with_name("vendor_context_child.py"), model, str(given.rounds)],
                capture_output=True,
                text=True,
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith('{"compile_ms"')]
            theirs = json.loads(lines[-1]) if lines else {}
        loads, floors = fresh(made, given.rounds), [floor(binary) for _ in range(given.rounds)]
        print(f"{'ResNet50 A8W8':22} {'compile ms':>11} {'load ms':>8} {'faster':>7} {'MB':>6}")
        print(
            f"{'hexforge':22} {median(compiled):11.0f} {median(loads):8.1f} {median(compiled) / median(loads):6.0f}x "
            f"{binary.stat().st_size / 1e6:6.1f}   best load {min(loads):.1f}, floor (checksums) {median(floors):.1f}"
        )
        if theirs:
            load = median(theirs["load_ms"])
            print(
                f"{'onnxruntime-qnn 2.7.0':22} {theirs['compile_ms']:11.0f} {load:8.1f} "
                f"{theirs['compile_ms'] / load:6.0f}x {theirs['bytes'] / 1e6:6.1f}   best load "
                f"{min(theirs['load_ms']):.1f}; ours over theirs {median(loads) / load:.2f}"
            )
        else:
            print("onnxruntime-qnn: not installed (make peers)" if not given.no_vendor else "")
        sharing(binary)
        two = folder / "again.onnx"
        two.write_bytes(model.read_bytes())
        sizes("same_weights", [model, two], folder)
        sizes("mobilenets", mobilenets(folder), folder)
        widened(folder, min(3, given.rounds))


def mobilenets(folder: Path) -> list[Path]:
    """MobileNetV2 A8W8 at three resolutions, same weights and encodings."""
    model = onnx.load(file("mobilenet_v2", "a8w8-int8"))
    models = []
    for size in (224, 192, 160):
        del model.graph.value_info[:]
        for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
            dim.dim_value = size
        models.append(folder / f"mobilenet{size}.onnx")
        onnx.save(model, models[-1])
    return models


if __name__ == "__main__":
    main()
