# SPDX-License-Identifier: Apache-2.0
"""Tiled layout: KV caches whose bytes lie as the matrix unit reads them, up to the products that read them so.

A cache comes in, ScatterElements puts new tokens into it, and a product multiplies with it: no step brings it into
another order. What else reads it reads a copy that lies row by row.
"""

from __future__ import annotations

import math

from hexforge.backends.htp.numbers.lower.native_steps import Lowering
from hexforge.backends.htp.tiled_caches import JOIN, tile_of
from hexforge.errors import UnsupportedError
from hexforge.ir import Node, Role, Value

_BLOCK, _GROUPS, _TOGETHER = 32, 8, 4
ZERO_POINT = 128
_MOST_PRODUCTS = {"u8": 33025, "s16": 1 << 16}


def hold_inputs(lowering: Lowering) -> None:
    """Note which inputs lie for the matrix unit; what reads them row by row reads a copy."""
    for value in lowering.graph.inputs:
        if not value.tile:
            continue
        own = lowering.storage(value)
        lowering.tiled[value] = lowering.name(value)
        if any(user.op.name != JOIN or user.inputs[0] is not value for user in value.users):
            flat = lowering.temp(own, value.name)
            write_flat(lowering, value.name, flat, value)
            lowering.alias[value.name] = flat


def write_flat(lowering: Lowering, source: str, target: Value | str, value: Value) -> None:
    """Copy bytes that lie for the matrix unit to where they lie row by row."""
    rows, columns = value.shape[-2:]
    tile = tile_of(value)
    dims = (math.prod(value.shape[:-2]), rows // _BLOCK, _GROUPS, _TOGETHER, columns // tile, tile // _BLOCK, _BLOCK)
    across = tile // _BLOCK * _BLOCK * _BLOCK
    from_strides = (rows * columns, across, _BLOCK * _TOGETHER, 1, tile * rows, _BLOCK * _BLOCK, _TOGETHER)
    to_strides = (rows * columns, _BLOCK * columns, _TOGETHER * columns, columns, tile, _BLOCK, 1)
    lowering.emit("copy", [source], [target], element_bytes=1, dims=dims, strides_x=from_strides, strides_y=to_strides)


def reads_tiled(lowering: Lowering, node: Node, value: Value) -> bool:
    """True for a product whose second operand alone is the value, and which multiplies with it as it lies."""
    if node.op.name != "MatMul" or node.inputs[1] is not value or node.inputs[0] is value or not tile_of(value):
        return False
    x, w, y = lowering.storage(node.inputs[0]), lowering.storage(value), lowering.storage(node.outputs[0])  # type: ignore[arg-type]
    plain = not node.params["transpose_in0"] and not node.params["transpose_in1"] and len(node.inputs) < 3
    rows = value.shape[-2]
    fits = x.kind == y.kind and x.fixed and w.kind == "u8" and w.zero_point == ZERO_POINT and len(x.shape) >= 2
    return plain and fits and rows % _BLOCK == 0 and rows <= _MOST_PRODUCTS[x.kind] and x.shape[-1] == rows


def stays_tiled(lowering: Lowering, joined: Value) -> bool:
    """True where all that reads a cache with new tokens reads it as it lies, or takes it so out of the graph."""
    all_tiled = all(reads_tiled(lowering, user, joined) for user in joined.users)
    if joined.tile and not all_tiled:
        raise UnsupportedError(f"tensor {joined.name!r}: leaves the graph native, and is read row by row in it, too")
    return all_tiled and (joined.role is not Role.APP_READ or bool(joined.tile))
