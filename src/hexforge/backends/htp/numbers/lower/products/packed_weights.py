# SPDX-License-Identifier: Apache-2.0
"""Products with weights of few bits, which stay packed in memory: a scale for each block, LPBQ, or one per channel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower.adapt import real
from hexforge.backends.htp.numbers.lower.native_steps import Lowering
from hexforge.backends.htp.numbers.lower.products.weights import BLOCK, LANE, spread
from hexforge.backends.htp.numbers.storage import Storage, in_range
from hexforge.ir import Array, AxisScaleOffset, Block, BlockwiseExpansion, DType, Node, ScaleOffset, Value

_MOST_INPUTS = 1 << 16
"""Of exact sums in 32 bits."""
_MOST_OF_BLOCK = 1 << 10
"""Of those of a block that has a float scale."""
_SIGNED = (DType.INT4, DType.INT8)
_STRETCH = 1 << 22
"""Weights that are packed at a time: what is computed of them stays small beside the model."""


@dataclass(frozen=True, slots=True)
class _Codes:
    """A weight as [outputs, inputs] codes of few bits from 0 on, with one row of numbers for every output."""

    data: Array
    bits: int
    shift: int
    """What is added to the stored integers."""
    block: int
    """Inputs that have a scale in common."""
    scales: Array
    """[outputs, inputs / block], or [outputs, 1] beside factors."""
    zeros: Array
    """[outputs, inputs / block]: the codes that mean 0; broadcastable."""
    factors: Array | None = None
    """[outputs, inputs / block] integers of LPBQ."""

    @property
    def blocks(self) -> int:
        """How many blocks of inputs there are."""
        return int(self.data.shape[1]) // self.block

    @property
    def zero(self) -> int | None:
        """The code that means 0, where that is one for all."""
        first = int(self.zeros.flat[0])
        return first if (self.zeros == first).all() else None

    def stretches(self) -> Iterator[tuple[slice, Array]]:
        """Whole blocks of outputs at a time, with their codes."""
        outputs, inputs = self.data.shape
        step = max(1, _STRETCH // (inputs * BLOCK)) * BLOCK
        for first in range(0, outputs, step):
            rows = slice(first, min(outputs, first + step))
            part = np.ascontiguousarray(self.data[rows])
            codes = part.view(np.uint8) if part.dtype.itemsize == 1 else part.astype(np.uint8)
            yield rows, (codes + np.uint8(self.shift)) & np.uint8((1 << self.bits) - 1)


def _matrix(weight: Value, swap: bool) -> tuple[Array, int, int] | None:
    """A weight as [outputs, inputs], and the axes of the tensor that these are."""
    if weight.data is None or len(weight.shape) < 2 or math.prod(weight.shape[:-2]) != 1:
        return None
    rank = len(weight.shape)
    matrix = weight.data.reshape(weight.shape[-2:])
    return (matrix, rank - 2, rank - 1) if swap else (matrix.T, rank - 1, rank - 2)


def _codes(weight: Value, swap: bool) -> _Codes | None:
    """The codes of a constant weight; None where they are not of few bits, or their blocks lie otherwise."""
    matrix = _matrix(weight, swap)
    if matrix is None or weight.dtype not in (DType.INT4, DType.UINT4, DType.INT8, DType.UINT8):
        return None
    data, out_axis, in_axis = matrix
    (outputs, inputs), encoding = data.shape, weight.encoding
    bits = (0 if encoding is None else encoding.bitwidth) or weight.dtype.bits
    shift = 1 << bits - 1 if weight.dtype in _SIGNED else 0
    block, factors = inputs, None
    match encoding:
        case ScaleOffset():
            scales, offsets = np.full((outputs, 1), encoding.scale), np.full((1, 1), encoding.offset)
        case AxisScaleOffset() if encoding.axis == out_axis:
            scales, offsets = (np.asarray(v).reshape(-1, 1) for v in (encoding.scales, encoding.offsets))
        case BlockwiseExpansion() if encoding.axis == out_axis and encoding.block_axis == in_axis:
            factors = np.asarray(encoding.block_scales).reshape(outputs, -1)
            block = inputs // factors.shape[1]
            scales, offsets = (np.asarray(v).reshape(-1, 1) for v in (encoding.scales, encoding.offsets))
        case Block() if encoding.block_shape[out_axis] == 1:
            block = encoding.block_shape[in_axis]
            scales, offsets = np.asarray(encoding.scales, np.float64), np.asarray(encoding.offsets)
            scales, offsets = (v.reshape(outputs, -1) if swap else v.reshape(-1, outputs).T for v in (scales, offsets))
        case _:
            return None
    if bits not in (2, 4, 8) or block % (32 // bits):
        return None
    return _Codes(data, bits, shift, block, scales, shift - offsets, factors)


def _lanes(outputs: int) -> list[tuple[slice, int]]:
    """Blocks of outputs, and the lanes that each has."""
    return [
        (slice(first, min(outputs, first + BLOCK)), -(-min(BLOCK, outputs - first) // LANE) * LANE)
        for first in range(0, outputs, BLOCK)
    ]


def _words(codes: _Codes) -> Array:
    """The codes as kernels read them: for every block of outputs words of codes, the first input lowest."""
    outputs, inputs = codes.data.shape
    words = inputs * codes.bits // 32
    packed = np.zeros(words * -(-outputs // LANE) * LANE, np.uint32)
    for rows, part in codes.stretches():
        if codes.bits == 4:
            part = part[:, ::2] | part[:, 1::2] << 4
        elif codes.bits == 2:
            part = part[:, ::4] | part[:, 1::4] << 2 | part[:, 2::4] << 4 | part[:, 3::4] << 6
        part = np.ascontiguousarray(part).view("<u4")
        for own, lanes in _lanes(part.shape[0]):
            at = (rows.start + own.start) * words
            packed[at : at + words * lanes].reshape(words, lanes)[:, : own.stop - own.start] = part[own].T
    return packed


def _each(values: Array, outputs: int, blocks: int, dtype: Any) -> Array:
    """[outputs, blocks] numbers beside the codes."""
    values = np.broadcast_to(values, (outputs, blocks))
    packed = np.zeros(blocks * -(-outputs // LANE) * LANE, dtype)
    for own, lanes in _lanes(outputs):
        at = own.start * blocks
        packed[at : at + blocks * lanes].reshape(blocks, lanes)[:, : own.stop - own.start] = values[own].T
    return packed


def _bias(node: Node) -> Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


def _of_floats(codes: _Codes, bias: Value | None) -> dict[str, Any] | None:
    """What floats need besides the codes."""
    outputs = codes.data.shape[0]
    fields = _scales(codes.scales if codes.factors is None else codes.scales * codes.factors, outputs, codes.blocks)
    if fields is None or (bias is not None and (bias.data is None or bias.type.size != outputs)):
        return None
    if codes.zero is None:
        fields["zeros"] = _each(codes.zeros, outputs, codes.blocks, np.uint8)
    else:
        fields["zero"] = codes.zero
    if bias is not None:
        fields["bias_f32"] = np.ascontiguousarray(matrix_half(real(bias)).ravel(), np.float32)
    return fields


def _scales(scales: Array, outputs: int, blocks: int) -> dict[str, Any] | None:
    """The float scales of blocks, as float16 where that holds them; None where they are no numbers."""
    scales = scales.astype(np.float32)
    if not np.isfinite(scales).all():
        return None
    halves = scales.astype(np.float16) if np.abs(scales).max(initial=0) < 65504 else scales
    if not (halves == scales).all():
        return {"scales": _each(scales, outputs, blocks, np.float32)}
    return {"half_scales": 1, "scales": _each(halves, outputs, blocks, np.float16)}


def _of_blocks(codes: _Codes, bias: Value | None, x: Storage, y: Storage) -> dict[str, Any] | None:
    """What fixed point needs besides codes whose blocks have a float scale each; None where the sums are not exact."""
    outputs = codes.data.shape[0]
    if codes.bits != 4 or codes.zero is None or codes.block > _MOST_OF_BLOCK:
        return None
    if bias is not None and (bias.data is None or bias.type.size != outputs):
        return None
    if (codes.scales.astype(np.float32) != codes.scales).any():
        return None
    fields = _scales(codes.scales, outputs, codes.blocks)
    if fields is None:
        return None
    if bias is not None:
        fields["bias"] = np.ascontiguousarray(real(bias).ravel() / y.scale, np.float64)
    return fields | {
        "zero": codes.zero, "zero_a": x.zero_point, "in_scale": float(x.scale), "out_scale": float(y.scale),
        **y.output(),
    }  # fmt: skip


def _of_integers(codes: _Codes, bias: Array, x: Storage, y: Storage) -> dict[str, Any] | None:
    """What fixed point needs besides the codes: the sums of the same integers; None where 32 bits do not hold them."""
    outputs, inputs = codes.data.shape
    if codes.bits != 4 or codes.zero is None or inputs > _MOST_INPUTS or codes.scales.shape[1] > 1:
        return None
    if codes.factors is None and codes.scales.shape[1] > 1:  # float scales of blocks are no integers' factors
        return None
    if codes.factors is not None and not ((codes.factors >= 1) & (codes.factors <= 16)).all():
        return None
    sums, magnitudes = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)
    interval = 0
    for rows, part in codes.stretches():
        numbers = part.astype(np.int16) - np.int16(codes.zero)
        if codes.factors is not None:
            numbers = numbers.reshape(len(part), codes.blocks, -1) * codes.factors[rows, :, None].astype(np.int16)
            numbers = numbers.reshape(len(part), inputs)
            if numbers.min() < -128 or numbers.max() > 127:
                return None
        sums[rows] = numbers.sum(1, dtype=np.int64)
        magnitudes[rows] = np.abs(numbers).sum(1, dtype=np.int64)
        if y.kind == "s16":
            interval = _shorter(interval, _flush(numbers))
    product = x.scale * codes.scales[:, 0]
    total = np.rint(bias / product) - x.zero_point * sums
    multiplier = product / y.scale
    if not in_range(multiplier):
        return None
    fields: dict[str, Any] = {"zero": codes.zero, "weight_sums": spread(sums, 1, np.int32), **y.output()}
    if codes.factors is not None:
        fields["factors"] = _each(codes.factors, outputs, codes.blocks, np.uint8)
    if y.kind == "s16":
        if (magnitudes * 32768 + np.abs(total)).max(initial=0) >= 2**53:
            return None
        return fields | {
            "bias": spread(total, 1, np.int64),
            "multiplier": spread(multiplier, 1, np.float64),
            "flush": interval,
        }
    if (magnitudes * 255 + np.abs(total)).max(initial=0) >= 2**31:
        return None
    return fields | {"bias32": spread(total, 1, np.int32), "multiplier32": spread(multiplier, 1, np.float32)}


def _flush(numbers: Array) -> int:
    """16-bit k-steps between two emptyings of the int32 sums, for [outputs, inputs]; 0: never."""
    pairs = np.abs(numbers).reshape(len(numbers), -1, 2).sum(2, dtype=np.int32)
    steps = interval = pairs.shape[1]
    while interval > 1 and np.add.reduceat(pairs, np.arange(0, steps, interval), axis=1).max(initial=0) > 65535:
        interval = (interval + 1) // 2
    return 0 if interval >= steps else interval


def _shorter(one: int, other: int) -> int:
    """The shorter of two intervals, of which 0 is the longest."""
    return min(one, other) if one and other else one or other


def product(lowering: Lowering, node: Node, swap: bool, bias: Array | None) -> bool:
    """Write a product with packed weights; False where they do not lie so, or could not be exact.

    `bias` is fixed point's, in real numbers; None where it is computed at run time.
    """
    x, w = node.operand(0), node.operand(1)
    own, y = lowering.storage(x), lowering.storage(node.outputs[0])
    few = w.encoding is not None and (own.kind == "f32" or (w.encoding.bitwidth or w.dtype.bits) == 4)
    codes = _codes(w, swap) if few else None
    if codes is None:
        return False
    outputs, inputs = codes.data.shape
    rows = own.size // inputs
    kind = f"packed_{own.kind}"
    if own.kind == "f32":
        fields = _of_floats(codes, _bias(node))
    elif codes.scales.shape[1] > 1:
        kind, fields = f"packed_scaled_{own.kind}", _of_blocks(codes, _bias(node), own, y)
    else:
        fields = None if bias is None or len(bias) != outputs else _of_integers(codes, bias, own, y)
    if fields is None or rows * outputs != y.size:
        return False
    lowering.emit(
        kind, [x], [node.outputs[0]], rows=rows, inputs=inputs, outputs=outputs, bits=codes.bits,
        block=codes.block, weights=_words(codes), **fields,
    )  # fmt: skip
    return True
