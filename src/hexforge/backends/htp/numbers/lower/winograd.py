# SPDX-License-Identifier: Apache-2.0
"""Float convolutions of 3x3 with stride 1 by Winograd's F(2x2, 3x3): 16 products for four outputs instead of 36."""

from __future__ import annotations

import numpy as np

from hexforge.backends.htp.numbers.storage import half
from hexforge.ir import Array

_BLOCK, _LANE = 64, 16
_ROWS = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
"""What makes four cells of three weights."""


def cells(weights: Array, slack: int) -> Array:
    """[1, 3, 3, in, out] weights, rounded to float16, as the 4 x 4 cells that the kernels read, and `slack` zeros.

    Blocks of 64 outputs; of each, cell after cell, [in][out]. A cell is computed in float64 and rounded once.
    """
    channels, outputs = weights.shape[3:]
    size = 16 * channels * _BLOCK
    packed = np.zeros(-(-outputs // _BLOCK) * size + slack, np.float32)
    for index, first in enumerate(range(0, outputs, _BLOCK)):
        part = half(weights[0, :, :, :, first : first + _BLOCK]).astype(np.float64)
        made = np.einsum("ik,jl,klco->ijco", _ROWS, _ROWS, part, optimize=True).reshape(16 * channels, -1)
        lanes = -(-made.shape[1] // _LANE) * _LANE
        block = packed[index * size : index * size + 16 * channels * lanes].reshape(16 * channels, lanes)
        block[:, : made.shape[1]] = made
    return packed
