# SPDX-License-Identifier: Apache-2.0
"""The demo's model and pictures, made by examples/digits/train.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MODEL = Path(__file__).with_name("digits.onnx")
_HELD_OUT = Path(__file__).with_name("digits_heldout.npz")


def held_out() -> tuple[NDArray[Any], NDArray[Any]]:
    """Pictures [n, 1, 1, 8, 8] of 0..16 as float32, and labels [n], that the training never saw."""
    with np.load(_HELD_OUT, allow_pickle=False) as data:
        return data["pictures"].astype(np.float32)[:, None], data["labels"].astype(np.int64)
