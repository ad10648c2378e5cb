# SPDX-License-Identifier: Apache-2.0
"""How long a session takes to make, beside onnxruntime's: `python -m benchmarks.commands.session_creation [MODEL ...]`.

Six real models (`make models`): float with fixed shapes, float with the open shapes that their files have (fixed by
free-dimension overrides), and QDQ with 8 bits. Each figure is the least of several sessions in a fresh process that
has made a session of one node before; processor time of all threads, and seconds on the clock. `--before SRC` measures
the package in another tree's `src` folder in turn with this one, with this tree's native module.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.arguments import add_names

MODELS = ("yolov8n", "ppocr_det", "ppocr_rec", "ppocr_cls", "magika", "silero_vad")
KINDS = ("float", "open", "qdq")
REPEATS = 5
PROVIDERS = [("QNNExecutionProvider", {"backend_type": "htp", "soc_model": "57"})]


def _path(model: str, kind: str) -> Path:
    from benchmarks.models.quantized import MODELS as SOURCES
    from benchmarks.models.quantized import file
    from tests.models.fetch import FILES, stored

    if kind != "open":
        return file(model, "float" if kind == "float" else "a8w8-int8")
    name = SOURCES[model].source
    return next(stored(f) for files in FILES.values() for f in files if f.endswith(f"/{name}"))


def _overrides(model: str, path: Path) -> dict[str, int]:
    """The sizes of the open dimensions of a file, by name; none where one has no name to fix it by."""
    import onnx

    from benchmarks.models.quantized import MODELS as SOURCES

    feeds = SOURCES[model].feeds(0)
    sizes: dict[str, int] = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, feeds[value.name].shape if value.name in feeds else (), strict=False):
            if dim.dim_param:
                sizes[dim.dim_param] = size
            elif dim.dim_value <= 0:
                return {}
    return sizes


# -- in the process that measures ------------------------------------------------------------------------------------


def _use(source: str) -> None:
    """Import the package from another folder; the native module stays that of this environment."""
    native = importlib.util.find_spec("hexforge._native")
    assert native is not None
    assert native.loader is not None
    module = importlib.util.module_from_spec(native)
    native.loader.exec_module(module)
    for name in [name for name in sys.modules if name.partition(".")[0] == "hexforge"]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not hasattr(finder, "known_source_files")]
    sys.path.insert(0, source)
    sys.modules["hexforge._native"] = module


def _session(engine: str) -> Callable[[str, dict[str, int]], Any]:
    if engine == "onnxruntime":
        import onnxruntime as api
    else:
        import hexforge as api
    providers: list[Any] = ["CPUExecutionProvider"] if engine == "onnxruntime" else PROVIDERS

    def make(path: str, sizes: dict[str, int]) -> Any:
        options = api.SessionOptions()
        options.intra_op_num_threads = 1
        for name, size in sizes.items():
            options.add_free_dimension_override_by_name(name, size)
        return api.InferenceSession(path, options, providers=providers)

    return make


def _measure(engine: str, path: str, sizes: dict[str, int]) -> None:
    make = _session(engine)
    _warm(make)
    processor, clock = [], []
    for _ in range(REPEATS):
        used, began = time.process_time(), time.perf_counter()
        make(path, sizes)
        processor.append(time.process_time() - used)
        clock.append(time.perf_counter() - began)
    print(json.dumps({"processor": min(processor), "clock": min(clock)}))


def _warm(make: Callable[[str, dict[str, int]], Any]) -> None:
    """Make a session of one node, so that what is imported on first use is not counted."""
    from onnx import TensorProto, helper

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "warm", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm.onnx"
        path.write_bytes(model.SerializeToString())
        make(str(path), {})


# -- the table -------------------------------------------------------------------------------------------------------


def _figures(engine: str, path: Path, sizes: dict[str, int], source: str = "") -> dict[str, float]:
    child = [sys.executable, "-m", __spec__.name, "--measure", engine, str(path), json.dumps(sizes), source]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{path.name}, {engine}: {done.stderr.strip().splitlines()[-1]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _row(model: str, kind: str, before: str, rounds: int) -> str | None:
    path = _path(model, kind)
    sizes = _overrides(model, path) if kind == "open" else {}
    if kind == "open" and not sizes:
        return None
    engines = {"hexforge": "", "onnxruntime": "", **({"before": before} if before else {})}
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine, source in engines.items():
            runs[engine].append(_figures(engine, path, sizes, source))
    least = {engine: {k: min(r[k] for r in rows) * 1000 for k in rows[0]} for engine, rows in runs.items()}
    ours, theirs = least["hexforge"], least["onnxruntime"]
    cells = [model, kind, *(f"{figures[k]:.0f}" for figures in (ours, theirs) for k in ("processor", "clock"))]
    cells.append(f"{ours['processor'] / theirs['processor']:.1f}")
    if before:
        cells += [f"{least['before']['processor']:.0f}", f"{least['before']['processor'] / ours['processor']:.2f}"]
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="", metavar="SRC", help="the src folder of another tree")
    parser.add_argument("--rounds", type=int, default=2, help="processes for each figure, in turn")
    add_names(parser, "model", MODELS)
    chosen = parser.parse_args(arguments)
    heads = ["model", "kind", "hexforge, processor ms", "clock ms", "onnxruntime, processor ms", "clock ms", "ratio"]
    heads += ["before, processor ms", "before / now"] if chosen.before else []
    print(f"| {' | '.join(heads)} |\n|---|---|{'---:|' * (len(heads) - 2)}")
    for model in chosen.models:
        for kind in KINDS:
            if (row := _row(model, kind, chosen.before, chosen.rounds)) is not None:
                print(row, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        if sys.argv[5:] and sys.argv[5]:
            _use(sys.argv[5])
        _measure(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    else:
        main(sys.argv[1:])
