# SPDX-License-Identifier: Apache-2.0
"""Pictures: what quantized models make of a picture beside the float model, on the sample that lost most.

Only outputs that can be looked at have one: one picture of one or three channels, its channels first or last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.analysis.quality.picture_metrics import psnr_db
from hexforge.analysis.quality.runners import runner
from hexforge.backend import Backend
from hexforge.ir import Array
from hexforge.quant.data.feeds import Feeds

LEAST, MOST = 16, 4096
"""Pixels at each side of what is a picture; less is a list of numbers."""
RANGES = ((0.0, 1.0, 0.0), (-1.0, 1.0, 0.0), (0.0, 255.0, 64.0))
"""Ranges that pictures come in, and the least that their largest number is; others are shown from end to end."""
SLACK = 0.05
"""The part of a range by which a picture may stick out of it."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedPicture:
    """What a quantized model makes of the sample."""

    name: str
    pixels: Array
    to_float_db: float
    """PSNR against the float model's picture."""
    to_target_db: float | None
    """PSNR against the picture that is wanted; None where that is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class PictureComparison:
    """The sample whose picture lost most in the first quantized model; all pictures are [height, width, channels]."""

    sample: int
    output: str
    range: tuple[float, float]
    """What is black and what is white in outputs and target."""
    given: Array | None
    """The model's input where it is a picture too."""
    target: Array | None
    in_float: Array
    in_float_db: float | None
    """PSNR of the float model's picture against the one that is wanted."""
    quantized: tuple[QuantizedPicture, ...]


def as_picture(array: Any) -> Array | None:
    """An array as [height, width, channels], or None where it is no picture."""
    picture = np.asarray(array)
    if picture.ndim == 4 and picture.shape[0] == 1:
        picture = picture[0]
    if picture.ndim == 2:
        picture = picture[None]
    if picture.ndim != 3 or picture.dtype.kind not in "fiu":
        return None
    if picture.shape[0] in (1, 3) and picture.shape[2] not in (1, 3):
        picture = picture.transpose(1, 2, 0)
    height, width, channels = picture.shape
    return picture if channels in (1, 3) and all(LEAST <= side <= MOST for side in (height, width)) else None


def range_of(picture: Array) -> tuple[float, float]:
    """What is black and what is white in a picture."""
    least, largest = float(picture.min()), float(picture.max())
    for low, high, bright in RANGES:
        slack = SLACK * (high - low)
        if low - slack <= least and bright <= largest <= high + slack:
            return low, high
    return (least, largest) if largest > least else (least, least + 1)


def compare_pictures(
    float_model: str | Path | bytes,
    quantized: Mapping[str, str | Path | bytes],
    samples: Iterable[tuple[int, Feeds, Any]],
    backend: Backend,
) -> PictureComparison | None:
    """Numbered samples, with labels where there are some, through the models; None where no output is a picture."""
    in_float = runner(float_model, "ort")
    runs = {name: runner(model, backend) for name, model in quantized.items()}
    worst: tuple[float, PictureComparison] | None = None
    for number, feeds, label in samples:
        expected = in_float(feeds)
        output = next((name for name, array in expected.items() if as_picture(array) is not None), None)
        if output is None:
            return None
        made = {name: as_picture(run(feeds)[output]) for name, run in runs.items()}
        compared = _picture_comparison(number, output, feeds, expected[output], label, made)
        lost = compared.quantized[0].to_float_db
        if worst is None or lost < worst[0]:
            worst = lost, compared
    return None if worst is None else worst[1]


def _picture_comparison(
    number: int, output: str, feeds: Feeds, expected: Array, label: Any, made: Mapping[str, Array | None]
) -> PictureComparison:
    in_float = as_picture(expected)
    assert in_float is not None
    low, high = range_of(in_float)
    target = as_picture(label)
    if target is not None and target.shape != in_float.shape:
        target = None
    given = next((picture for array in feeds.values() if (picture := as_picture(array)) is not None), None)

    def psnr(picture: Array, other: Array) -> float:
        return psnr_db(picture.astype(np.float64), other.astype(np.float64), high - low)

    quantized = tuple(
        QuantizedPicture(name, picture, psnr(picture, in_float), None if target is None else psnr(picture, target))
        for name, picture in made.items()
        if picture is not None
    )
    in_float_db = None if target is None else psnr(in_float, target)
    return PictureComparison(number, output, (low, high), given, target, in_float, in_float_db, quantized)
