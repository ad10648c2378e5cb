# SPDX-License-Identifier: Apache-2.0
"""Samples of reductions."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_X = f32([[1, -2, 3], [4, 5, -6]])

SAMPLES = [
    Sample("ReduceMax", [_X], [f32([3, 5])], {"axes": (1,)}),
    Sample("ReduceMax", [f32(np.zeros((2, 0)))], [f32([-np.inf, -np.inf])], {"axes": (1,)}, "-empty"),
    Sample("ReduceMean", [_X], [f32([[2.5, 1.5, -1.5]])], {"axes": (0,), "keep_dims": True}),
    Sample("ReduceMean", [np.array([-3, -4], np.int32)], [np.array(-3, np.int32)], {"axes": (0,)}, "-int"),
    Sample("ReduceMin", [_X], [f32(-6)], {"axes": (0, 1)}),
    Sample("ReduceProd", [_X], [f32([-6, -120])], {"axes": (1,)}),
    Sample("ReduceSum", [_X], [f32([2, 3])], {"axes": (1,)}),
    Sample("ReduceSum", [np.array([200, 100], np.uint8)], [np.array(44, np.uint8)], {"axes": (0,)}, "-wraps"),
    Sample("ReduceSumSquare", [_X], [f32([14, 77])], {"axes": (1,)}),
    Sample("Argmax", [f32([[1, 7, 7], [9, 0, 2]])], [np.array([1, 0], np.int32)], {"axis": 1}),
    Sample("Argmin", [f32([[1, 7, 7], [9, 0, 2]])], [np.array([[0, 1, 1]], np.int64)], {"axis": 0, "keep_dims": True}),
    Sample("CumulativeSum", [_X], [f32([[1, -1, 2], [4, 9, 3]])], {"axis": 1}),
    Sample(
        "CumulativeSum",
        [_X],
        [f32([[1, 3, 0], [-1, -6, 0]])],
        {"axis": 1, "exclusive": True, "reverse": True},
        "-exclusive-reverse",
    ),
]
