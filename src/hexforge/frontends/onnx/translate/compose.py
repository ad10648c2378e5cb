# SPDX-License-Identifier: Apache-2.0
"""Small steps for translators that compose an ONNX op from several QNN ops. Constants are computed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.unit import Unit
from hexforge.ir import Array, DType, ScaleOffset, TensorType, Value


def scalar(b: Builder, number: float, like: Value | DType) -> Value:
    """A constant number of `like`'s data type, which broadcasts to any shape."""
    dtype = like.dtype if isinstance(like, Value) else like
    return b.static(np.asarray([number]).astype(dtype.numpy))


def exact_scalar(b: Builder, number: float, like: Value) -> Value:
    """A constant number beside `like`: where that is fixed point, one step (or none) of an encoding made for it."""
    shape = (1,) * min(1, len(like.shape))
    if like.encoding is None:
        return b.static(np.full(shape, number).astype(like.dtype.numpy))
    if number > 0:
        return b.static(np.ones(shape, like.dtype.numpy), ScaleOffset(number))
    return b.static(np.zeros(shape, like.dtype.numpy), ScaleOffset(-number, -1) if number else ScaleOffset(1.0))


def scaled_output(b: Builder, u: Unit, factor: float, write: Callable[[Value | TensorType], Value]) -> bool:
    """Write `factor` times a result in the output's fixed point, rounded once; False where it is no fixed point.

    The result is written with the output's integers, each step worth 1 / `factor` of it; the product with the factor
    then changes what a step is worth, and no integer.
    """
    out = b.output(u)
    encoding = out.encoding
    if not isinstance(encoding, ScaleOffset) or not factor > 0 or not np.isfinite(encoding.scale / factor):
        return False
    if factor == 1:
        write(out)
        return True
    steps = write(TensorType(out.dtype, out.shape, replace(encoding, scale=encoding.scale / factor)))
    b.emit("ElementWiseMultiply", [steps, exact_scalar(b, factor, steps)], out)
    return True


def binary(b: Builder, op: str, x: Value, y: Value | float) -> Value:
    """ElementWise`op` of two values, or of a value and a number."""
    return b.emit(f"ElementWise{op}", [x, y if isinstance(y, Value) else scalar(b, y, x)])


def unary(b: Builder, op: str, x: Value) -> Value:
    """ElementWise`op` of a value."""
    return b.emit(f"ElementWise{op}", [x])


def reduce(b: Builder, op: str, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """Reduce`op` along axes; the value itself where there are none."""
    return b.emit(f"Reduce{op}", [x], axes=tuple(axes), keep_dims=keep_dims) if axes else x


def cast(b: Builder, x: Value, dtype: DType) -> Value:
    """`x` in another data type; itself where it has it."""
    if x.dtype is dtype and x.encoding is None:
        return x
    if x.data is not None and x.encoding is None:
        return b.static(x.data.astype(dtype.numpy), name=f"{x.name}_{dtype.value}")
    return b.emit("Cast", [x], TensorType(dtype, x.shape))


def part(b: Builder, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """The slice start:stop:step of `x` along one axis, a view where it is constant."""
    axis %= len(x.shape)
    if (start, stop, step) == (0, x.shape[axis], 1):
        return x
    if x.data is not None and not hasattr(x.encoding, "scales"):
        return b.static(x.data[(slice(None),) * axis + (slice(start, stop, step),)], x.encoding, f"{x.name}_part")
    ranges = [(start, stop, step) if i == axis else (0, n, 1) for i, n in enumerate(x.shape)]
    return b.emit("StridedSlice", [x], ranges=ranges)


def concat(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values joined along an axis."""
    return values[0] if len(values) == 1 else b.emit("Concat", values, axis=axis % len(values[0].shape))


def ranged(b: Builder, shape: Sequence[int], axis: int, dtype: DType = DType.INT32) -> Value:
    """A constant 0, 1, 2… along one axis of `shape`, whose other axes are 1."""
    return b.static(np.arange(shape[axis]).astype(dtype.numpy).reshape(shape))


def less_zero_point(b: Builder, u: Unit, index: int, trailing: int = 0) -> Value:
    """An 8-bit operand of an integer op as int32 less its zero point, input index + 2.

    Several zero points run along the axis that has `trailing` axes behind it.
    """
    value = cast(b, b.input(u, index), DType.INT32)
    if not b.has(u, index + 2):
        return value
    zero = cast(b, b.input(u, index + 2), DType.INT32)
    if trailing and len(zero.shape) == 1 and zero.type.size > 1:
        zero = b.reshape(zero, (zero.type.size, *(1,) * trailing))
    return binary(b, "Subtract", value, zero) if zero.data is None or zero.data.any() else value


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
