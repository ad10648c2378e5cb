# SPDX-License-Identifier: Apache-2.0
"""Differences in steps, and what counts as agreement."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.quant.steps import StepCounts, steps_apart, tolerance_of


@pytest.mark.parametrize(
    ("dtype", "steps"), [("uint8", 1), ("int8", 1), ("uint16", 32), ("float32", 8), ("int64", 0), ("bool", 0)]
)
def test_tolerances(dtype: str, steps: int) -> None:
    assert tolerance_of(np.dtype(dtype)).steps == steps


def test_integers_do_not_wrap() -> None:
    assert steps_apart(np.array([0, 255], np.uint8), np.array([255, 0], np.uint8)).tolist() == [255, 255]


def test_real_numbers_are_measured_by_the_largest() -> None:
    apart = steps_apart(np.array([1024.0, 0.0]), np.array([1020.0, 1.0]))
    assert apart.tolist() == [4, 1]
    odd = steps_apart(np.array([np.inf, np.nan, 1.0]), np.array([np.inf, np.nan, np.nan]))
    assert odd.tolist() == [0, 0, np.inf]


def test_another_shape_agrees_with_nothing() -> None:
    counts = StepCounts(1)
    counts.add(np.zeros((2, 3), np.uint8), np.zeros(6, np.uint8))
    assert not counts.agree


def test_enough_is_ninety_five_percent() -> None:
    numbers = np.zeros(100, np.uint8)
    for off, agrees in ((5, True), (6, False)):
        counts, other = StepCounts(1), numbers.copy()
        other[:off] = 9
        counts.add(numbers, other)
        assert counts.agree is agrees
        assert (counts.largest, counts.mean) == (9, 9 * off / 100)
