# SPDX-License-Identifier: Apache-2.0
"""Integers as they are stored: every one of a type, moved by half the range where the kernels want the other sign."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.backends.htp.numbers.lower.native_steps import _constant
from hexforge.backends.htp.numbers.segment import is_padded
from hexforge.backends.htp.numbers.storage import storage, stored, to_model_type
from hexforge.ir import DType, ScaleOffset, TensorType


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8, DType.INT16, DType.UINT16])
def test_every_integer_is_moved_and_comes_back(dtype: DType) -> None:
    """The stored integer is the model's plus the shift, and nothing is lost."""
    limits = np.iinfo(dtype.numpy)
    integers = np.arange(limits.min, limits.max + 1).astype(dtype.numpy).reshape(2, -1)
    type = TensorType(dtype, integers.shape, ScaleOffset(0.5, 0))
    own = storage(type)
    kept = stored(integers, type)
    assert kept.dtype == own.dtype
    np.testing.assert_array_equal(kept.astype(np.int64), integers.astype(np.int64) + own.shift)
    back = to_model_type(kept, type)
    assert back.dtype == integers.dtype
    np.testing.assert_array_equal(back, integers)
    np.testing.assert_array_equal(stored(integers.T, TensorType(dtype, integers.T.shape, ScaleOffset(0.5, 0))), kept.T)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT16])
def test_a_constant_that_is_moved_has_room_behind_it(dtype: DType) -> None:
    """So that a large one is not copied again for the sake of that room."""
    integers = np.arange(100, dtype=dtype.numpy).reshape(4, 25)
    type = TensorType(dtype, integers.shape, ScaleOffset(0.5, 0))
    constant = _constant(integers, type)
    assert is_padded(constant)
    np.testing.assert_array_equal(constant, stored(integers, type))
