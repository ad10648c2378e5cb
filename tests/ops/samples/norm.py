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
        "LogSoftmax",
        [f32([_LN, [-1e4, 0, 0]])],
        [f32([[-np.log(8), -np.log(4), np.log(0.625)], [-1e4, -np.log(2), -np.log(2)]])],
        {"axis": 1},
    ),
]
