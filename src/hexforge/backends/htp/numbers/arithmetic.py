# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the binary kernels in numpy, for tables: a table and the kernel it replaces give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.storage import Storage, in_range
from hexforge.ir import Array

OPERATIONS = {
    "ElementWiseAdd": 0, "ElementWiseSubtract": 1, "ElementWiseMultiply": 2, "ElementWiseDivide": 3,
    "ElementWiseMaximum": 4, "ElementWiseMinimum": 5,
}  # fmt: skip


def binary_scales(operation: int, a: Storage, b: Storage, y: Storage) -> tuple[float, float] | None:
    """What the centered operands are multiplied by (of a product or quotient: the result, by the first); None where
    the kernels' float types cannot hold it."""
    if operation == 2:
        factors = a.scale * b.scale / y.scale, 1.0
    elif operation == 3:
        factors = a.scale / (b.scale * y.scale), 1.0
    else:
        factors = a.scale / y.scale, b.scale / y.scale
    return factors if in_range(factors) else None


def binary(name: str, a: Storage, b: Storage, y: Storage, x0: Array, x1: Array) -> Array | None:
    """The stored result of stored operands of one fixed-point kind; None where no kernel computes it."""
    operation = OPERATIONS.get(name)
    if operation is None or not y.fixed or not a.kind == b.kind == y.kind:
        return None
    scales = binary_scales(operation, a, b, y)
    if scales is None:
        return None
    working: Any = np.float32 if y.kind == "u8" else np.float64
    ka, kb = (working(s) for s in scales)
    left: Array = (x0.astype(np.int32) - a.zero_point).astype(working)
    right: Array = (x1.astype(np.int32) - b.zero_point).astype(working)
    steps: Array
    with np.errstate(all="ignore"):
        match operation:
            case 0:
                steps = left * ka + right * kb
            case 1:
                steps = left * ka - right * kb
            case 2:
                steps = (left * right) * ka
            case 3:
                # by zero: saturated; 0 / 0 is no number, and so the lowest
                by_zero = np.where(left == 0, working(-1e30), left * working(1e30))
                steps = np.where(right == 0, by_zero, (left / right) * ka)
            case 4:
                steps = np.maximum(left * ka, right * kb)
            case _:
                steps = np.minimum(left * ka, right * kb)
    clamped = np.clip(steps, working(y.low - y.zero_point), working(y.high - y.zero_point))
    settled: Array = (np.rint(clamped).astype(np.int32) + y.zero_point).astype(y.dtype)
    return settled
