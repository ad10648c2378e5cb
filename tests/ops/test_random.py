# SPDX-License-Identifier: Apache-2.0
"""Random ops have the distribution they say; a seed repeats them."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.errors import ModelError
from hexforge.ir import Call, DType, ScaleOffset, TensorType, lookup
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


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.UINT16])
def test_sizes_as_qnn_gives_them_and_fixed_point(dtype: DType) -> None:
    """QNN's input is the output's sizes; numbers of an encoding are what the drawn ones are nearest to."""
    found = lookup("RandomUniformLike")
    out = TensorType(dtype, (20, 30), ScaleOffset(0.01))
    call = Call(found, (TensorType(DType.UINT32, (2,)),), (out,), found.complete({"high": 2.0, "seed": 1.0}))
    assert found.infer(call) == (out,)
    (drawn,) = evaluate(call, [np.array([20, 30], np.uint32)])
    assert (drawn.dtype, drawn.shape) == (dtype.numpy, (20, 30))
    assert 0 <= drawn.min() < 10
    assert 190 < drawn.max() <= 200


def test_sizes_of_another_rank_are_refused() -> None:
    found = lookup("RandomNormalLike")
    ins, outs = (TensorType(DType.UINT32, (3,)),), (TensorType(DType.FLOAT32, (20, 30)),)
    with pytest.raises(ModelError, match=r"declared \[20, 30\], the input is \[3\]"):
        found.infer(Call(found, ins, outs, found.complete({})))


def test_uniform() -> None:
    drawn = _draw("RandomUniformLike", low=-1.0, high=3.0, seed=1.0)
    assert drawn.min() >= -1
    assert drawn.max() <= 3
    assert abs(drawn.mean() - 1) < 0.1


def test_normal() -> None:
    drawn = _draw("RandomNormalLike", mean=2.0, scale=3.0, seed=1.0)
    assert abs(drawn.mean() - 2) < 0.1
    assert abs(drawn.std() - 3) < 0.1
