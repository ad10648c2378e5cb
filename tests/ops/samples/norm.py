# SPDX-License-Identifier: Apache-2.0
"""Samples of normalizations."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_LN = np.log(f32([1, 2, 5]))

SAMPLES = [
    Sample("Softmax", [f32([_LN, [1e4] * 3])], [f32([[0.125, 0.25, 0.625], [1 / 3] * 3])], {"axis": 1}),
    Sample("Softmax", [f32(_LN)], [f32(np.array([1, 4, 25]) / 30)], {"axis": 0, "beta": 2.0}, id="-beta"),
    Sample("Softmax", [f32([[0, 1], [0, 1]])], [f32([[0.5, 0.5], [0.5, 0.5]])], {"axis": 0}, id="-first_axis"),
    Sample(
        "MaskedSoftmax",
        [f32([_LN, _LN, _LN]), np.array([[1, 7, 0], [0, 0, 0], [1, 0, 0]], np.uint8)],
        [f32([[1 / 3, 2 / 3, 0], [0, 0, 0], [1, 0, 0]])],
        {"axis": 1},
    ),
    Sample(
        "MaskedSoftmax",
        [f32([[_LN], [_LN]]), np.array([0, 1, 0], np.uint8)],
        [f32([[[1 / 26, 0, 25 / 26]]] * 2)],
        {"axis": 2, "beta": 2.0, "keep": 0},
        id="-keeps_zeros",
    ),
    Sample(
        "LogSoftmax",
        [f32([_LN, [-1e4, 0, 0]])],
        [f32([[-np.log(8), -np.log(4), np.log(0.625)], [-1e4 - np.log(2), -np.log(2), -np.log(2)]])],
        {"axis": 1},
    ),
    Sample("Batchnorm", [f32([[1, 2], [3, 4]]), f32([2, -1]), f32([0.5, 1])], [f32([[2.5, -1], [6.5, -3]])]),
    Sample("Batchnorm", [f32([[1, 2], [3, 4]]), f32([2, -1])], [f32([[2, -2], [6, -4]])], id="-no-bias"),
    Sample(
        "InstanceNorm",
        [f32([[1, 10], [3, 30]]).reshape(1, 1, 2, 2), f32([2, 1]), f32([0, 1])],
        [f32([[-2, 0], [2, 2]]).reshape(1, 1, 2, 2)],
    ),
    Sample(
        "InstanceNorm",
        [f32([[1, 10], [3, 30]]).reshape(1, 1, 2, 2), f32([2, 1]), f32([0, 1])],
        [f32([[-2, -9], [2, 11]]).reshape(1, 1, 2, 2)],
        {"normalize_variance": False},
        id="-mean_only",
    ),
    Sample(
        "InstanceNorm",
        [f32([[1, 7], [3, -3]]).reshape(1, 1, 2, 2), f32([1, 1]), f32([0, 0])],
        [f32([[0.2, 1.4], [1, -1]]).reshape(1, 1, 2, 2)],
        {"mode": 1, "region": 1},
        id="-rms_channel",
    ),
    Sample("LayerNorm", [f32([[1, 3], [-2, 8]]), f32([1, 2]), f32([0, 5])], [f32([[-1, 7], [-1, 7]])], {"axes": [1]}),
    Sample(
        "LayerNorm",
        [f32([[1, 3], [3, 1]]), None, f32([[1, 1], [0, 0]])],
        [f32([[0, 2], [1, -1]])],
        {"axes": [0, 1]},
        id="-all_axes",
    ),
    Sample("LayerNorm", [f32([2, 4])], [f32([-0.5, 0.5])], {"axes": [0], "epsilon": 3.0}, id="-epsilon"),
    Sample("RmsNorm", [f32([[1, 7], [3, -3]]), f32([1, 2])], [f32([[0.2, 2.8], [1, -2]])], {"axes": [1]}),
    Sample(
        "GroupNorm",
        [f32([[1, 3, 0, 0], [3, 1, 10, 10]]).reshape(1, 2, 4), f32([1, 1, 1, 2]), f32([0, 0, 0, 1])],
        [f32([[-1, 1, -1, -1], [1, -1, 1, 3]]).reshape(1, 2, 4)],
        {"group": 2},
    ),
    Sample("L2Norm", [f32([[3, 4], [0, 0]])], [f32([[0.6, 0.8], [0, 0]])], {"axes": [1]}),
    Sample("L2Norm", [f32([[1, 1], [1, 1]])], [f32([[0.5, 0.5], [0.5, 0.5]])], {"axes": [0, 1]}, id="-two_axes"),
    Sample(
        "Lrn",
        [f32([[1, 2, 3, 4]])],
        [f32([[1 / 6, 2 / 15, 3 / 30, 4 / 26]])],
        {"alpha": 1.0, "beta": 1.0, "bias": 1.0, "radius": 1},
    ),
    Sample(
        "Lrn",
        [f32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)],
        [f32([[1 / 8, 2 / 8], [3 / 8, 4 / 8]]).reshape(1, 2, 2, 1)],
        {"alpha": 2.0, "beta": 0.5, "bias": 4.0, "radius": 5, "region": 1},
        id="-within_channel",
    ),
]
