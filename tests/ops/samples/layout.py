# SPDX-License-Identifier: Apache-2.0
"""Samples of layout and space ops."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_X = f32([[1, 2, 3], [4, 5, 6]])
_ROW = f32([1, 2, 3, 4])
# one 2x2 image of four channels, and what its channels spell as a 4x4 image
_DEEP = f32(np.arange(16)).reshape(1, 2, 2, 4)
_DCR = f32([[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]).reshape(1, 4, 4, 1)

SAMPLES = [
    Sample("Transpose", [_X], [f32([[1, 4], [2, 5], [3, 6]])], {"perm": (1, 0)}),
    Sample("Reshape", [_X], [f32([[1, 2], [3, 4], [5, 6]])]),
    Sample("Squeeze", [f32([[[1], [2]]])], [f32([1, 2])]),
    Sample("ExpandDims", [_ROW], [f32([[[1], [2], [3], [4]]])], {"axes": (0, 2)}),
    Sample("Concat", [_X, f32([[7], [8]])], [f32([[1, 2, 3, 7], [4, 5, 6, 8]])], {"axis": 1}),
    Sample(
        "Concat", [np.array([1], np.int64), np.array([2], np.int64)], [np.array([1, 2], np.int64)], {"axis": 0}, "-int"
    ),
    Sample("Pack", [f32([1, 2]), f32([3, 4])], [f32([[1, 3], [2, 4]])], {"axis": 1}),
    Sample("UnPack", [_X], [f32([1, 4]), f32([2, 5]), f32([3, 6])], {"axis": 1}),
    Sample("Split", [_ROW], [f32([1]), f32([2, 3]), f32([4])], {"axis": 0, "split_index": (1, 3)}),
    Sample("Split", [_ROW], [f32([]), _ROW], {"axis": 0, "split_index": (0,)}, "-empty"),
    Sample(
        "Pad", [_ROW], [f32([9, 1, 2, 3, 4, 9, 9])], {"scheme": 0, "pad_amount": [[1, 2]], "pad_constant_value": 9.0}
    ),
    Sample("Pad", [_ROW], [f32([2, 1, 1, 2, 3, 4, 4])], {"scheme": 1, "pad_amount": [[2, 1]]}, "-symmetric"),
    Sample("Pad", [_ROW], [f32([3, 2, 1, 2, 3, 4, 3])], {"scheme": 2, "pad_amount": [[2, 1]]}, "-reflect"),
    Sample("Pad", [_ROW], [f32([1, 1, 1, 2, 3, 4, 4])], {"scheme": 3, "pad_amount": [[2, 1]]}, "-edge"),
    Sample("StridedSlice", [_X], [f32([[4, 6]])], {"ranges": [[1, 2, 1], [0, 3, 2]]}),
    Sample("StridedSlice", [_X], [f32([[6, 5, 4], [3, 2, 1]])], {"ranges": [[1, -1, -1], [2, -1, -1]]}, "-backwards"),
    Sample(
        "StridedSlice",
        [_X],
        [f32([[5, 6]])],
        {"ranges": [[1, 2, 1], [0, 1, 1], [1, 2, 1]], "end_mask": 4, "shrink_axes": 1, "new_axes_mask": 2},
        "-masks",
    ),
    Sample("Tile", [_X], [f32([[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]])], {"multiples": (1, 2)}),
    Sample("Shape", [_X], [np.array([3], np.int64)], {"start": 1}),
    Sample("DepthToSpace", [_DEEP], [_DCR], {"block_size": (2, 2)}),
    Sample(
        "DepthToSpace",
        [f32([[[[1, 2, 3, 4]]]])],
        [f32([[[[1, 3], [2, 4]]]])],
        {"block_size": (1, 2), "mode": 1},
        "-crd",
    ),
    Sample("SpaceToDepth", [_DCR], [_DEEP], {"block_size": (2, 2)}),
    Sample(
        "SpaceToDepth",
        [f32([[[[1, 3], [2, 4]]]])],
        [f32([[[[1, 2, 3, 4]]]])],
        {"block_size": (1, 2), "mode": 1},
        "-crd",
    ),
    Sample(
        "BatchToSpace",
        [f32([1, 2, 3, 4]).reshape(4, 1, 1, 1)],
        [f32([[1], [3]]).reshape(1, 2, 1, 1)],
        {"block_size": (2, 2), "crops": [[0, 0], [0, 1]]},
    ),
    Sample(
        "SpaceToBatch",
        [f32([[1], [3]]).reshape(1, 2, 1, 1)],
        [f32([1, 0, 3, 0]).reshape(4, 1, 1, 1)],
        {"block_size": (2, 2), "pad_amount": [[0, 0], [0, 1]]},
    ),
    Sample("ChannelShuffle", [f32([[1, 2, 3, 4, 5, 6]])], [f32([[1, 4, 2, 5, 3, 6]])], {"num_groups": 2, "axis": 1}),
]
