# SPDX-License-Identifier: Apache-2.0
"""The demo's model and pictures: a short night exposure in, the picture that a long exposure would have shown out.

`examples/night/train.py` makes all of it; README.md in this folder says where the photographs come from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MODEL = Path(__file__).with_name("night.onnx")
_PICTURES = Path(__file__).with_name("pictures.npz")
INPUT, OUTPUT = "raw", "picture"

SEED = 7
EXPOSURE = 0.2
"""White in the picture is this part of what the sensor can hold."""
ELECTRONS = 1000.0
"""Electrons that a white pixel collects in the short exposure; their number is random, which is most of the noise."""
READ_NOISE = 2.0
"""The standard deviation of what reading the sensor adds, in electrons."""
SHADOWS = 4
"""A shade of the picture is the light to the power of one over this: shadows are lifted, as night modes do."""
LEVELS = 2**14 - 1


def night_shot(picture: NDArray[Any], random: np.random.Generator) -> NDArray[np.float32]:
    """What a sensor sees of a picture of 0..1 in a short exposure: linear light, dark and noisy, in 14 bits of 0..1."""
    electrons = random.poisson(ELECTRONS * picture.astype(np.float64) ** SHADOWS)
    light = (electrons + random.normal(0, READ_NOISE, picture.shape)) / ELECTRONS
    return (np.rint(np.clip(light * EXPOSURE, 0, 1) * LEVELS) / LEVELS).astype(np.float32)


def amplified(shot: NDArray[Any]) -> NDArray[Any]:
    """The shades of a night shot on a screen, noise and all: what the model has to be better than."""
    return np.asarray(np.clip(shot / EXPOSURE, 0, 1) ** (1 / SHADOWS))


def calibration() -> list[NDArray[np.float32]]:
    """Night shots [1, 3, 256, 256] to quantize by."""
    return _night_shots("calibration")[0]


def held_out() -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
    """Night shots of photographs that the training never saw, and those photographs, each [1, 3, 256, 256]."""
    return _night_shots("held_out")


def _night_shots(name: str) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
    with np.load(_PICTURES, allow_pickle=False) as data:
        pixels = np.cumsum(data[name], axis=2, dtype=np.uint8)  # kept as steps from pixel to pixel, which are smaller
    pictures = [(p.transpose(2, 0, 1)[None] / np.float32(255)).astype(np.float32) for p in pixels]
    random = np.random.default_rng(SEED)
    return [night_shot(picture, random) for picture in pictures], pictures
