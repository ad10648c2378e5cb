# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops: what their inputs may be."""

from __future__ import annotations

import pytest

from hexforge.errors import ModelError
from hexforge.ir import Call, DType, TensorType, lookup


@pytest.mark.parametrize("op", ["ElementWiseAnd", "ElementWiseOr", "ElementWiseXor", "ElementWiseNot"])
@pytest.mark.parametrize("dtype", [DType.INT32, DType.UINT8, DType.FLOAT32])
def test_logic_is_not_of_bits(op: str, dtype: DType) -> None:
    """ExecuTorch hands over bitwise_and of integers as ElementWiseAnd, which is another function of them."""
    found = lookup(op)
    boolean, number = TensorType(DType.BOOL, (2, 3)), TensorType(dtype, (2, 3))
    count = len(found.inputs)
    assert found.infer(Call(found, (boolean,) * count, (), {})) == (boolean,)
    with pytest.raises(ModelError, match=f"input {count - 1} is {dtype.value}; it combines booleans"):
        found.infer(Call(found, (*(boolean,) * (count - 1), number), (), {}))
