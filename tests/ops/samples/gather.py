# SPDX-License-Identifier: Apache-2.0
"""Samples of gather and scatter ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.sample import Sample, f32

_X = f32([[1, 2, 3], [4, 5, 6]])
_ROW = f32([10, 20, 30])


def _i(values: Any, dtype: type = np.int32) -> np.ndarray:
    return np.asarray(values, dtype)


SAMPLES = [
    Sample("Gather", [_X, _i([1, 0])], [f32([[4, 5, 6], [1, 2, 3]])]),
    Sample("Gather", [_X, _i(-1, np.int64)], [f32([3, 6])], {"axis": 1}, "-scalar"),
    Sample("GatherElements", [_X, _i([[2, 0], [1, 1]])], [f32([[3, 1], [5, 5]])], {"axis": 1}),
    Sample("GatherNd", [_X, _i([[0, 2], [1, 0]])], [f32([3, 4])]),
    Sample("GatherNd", [_X, _i([[2], [0]])], [f32([3, 4])], {"batch_dims": 1}, "-batch"),
    Sample("ScatterElements", [_ROW, _i([2, 0]), f32([1, 2])], [f32([2, 20, 1])]),
    Sample("ScatterElements", [_ROW, _i([1, 1]), f32([1, 2])], [f32([10, 23, 30])], {"reduction": 1}, "-add"),
    Sample("ScatterElements", [_ROW, _i([1, 1]), f32([1, 2])], [f32([10, 40, 30])], {"reduction": 2}, "-mul"),
    Sample("ScatterElements", [_ROW, _i([1, 0]), f32([1, 11])], [f32([11, 20, 30])], {"reduction": 3}, "-max"),
    Sample("ScatterElements", [_ROW, _i([1, 0]), f32([1, 11])], [f32([10, 1, 30])], {"reduction": 4}, "-min"),
    Sample("ScatterNd", [_X, _i([[1]]), f32([[7, 8, 9]])], [f32([[1, 2, 3], [7, 8, 9]])]),
    Sample(
        "ScatterNd", [_X, _i([[0, 0], [0, 0]]), f32([1, 2])], [f32([[4, 2, 3], [4, 5, 6]])], {"reduction": 1}, "-add"
    ),
    Sample(
        "OneHot", [_i([0, -1, 5])], [f32([[4, 2], [2, 4], [2, 2]])], {"depth": 2, "on_value": 4.0, "off_value": 2.0}
    ),
    Sample("TopK", [f32([[1, 3, 3, 2]])], [f32([[3, 3, 2]]), _i([[1, 2, 3]])], {"k": 3}),
    Sample(
        "TopK", [_i([5, -9, 7], np.int64)], [_i([-9, 5], np.int64), _i([1, 0])], {"k": 2, "largest": False}, "-least"
    ),
    Sample("NonZero", [f32([[0, 2], [3, 0]])], [_i([[0, 1], [1, 0]], np.int64)]),
]
