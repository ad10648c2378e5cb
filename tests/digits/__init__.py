# SPDX-License-Identifier: Apache-2.0
"""The tests' small model: a digit classifier of eight nodes and digits that it never saw, made by train.py here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent
MODEL = FOLDER / "digits.onnx"


def held_out() -> tuple[NDArray[Any], NDArray[Any]]:
    """Pictures [n, 1, 1, 8, 8] of 0..16 as float32, and labels [n], that the training never saw."""
    with np.load(FOLDER / "digits_heldout.npz", allow_pickle=False) as data:
        return data["pictures"].astype(np.float32)[:, None], data["labels"].astype(np.int64)
