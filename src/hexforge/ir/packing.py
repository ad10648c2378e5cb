# SPDX-License-Identifier: Apache-2.0
"""Packing: the elements of a tensor as the bytes that QNN stores, and back."""

from __future__ import annotations

import sys

import numpy as np

from hexforge.errors import FormatError
from hexforge.ir.types import Array, DType, TensorType

_NIBBLES = (DType.INT4, DType.UINT4)


def pack(data: Array, dtype: DType) -> bytes:
    """The elements as QNN stores them: little-endian, row-major, 4-bit types two to a byte (low nibble first)."""
    flat = np.ascontiguousarray(data).reshape(-1)
    if dtype in _NIBBLES:
        nibbles = flat.astype(np.int8).view(np.uint8) & 15
        nibbles = np.append(nibbles, np.zeros(len(nibbles) % 2, np.uint8))
        return (nibbles[::2] | nibbles[1::2] << 4).tobytes()
    return (flat.byteswap() if sys.byteorder == "big" else flat).tobytes()


def unpack(raw: bytes | memoryview, type: TensorType) -> Array:
    """The array whose `pack` bytes are `raw`, which must be exactly as many as the type has."""
    if len(raw) != type.nbytes:
        raise FormatError(f"{type} has {type.nbytes} bytes, not {len(raw)}")
    if type.dtype in _NIBBLES:
        pairs = np.frombuffer(raw, np.uint8)
        nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1)[: type.size]
        if type.dtype is DType.INT4:
            nibbles = (nibbles.astype(np.int8) ^ 8) - 8
        return nibbles.astype(type.dtype.numpy).reshape(type.shape)
    if type.dtype is DType.BOOL and bytes(raw).translate(None, b"\0\1"):
        raise FormatError(f"{type} has bytes other than 0 and 1")
    flat = np.frombuffer(raw, type.dtype.numpy)
    return (flat.byteswap() if sys.byteorder == "big" else flat).reshape(type.shape)
