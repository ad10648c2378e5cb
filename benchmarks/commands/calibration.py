# SPDX-License-Identifier: Apache-2.0
"""Calibration: hexforge against onnxruntime's own calibrators on the same files and samples, time and memory.

`python -m benchmarks.commands.calibration [MODEL ...] [--rounds 3] [--full] [--no-memory]`

Both start with the file of the same float model and end with the ranges of all its float tensors, taking turns in one
process; the figures are the best of the rounds. CPU is the time of all threads together, the stable figure on a shared
machine, wall the time on the clock. Inference is onnxruntime's plain run of the same samples: the floor. Memory is
the peak of fresh processes that calibrate one model with few and with many samples (300, with --full 1,000).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator
from rich.console import Console
from rich.table import Table

from benchmarks import ROOT
from benchmarks.arguments import add_names
from benchmarks.models.architectures import resnet50
from benchmarks.process_cost import peak_bytes
from hexforge.ir import DType
from hexforge.model.reader import read
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.samples import samples
from hexforge.quant.decide.ranges import range_of
from tests.models.fetch import FILES, stored

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
    "entropy": CalibrationMethod.Entropy,
}
MOST_RATIO = {"minmax": 1.0, "percentile": 0.5, "entropy": 0.5}
"""hexforge's CPU time over onnxruntime's."""
MOST_GROWTH_BYTES = 50 << 20
"""Between few and many samples."""

_FEW, _MANY, _FULL = 10, 300, 1000


@dataclass(frozen=True, slots=True)
class _Model:
    file: str
    shapes: dict[str, list[int]]
    samples: int


MODELS = {
    "digits": _Model("", {}, 256),
    "ppocr_rec": _Model("ch_PP-OCRv4_rec_infer.onnx", {"x": [1, 3, 48, 320]}, 6),
    "nudenet": _Model("320n.onnx", {"images": [1, 3, 320, 320]}, 6),
    "resnet50": _Model("", {}, 6),
    "ppocr_cls": _Model("ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": [1, 3, 48, 192]}, 16),
}
_MEMORY_MODEL = "ppocr_cls"


def prepared(name: str, folder: Path) -> Path:
    """The file of a model, simplified and of fixed shape."""
    model, path = MODELS[name], folder / f"{name}.onnx"
    if name == "resnet50":
        resnet50(folder / "source.onnx")
        source = folder / "source.onnx"
    elif name == "digits":
        source = ROOT / "tests" / "digits" / "digits.onnx"
    else:
        source = next(stored(f) for files in FILES.values() for f in files if f.endswith(model.file))
    simplified = read(source, shapes=model.shapes).ir
    simplified.metadata_props.clear()
    onnx_ir.save(simplified, path)
    return path


def hexforge_ranges(path: Path, data: Sequence[dict[str, Any]], method: str) -> dict[str, tuple[float, float]]:
    """Ranges by hexforge."""
    statistics = calibrate(onnx_ir.load(path), data, histogram=method != "minmax")
    wanted = f"{method}=99.999" if method == "percentile" else method  # onnxruntime's default
    return {name: range_of(tensor, wanted, DType.UINT8, False) for name, tensor in statistics.items()}


class _Reader(CalibrationDataReader):
    def __init__(self, data: Sequence[dict[str, Any]]) -> None:
        self.rest = iter(data)

    def get_next(self) -> dict[str, Any] | None:
        return next(self.rest, None)


def onnxruntime_ranges(path: Path, data: Sequence[dict[str, Any]], method: str) -> dict[str, tuple[float, float]]:
    """Ranges by onnxruntime's calibrators, which print what they do."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        augmented = Path(folder) / "augmented.onnx"
        wanted = METHODS[method]
        calibrator = create_calibrator(path, augmented_model_path=augmented.as_posix(), calibrate_method=wanted)
        calibrator.collect_data(_Reader(data))
        ranges = calibrator.compute_data()
    return {name: tuple(float(np.ravel(v)[0]) for v in ranges[name].range_value) for name in ranges}  # type: ignore[misc]


def _infer(path: Path, data: Sequence[dict[str, Any]], method: str) -> None:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for feeds in data:
        session.run(None, feeds)


TOOLS: dict[str, Callable[[Path, Sequence[dict[str, Any]], str], Any]] = {
    "hexforge": hexforge_ranges,
    "onnxruntime": onnxruntime_ranges,
    "inference": _infer,
}


def measure(path: Path, data: Sequence[dict[str, Any]], method: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Best CPU and wall seconds of each tool."""
    runs_of: dict[str, list[tuple[float, float]]] = {tool: [] for tool in TOOLS}
    for _ in range(rounds):
        for tool, run in TOOLS.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run(path, data, method)
            runs_of[tool].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {tool: (min(c for c, _ in runs), min(w for _, w in runs)) for tool, runs in runs_of.items()}


def _data(path: Path, count: int) -> list[dict[str, Any]]:
    return [dict(feeds) for feeds in samples(f"random:{count}", onnx_ir.load(path))]


def _peak(tool: str, path: Path, count: int) -> int:
    command = [sys.executable, "-m", "benchmarks.commands.calibration", "--child", tool, str(path), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{tool} with {count} samples: {(done.stderr.strip() or 'killed').splitlines()[-1]}")
    return int(json.loads(done.stdout.splitlines()[-1]))


def _child(tool: str, path: str, count: int) -> None:
    model = Path(path)
    data: Any = samples(f"random:{count}", onnx_ir.load(model))  # made when they are asked for
    TOOLS[tool](model, data, "percentile")
    print(json.dumps(peak_bytes()))


def times(names: Sequence[str], folder: Path, rounds: int, console: Console) -> list[str]:
    """Print times; what misses its target."""
    head = ("model", "samples", "method", "hexforge, s", "onnxruntime, s", "ratio", "target", "wall ratio")
    table = Table(*head, "inference, s")
    missed = []
    for name in names:
        path = prepared(name, folder)
        data = _data(path, MODELS[name].samples)
        for method in METHODS:
            seconds = measure(path, data, method, rounds)
            (ours, our_wall), (theirs, their_wall), (floor, _) = (seconds[t] for t in TOOLS)
            ratio = ours / theirs
            if ratio > MOST_RATIO[method]:
                missed.append(f"{name} {method}")
            table.add_row(
                name, str(len(data)), method, f"{ours:.3f}", f"{theirs:.3f}", f"{ratio:.2f}",
                f"{MOST_RATIO[method]:g}", f"{our_wall / their_wall:.2f}", f"{floor:.3f}",
            )  # fmt: skip
    console.print(table)
    return missed


def memory(folder: Path, many: int, console: Console) -> list[str]:
    """Print peaks; what misses its target."""
    path = prepared(_MEMORY_MODEL, folder)
    table = Table(f"percentile, {_MEMORY_MODEL}", "samples", "peak, MB", f"more than with {_FEW} samples, MB")
    missed = []
    for tool in ("hexforge", "onnxruntime"):
        few = _peak(tool, path, _FEW)
        table.add_row(tool, str(_FEW), f"{few / 2**20:.0f}", "")
        # onnxruntime's keeps every activation: 1,000 samples would take 13 GB
        for count in sorted({_MANY, many if tool == "hexforge" else _MANY}):
            growth = _peak(tool, path, count) - few
            table.add_row(tool, str(count), f"{(few + growth) / 2**20:.0f}", f"{growth / 2**20:.0f}")
            if tool == "hexforge" and growth > MOST_GROWTH_BYTES:
                missed.append(f"memory with {count} samples")
    console.print(table)
    return missed


def main() -> int:
    """Print the tables; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add_names(parser, "model", MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="memory with 1,000 samples")
    parser.add_argument("--no-memory", action="store_true")
    given = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(3)
    console = Console(width=130)
    with tempfile.TemporaryDirectory() as folder:
        missed = times(given.models, Path(folder), given.rounds, console)
        if not given.no_memory:
            missed += memory(Path(folder), _FULL if given.full else _MANY, console)
    print("targets (CPU ratio, memory growth of at most 50 MB):", f"missed by {', '.join(missed)}" if missed else "met")
    return 1 if missed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        raise SystemExit(main())
