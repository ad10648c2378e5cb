# SPDX-License-Identifier: Apache-2.0
"""Samples of signal ops."""

from __future__ import annotations

from tests.ops.sample import Sample, f32

_SIGNAL = f32([1, 2, 3, 4, 5, 6]).reshape(1, 6, 1)

SAMPLES = [
    Sample(
        "Stft",
        [_SIGNAL],
        [f32([[[[10, 0], [-2, 2], [-2, 0]], [[18, 0], [-2, 2], [-2, 0]]]])],
        {"frame_step": 2, "frame_length": 4},
    ),
    Sample(
        "Stft",
        [_SIGNAL, f32([1, 0, 1, 0])],
        [f32([[[[4, 0], [-2, 0], [4, 0], [-2, 0]]]])],
        {"frame_step": 3, "frame_length": 4, "onesided": False},
        id="-window",
    ),
    Sample(
        "HadamardTransform", [f32([[1, 2, 3, 4], [1, 0, 0, 0]])], [f32([[10, -2, -4, 0], [1, 1, 1, 1]])], {"scale": 2.0}
    ),
]
