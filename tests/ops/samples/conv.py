# SPDX-License-Identifier: Apache-2.0
"""Samples of convolutions."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_IMAGE = f32(np.arange(9)).reshape(1, 3, 3, 1)
_NO_PAD = ((0, 0), (0, 0))
_ONES = np.ones((2, 2, 1, 1), np.float32)

SAMPLES = [
    # each output is the sum of a 2 x 2 square
    Sample(
        "Conv2d",
        [_IMAGE, _ONES],
        [f32([[8, 12], [20, 24]]).reshape(1, 2, 2, 1)],
        {"stride": (1, 1), "pad_amount": _NO_PAD},
    ),
    Sample(
        "Conv2d",
        [f32([[1, 2], [3, 4]]).reshape(1, 1, 2, 2), f32([[1, 0], [0, 2]]).reshape(1, 1, 2, 2), f32([0.5, -1])],
        [f32([[1.5, 3], [3.5, 7]]).reshape(1, 1, 2, 2)],
        {"stride": (1, 1), "pad_amount": _NO_PAD},
        id="-1x1",
    ),
    Sample(
        "Conv2d",
        [_IMAGE, _ONES],
        [f32([[0, 3], [9, 24]]).reshape(1, 2, 2, 1)],
        {"stride": (2, 2), "pad_amount": ((1, 0), (1, 0))},
        id="-pad",
    ),
    Sample(
        "Conv2d",
        [f32([1, 2, 3, 4]).reshape(1, 1, 1, 4), f32([[1, 10], [1, 10]]).reshape(1, 1, 2, 2)],
        [f32([3, 70]).reshape(1, 1, 1, 2)],
        {"stride": (1, 1), "pad_amount": _NO_PAD, "group": 2},
        id="-group",
    ),
    Sample(
        "Conv3d",
        [f32(np.arange(8)).reshape(1, 2, 2, 2, 1), f32(np.ones((2, 2, 2, 1, 2))) * f32([1, -1]), f32([1, 0])],
        [f32([29, -28]).reshape(1, 1, 1, 1, 2)],
        {"stride": (1, 1, 1), "pad_amount": ((0, 0), (0, 0), (0, 0))},
    ),
    Sample(
        "DepthWiseConv2d",
        [
            f32([[1, 2], [3, 4]]).reshape(1, 2, 1, 2),
            f32([[1, 2, 3, 4], [1, 1, 1, 1]]).reshape(2, 1, 1, 4),
            f32([0, 0, 0, 1]),
        ],
        [f32([4, 5, 10, 13]).reshape(1, 1, 1, 4)],
        {"stride": (1, 1), "pad_amount": _NO_PAD},
    ),
    # stride 2 with a 2 x 2 kernel copies each pixel to its own square
    Sample(
        "TransposeConv2d",
        [f32([[1, 2]]).reshape(1, 1, 2, 1), f32([[1, 2], [3, 4]]).reshape(2, 2, 1, 1), f32([0.5])],
        [f32([[1.5, 2.5, 2.5, 4.5], [3.5, 4.5, 6.5, 8.5]]).reshape(1, 2, 4, 1)],
        {"stride": (2, 2), "pad_amount": _NO_PAD},
    ),
    # overlapping squares add up; the pad cuts the first column, the output padding adds an empty one
    Sample(
        "TransposeConv2d",
        [f32([[1, 2]]).reshape(1, 1, 2, 1), f32([[1, 10]]).reshape(1, 2, 1, 1)],
        [f32([12, 20, 0]).reshape(1, 1, 3, 1)],
        {"stride": (1, 1), "pad_amount": ((0, 0), (1, 0)), "output_padding": (0, 1)},
        id="-overlap",
    ),
    Sample(
        "TransposeConv3d",
        [f32([2, 3]).reshape(1, 1, 1, 1, 2), f32([[1, 2], [3, 4]]).reshape(1, 1, 2, 2, 1)],
        [f32([[2, 6], [6, 12]]).reshape(1, 1, 1, 2, 2)],
        {"stride": (1, 1, 1), "pad_amount": ((0, 0), (0, 0), (0, 0)), "group": 2},
    ),
]
