# SPDX-License-Identifier: Apache-2.0
"""The files that benchmarks run: float models of fixed shape and their QDQ versions, made once and kept.

`python -m benchmarks.models.quantized [--cache FOLDER] [MODEL ...]` makes them. ResNet-50, MobileNetV2 and
SqueezeNet are built with random weights (`architectures`), the others are real ones (`make models`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import QuantType

from benchmarks.arguments import add_names
from benchmarks.models.architectures import mobilenet_v2, resnet50, squeezenet
from hexforge.model.declarations import fix_shapes
from tests.digits import held_out
from tests.models.fetch import FILES, FOLDER, stored
from tests.models.quantize import quantized

Array = np.ndarray[Any, Any]

CACHE = FOLDER / "qdq"
VARIANTS = {
    "a8w8-int8": (QuantType.QUInt8, QuantType.QInt8),
    "a8w8-uint8": (QuantType.QUInt8, QuantType.QUInt8),
    "a16w8": (QuantType.QUInt16, QuantType.QInt8),
    "float": None,
}
"""variant -> data types of activations and weights."""

_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Model:
    """A model: how it is made, and what a picture of 0..1 becomes before it goes in."""

    source: Callable[[Path], None] | str
    """What builds it, or the name of a fetched file."""
    input: str
    shape: tuple[int, ...]
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    text: bool = False
    """True where it looks for text."""
    others: Callable[[np.random.Generator], dict[str, Array]] | None = None
    """Makes all inputs of a model that is not for pictures."""

    def feeds(self, seed: int) -> dict[str, Array]:
        """An input of the kind the model is made for."""
        random = np.random.default_rng(seed)
        if self.others is not None:
            return self.others(random)
        picture = _page(random, self.shape) if self.text else _blobs(random, self.shape)
        mean, std = np.reshape(self.mean, (1, -1, 1, 1)), np.reshape(self.std, (1, -1, 1, 1))
        return {self.input: ((picture - mean) / std).astype(np.float32)}


def _blobs(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Blobs and edges of many sizes, which spread over a network's ranges as pictures do; 0 to 1."""
    picture = np.zeros(shape)
    for size in (2, 4, 8, 16, 32):
        coarse = random.random((*shape[:2], *(-(-d // size) for d in shape[2:]))) ** 2
        picture += coarse.repeat(size, 2).repeat(size, 3)[:, :, : shape[2], : shape[3]]
    return picture / picture.max()


def _page(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Lines of handwritten digits, dark on light; 0 to 1."""
    digits = held_out()[0][:, 0, 0].repeat(4, 1).repeat(4, 2) / 16  # 32 x 32 pixels each
    height, width = shape[2:]
    page = np.full((height, width), 0.9)
    for top in range(8, height - 31, 48):
        for left in range(8, width - 35, 28):
            page[top : top + 32, left : left + 32] -= 0.4 * random.choice(digits)
    return np.clip(page + random.normal(0, 0.01, shape), 0, 1)


def _file(random: np.random.Generator) -> dict[str, Array]:
    """The beginning and the end of a text, as Magika reads a file's bytes."""
    return {"bytes": random.integers(32, 127, (1, 2048)).astype(np.int32)}


def _sound(random: np.random.Generator) -> dict[str, Array]:
    """36 ms of a vowel at 16 kHz with noise, and the state after silence."""
    times_s = np.arange(576) / 16000
    tones = [np.sin(2 * np.pi * 120 * n * times_s + random.uniform(0, 6)) / n for n in range(1, 20)]
    sound = 0.1 * np.sum(tones, 0) + random.normal(0, 0.01, 576)
    return {"input": sound.astype(np.float32)[None], "state": np.zeros((2, 1, 128), np.float32)}


_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MODELS = {
    "resnet50": Model(resnet50, "image", (1, 3, 224, 224), *_IMAGENET),
    "mobilenet_v2": Model(mobilenet_v2, "image", (1, 3, 224, 224), *_IMAGENET),
    "squeezenet": Model(squeezenet, "image", (1, 3, 224, 224), *_IMAGENET),
    "yolov8n": Model("320n.onnx", "images", (1, 3, 320, 320)),
    "ppocr_det": Model("ch_PP-OCRv4_det_infer.onnx", "x", (1, 3, 640, 640), *_IMAGENET, text=True),
    "ppocr_rec": Model("ch_PP-OCRv4_rec_infer.onnx", "x", (1, 3, 48, 320), (0.5,), (0.5,), text=True),
    "ppocr_cls": Model("ch_ppocr_mobile_v2.0_cls_infer.onnx", "x", (1, 3, 48, 192), (0.5,), (0.5,), text=True),
    "magika": Model("standard_v3_3/model.onnx", "bytes", (1, 2048), others=_file),
    "silero_vad": Model("silero_vad_openvino_16k.onnx", "input", (1, 576), others=_sound),
}


def file(name: str, variant: str, cache: Path = CACHE) -> Path:
    """The file of a model in a variant, made if it is not there; SystemExit with a message if its source is missing."""
    target = cache / f"{name}.{variant}.onnx"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    model, types = MODELS[name], VARIANTS[variant]
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = Path(folder) / "made.onnx"
        if types is None:
            _float(model, made)
        else:
            samples = [model.feeds(seed) for seed in range(_SAMPLES)]
            with quiet():
                quantized(file(name, "float", cache), made, types, samples)
        made.rename(target)  # whole or not at all, whatever happens before
    return target


def _float(model: Model, target: Path) -> None:
    if not isinstance(model.source, str):
        model.source(target)
        return
    sources = [stored(f) for files in FILES.values() for f in files if f.endswith(f"/{model.source}")]
    if not sources[0].exists():
        raise SystemExit(f"{sources[0]} is not there; fetch it with `make models`")
    fix_shapes(sources[0], target, {name: array.shape for name, array in model.feeds(0).items()})


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the quantizer prints, and its advice, which is about how to make better models."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def main(arguments: list[str]) -> int:
    """Make the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", MODELS)
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the files")
    given = parser.parse_args(arguments)
    for name in given.models:
        for variant in VARIANTS:
            path = file(name, variant, given.cache)
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
