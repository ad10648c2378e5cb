# SPDX-License-Identifier: Apache-2.0
"""Random ops have the distribution they say; a seed repeats them."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.ir import Call, DType, TensorType, lookup
from hexforge.ops.evaluate import evaluate

_TYPE = TensorType(DType.FLOAT32, (100, 100))


def _draw(op: str, **params: float) -> np.ndarray:
    found = lookup(op)
    call = Call(found, (_TYPE,), (_TYPE,), found.complete(params))
    return evaluate(call, [np.zeros(_TYPE.shape, np.float32)])[0]


@pytest.mark.parametrize("op", ["RandomUniformLike", "RandomNormalLike"])
def test_a_seed_repeats(op: str) -> None:
    np.testing.assert_array_equal(_draw(op, seed=3.5), _draw(op, seed=3.5))
    assert (_draw(op, seed=3.5) != _draw(op, seed=4.5)).any()
    assert (_draw(op) != _draw(op)).any()


def test_uniform() -> None:
    drawn = _draw("RandomUniformLike", low=-1.0, high=3.0, seed=1.0)
    assert drawn.min() >= -1
    assert drawn.max() <= 3
    assert abs(drawn.mean() - 1) < 0.1


def test_normal() -> None:
    drawn = _draw("RandomNormalLike", mean=2.0, scale=3.0, seed=1.0)
    assert abs(drawn.mean() - 2) < 0.1
    assert abs(drawn.std() - 3) < 0.1
