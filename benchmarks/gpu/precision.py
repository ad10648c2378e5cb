# SPDX-License-Identifier: Apache-2.0
"""What precisions cost in accuracy: `python -m benchmarks.gpu.precision [--model NAME]`.

The nine models with each `gpu_precision` on the device that runs, against onnxruntime's CPU provider in float32: the
largest difference by the largest result, and what the device computes in.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.gpu.inference import peak_tflops, session
from benchmarks.models.gpu_architectures import MODELS, feeds
from hexforge.addons.gpu.device import choose

PRECISIONS = ("fp32", "hybrid", "fp16")


def errors(path: Path) -> dict[str, tuple[float, str]]:
    """The error of each precision, and what computed it."""
    data = feeds(path)
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, data)[0]
    want = want.astype(np.float64)
    by_precision = {}
    for precision in PRECISIONS:
        ours = session(path, {"gpu_precision": precision})
        got = ours.run(None, data)[0].astype(np.float64)
        by_precision[precision] = float(np.abs(got - want).max() / np.abs(want).max()), ours.stages[0].runner.arithmetic
    return by_precision


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only models whose names contain this")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-models"))
    arguments = parser.parse_args()
    device = choose()
    half = peak_tflops(device, half=True)
    print(f"{device.name} ({device.driver}): fp32 {peak_tflops(device):.3f} TFLOP/s in registers, ", end="")
    print(f"fp16 {half:.3f}" if half else "fp16 not computed in", flush=True)
    print("| model | " + " | ".join(PRECISIONS) + " |\n|---|" + "---:|" * len(PRECISIONS))
    arithmetic: dict[str, str] = {}
    for model in MODELS:
        if arguments.model and not any(part in model.name for part in arguments.model):
            continue
        row = errors(model.at(arguments.folder))
        arithmetic |= {precision: how for precision, (_, how) in row.items()}
        print(f"| {model.name} | " + " | ".join(f"{error:.1e}" for error, _ in row.values()) + " |", flush=True)
    for precision, how in arithmetic.items():
        print(f"{precision}: {how}")


if __name__ == "__main__":
    main()
