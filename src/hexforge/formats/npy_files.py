# SPDX-License-Identifier: Apache-2.0
"""Files of one array, as numpy.save writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hexforge.errors import FormatError
from hexforge.ir import Array


def read_npy(path: Path, where: str = "") -> Array:
    """The array of a .npy file; FormatError for any other file, which says `where` the file was named."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        message = "not a .npy file of numbers, or a damaged one; write it with numpy.save"
        raise FormatError(f"{where or path}: {message}") from None
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{where or path}: holds several arrays; give one .npy file for each input")
    return array
