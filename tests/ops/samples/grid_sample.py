# SPDX-License-Identifier: Apache-2.0
"""Samples of GridSample."""

from __future__ import annotations

from typing import Any

from tests.ops.sample import Sample, f32

_ROW = f32([1, 3, 5, 7]).reshape(1, 1, 4, 1)


def _at(*columns: float) -> Any:
    return f32([(x, 0) for x in columns]).reshape(1, 1, -1, 2)


def _out(*values: float) -> Any:
    return f32(values).reshape(1, 1, -1, 1)


# four elements lie at -0.75, -0.25, 0.25, 0.75, or with align_corners at -1, -1/3, 1/3, 1
SAMPLES = [
    Sample("GridSample", [_ROW, _at(-0.75, -0.5, 0.75, 1, 2)], [_out(1, 2, 7, 3.5, 0)]),
    Sample("GridSample", [_ROW, _at(-1, 0, 1)], [_out(1, 4, 7)], {"align_corners": True}, id="-corners"),
    Sample("GridSample", [_ROW, _at(-0.7, 0.3, 1.5)], [_out(1, 5, 0)], {"mode": 1}, id="-nearest"),
    Sample("GridSample", [_ROW, _at(-1.5, 1, 9)], [_out(1, 7, 7)], {"padding_mode": 1}, id="-border"),
    # folded at -1 and 1: 1.25 is 0.75, -1.75 is -0.25
    Sample("GridSample", [_ROW, _at(1.25, -1.75, 4.25)], [_out(7, 3, 5)], {"padding_mode": 2}, id="-reflection"),
    # a volume: eight elements, the grid counts x, y, z
    Sample(
        "GridSample",
        [f32(range(8)).reshape(1, 2, 2, 2, 1), f32([(0, 0, 0), (-1, 1, 1), (1, -1, 0)]).reshape(1, 1, 1, 3, 3)],
        [f32([3.5, 6, 3]).reshape(1, 1, 1, 3, 1)],
        {"align_corners": True},
        id="-volume",
    ),
]
