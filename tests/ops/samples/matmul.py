# SPDX-License-Identifier: Apache-2.0
"""Samples of matrix ops."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_A = f32([[1, 2, 3], [4, 5, 6]])
_B = f32([[1, 0], [0, 1], [2, -1]])
_AB = f32([[7, -1], [16, -1]])

SAMPLES = [
    Sample("MatMul", [_A, _B], [_AB]),
    Sample("MatMul", [_A, _B, f32([1, -2])], [f32([[8, -3], [17, -3]])], id="-bias"),
    Sample("MatMul", [_A, f32([[1, 0, 2], [0, 1, -1]])], [_AB], {"transpose_in1": True}, id="-transpose_in1"),
    Sample("MatMul", [f32([[1, 4], [2, 5], [3, 6]]), _B], [_AB], {"transpose_in0": True}, id="-transpose_in0"),
    Sample("MatMul", [f32([[[1, 2]], [[3, 4]]]), f32([[1], [10]])], [f32([[[21]], [[43]]])], id="-batch"),
    Sample(
        "MatMul",
        [np.array([[1 << 30, 3]], np.int32), np.array([[1], [-7]], np.int32)],
        [np.array([[(1 << 30) - 21]], np.int32)],
        id="-int",
    ),
    Sample("FullyConnected", [_A, f32([[1, 0, 2], [0, 1, -1]]), f32([1, -2])], [f32([[8, -3], [17, -3]])]),
    Sample("FullyConnected", [_A.reshape(1, 2, 1, 3), f32([[1, 1, 1]])], [f32([[6], [15]])], id="-flatten"),
    Sample(
        "FullyConnected", [_A.reshape(1, 2, 3), f32([[1, 1, 1]])], [f32([[[6], [15]]])], {"keep_dims": True}, id="-keep"
    ),
    Sample("Inverse", [f32([[[2, 0], [0, 4]], [[1, 1], [0, 1]]])], [f32([[[0.5, 0], [0, 0.25]], [[1, -1], [0, 1]]])]),
]
