# SPDX-License-Identifier: Apache-2.0
"""Samples of resize ops."""

from __future__ import annotations

from typing import Any

from tests.ops.sample import Sample, f32


def _row(values: list[float]) -> Any:
    return f32(values).reshape(1, 1, -1, 1)


_PAIR, _FOUR = _row([1, 3]), _row([1, 2, 3, 4])

SAMPLES = [
    Sample("Resize", [_PAIR], [_row([1, 1, 3, 3])]),
    Sample("Resize", [_PAIR], [_row([1, 1.5, 2.5, 3])], {"interpolation_mode": 1}, id="-linear"),
    Sample(
        "Resize",
        [_PAIR],
        [_row([1, 5 / 3, 7 / 3, 3])],
        {"interpolation_mode": 1, "transformation_mode": 2},
        id="-corners",
    ),
    # halfway between elements the cubic weights are a/8, 1/2 - a/8, 1/2 - a/8, a/8
    Sample("Resize", [_FOUR], [_row([1.40625, 3.59375])], {"interpolation_mode": 2, "cubic_coeff": -0.75}, id="-cubic"),
    Sample("Resize", [_FOUR], [_row([1, 3])], {"transformation_mode": 3, "nearest_mode": 2}, id="-floor"),
    Sample("Resize", [f32([1, 3]).reshape(1, 2, 1)], [f32([1, 1, 3, 3]).reshape(1, 4, 1)], id="-1d"),
    Sample("ResizeBilinear", [_PAIR], [_row([1, 2, 3, 3])]),
    Sample("ResizeBilinear", [_PAIR], [_row([1, 1.5, 2.5, 3])], {"half_pixel_centers": True}, id="-half"),
    Sample("ResizeNearestNeighbor", [_PAIR], [_row([1, 1, 3, 3])]),
    Sample("ResizeNearestNeighbor", [_FOUR], [_row([1, 4])], {"align_corners": True}, id="-corners"),
]
