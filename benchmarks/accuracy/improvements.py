# SPDX-License-Identifier: Apache-2.0
"""What each improvement of encodings is worth: SQNR of real models' outputs on the emulator, against plain min-max.

    python -m benchmarks.accuracy.improvements [--samples 48] [--recipe w8a8] [MODEL ...]

The peer in every row is the same recipe without improvements (a scale per weight, ranges by the extremes), on the same
calibration samples. SQNR is of outputs of the htp emulator against onnxruntime's float outputs, on evaluation samples
that neither calibration nor improvement saw; where a model has several outputs, the mean of theirs.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

import numpy as np
import onnx_ir

import hexforge
from benchmarks.accuracy.models_with_data import PAIRS, Pair
from benchmarks.arguments import add_names
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.feeds import SampleRunner
from hexforge.quant.decide.recipe import Recipe
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.quant.fold import fold
from hexforge.quant.improve.tune import Judge, improve

MODELS = ("digits", "ppocr_rec", "ppocr_cls", "yolov8n", "silero_vad")
ROWS: dict[str, tuple[str, ...]] = {
    "equalize": ("equalize",),
    "range": ("range",),
    "bias": ("bias",),
    "seqmse": ("seqmse",),
    "adaround": ("adaround",),
    "all": ("equalize", "range", "adaround", "bias"),
}
"""row -> improvements; each step is kept only where held-out calibration samples agree."""


def emulator(model: onnx_ir.Model) -> SampleRunner:
    """A session on the htp emulator."""
    session = hexforge.InferenceSession(to_bytes(model), providers=[("QNNExecutionProvider", {"backend_type": "htp"})])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, dict(feeds)), strict=True))


def measure(pair: Pair, base: Recipe, calibrated: int, evaluated: int, rows: dict[str, tuple[str, ...]]) -> list[float]:
    """Print a table of one model; the gain of each row in dB."""
    model = fold(read(pair.model()).ir)
    samples = pair.calibration(calibrated)
    judge = Judge(model, list(pair.evaluation(evaluated)), emulator)
    statistics = calibrate(model, samples)
    plain = improve(model, statistics, samples, base, emulator)
    reference = judge(model, plain.plan)
    print(f"{pair.name}: plain min-max {base.name} {reference:.1f} dB", flush=True)
    gains = []
    for name, improvements in rows.items():
        start = time.perf_counter()
        improved = improve(model, statistics, samples, replace(base, improve=improvements), emulator)
        seconds = time.perf_counter() - start
        score = judge(improved.model, improved.plan)
        gains.append(score - reference)
        kept = ", ".join(t.name for t in improved.tried if t.kept) or "nothing"
        print(f"  {name:9} {score:6.1f} dB  {score - reference:+6.1f}  {seconds:6.1f} s  kept: {kept}", flush=True)
    return gains


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", PAIRS, MODELS)
    parser.add_argument("--recipe", default="w8a8", help="what is improved")
    parser.add_argument("--samples", type=int, default=48, help="to calibrate and improve on")
    parser.add_argument("--evaluate", type=int, default=64, help="samples the SQNR is of")
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS), help="improvements")
    given = parser.parse_args(arguments)
    rows = {name: ROWS[name] for name in given.rows}
    names = given.models
    gains = [measure(PAIRS[n], recipe(given.recipe), given.samples, given.evaluate, rows) for n in names]
    print(f"gain over plain min-max {given.recipe}, {len(names)} models: mean and least, dB")
    for row, values in zip(rows, np.transpose(gains), strict=True):
        print(f"  {row:9} {values.mean():+6.1f}  {values.min():+6.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
