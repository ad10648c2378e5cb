# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter, OneHot, TopK: elements read and written where indices say. Reflecting and repeating Pad."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower import moves
from hexforge.backends.htp.numbers.lower.adapt import INTEGERS, constant, kind_of, requantized, same_encoding
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.lower.tiled_layout import stays_tiled, write_flat
from hexforge.backends.htp.numbers.storage import Storage, stored
from hexforge.backends.htp.tiled_caches import tile_of
from hexforge.ir import Node, TensorType, Value
from hexforge.ir.fixed_point import quantize

_SIZES = (1, 2, 4, 8)
_PUT = {1: "u8", 2: "s16"}
"""The steps that put elements of so many bytes, whatever they mean."""


def _index_bytes(lowering: Lowering, value: Value) -> int | None:
    own = lowering.storage(value)
    return own.dtype.itemsize if own.dtype in INTEGERS else None


def _gather(lowering: Lowering, node: Node) -> tuple[Value, Value, Value, Storage, int] | None:
    """Data, indices and output of a gather that moves elements as they are."""
    x, indices = node.operand(0), node.operand(1)
    y = node.outputs[0]
    own, bytes_ = lowering.storage(x), _index_bytes(lowering, indices)
    if bytes_ is None or not same_encoding(own, lowering.storage(y)) or own.dtype.itemsize not in _SIZES:
        return None
    return x, indices, y, own, bytes_


@lowers("Gather")
def gather(lowering: Lowering, node: Node) -> bool:
    """Slices along an axis."""
    operands = _gather(lowering, node)
    if operands is None:
        return False
    x, indices, y, own, bytes_ = operands
    axis = int(node.params["axis"]) % len(x.shape)
    lowering.emit(
        "take", [x, indices], [y], outer=math.prod(x.shape[:axis]), axis=x.shape[axis],
        inner_bytes=math.prod(x.shape[axis + 1 :]) * own.dtype.itemsize, indices=indices.type.size, index_bytes=bytes_,
    )  # fmt: skip
    return True


@lowers("GatherElements")
def gather_elements(lowering: Lowering, node: Node) -> bool:
    """Elements at an index along one axis, at their own place along the others."""
    operands = _gather(lowering, node)
    if operands is None or not operands[0].shape:
        return False
    x, indices, y, own, bytes_ = operands
    lowering.emit(
        "take_at", [x, indices], [y], element_bytes=own.dtype.itemsize, index_bytes=bytes_, data=x.shape,
        dims=indices.shape, axis=int(node.params["axis"]) % len(x.shape),
    )  # fmt: skip
    return True


def _tuples(shape: tuple[int, ...], indices: tuple[int, ...], batch: int) -> dict[str, Any]:
    width = indices[-1]
    return {
        "data": shape[batch : batch + width],
        "batch": math.prod(indices[:batch]),
        "tuples": math.prod(indices[batch:-1]),
        "slice": math.prod(shape[batch + width :]),
    }


@lowers("GatherNd")
def gather_nd(lowering: Lowering, node: Node) -> bool:
    """Slices at index tuples."""
    operands = _gather(lowering, node)
    if operands is None:
        return False
    x, indices, y, own, bytes_ = operands
    lowering.emit(
        "take_at", [x, indices], [y], element_bytes=own.dtype.itemsize, index_bytes=bytes_,
        **_tuples(x.shape, indices.shape, int(node.params["batch_dims"])),
    )  # fmt: skip
    return True


@lowers("ScatterElements", "ScatterNd")
def scatter(lowering: Lowering, node: Node) -> bool:
    """Updates put in, or combined with what is there."""
    x, indices, updates = node.operands(3)
    y = node.outputs[0]
    out, bytes_ = lowering.storage(y), _index_bytes(lowering, indices)
    reduction = int(node.params["reduction"])
    kind = kind_of(out) or (_PUT.get(out.dtype.itemsize) if not reduction else None)
    if bytes_ is None or kind is None or not x.shape:
        return False
    names = []
    for value in (x, updates):
        own = lowering.storage(value)
        if not same_encoding(own, out) and (not own.fixed or not out.fixed or reduction):
            return False
        name = lowering.name(value)
        names.append(requantized(lowering, name, own, out) if out.fixed else name)
    # fixed-point integers can be put, and compared; sums and products need the real numbers
    if out.fixed and reduction in (1, 2):
        return False
    if not reduction and tile_of(y) and x in lowering.tiled and node.op.name == "ScatterElements":
        _scatter_tiled(lowering, node, names[1], bytes_)
        return True
    places: dict[str, Any]
    if node.op.name == "ScatterNd":
        places = _tuples(x.shape, indices.shape, 0)
    else:
        places = {"data": x.shape, "dims": indices.shape, "axis": int(node.params["axis"]) % len(x.shape)}
    lowering.emit(
        f"scatter_{kind}", [names[0], indices, names[1]], [y], index_bytes=bytes_, reduction=reduction, **places
    )
    return True


def _scatter_tiled(lowering: Lowering, node: Node, updates: str, index_bytes: int) -> None:
    """New tokens put into a cache that lies for the matrix unit, and a copy row by row where something reads that."""
    x, indices, y = node.operand(0), node.operand(1), node.outputs[0]
    whole = stays_tiled(lowering, y)
    target = lowering.name(y) if whole else lowering.temp(lowering.storage(y), y.name)
    lowering.emit(
        "scatter_u8", [lowering.tiled[x], indices, updates], [target], index_bytes=index_bytes, reduction=0,
        data=x.shape, dims=indices.shape, axis=int(node.params["axis"]) % len(x.shape), tile=tile_of(y),
    )  # fmt: skip
    lowering.tiled[y] = target
    if not whole:
        write_flat(lowering, target, y, y)


@lowers("OneHot")
def one_hot(lowering: Lowering, node: Node) -> bool:
    """A new axis with one value at the index and another elsewhere."""
    x, y = node.operand(0), node.outputs[0]
    out, bytes_ = lowering.storage(y), _index_bytes(lowering, x)
    if bytes_ is None or out.dtype.itemsize not in _SIZES:
        return False
    axis = int(node.params["axis"]) % len(y.shape)
    values = np.asarray([node.params["on_value"], node.params["off_value"]], np.float64)
    if y.encoding is not None:
        values = quantize(values, TensorType(y.dtype, (2,), y.encoding))
    ready = stored(values.astype(y.dtype.numpy), TensorType(y.dtype, (2,), y.encoding), matrix_half).astype(out.dtype)
    lowering.emit(
        "one_hot", [x], [y], outer=math.prod(y.shape[:axis]), inner=math.prod(y.shape[axis + 1 :]),
        depth=y.shape[axis], index_bytes=bytes_, element_bytes=out.dtype.itemsize, on=ready[:1], off=ready[1:].copy(),
    )  # fmt: skip
    return True


@lowers("TopK")
def top_k(lowering: Lowering, node: Node) -> bool:
    """The largest or smallest elements of the last axis, in order."""
    x = node.operand(0)
    values, indices = node.outputs
    own, bytes_ = lowering.storage(x), _index_bytes(lowering, indices)
    if indices.dtype.numpy == np.dtype(np.uint32):
        bytes_ = 4
    kind = kind_of(own)
    if kind is None or bytes_ is None or not same_encoding(own, lowering.storage(values)):
        return False
    n = x.shape[-1]
    lowering.emit(
        f"top_k_{kind}", [x], [values, indices], rows=own.size // n, n=n, k=int(node.params["k"]),
        largest=int(bool(node.params["largest"])), index_bytes=bytes_,
    )  # fmt: skip
    return True


@lowers("Pad")
def pad(lowering: Lowering, node: Node) -> bool:
    """Constant padding as the move module does; the other schemes pick each padded axis by an index."""
    if moves.pad(lowering, node):
        return True
    x, y = node.operand(0), node.outputs[0]
    own, scheme = lowering.storage(x), int(node.params["scheme"])
    if scheme == 0 or not same_encoding(own, lowering.storage(y)) or own.dtype.itemsize not in _SIZES:
        return False
    modes = {1: "symmetric", 2: "reflect", 3: "edge"}
    padded = [i for i, (before, after) in enumerate(node.params["pad_amount"]) if before or after]
    if scheme not in modes or not padded:
        return False
    source: Value | str = x
    shape = list(x.shape)
    for axis in padded:
        before, after = node.params["pad_amount"][axis]
        index = np.pad(np.arange(shape[axis]), (int(before), int(after)), mode=modes[scheme])  # type: ignore[call-overload]
        size, shape[axis] = shape[axis], y.shape[axis]
        last = axis == padded[-1]
        target: Value | str = y if last else lowering.temp(Storage(own.kind, own.dtype, tuple(shape)), y.name)
        lowering.emit(
            "take", [source, constant(lowering, index.astype(np.int32), x.name)], [target],
            outer=math.prod(shape[:axis]), axis=size, inner_bytes=math.prod(shape[axis + 1 :]) * own.dtype.itemsize,
            indices=len(index), index_bytes=4,
        )  # fmt: skip
        source = target
    return True
