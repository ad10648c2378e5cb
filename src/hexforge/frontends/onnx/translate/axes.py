# SPDX-License-Identifier: Apache-2.0
"""Maps along one axis of a value: a linear one by a constant matrix, a choice of elements by constant indices."""

from __future__ import annotations

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.ir import Array, Value


def map_axis(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """`x` with the vectors along `axis` multiplied by `matrix` [out, in]."""
    rank, weights = len(x.shape), matrix.astype(x.dtype.numpy)
    if rank > 1 and axis == rank - 2:
        return b.emit("MatMul", [b.static(weights), x])
    if axis == rank - 1:
        flat = x if rank > 1 else b.reshape(x, (1, *x.shape))
        value = b.emit("MatMul", [flat, b.static(np.ascontiguousarray(weights.T))])
        return value if rank > 1 else b.reshape(value, value.shape[1:])
    outer, inner = x.shape[: axis + 1], x.shape[axis + 1 :]
    flat = b.reshape(x, (*outer, int(np.prod(inner))))
    value = b.emit("MatMul", [b.static(weights), flat])
    return b.reshape(value, (*outer[:-1], matrix.shape[0], *inner))


def take_axis(b: Builder, x: Value, axis: int, index: Array) -> Value:
    """`x` with the elements along `axis` that `index` names; fixed point stays as it is."""
    if index.ndim == 1 and np.array_equal(index, np.arange(x.shape[axis])):
        return x
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    return b.emit("Gather", [x, b.static(index.astype(np.int32))], x.type.with_shape(shape), axis=axis)
