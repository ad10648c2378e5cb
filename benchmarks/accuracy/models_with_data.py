# SPDX-License-Identifier: Apache-2.0
"""Real models with real data and a measure of how well they do: what quantization is judged on.

Each of PAIRS has a float model of fixed shapes, samples to calibrate on, other samples to evaluate on, and a score.
Models and data come out of PyPI packages and are kept in .models; all samples are the same every time.

    python -m benchmarks.accuracy.models_with_data [PAIR ...]      prints the float models' scores
"""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.accuracy import boxes as box_outputs
from benchmarks.accuracy import data_files, rendered_text
from benchmarks.arguments import add_names
from hexforge.model.declarations import fix_shapes
from tests.digits import MODEL, held_out

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Runner = Callable[[Feeds], dict[str, Array]]

FLOAT = data_files.DATA / "float"
_CALIBRATION = 1 << 20
"""Numbers of samples from here on are for calibration; rendered samples use them as seeds."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """Samples made one at a time from their numbers: a quant.plan.Samples."""

    make: Callable[[int], Feeds]
    first: int
    count: int

    def __iter__(self) -> Iterator[Feeds]:
        return map(self.make, range(self.first, self.first + self.count))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Feeds:
        return self.make(self.first + number)


def onnxruntime_runner(model: Path) -> Runner:
    """The model in onnxruntime's CPU provider, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, dict(feeds)), strict=True))


@dataclass(frozen=True)
class Pair(ABC):
    """A model and data for it."""

    name: str
    metric: str
    """What `score` gives; more is better, 1 is the best there is."""
    file: str
    shapes: Mapping[str, tuple[int, ...]]
    samples: int
    """How many to evaluate on for a figure worth printing."""

    def model(self) -> Path:
        """The float model with fixed shapes."""
        target = FLOAT / f"{self.name}.onnx"
        if not target.exists():
            source = MODEL if self.file == MODEL.name else data_files.model_file(self.file)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part.onnx")
            fix_shapes(source, part, self.shapes)
            part.rename(target)
        return target

    @cached_property
    def float_run(self) -> Runner:
        """The float model, run by onnxruntime."""
        return onnxruntime_runner(self.model())

    @abstractmethod
    def feeds(self, number: int) -> Feeds:
        """The sample of a number."""

    @abstractmethod
    def score(self, run: Runner, count: int) -> float:
        """How well `run` does on the first `count` evaluation samples."""

    def calibration(self, count: int) -> Numbered:
        """Samples to calibrate on, none of which is evaluated."""
        return Numbered(self.feeds, _CALIBRATION, count)

    def evaluation(self, count: int) -> Numbered:
        """Samples to evaluate on."""
        return Numbered(self.feeds, 0, count)


class Digits(Pair):
    """Handwritten digits that the classifier's training never saw, the last hundred of them for calibration."""

    def feeds(self, number: int) -> Feeds:
        """One picture."""
        pictures = _digits()[0]
        calibrated = len(pictures) - 1 - (number - _CALIBRATION) % 100
        return {"image": pictures[number if number < _CALIBRATION else calibrated]}

    def score(self, run: Runner, count: int) -> float:
        """The share of right answers."""
        labels = _digits()[1][:count]
        return _share(run(self.feeds(i))["logits"].argmax() == label for i, label in enumerate(labels))


class Recognition(Pair):
    """Rendered lines of text, read."""

    def _line(self, number: int) -> tuple[Feeds, str]:
        random = np.random.default_rng([1, number])
        text = rendered_text.phrase(random, int(random.integers(1, 4)))
        return {"x": rendered_text.line_input(rendered_text.line(random, text), 48, 320)}, text

    def feeds(self, number: int) -> Feeds:
        """One line."""
        return self._line(number)[0]

    def score(self, run: Runner, count: int) -> float:
        """One less the edits per character."""
        session = onnxruntime.InferenceSession(data_files.model_file(self.file))
        characters = ["", *session.get_modelmeta().custom_metadata_map["character"].split("\n"), " "]
        edits = letters = 0
        for number in range(count):
            feeds, text = self._line(number)
            (output,) = run(feeds).values()
            edits += rendered_text.distance(rendered_text.read_line(output[0], characters), text)
            letters += len(text)
        return 1 - edits / letters


class Orientation(Pair):
    """Rendered lines of text, every other one upside down."""

    def feeds(self, number: int) -> Feeds:
        """One line."""
        random = np.random.default_rng([2, number])
        picture = rendered_text.line(random, rendered_text.phrase(random, int(random.integers(1, 3))))
        return {"x": rendered_text.line_input(picture.rotate(180) if number % 2 else picture, 48, 192)}

    def score(self, run: Runner, count: int) -> float:
        """The share of right answers."""
        answers = (next(iter(run(self.feeds(i)).values())) for i in range(count))
        return _share(outputs.argmax() == i % 2 for i, outputs in enumerate(answers))


class TextBoxes(Pair):
    """Photos with text on them: the boxes found, against those the float model finds."""

    def feeds(self, number: int) -> Feeds:
        """One picture."""
        random = np.random.default_rng([3, number])
        return {"x": rendered_text.page(random, self.shapes["x"][-1], _photos(number >= _CALIBRATION))}

    def score(self, run: Runner, count: int) -> float:
        """F1 of boxes."""
        return box_outputs.f1(_both(self, run, count, box_outputs.text_boxes))


class Faces(Pair):
    """Photos: what a YOLOv8n finds, against what it finds in float."""

    def feeds(self, number: int) -> Feeds:
        """One photo; each picture is either for calibration or for evaluation."""
        mine = _photos(number >= _CALIBRATION)
        photo = mine[number % _CALIBRATION % len(mine)]
        return {"images": box_outputs.photo_input(photo, self.shapes["images"][-1])}

    def score(self, run: Runner, count: int) -> float:
        """F1 of boxes."""
        return box_outputs.f1(_both(self, run, count, box_outputs.yolo_boxes))


class Files(Pair):
    """Files of many kinds, told by their first and last bytes."""

    def feeds(self, number: int) -> Feeds:
        """One file; the last quarter of them is for calibration."""
        rows = _files()[0]
        evaluated = len(rows) * 3 // 4
        number = number if number < _CALIBRATION else evaluated + (number - _CALIBRATION) % (len(rows) - evaluated)
        return {"bytes": rows[number][None]}

    def score(self, run: Runner, count: int) -> float:
        """The share of right answers."""
        labels = _files()[1][:count]
        return _share(run(self.feeds(i))["target_label"].argmax() == label for i, label in enumerate(labels))


class Voice(Pair):
    """Is someone speaking? Recordings of meetings in frames of 32 ms, the state carried from frame to frame."""

    _STEP, _BEFORE = 512, 64

    @cached_property
    def _split(self) -> tuple[list[tuple[Array, Array]], list[tuple[Array, Array]]]:
        """Recordings to evaluate on, and to calibrate on."""
        recordings = data_files.speech()
        return recordings[1::2], recordings[::2]

    def _frames(self, sound: Array) -> Iterator[Array]:
        padded = np.pad(sound, (self._BEFORE, 0))
        for start in range(0, len(sound) - self._STEP + 1, self._STEP):
            yield padded[None, start : start + self._BEFORE + self._STEP]

    def _run(self, run: Runner, sound: Array, frames: int) -> Iterator[tuple[Feeds, dict[str, Array]]]:
        state = np.zeros((2, 1, 128), np.float32)
        for _, frame in zip(range(frames), self._frames(sound), strict=False):
            feeds = {"input": frame, "state": state}
            outputs = run(feeds)
            yield feeds, outputs
            state = outputs["stateN"]

    @cached_property
    def _seen(self) -> dict[bool, list[Feeds]]:
        """Frames with the states that the float model has there, of all recordings in turn: for calibration or not."""
        halves = {}
        for calibrate in (False, True):
            every = [
                [feeds for feeds, _ in self._run(self.float_run, sound, 1 << 20)] for sound, _ in self._split[calibrate]
            ]
            shuffled = [feeds for recording in every for feeds in recording]
            order = np.random.default_rng(4).permutation(len(shuffled))
            halves[calibrate] = [shuffled[i] for i in order]
        return halves

    def feeds(self, number: int) -> Feeds:
        """One frame, with the state the float model has before it."""
        mine = self._seen[number >= _CALIBRATION]
        return mine[number % _CALIBRATION % len(mine)]

    def score(self, run: Runner, count: int) -> float:
        """The area under the ROC curve, the state carried by `run` itself."""
        from sklearn.metrics import roc_auc_score

        said, spoken = [], []
        share = -(-count // len(self._split[0]))
        for sound, labels in self._split[0]:
            for i, (_, outputs) in enumerate(self._run(run, sound, share)):
                said.append(float(outputs["output"].item()))
                spoken.append(bool(labels[i * self._STEP : (i + 1) * self._STEP].mean() > 0.5))
        return float(roc_auc_score(spoken, said))


@cache
def _digits() -> tuple[Array, Array]:
    return held_out()


@cache
def _files() -> tuple[Array, Array]:
    return data_files.files()


def _photos(calibrate: bool) -> list[Path]:
    """Every fourth photo is for calibration, the others are for evaluation."""
    return [path for i, path in enumerate(data_files.photos()) if (i % 4 == 0) == calibrate]


def _share(right: Iterable[Any]) -> float:
    return float(np.mean([bool(one) for one in right]))


def _both(
    pair: Pair, run: Runner, count: int, boxes: Callable[[Array], box_outputs.Boxes]
) -> Iterator[tuple[box_outputs.Boxes, box_outputs.Boxes]]:
    """The boxes of the float model and those of `run`, sample by sample."""
    for feeds in pair.evaluation(count):
        (reference,), (output,) = pair.float_run(feeds).values(), run(feeds).values()
        yield boxes(reference), boxes(output)


PAIRS: dict[str, Pair] = {
    pair.name: pair
    for pair in (
        Digits("digits", "accuracy", "digits.onnx", {}, 260),
        Recognition("ppocr_rec", "characters right", "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}, 200),
        Orientation("ppocr_cls", "accuracy", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}, 400),
        TextBoxes("ppocr_det", "F1 of boxes to float", "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}, 60),
        Faces("yolov8n", "F1 of boxes to float", "320n.onnx", {"images": (1, 3, 320, 320)}, 195),
        Voice("silero_vad", "AUC", "silero_vad_openvino_16k.onnx", {}, 3000),
        Files("magika", "accuracy", "model.onnx", {"bytes": (1, 2048)}, 400),
    )
}


def main(arguments: list[str]) -> int:
    """Print the float scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "pair", PAIRS)
    given = parser.parse_args(arguments)
    for name in given.pairs:
        pair = PAIRS[name]
        print(f"{name}: {pair.metric} {pair.score(pair.float_run, pair.samples):.4f} on {pair.samples}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
