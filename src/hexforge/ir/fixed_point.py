# SPDX-License-Identifier: Apache-2.0
"""What an encoding means: integers to real numbers and back. The only place that knows the formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hexforge.ir.types import (
    Array,
    AxisScaleOffset,
    Block,
    BlockwiseExpansion,
    DType,
    Encoding,
    NumberArray,
    ScaleOffset,
    TensorType,
)


def quantized_range(dtype: DType, encoding: Encoding) -> tuple[int, int]:
    """Smallest and largest integer the encoding allows in `dtype`."""
    bits = encoding.bitwidth or dtype.bits
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


def _along(values: tuple[Any, ...], axis: int, rank: int, dtype: Any) -> Array:
    return np.asarray(values, dtype).reshape([-1 if i == axis else 1 for i in range(rank)])


def scale_array(encoding: Encoding, shape: tuple[int, ...]) -> Array:
    """The float64 scale of every element, broadcastable to `shape`."""
    match encoding:
        case ScaleOffset(scale=scale):
            return np.asarray(scale, np.float64)
        case AxisScaleOffset(axis=axis, scales=scales):
            return _along(scales, axis, len(shape), np.float64)
        case BlockwiseExpansion(axis=axis, block_axis=block_axis, scales=scales, block_scales=block_scales):
            per_block = np.asarray(block_scales, np.float64).reshape(len(scales), -1)
            per_block = per_block * np.asarray(scales, np.float64)[:, None]
            per_element = np.repeat(per_block, shape[block_axis] // per_block.shape[1], axis=1)
            out = [1] * len(shape)
            out[axis], out[block_axis] = len(scales), shape[block_axis]
            return (per_element if axis < block_axis else per_element.T).reshape(out)
        case Block(block_shape=block_shape, scales=scales):
            return _expand_blocks(np.asarray(scales, np.float64), block_shape, shape)


def offset_array(encoding: Encoding, shape: tuple[int, ...]) -> Array:
    """The int64 offset of every element, broadcastable to `shape`."""
    match encoding:
        case ScaleOffset(offset=offset):
            return np.asarray(offset, np.int64)
        case AxisScaleOffset(axis=axis, offsets=offsets) | BlockwiseExpansion(axis=axis, offsets=offsets):
            return _along(offsets, axis, len(shape), np.int64)
        case Block(block_shape=block_shape, offsets=offsets):
            return _expand_blocks(np.asarray(offsets, np.int64), block_shape, shape)


def _expand_blocks(values: Array, block_shape: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    values = values.reshape([n // b for n, b in zip(shape, block_shape, strict=True)])
    for axis, block in enumerate(block_shape):
        values = np.repeat(values, block, axis=axis)
    return values


def centered(array: Array, type: TensorType, dtype: Any = np.float64) -> Array:
    """q + offset as exact integers in a float type: the fixed-point value before its scale."""
    assert type.encoding is not None
    return np.asarray(array.astype(dtype) + offset_array(type.encoding, type.shape).astype(dtype))


def dequantize(array: Array, type: TensorType, dtype: Any = np.float64) -> Array:
    """Real values of a fixed-point array."""
    assert type.encoding is not None
    return (centered(array, type) * scale_array(type.encoding, type.shape)).astype(dtype, copy=False)


def quantize(real: Array, type: TensorType) -> Array:
    """Nearest fixed-point integers (ties to even, saturating) of real values, in `type`'s numpy type.

    Computed in the precision of `real`: float32 input divides in float32, as ONNX defines QuantizeLinear.
    """
    assert type.encoding is not None
    low, high = quantized_range(type.dtype, type.encoding)
    working = np.float32 if real.dtype == np.float32 else np.float64
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        steps = np.rint(real.astype(working, copy=False) / scale_array(type.encoding, type.shape).astype(working))
    steps = steps.astype(np.float64, copy=False)
    if (no_number := np.isnan(steps)).any():
        steps = np.where(no_number, -np.inf, steps)  # as onnxruntime does
    steps = steps - offset_array(type.encoding, type.shape)
    saturated: Array = np.clip(steps, low, high).astype(np.int64).astype(type.dtype.numpy)
    return saturated


def permute_encoding(encoding: Encoding | None, perm: tuple[int, ...]) -> Encoding | None:
    """The encoding of the tensor transposed by `perm` (output axis i is input axis perm[i])."""
    match encoding:
        case AxisScaleOffset(axis=axis, scales=scales, offsets=offsets, bitwidth=bitwidth):
            return AxisScaleOffset(perm.index(axis), scales, offsets, bitwidth)
        case BlockwiseExpansion():
            return BlockwiseExpansion(
                perm.index(encoding.axis), perm.index(encoding.block_axis), encoding.scales, encoding.offsets,
                encoding.block_scales, encoding.bitwidth, encoding.block_scale_bitwidth,
            )  # fmt: skip
        case Block():
            # The number of blocks along each axis is not in the encoding; blocks are only ever permuted with a shape.
            raise ValueError("use permuted_type for block encodings")
        case _:
            return encoding


def permute_type(type: TensorType, perm: tuple[int, ...]) -> TensorType:
    """The type of the tensor transposed by `perm`."""
    shape = tuple(type.shape[p] for p in perm)
    if isinstance(type.encoding, Block):
        counts = [n // b for n, b in zip(type.shape, type.encoding.block_shape, strict=True)]
        scales = np.asarray(type.encoding.scales).reshape(counts).transpose(perm).ravel()
        offsets = np.asarray(type.encoding.offsets).reshape(counts).transpose(perm).ravel()
        block = tuple(type.encoding.block_shape[p] for p in perm)
        encoding = Block(block, scales.tolist(), offsets.tolist(), type.encoding.bitwidth)
        return TensorType(type.dtype, shape, encoding)
    return TensorType(type.dtype, shape, permute_encoding(type.encoding, perm))


def encoding_fault(type: TensorType) -> str | None:
    """What is wrong with the type's encoding, or None."""
    encoding = type.encoding
    if encoding is None:
        return None
    if not type.dtype.is_integer:
        return f"{type.dtype.value} cannot carry an encoding"
    scales = (encoding.scale,) if isinstance(encoding, ScaleOffset) else encoding.scales
    offsets = (encoding.offset,) if isinstance(encoding, ScaleOffset) else encoding.offsets
    if isinstance(scales, NumberArray) or isinstance(offsets, NumberArray):
        as_arrays = np.asarray(scales, np.float64), np.asarray(offsets, np.int64)
        positive = bool((np.isfinite(as_arrays[0]) & (as_arrays[0] > 0)).all())
        bounds = (int(as_arrays[1].min()), int(as_arrays[1].max())) if len(offsets) else (0, 0)
    else:
        positive = all(map(math.isfinite, scales)) and min(scales, default=1.0) > 0
        bounds = min(offsets, default=0), max(offsets, default=0)
    if not positive:
        bad = next(s for s in scales if not (math.isfinite(s) and s > 0))
        return f"scale {bad} is not a positive finite number"
    low, high = quantized_range(type.dtype, encoding)
    if len(offsets) and not (low <= -bounds[1] and -bounds[0] <= high):
        wrong = next(o for o in offsets if not low <= -o <= high)
        return f"zero point {-wrong} is outside {low}..{high} of {type.dtype.value}"
    if len(scales) != len(offsets):
        return f"{len(scales)} scales but {len(offsets)} offsets"
    rank = len(type.shape)
    match encoding:
        case AxisScaleOffset(axis=axis):
            if not 0 <= axis < rank:
                return f"axis {axis} is outside the tensor's {rank} dimensions"
            if len(scales) != type.shape[axis]:
                return f"{len(scales)} scales for axis {axis} of size {type.shape[axis]}"
        case BlockwiseExpansion(axis=axis, block_axis=block_axis, block_scales=block_scales):
            if not (0 <= axis < rank and 0 <= block_axis < rank and axis != block_axis):
                return f"axes {axis} and {block_axis} do not fit the tensor's {rank} dimensions"
            blocks = len(block_scales) // max(len(scales), 1)
            if len(scales) != type.shape[axis] or blocks * len(scales) != len(block_scales):
                return f"{len(scales)} scales and {len(block_scales)} block scales for shape {list(type.shape)}"
            if not blocks or type.shape[block_axis] % blocks:
                return f"axis {block_axis} of size {type.shape[block_axis]} does not divide into {blocks} blocks"
        case Block(block_shape=block_shape):
            if len(block_shape) != rank or any(b <= 0 or n % b for n, b in zip(type.shape, block_shape, strict=True)):
                return f"block {list(block_shape)} does not divide shape {list(type.shape)}"
            if math.prod(n // b for n, b in zip(type.shape, block_shape, strict=True)) != len(scales):
                return f"{len(scales)} scales for the blocks of shape {list(type.shape)}"
        case _:
            pass
    return None
