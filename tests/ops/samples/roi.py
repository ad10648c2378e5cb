# SPDX-License-Identifier: Apache-2.0
"""Samples of region-of-interest ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.sample import Sample, f32

_RAMP = f32(np.arange(16)).reshape(1, 4, 4, 1)  # 4 y + x
_FIRST = np.array([0], np.int32)


def _bins(*values: float) -> Any:
    return f32(values).reshape(1, 2, 2, 1)


SAMPLES = [
    # bins of 1 x 1 sampled at their centres, 0.5 and 1.5, on a plane
    Sample("RoiAlign", [_RAMP, f32([[0, 0, 2, 2]]), _FIRST], [_bins(2.5, 3.5, 6.5, 7.5)],
           {"img_size_ratio": (1.0, 1.0), "num_samples_y": 1, "num_samples_x": 1}),
    # aligned: half an element less, the same plane 2.5 lower; samples counted from the bin's size
    Sample("RoiAlign", [_RAMP, f32([[2, 2, 6, 6]]), _FIRST], [_bins(5, 6, 9, 10)],
           {"img_size_ratio": (2.0, 2.0), "aligned": True}, id="-aligned"),
    Sample("RoiAlign", [_RAMP, f32([[9, 9, 12, 12]]), _FIRST], [_bins(0, 0, 0, 0)],
           {"img_size_ratio": (1.0, 1.0), "num_samples_y": 2, "num_samples_x": 2}, id="-outside"),
    Sample("RoiPooling", [_RAMP, f32([[0, 0, 3, 3]]), _FIRST], [_bins(5, 7, 13, 15)], {"img_size_ratio": (1.0, 1.0)}),
    Sample("RoiPooling", [_RAMP, f32([[2, 4, 4, 6]]), _FIRST], [_bins(9, 10, 13, 14)],
           {"img_size_ratio": (2.0, 2.0)}, id="-scaled"),
]  # fmt: skip
