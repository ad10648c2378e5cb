# SPDX-License-Identifier: Apache-2.0
"""Constants: the bytes of a tensor as an array: types of a few bits unpacked, sparse ones made dense."""

from __future__ import annotations

import math

import numpy as np

from hexforge.addons.tflite.model_file import OTHER_TYPES, PACKED_BITS, TYPES, Sparsity, Tensor
from hexforge.errors import CapacityError, FormatError, UnsupportedError
from hexforge.ir import Array

MOST_DENSE_BYTES = 1 << 30
"""Of a sparse tensor made dense, whose file may be small."""


def array_of(tensor: Tensor, where: str) -> Array:
    """The values of a constant, as integers where it is quantized."""
    data = memoryview(b"") if tensor.data is None else tensor.data
    if tensor.type in OTHER_TYPES:
        raise UnsupportedError(f"{where}: constant {tensor.name!r} is of type {tensor.type_name}, which ONNX has not")
    dtype = np.dtype(TYPES[tensor.type])
    if tensor.sparsity is not None:
        return _dense(tensor, tensor.sparsity, dtype, where)
    count = math.prod(tensor.shape)
    bits = PACKED_BITS.get(tensor.type)
    wanted = count * dtype.itemsize if bits is None else -(-count * bits // 8)
    if len(data) != wanted:
        raise FormatError(
            f"{where}: constant {tensor.name!r} of shape {list(tensor.shape)} and type {tensor.type_name} has "
            f"{len(data)} bytes, not {wanted}; the file is damaged"
        )
    values = _unpacked(data, bits, dtype)[:count] if bits is not None else np.frombuffer(data, dtype)
    return values.reshape(tensor.shape)


def _unpacked(data: memoryview, bits: int, dtype: np.dtype) -> Array:
    """Elements of a few bits, the first in the lowest."""
    packed, mask = np.frombuffer(data, np.uint8), (1 << bits) - 1
    wide = np.stack([packed >> shift & mask for shift in range(0, 8, bits)], axis=-1).reshape(-1)
    if not dtype.name.startswith("uint"):
        wide = ((wide ^ (1 << bits - 1)).astype(np.int8) - (1 << bits - 1)).astype(np.int8)
    return wide.astype(dtype)


def _dense(tensor: Tensor, sparsity: Sparsity, dtype: np.dtype, where: str) -> Array:
    """A sparse tensor with its zeros: levels are walked in their order, then blocks are put in their places."""
    damaged = FormatError(f"{where}: sparse constant {tensor.name!r} does not fit its shape; the file is damaged")
    rank = len(tensor.shape)
    if math.prod(tensor.shape) * dtype.itemsize > MOST_DENSE_BYTES:
        raise CapacityError(f"{where}: sparse constant {tensor.name!r} takes more than 1 GiB without its gaps")
    block_sizes = {
        rank + i: sparsity.dimensions[sparsity.order.index(rank + i)].size for i in range(len(sparsity.blocks))
    }
    sizes = list(tensor.shape)
    for i, axis in enumerate(sparsity.blocks):
        block = block_sizes[rank + i]
        if block <= 0 or sizes[axis] % block:
            raise damaged
        sizes[axis] //= block
    sizes += [block_sizes[rank + i] for i in range(len(sparsity.blocks))]
    positions = np.zeros((1, 0), np.int64)
    most = max(len(tensor.data or b""), *(len(level.segments or ()) for level in sparsity.dimensions))
    for axis, level in zip(sparsity.order, sparsity.dimensions, strict=True):
        if level.segments is None:
            if level.size != sizes[axis] or len(positions) * level.size > most:
                raise damaged
            index = np.tile(np.arange(level.size), len(positions))
            owner = np.repeat(np.arange(len(positions)), level.size)
        else:
            segments, indices = np.array(level.segments, np.int64), np.array(level.indices, np.int64)
            if len(segments) != len(positions) + 1 or segments[0] != 0 or segments[-1] != len(indices):
                raise damaged
            if (np.diff(segments) < 0).any() or ((indices < 0) | (indices >= sizes[axis])).any():
                raise damaged
            index, owner = indices, np.repeat(np.arange(len(positions)), np.diff(segments))
        positions = np.concatenate([positions[owner], index[:, None]], axis=1)
    assert tensor.data is not None
    if len(tensor.data) != len(positions) * dtype.itemsize:
        raise damaged
    by_axis = positions[:, np.argsort(sparsity.order)]
    place = by_axis[:, :rank].copy()
    for i, axis in enumerate(sparsity.blocks):
        place[:, axis] = place[:, axis] * block_sizes[rank + i] + by_axis[:, rank + i]
    dense = np.zeros(tensor.shape, dtype)
    dense[tuple(place.T)] = np.frombuffer(tensor.data, dtype)
    return dense
