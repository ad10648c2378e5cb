# SPDX-License-Identifier: Apache-2.0
"""A plan for real models against what one gets without: `python -m benchmarks.plan [--for latency] [--json]`.

NudeNet and the three networks of RapidOCR (`make models` fetches them) are compiled for an 8 GB phone, given rates and
deadlines, planned, and played for 10,000 frames with and without the plan.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import hexforge
from hexforge.addons.device.scenario.proposals import Aim
from hexforge.addons.device.scenario.search import FRAMES, search_plan
from hexforge.addons.device.scenario.workload import parse_workload
from tests import ROOT

SOC = "SM8650"
MODELS: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, float]]] = {
    "nudenet": ("nudenet-320n", {"images": (1, 3, 320, 320)}, {"rate_hz": 30, "deadline_ms": 8, "jitter_ms": 2}),
    "classifier": (
        "rapidocr_onnxruntime-ch_ppocr_mobile_v2.0_cls_infer",
        {"x": (1, 3, 48, 192)},
        {"rate_hz": 100, "deadline_ms": 1.5, "jitter_ms": 1},
    ),
    "detector": (
        "rapidocr_onnxruntime-ch_PP-OCRv4_det_infer",
        {"x": (1, 3, 320, 320)},
        {"rate_hz": 15, "deadline_ms": 20, "jitter_ms": 5},
    ),
    "reader": (
        "rapidocr_onnxruntime-ch_PP-OCRv4_rec_infer",
        {"x": (1, 3, 48, 320)},
        {"rate_hz": 50, "deadline_ms": 12, "jitter_ms": 3},
    ),
}


def main() -> None:
    """Compile, plan, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="aim", choices=[aim.value for aim in Aim], default="latency")
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows: dict[str, dict[str, object]] = {}
        for name, (file, shapes, row) in MODELS.items():
            hexforge.compile(ROOT / ".models" / f"{file}.onnx", Path(folder) / f"{name}.bin", SOC, shapes=shapes)
            rows[name] = {"context": f"{name}.bin", **row}
        data = {"soc": SOC, "ram_mb": 8192, "privileged": True, "models": rows}
        work = parse_workload(data, Path(folder), "benchmark")
        began, spent = time.perf_counter(), time.process_time()
        result = search_plan(work, Aim(given.aim), given.frames)
        took, cpu = time.perf_counter() - began, time.process_time() - spent
    if given.json:
        print(json.dumps(result.to_json() | {"seconds": took, "cpu_seconds": cpu}, indent=2))
        return
    assert result.best is not None, result.reasons
    print("| model | deadline ms | p99 ms | without a plan | ratio | late | without |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for own, naive in zip(result.best.models, result.naive.models, strict=True):
        print(
            f"| {own.name} | {own.deadline_us / 1e3:g} | {own.p99_us / 1e3:.3f} | {naive.p99_us / 1e3:.3f} | "
            f"{own.p99_us / naive.p99_us:.2f} | {own.late} of {own.runs:,} | {naive.late} of {naive.runs:,} |"
        )
    best = result.best.plan
    order = ", ".join(f"{name} {best.priorities[name].name}" for name in best.order)
    print(f"\nprofile {best.profile}; {order}; searched and proven in {took:.0f} s ({cpu:.0f} s of processor time)")


if __name__ == "__main__":
    main()
