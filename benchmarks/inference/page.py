# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/figures_inference.md from measured figures: `python -m benchmarks.inference.page FILE`.

FILE is what `python -m benchmarks.inference --no-vendor --rounds 8 --json FILE` wrote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_MODELS = {
    "resnet50": "ResNet50", "mobilenet_v2": "MobileNetV2", "yolov8n": "YOLOv8n 320", "ppocr_det": "PP-OCR det 640",
    "ppocr_rec": "PP-OCR rec 48x320", "ppocr_cls": "PP-OCR cls 48x192", "squeezenet": "SqueezeNet 1.1",
    "magika": "Magika", "silero_vad": "Silero VAD",
}  # fmt: skip
_VARIANTS = {
    "a8w8-int8": "A8, int8 weights", "a8w8-uint8": "A8, uint8 weights", "a16w8": "A16", "float": "float",
}  # fmt: skip


def page(data: dict[str, Any]) -> str:
    """One thread, shares of the floor, two threads, and what was missed."""
    rows = data["rows"]
    shares = ", ".join(f"{r['variant']} {r['floor_share']:.0%}" for r in rows if r["model"] == "resnet50")
    parts = ["## One thread, CPU time", _one_thread(rows), f"ResNet50, share of the floor: {shares}."]
    if any(r["wall"] for r in rows):
        parts += ["## Two threads, wall time", _two_threads(rows)]
    missed = [f"- {line}" for line in data["missed"]] or ["- none"]
    return "\n\n".join([*parts, "Missed targets:", "\n".join(missed), data["machine"]])


def _one_thread(rows: list[dict[str, Any]]) -> str:
    def cells(row: dict[str, Any]) -> list[str]:
        cpu = row["cpu_1_thread"]

        def against(peer: str) -> list[str]:
            ratio = row["ratios"].get(peer)
            return ["-", "-"] if ratio is None else [f"{cpu[peer]['best_ms']:.1f}", f"{ratio:.2f}"]

        wrong = [line for line in row["missed"] if "CPU time" in line]
        said = "met" if not wrong else "missed: " + "; ".join(wrong)
        return [*_named(row), f"{cpu['hexforge']['best_ms']:.1f}", *against("onnxruntime"), *against("openvino"), said]

    head = "model | variant | hexforge | onnxruntime | ratio | OpenVINO | ratio | targets"
    return _table(head, "---|---|---:|---:|---:|---:|---:|---", map(cells, rows))


def _two_threads(rows: list[dict[str, Any]]) -> str:
    def pair(row: dict[str, Any], engine: str) -> tuple[str, float | None]:
        one, two = (row["wall"].get(f"{engine} {n}") for n in (1, 2))
        if one is None or two is None:
            return "-", None
        best = one["best_ms"], two["best_ms"]
        return f"{best[0]:.2f} / {best[1]:.2f} ({best[0] / best[1]:.2f}x)", best[1]

    def cells(row: dict[str, Any]) -> list[str]:
        times = {engine: pair(row, engine) for engine in ("onnxruntime", "hexforge", "openvino")}
        ours = times["hexforge"][1]
        ratios = [
            "-" if ours is None or theirs is None else f"{ours / theirs:.2f}"
            for theirs in (times["onnxruntime"][1], times["openvino"][1])
        ]
        return [*_named(row), times["onnxruntime"][0], times["hexforge"][0], ratios[0], times["openvino"][0], ratios[1]]

    head = "model | variant | onnxruntime 1 / 2 | hexforge 1 / 2 | of onnxruntime, 2 | OpenVINO 1 / 2 | of OpenVINO, 2"
    return _table(head, "---|---|---:|---:|---:|---:|---:", map(cells, rows))


def _named(row: dict[str, Any]) -> list[str]:
    return [_MODELS.get(row["model"], row["model"]), _VARIANTS.get(row["variant"], row["variant"])]


def _table(head: str, rule: str, rows: Iterable[list[str]]) -> str:
    lines = [f"| {head} |", f"|{rule}|", *(f"| {' | '.join(cells)} |" for cells in rows)]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the page of one file."""
    if len(arguments) != 1:
        print("usage: python -m benchmarks.inference.page FILE", file=sys.stderr)
        return 2
    print(page(json.loads(Path(arguments[0]).read_text())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
