# SPDX-License-Identifier: Apache-2.0
"""Float convolutions of 3x3 with stride 1 by Winograd's F(2x2, 3x3): 16 products for four outputs instead of 36."""

from __future__ import annotations

from hexforge.backends.htp.numbers.file_arrays import WholeArray, cells_of
from hexforge.ir import Array


def cells(weights: Array, slack: int) -> WholeArray:
    """[1, 3, 3, in, out] weights, rounded to float16, as the 4 x 4 cells that the kernels read, and `slack` zeros.

    Blocks of 64 outputs; of each, cell after cell, [in][out]. A cell is computed in float64 and rounded once. A file
    holds the weights, which are less.
    """
    return cells_of(weights[0], slack)
