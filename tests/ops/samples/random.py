# SPDX-License-Identifier: Apache-2.0
"""Samples of random ops: distributions without spread have one outcome."""

from __future__ import annotations

from tests.ops.sample import Sample, f32

SAMPLES = [
    Sample("RandomUniformLike", [f32([1, 2])], [f32([3, 3])], {"low": 3.0, "high": 3.0}),
    Sample("RandomNormalLike", [f32([[1], [2]])], [f32([[5], [5]])], {"mean": 5.0, "scale": 0.0, "seed": 1.0}),
]
