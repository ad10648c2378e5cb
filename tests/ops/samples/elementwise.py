# SPDX-License-Identifier: Apache-2.0
"""Samples of elementwise ops."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_X = f32([[-1.5, -0.5, 0.0], [0.25, 0.5, 1.0]])
_Y = f32([0.5, 2.0, -1.5])
_POSITIVE = f32([0.25, 1.0, 4.0])

SAMPLES = [
    Sample("ElementWiseAbs", [_X], [f32([[1.5, 0.5, 0.0], [0.25, 0.5, 1.0]])]),
    Sample("ElementWiseAsin", [f32([-1, 0, 1])], [f32([-np.pi / 2, 0, np.pi / 2])]),
    Sample("ElementWiseAtan", [f32([-1, 0, 1])], [f32([-np.pi / 4, 0, np.pi / 4])]),
    Sample("ElementWiseCeil", [_X], [f32([[-1, 0, 0], [1, 1, 1]])]),
    Sample("ElementWiseCos", [f32([0, np.pi])], [f32([1, -1])]),
    Sample("ElementWiseExp", [f32([0, 1])], [f32([1, np.e])]),
    Sample("ElementWiseFloor", [_X], [f32([[-2, -1, 0], [0, 0, 1]])]),
    Sample("ElementWiseLog", [_POSITIVE], [f32([-1.3862944, 0, 1.3862944])]),
    Sample("ElementWiseNeg", [_Y], [f32([-0.5, -2, 1.5])]),
    Sample("ElementWiseNot", [np.array([True, False])], [np.array([False, True])]),
    Sample("ElementWiseRound", [f32([-1.5, -0.5, 0.5, 1.5, 2.4])], [f32([-2, 0, 0, 2, 2])]),
    Sample("ElementWiseRsqrt", [_POSITIVE], [f32([2, 1, 0.5])]),
    Sample("ElementWiseSign", [_Y], [f32([1, 1, -1])]),
    Sample("ElementWiseSin", [f32([0, np.pi / 2])], [f32([0, 1])]),
    Sample("ElementWiseSquareRoot", [_POSITIVE], [f32([0.5, 1, 2])]),
    Sample("ElementWiseSoftplus", [f32([0, 100])], [f32([0.6931472, 100])]),
    Sample("ElementWiseAdd", [_X, _Y], [f32([[-1, 1.5, -1.5], [0.75, 2.5, -0.5]])]),
    Sample("ElementWiseSubtract", [_X, _Y], [f32([[-2, -2.5, 1.5], [-0.25, -1.5, 2.5]])]),
    Sample("ElementWiseMultiply", [_X, _Y], [f32([[-0.75, -1, 0], [0.125, 1, -1.5]])]),
    Sample("ElementWiseDivide", [_X, _Y], [f32([[-3, -0.25, 0], [0.5, 0.25, -2 / 3]])]),
    Sample(
        "ElementWiseDivide",
        [np.array([-7, 7, 5], np.int32), np.array([2, -2, 0], np.int32)],
        [np.array([-3, -3, 0], np.int32)],
        id="-int",
    ),
    Sample("ElementWiseFloorDiv", [f32([-7, 7]), f32([2, 2])], [f32([-4, 3])]),
    Sample("ElementWiseFmod", [f32([-7, 7]), f32([4, 4])], [f32([-3, 3])]),
    Sample("ElementWiseMod", [f32([-7, 7]), f32([4, 4])], [f32([1, 3])]),
    Sample("ElementWiseMaximum", [_X, _Y], [f32([[0.5, 2, 0], [0.5, 2, 1]])]),
    Sample("ElementWiseMinimum", [_X, _Y], [f32([[-1.5, -0.5, -1.5], [0.25, 0.5, -1.5]])]),
    Sample("ElementWisePower", [_POSITIVE, f32([2, 3, 0.5])], [f32([0.0625, 1, 2])]),
    Sample("ElementWiseSquaredDifference", [_POSITIVE, f32([1, 1, 1])], [f32([0.5625, 0, 9])]),
    Sample("ElementWiseEqual", [_Y, f32([0.5, 1, 1])], [np.array([True, False, False])]),
    Sample("ElementWiseNotEqual", [_Y, f32([0.5, 1, 1])], [np.array([False, True, True])]),
    Sample("ElementWiseGreater", [_Y, f32([0.5, 1, 1])], [np.array([False, True, False])]),
    Sample("ElementWiseGreaterEqual", [_Y, f32([0.5, 1, 1])], [np.array([True, True, False])]),
    Sample("ElementWiseLess", [_Y, f32([0.5, 1, 1])], [np.array([False, False, True])]),
    Sample("ElementWiseLessEqual", [_Y, f32([0.5, 1, 1])], [np.array([True, False, True])]),
    Sample("ElementWiseAnd", [np.array([True, True]), np.array([True, False])], [np.array([True, False])]),
    Sample("ElementWiseOr", [np.array([False, True]), np.array([False, False])], [np.array([False, True])]),
    Sample("ElementWiseXor", [np.array([True, True]), np.array([True, False])], [np.array([False, True])]),
    Sample("ElementWiseSelect", [np.array([True, False, True]), _Y, _POSITIVE], [f32([0.5, 1, -1.5])]),
    Sample("IsNan", [f32([1, np.nan, -np.inf])], [np.array([False, True, False])]),
    Sample("IsInf", [f32([np.inf, np.nan, -np.inf])], [np.array([True, False, True])]),
    Sample(
        "IsInf", [f32([np.inf, 0, -np.inf])], [np.array([False, False, True])], {"detect_positive": False}, "-negative"
    ),
    Sample("ElementWiseNeuron", [f32([-4, 0, 4])], [f32([0, 0.5, 1])], {"operation": 2, "alpha": 0.2, "beta": 0.5}),
    Sample("ElementWiseUnary", [f32([-4, 0.5, 2])], [f32([-0.25, 2, 0.5])], {"operation": 10}),
]
