# SPDX-License-Identifier: Apache-2.0
"""Beside AIMET: the same models quantized from the same samples, judged alike on samples that neither has seen.

    make aimet
    python -m benchmarks.quality.aimet [--calibrated 16] [--judged 24] [--iterations 10000]
        [--ways nearest seqmse adaround] [--markdown] [MODEL ...]

aimet-onnx runs in .venv-aimet, in a process of its own, with its configuration for the HTP (htp_v75) and normalizations
folded; its simulation in floats is what is judged. Of hexforge the public `quantize` is taken, and the
emulator's integers are judged. Weights of 4 bits are rounded to nearest and by AdaRound (its default is 10,000
iterations), and by sequential MSE at w4a8. Seconds are of the processor, all threads, for quantizing alone.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import hexforge
from benchmarks import ROOT
from benchmarks.arguments import add_names
from benchmarks.quality.models import MODELS
from benchmarks.quality.tasks.__main__ import TASKS
from benchmarks.quality.tasks.task import CALIBRATION, Array
from hexforge.analysis.quality.decisions.judge import judge
from hexforge.analysis.quality.runners import backend_for, runner
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant.compare import ErrorSums

PYTHON = ROOT / ".venv-aimet" / "bin" / "python"
SIDE = Path(__file__).with_name("aimet_side.py")
NAMES = ("mtcnn_output", "ppocr_cls", "wake_word", "deepcut")
WAYS = (("w8a8", ""), ("w4a8", ""), ("w4a8", "seqmse"), ("w4a8", "adaround"), ("w4a16", ""), ("w4a16", "adaround"))
Samples = Sequence[Mapping[str, Array]]


def row(name: str, judged_by: str, one: Samples, two: Samples, seconds: float, model: object) -> list[str]:
    """SQNR of the output that lost most, and decisions."""
    sums = {n: ErrorSums() for n in one[0]}
    for first, second in zip(one, two, strict=True):
        for n, own in sums.items():
            own.update(first[n], second[n])
    least = min(own.sqnr_db for own in sums.values())
    decisions = judge(one, two, model)
    kind = "" if decisions.decisive is None else f"{decisions.kind} {100 * decisions.agreement:.1f} %"
    return [name, judged_by, f"{least:.1f}", decisions.verdict, kind, f"{seconds:.1f}"]


def theirs(
    model: Path, calibration: Path, unseen: Path, precision: str, way: str, iterations: int
) -> tuple[Samples, float]:
    """AIMET's outputs of every unseen sample, and the processor seconds of quantizing."""
    weights, activations = precision[1:].split("a")
    target = calibration.with_name("theirs.npz")
    command = [
        str(PYTHON),
        "-E",
        str(SIDE),
        str(model),
        str(calibration),
        str(unseen),
        str(target),
        weights,
        activations,
        way,
    ]
    done = subprocess.run([*command, str(iterations)] if way == "adaround" else command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"aimet: {precision} {way} of {model.name}: {done.stderr.strip().splitlines()[-1:]}")
    with np.load(target, allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    count = len(next(iter(arrays.values())))
    return [{n: a[i] for n, a in arrays.items()} for i in range(count)], float(done.stdout.split()[-1])


def ours(
    model: Path, samples: Samples, unseen: Samples, precision: str, way: str, target: Path
) -> tuple[Samples, float]:
    """hexforge's outputs of every unseen sample, and the processor seconds of quantizing."""
    start = time.process_time()
    hexforge.quantize(model, list(samples), f"{precision}_channel" + (f"+{way}" if way else ""), target)
    seconds = time.process_time() - start
    run = runner(target, backend_for("htp", ""))
    return [run(feeds) for feeds in unseen], seconds


def measure(name: str, calibrated: int, judged: int, iterations: int, ways: Sequence[str], separator: str) -> None:
    """Print both rows of each way for a model."""
    kind = TASKS[name] if name in TASKS else MODELS[name]
    samples = [kind.feeds(CALIBRATION + number) for number in range(calibrated)]
    unseen = [kind.feeds(number) for number in range(judged)]
    shapes = {n: array.shape for n, array in samples[0].items()}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        exact = read(kind.path(), shapes=shapes)
        (folder / "float.onnx").write_bytes(to_bytes(exact.ir))
        for file, some in (("calibration", samples), ("unseen", unseen)):
            arrays = {n: np.stack([np.asarray(f[n]) for f in some]) for n in shapes}
            np.savez(folder / f"{file}.npz", **arrays)  # type: ignore[arg-type]
        run = runner(folder / "float.onnx", "ort")
        one = [run(feeds) for feeds in unseen]
        for precision, way in WAYS:
            if (way or "nearest") not in ways:
                continue
            label = f"{precision} {way or 'nearest'}"
            two, seconds = ours(folder / "float.onnx", samples, unseen, precision, way, folder / "ours.onnx")
            print(separator.join([name, *row(label, "hexforge", one, two, seconds, exact)]), flush=True)
            two, seconds = theirs(
                folder / "float.onnx", folder / "calibration.npz", folder / "unseen.npz", precision, way, iterations
            )
            print(separator.join([name, *row(label, "AIMET", one, two, seconds, exact)]), flush=True)


def main() -> int:
    """Print two rows for each model and way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calibrated", type=int, default=16)
    parser.add_argument("--judged", type=int, default=24)
    parser.add_argument("--iterations", type=int, default=10000, help="AIMET's of AdaRound for each layer")
    known = ("nearest", "seqmse", "adaround")
    parser.add_argument("--ways", nargs="+", choices=known, default=known, help="how weights are rounded")
    parser.add_argument("--markdown", action="store_true")
    add_names(parser, "model", sorted({*TASKS, *MODELS}), NAMES)
    arguments = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit("aimet: aimet-onnx is not there; run: make aimet")
    separator = " | " if arguments.markdown else "  "
    print(separator.join(["model", "precision", "by", "SQNR dB", "verdict", "decisions", "CPU s"]), flush=True)
    for name in arguments.models:
        measure(name, arguments.calibrated, arguments.judged, arguments.iterations, arguments.ways, separator)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
