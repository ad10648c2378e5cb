# SPDX-License-Identifier: Apache-2.0
"""Samples of pooling."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_IMAGE = f32(np.arange(9)).reshape(1, 3, 3, 1)
_SQUARE = {"filter_size": (2, 2), "stride": (2, 2), "pad_amount": ((0, 0), (0, 0))}
_CUBE = {"filter_size": (2, 2, 2), "stride": (1, 1, 1), "pad_amount": ((0, 0), (0, 0), (0, 0))}
_EDGE = {"filter_size": (2, 2), "stride": (2, 2), "pad_amount": ((1, 0), (1, 0))}
_VOLUME = f32(np.arange(16)).reshape(1, 2, 2, 2, 2)


def _grid(values: list[list[float]]) -> np.ndarray:
    return f32(values)[None, :, :, None]


SAMPLES = [
    Sample("PoolMax2d", [_IMAGE], [_grid([[4]])], _SQUARE),
    Sample("PoolMax2d", [_IMAGE], [_grid([[4, 5], [7, 8]])], {**_SQUARE, "rounding_mode": 1}, id="-ceil"),
    Sample("PoolMax2d", [-1 - _IMAGE], [_grid([[-1, -2], [-4, -5]])], _EDGE, id="-pad"),
    Sample("PoolMax2d", [np.array([[[[3], [-7]]]], np.int8)], [np.array([[[[3], [-7]]]], np.int8)],
           {"filter_size": (1, 1), "stride": (1, 1), "pad_amount": ((0, 0), (0, 0))}, id="-int"),
    Sample("PoolMax3d", [_VOLUME], [f32([14, 15]).reshape(1, 1, 1, 1, 2)], _CUBE),
    Sample("PoolAvg2d", [_IMAGE], [_grid([[2]])], _SQUARE),
    Sample("PoolAvg2d", [_IMAGE], [_grid([[0, 1.5], [4.5, 6]])], _EDGE, id="-pad"),
    Sample("PoolAvg2d", [_IMAGE], [_grid([[0, 0.75], [2.25, 6]])], {**_EDGE, "count_pad_for_edges": True}, id="-count"),
    Sample("PoolAvg2d", [_IMAGE], [_grid([[2, 3.5], [6.5, 8]])],
           {**_SQUARE, "rounding_mode": 1, "count_pad_for_edges": True}, id="-ceil"),
    Sample("PoolAvg3d", [_VOLUME], [f32([7, 8]).reshape(1, 1, 1, 1, 2)], _CUBE),
    Sample("L2Pool2d", [_grid([[3, 0], [-4, 12]])], [_grid([[13]])], _SQUARE),
    Sample("L2Pool2d", [_grid([[3, 0], [-4, 5]])], [_grid([[6]])], {**_SQUARE, "p": 3}, id="-p3"),
]  # fmt: skip
