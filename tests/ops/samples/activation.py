# SPDX-License-Identifier: Apache-2.0
"""Samples of activations."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32

_X = f32([[-8, -3, -1.5, -0.5], [0, 0.5, 2, 8]])

SAMPLES = [
    Sample("Relu", [_X], [f32([[0, 0, 0, 0], [0, 0.5, 2, 8]])]),
    Sample("Relu", [np.array([-3, 4], np.int32)], [np.array([0, 4], np.int32)], id="-int"),
    Sample("Relu1", [_X], [f32([[-1, -1, -1, -0.5], [0, 0.5, 1, 1]])]),
    Sample("Relu6", [_X], [f32([[0, 0, 0, 0], [0, 0.5, 2, 6]])]),
    Sample("ReluMinMax", [_X], [f32([[-1, -1, -1, -0.5], [0, 0.5, 2, 3]])], {"min_value": -1.0, "max_value": 3.0}),
    Sample("Sigmoid", [f32([-200, 0, np.log(3), 200])], [f32([0, 0.5, 0.75, 1])]),
    Sample("Tanh", [f32([-200, 0, np.log(3) / 2, 200])], [f32([-1, 0, 0.5, 1])]),
    Sample("Elu", [f32([-np.log(2), 0, 3])], [f32([-1, 0, 3])], {"alpha": 2.0}),
    Sample("Gelu", [f32([-1, 0, 1, 2])], [f32([-0.15865525, 0, 0.84134475, 1.9544997])]),
    Sample("HardSwish", [f32([-4, -1.5, 0, 1.5, 4])], [f32([0, -0.375, 0, 1.125, 4])]),
    Sample("Prelu", [_X, f32([0.5, 0.25, 2, -1])], [f32([[-4, -0.75, -3, 0.5], [0, 0.5, 2, 8]])]),
]
