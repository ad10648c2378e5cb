# SPDX-License-Identifier: Apache-2.0
"""Rendered text: lines for the recognizer, the same upside down for the classifier, pages for the detector."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks import ROOT
from benchmarks.accuracy.data_files import fonts

Array = np.ndarray[Any, Any]

_MEAN, _STD = (np.reshape(x, (3, 1, 1)) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@cache
def _words() -> list[str]:
    """The words of the project's licence, the same every time."""
    text = (ROOT / "LICENSE").read_text("utf-8")
    return sorted(set(re.findall(r"[A-Za-z]{3,}", text)))


def phrase(random: np.random.Generator, count: int) -> str:
    """Words, here and there a number among them."""
    parts = [str(random.choice(_words())) for _ in range(count)]
    if random.random() < 0.3:
        parts[int(random.integers(count))] = str(random.integers(10, 10**5))
    return " ".join(parts)


def _colors(random: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Background and ink, far enough apart to be read."""
    light, dark = random.integers(170, 256, 3), random.integers(0, 90, 3)
    first, second = (light, dark) if random.random() < 0.8 else (dark, light)
    return tuple(map(int, first)), tuple(map(int, second))


def line(random: np.random.Generator, text: str) -> Image.Image:
    """A line of text, cut close, a little turned and noisy as in a photo."""
    font = ImageFont.truetype(str(random.choice(np.array(fonts(), str))), int(random.integers(22, 41)))
    left, top, right, bottom = font.getbbox(text)
    margin = int(random.integers(2, 7))
    paper, ink = _colors(random)
    picture = Image.new("RGB", (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin), paper)
    ImageDraw.Draw(picture).text((margin - left, margin - top), text, fill=ink, font=font)
    picture = picture.rotate(float(random.uniform(-1.5, 1.5)), Image.Resampling.BILINEAR, fillcolor=paper)
    noisy = np.asarray(picture, np.float32) + random.normal(
        0, random.uniform(2, 16), (picture.height, picture.width, 1)
    )
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def line_input(picture: Image.Image, height: int, width: int) -> Array:
    """As PP-OCR reads lines: its own proportions, empty to the right, -1..1, blue first."""
    inside = min(width, round(picture.width * height / picture.height))
    small = np.asarray(picture.resize((inside, height), Image.Resampling.BILINEAR), np.float32)
    x = np.zeros((1, 3, height, width), np.float32)
    x[0, :, :, :inside] = small[:, :, ::-1].transpose(2, 0, 1) / 127.5 - 1
    return x


def page(random: np.random.Generator, size: int, photos: list[Path]) -> Array:
    """One of the photos with lines of text on it, as PP-OCR's detector reads it."""
    picture = photo(random, size, photos)
    for _ in range(int(random.integers(2, 6))):
        text = line(random, phrase(random, int(random.integers(1, 4))))
        text.thumbnail((size - 20, 36))
        picture.paste(text, (int(random.integers(0, size - text.width)), int(random.integers(0, size - text.height))))
    x = np.asarray(picture, np.float32)[:, :, ::-1].transpose(2, 0, 1) / 255
    return ((x - _MEAN) / _STD).astype(np.float32)[None]


def photo(random: np.random.Generator, size: int, photos: list[Path]) -> Image.Image:
    """A square of one of the photos."""
    with Image.open(str(random.choice(np.array(photos, str)))) as opened:
        picture = opened.convert("RGB")
    side = min(picture.size)
    left, top = (int(random.integers(0, whole - side + 1)) for whole in picture.size)
    return picture.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)


def read_line(probabilities: Array, characters: list[str]) -> str:
    """The text that a recognizer's output [steps, characters] says: best of each step, repeats and blanks left out."""
    best = probabilities.argmax(-1)
    kept = (best != 0) & np.append(True, best[1:] != best[:-1])
    return "".join(characters[i] for i in best[kept])


def distance(first: str, second: str) -> int:
    """Edits between two texts."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
