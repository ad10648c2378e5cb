# SPDX-License-Identifier: Apache-2.0
"""Samples of conversions."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from hexforge.ir import AxisScaleOffset, ScaleOffset
from tests.ops.sample import Sample, f32

_HALF = ScaleOffset(0.5, -10)  # real = 0.5 (q - 10)
_ROWS = AxisScaleOffset(0, (0.5, 2.0), (0, -1))

SAMPLES = [
    Sample("Cast", [f32([2.9, -2.9, np.nan, 300])], [np.array([2, -2, 0, 44], np.int8)]),
    Sample("Cast", [f32([np.inf, -3e9, -2.9])], [np.array([2**31 - 1, -(2**31), -2], np.int32)], id="-saturates"),
    Sample("Cast", [np.array([200, -9], np.int16)], [np.array([-8, 7], np.int8).astype(ml_dtypes.int4)], id="-int4"),
    Sample("Cast", [f32([0, -0.5, np.nan])], [np.array([False, True, True])], id="-bool"),
    Sample("Cast", [f32([1.00390625, 3])], [np.array([1, 3], ml_dtypes.bfloat16)], id="-bfloat16"),
    Sample("Quantize", [f32([0, 0.74, 0.75, -9])], [np.array([10, 11, 12, 0], np.uint8)], encodings={"out0": _HALF}),
    Sample("Dequantize", [np.array([10, 12, 0], np.uint8)], [f32([0, 1, -5])], encodings={"in0": _HALF}),
    Sample("Dequantize", [np.array([[4], [4]], np.int8)], [f32([[2], [6]])], encodings={"in0": _ROWS}, id="-axis"),
    Sample(
        "Convert",
        [np.array([10, 12, 0], np.uint8)],
        [np.array([0, 4, -20], np.int16)],
        encodings={"in0": _HALF, "out0": ScaleOffset(0.25)},
    ),
]
