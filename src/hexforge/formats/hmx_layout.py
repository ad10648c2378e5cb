# SPDX-License-Identifier: Apache-2.0
"""HMX weight layout: how the bytes of a matrix lie for the matrix unit (QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT).

A matrix [DIN, DOUT] is cut into DOUT / tile pieces of `tile` columns. A piece is stored by blocks of 32 rows and 32
columns, 1024 bytes each; in a block eight groups of rows follow each other, in a group the columns, and of a column its
four rows. The shape of an array says nothing of it and stays what it is.
"""

from __future__ import annotations

from hexforge.errors import CallError
from hexforge.ir import Array

FLAT, HMX = "QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER", "QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT"
"""What QNN calls a tensor that lies row by row, and one that lies for the matrix unit."""
KEY_TILE, VALUE_TILE = 256, 64
"""Columns of a piece: of a key cache (a column for each token) and of a value cache (a row for each token)."""
TILES = (KEY_TILE, VALUE_TILE)
_BLOCK, _GROUPS, _TOGETHER = 32, 8, 4


def fits(shape: tuple[int, ...], tile: int) -> bool:
    """Whether matrices of this shape can lie so."""
    return len(shape) >= 2 and shape[-2] % _BLOCK == 0 and shape[-1] % tile == 0


def to_hmx(flat: Array, tile: int) -> Array:
    """Matrices as they lie for the matrix unit, from matrices row by row."""
    return _split(flat, tile).transpose(0, 4, 1, 5, 2, 6, 3).reshape(flat.shape)


def from_hmx(native: Array, tile: int) -> Array:
    """Matrices row by row, from matrices as they lie for the matrix unit."""
    _require(native, tile)
    rows, columns = native.shape[-2:]
    blocks = native.reshape(-1, columns // tile, rows // _BLOCK, tile // _BLOCK, _GROUPS, _BLOCK, _TOGETHER)
    return blocks.transpose(0, 2, 4, 6, 1, 3, 5).reshape(native.shape)


def _split(flat: Array, tile: int) -> Array:
    _require(flat, tile)
    rows, columns = flat.shape[-2:]
    return flat.reshape(-1, rows // _BLOCK, _GROUPS, _TOGETHER, columns // tile, tile // _BLOCK, _BLOCK)


def _require(array: Array, tile: int) -> None:
    if tile not in TILES or not fits(array.shape, tile):
        raise CallError(
            f"an array {list(array.shape)} has no HMX layout of tiles of {tile}: the last two dimensions are to be "
            f"multiples of {_BLOCK} and {tile}"
        )
