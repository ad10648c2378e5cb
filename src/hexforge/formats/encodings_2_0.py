# SPDX-License-Identifier: Apache-2.0
"""Entries of AIMET's encodings 2.0.0, which say what ONNX's QuantizeLinear would: a type, scales and zero points.

Here integers are those of the type, real = scale * (q - zero point), and what runs along axes is nested lists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array, AxisScaleOffset, Block, BlockwiseExpansion, DType, Encoding, ScaleOffset

VERSION = "2.0.0"
SECTION = "encodings"
_BITS = (4, 8, 16, 32)


class EncodingFault(Exception):  # noqa: N818 - an answer, gathered
    """What is wrong with one record."""


def read_entry(
    entry: Mapping[str, Any], channel_axis: int | None, shape: tuple[int, ...] | None
) -> tuple[DType, Encoding] | None:
    """Type and encoding of one entry; `channel_axis` is the axis of a parameter's channels, None of an activation."""
    kind = entry.get("output_dtype")
    named = re.fullmatch(r"(u?int|float|bfloat)([0-9]{1,2})", kind) if isinstance(kind, str) else None
    if named is None:
        raise EncodingFault(f"output_dtype is {kind!r}; int8, uint16 and the like are known")
    if named[1].endswith("float"):
        return None
    bits = int(named[2])
    if bits not in _BITS:
        raise EncodingFault(f"output_dtype is {kind!r}; 4, 8, 16 and 32 bits are known")
    dtype = DType[f"{named[1].upper()}{bits}"]
    if "per_block_int_scale" in entry:
        return dtype, _expansion(entry, dtype, channel_axis)
    scales = _numbers(entry, "y_scale")
    zeros = _numbers(entry, "y_zero_point") if entry.get("y_zero_point") is not None else np.zeros_like(scales)
    if scales.shape != zeros.shape or (zeros != np.rint(zeros)).any() or not (scales > 0).all():
        raise EncodingFault("scales are positive, and zero points as many whole numbers")
    low, high = dtype.range
    if (zeros < low).any() or (zeros > high).any():
        raise EncodingFault(f"a zero point outside {low}..{high}")
    offsets = [-int(zero) for zero in zeros.ravel()]
    if entry.get("block_size") is not None:
        return dtype, Block(_block(entry, shape), tuple(scales.ravel().tolist()), tuple(offsets))
    if scales.ndim > 1:
        raise EncodingFault("y_scale has more than one axis, and there is no block_size")
    if entry.get("axis") is not None and scales.ndim:
        return dtype, AxisScaleOffset(_axis(entry, shape), tuple(scales.tolist()), tuple(offsets))
    if scales.size != 1:
        raise EncodingFault(f"{scales.size} scales, and no axis that they run along")
    scale, offset = float(scales.ravel()[0]), offsets[0]
    if channel_axis is None and dtype.is_signed and bits in (8, 16):  # an activation is unsigned here
        return DType[f"UINT{bits}"], ScaleOffset(scale, offset - (1 << bits - 1))
    return dtype, ScaleOffset(scale, offset)


def _expansion(entry: Mapping[str, Any], dtype: DType, channel_axis: int | None) -> Encoding:
    """LPBQ: blocks lie along `axis`, channels along the axis of the float scales."""
    steps, scales = _numbers(entry, "per_block_int_scale"), _numbers(entry, "per_channel_float_scale")
    if (steps != np.rint(steps)).any() or (steps < 1).any() or (steps > 256).any() or not (scales > 0).all():
        raise EncodingFault("per_block_int_scale are whole numbers from 1 to 256, and scales are positive")
    block_axis = _axis(entry, steps.shape)
    wide = [axis for axis, size in enumerate(scales.shape) if size > 1]
    channels = wide[0] if scales.ndim == steps.ndim and len(wide) == 1 else channel_axis
    if channels is None or not channels < steps.ndim or channels == block_axis or steps.size % scales.size:
        raise EncodingFault("per_block_int_scale has an axis of channels and one of blocks")
    whole = [int(step) for step in np.moveaxis(steps, channels, 0).ravel()]
    scale_bits = 4 if max(whole) <= 16 else 8
    zeros = (0,) * scales.size
    return BlockwiseExpansion(
        channels, block_axis, tuple(scales.ravel().tolist()), zeros, tuple(whole), dtype.bits, scale_bits
    )


def _block(entry: Mapping[str, Any], shape: tuple[int, ...] | None) -> tuple[int, ...]:
    size = entry["block_size"]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise EncodingFault(f"block_size is {size!r}, not a positive number")
    if shape is None or len(shape) != 2:
        raise EncodingFault("block_size is for matrices of the model")
    along = _axis(entry, shape)
    return tuple(size if axis == along else 1 for axis in range(2))


def _axis(entry: Mapping[str, Any], shape: tuple[int, ...] | None) -> int:
    axis = entry.get("axis")
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise EncodingFault(f"axis is {axis!r}, not a whole number")
    if axis < 0 and shape is not None:
        axis += len(shape)
    if axis < 0 or (shape is not None and axis >= len(shape)):
        raise EncodingFault(f"the tensor has no axis {entry['axis']}")
    return axis


def _numbers(entry: Mapping[str, Any], key: str) -> Array:
    """A number, or nested lists of numbers."""
    try:
        numbers: Array = np.array(entry.get(key), np.float64)
    except (ValueError, TypeError, OverflowError):
        raise EncodingFault(f"{key} is no number and no even lists of numbers") from None
    if not numbers.size or not all(map(math.isfinite, numbers.ravel())):
        raise EncodingFault(f"{key} holds no numbers, or one that is not finite")
    return numbers


def entry_of(name: str, fixed: tuple[DType, Encoding] | None, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """The entry of a tensor; the places of blocks follow from its shape."""
    if fixed is None:
        return {"name": name, "output_dtype": "float16"}
    dtype, encoding = fixed
    entry: dict[str, Any] = {"name": name, "output_dtype": dtype.name.lower()}
    if isinstance(encoding, ScaleOffset):
        return {**entry, "y_scale": encoding.scale, **_zero_points([encoding.offset], ())}
    if isinstance(encoding, AxisScaleOffset):
        scales = list(encoding.scales)
        return {**entry, "y_scale": scales, **_zero_points(encoding.offsets, (len(scales),)), "axis": encoding.axis}
    if shape is None:
        raise CallError(f"{name!r} has a scale per block; its shape is needed to say where they are")
    if isinstance(encoding, Block):
        grid = tuple(size // block for size, block in zip(shape, encoding.block_shape, strict=True))
        size, axis = max((block, axis) for axis, block in enumerate(encoding.block_shape))
        found = np.reshape(np.asarray(encoding.scales, np.float64), grid).tolist()
        return {**entry, "y_scale": found, **_zero_points(encoding.offsets, grid), "axis": axis, "block_size": size}
    if not isinstance(encoding, BlockwiseExpansion):
        raise CallError(f"{name!r} has an encoding that version {VERSION} cannot say")
    channels, blocks = len(encoding.scales), len(encoding.block_scales) // len(encoding.scales)
    grid = tuple(
        channels if axis == encoding.axis else blocks if axis == encoding.block_axis else 1
        for axis in range(len(shape))
    )
    steps = np.asarray(encoding.block_scales, np.int64).reshape(channels, blocks)
    steps = (steps if encoding.axis < encoding.block_axis else steps.T).reshape(grid)
    of_channels = tuple(channels if axis == encoding.axis else 1 for axis in range(len(shape)))
    return {
        **entry,
        "per_block_int_scale": steps.tolist(),
        "per_channel_float_scale": np.reshape(np.asarray(encoding.scales, np.float64), of_channels).tolist(),
        "axis": encoding.block_axis,
        "block_size": shape[encoding.block_axis] // blocks,
    }


def _zero_points(offsets: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Zero points, which are left out where all are zero."""
    zeros = -np.asarray(offsets, np.int64)
    return {"y_zero_point": zeros.reshape(shape).tolist()} if zeros.any() else {}
