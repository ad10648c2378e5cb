# SPDX-License-Identifier: Apache-2.0
"""Verdicts beside what a task loses: models of packages that the other benchmarks do not use.

    python -m benchmarks.quality.tasks --converted FOLDER [--calibrated 16] [--judged 24] [--markdown] [MODEL ...]

Models of mediapipe 0.10.14 are TFLite files; FOLDER holds them as tf2onnx 1.17 converts them:

    python -m tf2onnx.convert --tflite modules/NAME/NAME.tflite --output FOLDER/NAME.onnx --opset 17

Each model is quantized by the public function with each recipe, runs on the emulator of the NPU, and is judged on
samples that calibration has not seen. Beside the verdict stands what the task itself loses, computed here from the
outputs alone and not by hexforge's judge: pixels that landmarks move, faces found again after decoding boxes, texts,
notes. A verdict is wrong where it is more than one class of good, usable, unusable from the task's; exits 1 where one
is.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hexforge
from benchmarks.arguments import add_names
from benchmarks.quality import pictures
from hexforge.analysis.quality.runners import backend_for, runner
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from tests.models.fetch import fetch, stored

Array = np.ndarray[Any, Any]
Outputs = Mapping[str, Array]
CALIBRATION = 1 << 20
RECIPES = ("w8a8_channel", "w8a16_channel")
CLASSES = ("good", "usable", "unusable")
FACE_STRIDES = ((8, 2), (16, 6))
"""Pixels of a cell of BlazeFace's grids, and the anchors of each."""


@dataclass(frozen=True, slots=True)
class Task:
    """A model, samples for it, what a task loses between two models' outputs, and what is good and usable of that."""

    name: str
    feeds: Callable[[int], Mapping[str, Array]]
    measure: Callable[[Sequence[Outputs], Sequence[Outputs]], float]
    says: str
    """What the measure is, with its unit."""
    good: float
    usable: float
    package: str = ""
    file: str = ""

    def path(self, converted: Path) -> Path:
        """The float model."""
        if not self.package:
            return converted / f"{self.name}.onnx"
        fetch({self.package: (self.file,)})
        return stored(self.file)

    def verdict(self, value: float) -> str:
        """The class that the task is in."""
        better = (lambda a, b: a <= b) if self.good < self.usable else (lambda a, b: a >= b)
        return "good" if better(value, self.good) else "usable" if better(value, self.usable) else "unusable"


def _picture(
    name: str, size: int, make: Callable[[int, int], Any], low: float = 0.0
) -> Callable[[int], dict[str, Array]]:
    """Pictures of a size from `low` to 1, channels last."""

    def feeds(number: int) -> dict[str, Array]:
        pixels = np.asarray(make(number, size), np.float32)[None] / 255
        return {name: (pixels * (1 - low) + low).astype(np.float32)}

    return feeds


def _points(output: str, columns: int, side: float, one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """The mean distance of landmarks in percent of the picture's side."""
    first, second = (
        np.stack([np.ravel(o[output]) for o in outputs]).reshape(-1, columns)[:, :2] for outputs in (one, two)
    )
    return float(100 * np.linalg.norm(first - second, axis=1).mean() / side)


def _anchors(side: int) -> Array:
    rows = []
    for stride, count in FACE_STRIDES:
        cells = (np.arange(side // stride) + 0.5) * stride
        y, x = np.meshgrid(cells, cells, indexing="ij")
        rows.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), count, 0))
    return np.concatenate(rows)


def _faces(boxes: str, scores: str, side: int, outputs: Outputs) -> Array:
    """Boxes of at least 0.5 that overlap no better one by 0.3, as BlazeFace's own tools decode them."""
    raw, chances = outputs[boxes][0].astype(np.float64), 1 / (1 + np.exp(-np.clip(outputs[scores][0, :, 0], -80, 80)))
    centre = raw[:, :2] + _anchors(side)
    corners = np.concatenate([centre - raw[:, 2:4] / 2, centre + raw[:, 2:4] / 2], 1)
    kept: list[Array] = []
    for i in np.argsort(-chances):
        if chances[i] < 0.5:
            break
        if all(_overlap(corners[i], box) < 0.3 for box in kept):
            kept.append(corners[i])
    return np.array(kept).reshape(-1, 4)


def _overlap(a: Array, b: Array) -> float:
    width, height = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = max(0.0, width) * max(0.0, height)
    return float(shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared))


def _found_again(boxes: str, scores: str, side: int, one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Twice the boxes of both models that overlap by a half, over all boxes, in percent."""
    both = whole = 0
    for first, second in zip(one, two, strict=True):
        left, right = (_faces(boxes, scores, side, o) for o in (first, second))
        both += sum(any(_overlap(a, b) >= 0.5 for b in right) for a in left)
        whole += len(left) + len(right)
    return 100 * 2 * both / whole if whole else float("nan")


def _text(one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Texts that CTC reads alike, in percent; symbol 0 is blank."""

    def read(outputs: Outputs) -> list[int]:
        symbols = np.ravel(next(iter(outputs.values()))[:, 0].argmax(-1))
        return [int(s) for i, s in enumerate(symbols) if s and (i == 0 or s != symbols[i - 1])]

    return 100 * float(np.mean([read(a) == read(b) for a, b in zip(one, two, strict=True)]))


def _notes(one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Notes of at least a half that both models hear, as F1 in percent, over all outputs."""
    first, second = (np.concatenate([np.ravel(a) for o in outputs for a in o.values()]) > 0.5 for outputs in (one, two))
    return 200 * float((first & second).sum()) / max(1, int(first.sum() + second.sum()))


def _captcha(number: int) -> dict[str, Array]:
    """Six letters on a photo, grey, as ddddocr reads them."""
    from PIL import Image, ImageDraw, ImageFont

    from benchmarks.accuracy import data_files

    random = np.random.default_rng([21, number])
    picture = Image.blend(pictures.photo(number, 160, 64).convert("L"), Image.new("L", (160, 64), 255), 0.75)
    draw, x = ImageDraw.Draw(picture), 6
    for _ in range(5):
        font = ImageFont.truetype(str(random.choice(np.array(data_files.fonts(), str))), int(random.integers(32, 44)))
        letter = chr(int(random.choice([*range(65, 91), *range(97, 123), *range(48, 58)])))
        draw.text((x, int(random.integers(4, 16))), letter, fill=int(random.integers(0, 90)), font=font)
        x += 29
    return {"input1": (np.asarray(picture, np.float32)[None, None] / 255 - 0.5) / 0.5}


def _music(number: int) -> dict[str, Array]:
    """Two seconds of a few notes with overtones."""
    random, time = np.random.default_rng([22, number]), np.arange(43844) / 22050
    sound = np.zeros(len(time))
    for _ in range(int(random.integers(4, 9))):
        start, pitch = float(random.uniform(0, 1.6)), 440 * 2 ** (int(random.integers(-24, 16)) / 12)
        shape = np.where(time >= start, np.exp(-3 * (time - start)), 0)
        sound += shape * sum(np.sin(2 * np.pi * pitch * k * time) / k**1.5 for k in range(1, 6))
    return {"serving_default_input_2:0": (0.2 * sound)[None, :, None].astype(np.float32)}


_EYE = partial(pictures.face_crop, middle=(0.36, 0.48), reach=0.3)
TASKS = {
    task.name: task
    for task in (
        Task("iris_landmark", _picture("input_1", 64, _EYE), partial(_points, "output_iris", 3, 64),
             "iris, % of the side", 1.0, 3.0),
        Task("face_landmark", _picture("input_1", 192, pictures.face_crop), partial(_points, "conv2d_21", 3, 192),
             "landmarks, % of the side", 1.0, 3.0),
        Task("hand_landmark_lite", _picture("input_1", 224, pictures.photo), partial(_points, "Identity", 3, 224),
             "landmarks, % of the side", 1.0, 3.0),
        Task("pose_landmark_full", _picture("input_1", 256, pictures.photo), partial(_points, "Identity", 5, 256),
             "landmarks, % of the side", 1.0, 3.0),
        Task("hand_recrop", _picture("input_1", 256, pictures.photo), partial(_points, "output_crop", 2, 256),
             "crop, % of the side", 1.0, 3.0),
        Task("face_detection_short_range", _picture("input", 128, pictures.portrait, -1.0),
             partial(_found_again, "regressors", "classificators", 128), "faces found again, %", 95, 80),
        Task("palm_detection_lite", _picture("input_1", 192, pictures.portrait),
             partial(_found_again, "Identity", "Identity_1", 192), "palms found again, %", 95, 80),
        Task("ddddocr_old", _captcha, _text, "texts alike, %", 90, 60, "ddddocr==1.6.1", "ddddocr/common_old.onnx"),
        Task("basic_pitch", _music, _notes, "notes of both, %", 95, 80, "basic-pitch==0.4.0",
             "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    )
}  # fmt: skip


def measure(task: Task, recipe: str, path: Path, calibrated: int, judged: int) -> list[str]:
    """A row: verdict, the task's measure and its class."""
    samples = [task.feeds(CALIBRATION + number) for number in range(calibrated)]
    unseen = [task.feeds(number) for number in range(judged)]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "quantized.onnx"
        shapes = {name: array.shape for name, array in samples[0].items()}
        hexforge.quantize(path, samples, recipe, made, shapes=shapes)
        compared = hexforge.compare(path, made, unseen, shapes=shapes)
        run = runner(made, backend_for("htp", ""))
        two = [run(feeds) for feeds in unseen]
    exact = runner(to_bytes(read(path, shapes=shapes).ir), "ort")
    one = [exact(feeds) for feeds in unseen]
    value, decisions = task.measure(one, two), compared.decisions
    assert decisions is not None
    by_task = task.verdict(value)
    return [task.name, recipe, decisions.verdict, decisions.text().partition(": ")[2], f"{compared.sqnr_db:.1f}",
            f"{value:.1f} {task.says}", by_task, "WRONG" if _wrong(decisions.verdict, by_task) else ""]  # fmt: skip


def _wrong(verdict: str, by_task: str) -> bool:
    return verdict in CLASSES and abs(CLASSES.index(verdict) - CLASSES.index(by_task)) > 1


def main() -> int:
    """Print a row for each model and recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--converted", type=Path, default=Path("converted"), help="folder with mediapipe's models")
    parser.add_argument("--calibrated", type=int, default=16)
    parser.add_argument("--judged", type=int, default=24)
    parser.add_argument("--markdown", action="store_true")
    add_names(parser, "model", TASKS)
    arguments = parser.parse_args()
    head = ["model", "recipe", "verdict", "by", "SQNR dB", "the task", "its class", ""]
    separator = " | " if arguments.markdown else "  "
    print(separator.join(head), flush=True)
    wrong = 0
    for name in arguments.models:
        for recipe in RECIPES:
            row = measure(
                TASKS[name], recipe, TASKS[name].path(arguments.converted), arguments.calibrated, arguments.judged
            )
            wrong += row[-1] == "WRONG"
            print(separator.join(row), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
