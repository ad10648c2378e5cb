# SPDX-License-Identifier: Apache-2.0
"""Encodings from the scale and zero-point tensors of QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import numpy as np

from hexforge.frontends.onnx.unit import Refusal
from hexforge.ir import Array, AxisScaleOffset, Block, DType, Encoding, ScaleOffset, TensorType
from hexforge.ir.fixed_point import encoding_fault


def encoding_of(
    scale: Array, zero_point: Array | None, axis: int, block_size: int, shape: tuple[int, ...], dtype: DType
) -> Encoding:
    """The encoding of a tensor of `shape` and `dtype`: per tensor, per `axis`, or per `block_size` along `axis`."""
    if scale.size == 1 and not block_size and (zero_point is None or zero_point.size == 1):
        offset = 0 if zero_point is None else -int(zero_point.item())
        return _checked(ScaleOffset(float(scale.item()), offset), shape, dtype)
    scale = np.asarray(scale, np.float64)
    zero = np.zeros(scale.shape, np.int64) if zero_point is None else np.asarray(zero_point).astype(np.int64)
    if zero.size != scale.size:
        raise Refusal(f"{scale.size} scales but {zero.size} zero points; they must have one shape")
    scales, offsets = tuple(map(float, scale.ravel())), tuple(-int(z) for z in zero.ravel())
    encoding: Encoding
    if not shape or not -len(shape) <= axis < len(shape):
        raise Refusal(f"quantization axis {axis} is outside a tensor of {len(shape)} dimensions")
    if block_size:
        axis %= len(shape)
        block = tuple(block_size if i == axis else 1 for i in range(len(shape)))
        counts = tuple(-(-n // b) for n, b in zip(shape, block, strict=True))
        if scale.shape != counts:
            raise Refusal(f"scales of shape {list(scale.shape)} for blocks {list(counts)} of shape {list(shape)}")
        encoding = Block(block, scales, offsets)
    else:
        if scale.ndim != 1:
            raise Refusal(f"scales of shape {list(scale.shape)} without a block size; give a scalar or a vector")
        encoding = AxisScaleOffset(axis % len(shape), scales, offsets)
    return _checked(encoding, shape, dtype)


def _checked(encoding: Encoding, shape: tuple[int, ...], dtype: DType) -> Encoding:
    problem = encoding_fault(TensorType(dtype, shape, encoding))
    if problem:
        raise Refusal(problem)
    return encoding
