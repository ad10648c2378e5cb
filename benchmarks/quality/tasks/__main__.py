# SPDX-License-Identifier: Apache-2.0
"""Verdicts beside what a task loses: models of packages that the other benchmarks do not use.

    python -m benchmarks.quality.tasks [--calibrated 16] [--judged 24] [--markdown] [MODEL ...]

Each model is quantized by the public function with each recipe, runs on the emulator of the NPU, and is judged on
samples that calibration has not seen. Beside the verdict stands what the task itself loses, computed here from the
outputs alone and not by hexforge's judge: pixels that landmarks move, boxes found again after decoding, areas, texts,
notes, pitches, what is looked up. A verdict is wrong where it is more than one class of good, usable, unusable from the
task's; exits 1 where one is.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import hexforge
from benchmarks.arguments import add_names
from benchmarks.quality.tasks import pictured, sounds, texts
from benchmarks.quality.tasks.task import CALIBRATION, CLASSES, Task
from hexforge.analysis.quality.runners import backend_for, runner
from hexforge.model.reader import read
from hexforge.model.save import to_bytes

RECIPES = ("w8a8_channel", "w8a16_channel")
ASIDE = ("hand_landmark_full", "face_detection_full_range_sparse", "face_detection_back", "mtcnn_refine",
         "ppocr_v6_tiny", "nakdimon", "silero_ovos", "spoken_words")  # fmt: skip
"""Models that were looked at once, after everything was built."""
TASKS = {task.name: task for task in (*pictured.TASKS, *texts.TASKS, *sounds.TASKS)}


def measure(task: Task, recipe: str, calibrated: int, judged: int) -> list[str]:
    """A row: verdict, the task's measure and its class."""
    path = task.path()
    samples = [task.feeds(CALIBRATION + number) for number in range(calibrated)]
    unseen = [task.feeds(number) for number in range(judged)]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "quantized.onnx"
        shapes = {name: array.shape for name, array in samples[0].items()}
        hexforge.quantize(path, samples, recipe, made, shapes=shapes)
        compared = hexforge.compare(path, made, unseen, shapes=shapes)
        run = runner(made, backend_for("htp", ""))
        two = task.outputs(run, unseen)
    exact = runner(to_bytes(read(path, shapes=shapes).ir), "ort")
    one = task.outputs(exact, unseen)
    value, decisions = task.measure(unseen, one, two), compared.decisions
    assert decisions is not None
    by_task = task.verdict(value)
    return [task.name, task.package, recipe, decisions.verdict, decisions.text().partition(": ")[2],
            f"{compared.sqnr_db:.1f}", f"{value:.1f} {task.says}", by_task,
            "WRONG" if _wrong(decisions.verdict, by_task) else ""]  # fmt: skip


def _wrong(verdict: str, by_task: str) -> bool:
    return verdict in CLASSES and abs(CLASSES.index(verdict) - CLASSES.index(by_task)) > 1


def main() -> int:
    """Print a row for each model and recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calibrated", type=int, default=16)
    parser.add_argument("--judged", type=int, default=24)
    parser.add_argument("--markdown", action="store_true")
    add_names(parser, "model", TASKS)
    arguments = parser.parse_args()
    separator = " | " if arguments.markdown else "  "
    head = ["model", "package", "recipe", "verdict", "by", "SQNR dB", "the task", "its class", ""]
    print(separator.join(head), flush=True)
    wrong = 0
    for name in arguments.models:
        for recipe in RECIPES:
            row = measure(TASKS[name], recipe, arguments.calibrated, arguments.judged)
            wrong += row[-1] == "WRONG"
            print(separator.join(row), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
