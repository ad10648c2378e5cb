# SPDX-License-Identifier: Apache-2.0
"""Constant weights as kernels read them: integers without zero points, packed in blocks of outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexforge import _native
from hexforge.backends.htp.numbers.halves import LARGEST_FLOAT16, matrix_patterns
from hexforge.ir import Array, AxisScaleOffset, BlockwiseExpansion, DType, ScaleOffset, TensorType, Value
from hexforge.ir.fixed_point import centered, scale_array

BLOCK, LANE = 64, 16
SLACK = 4096
"""Bytes behind packed weights that a kernel may read, and never uses."""
_INFINITE = 0x7C00
"""The bits of float16's infinity."""
_ELEMENT = {8: np.int8, 16: np.int16, 32: np.float32}


def pack(weights: Array, bits: int, row_taps: bool, slack: int = 0, rounded: bool = False, kept: Any = None) -> Array:
    """[kd, kh, kw, in, out] weights as the kernels read them: blocks of 64 outputs, runs of inputs in k-steps.

    `slack` is the number of elements behind them. With `rounded` floats are rounded to float16 on the way, block by
    block: a copy of all of them would be as large as the model. `kept` is the type to keep them in, if another.
    """
    kd, kh, kw, channels, outputs = weights.shape
    values = 32 // bits
    runs = weights.reshape(kd * kh, kw * channels, outputs) if row_taps else weights.reshape(-1, channels, outputs)
    taps, run, _ = runs.shape
    steps = -(-run // values)
    size = taps * steps * BLOCK * values
    packed = np.zeros(-(-outputs // BLOCK) * size + slack, kept or _ELEMENT[bits])
    for index, first in enumerate(range(0, outputs, BLOCK)):
        count = min(BLOCK, outputs - first)
        lanes = -(-count // LANE) * LANE
        part = runs[:, :, first : first + count]
        block = np.zeros((taps, steps * values, lanes), packed.dtype)
        block[:, :run, :count] = in_float16(part) if rounded else part
        cells = block.reshape(taps, steps, values, lanes).swapaxes(2, 3)
        packed[index * size : index * size + block.size] = cells.ravel()
    return packed


def packed(weights: Array, bits: int, groups: int, row_taps: bool) -> Array:
    """The weights of every group, with the bytes behind them that a kernel may read.

    Floats are kept as float16, as which they are multiplied, and integers beside 16 bits as bytes where they are some.
    """
    narrow = bits == 16 and weights.min(initial=0) >= -128 and weights.max(initial=0) <= 127
    kept = np.dtype(np.float16 if bits == 32 else np.int8 if narrow else _ELEMENT[bits])
    slack = SLACK // kept.itemsize
    if groups == 1:
        return pack(weights, bits, row_taps, slack, bits == 32, kept)
    parts = [pack(part, bits, row_taps, 0, bits == 32, kept) for part in np.split(weights, groups, axis=-1)]
    return np.concatenate([*parts, np.zeros(slack, kept)])


def in_float16(weights: Array) -> Array:
    """Floats rounded to float16; those beyond it are its largest number, as kernels read weights by IEEE 754."""
    if weights.dtype == np.float32:
        halves = matrix_patterns(weights)
        if (halves.view(np.uint16) & 0x7FFF).max(initial=0) < _INFINITE:
            return halves
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(weights, np.float16)
    return rounded if np.isfinite(rounded).all() else np.nan_to_num(rounded, nan=LARGEST_FLOAT16)


def flush_interval(weights: Array, row_taps: bool) -> int:
    """16-bit k-steps between two emptyings of the int32 sums: |sum| stays below 2^31 whatever the input is."""
    kd, kh, kw, channels, outputs = weights.shape
    runs = weights.reshape(kd * kh, kw * channels, outputs) if row_taps else weights.reshape(-1, channels, outputs)
    taps, run, _ = runs.shape
    steps = -(-run // 2)
    pairs = np.zeros((taps * steps, outputs), np.uint16)  # of weights of 9 bits at most
    for columns in _stretches(outputs, taps * run):
        part = np.abs(runs[..., columns].astype(np.int16)).astype(np.uint16)
        both = np.zeros((taps, steps, 2, part.shape[-1]), np.uint16)
        both.reshape(taps, steps * 2, -1)[:, :run] = part
        pairs[:, columns] = both.sum(2, dtype=np.uint16).reshape(taps * steps, -1)
    interval = taps * steps
    while interval > 1:
        if np.add.reduceat(pairs, np.arange(0, len(pairs), interval), dtype=np.int64).max(initial=0) <= 65535:
            break
        interval = (interval + 1) // 2
    return 0 if interval >= taps * steps else interval


def _stretches(outputs: int, each: int) -> list[slice]:
    """Some outputs at a time, of `each` weights: what is computed of them stays small beside the model."""
    step = max(1, (1 << 21) // max(1, each))
    return [slice(first, first + step) for first in range(0, outputs, step)]


def sixteen(weights: Weights, groups: int, row_taps: bool) -> dict[str, Any]:
    """What 16-bit activations need besides: planes, when their sums are emptied, the weights as bytes."""
    intervals = [n for plane in weights.planes_of_bytes if (n := flush_interval(plane, row_taps))]
    return {"planes": weights.planes, "flush": min(intervals, default=0), **_narrow(weights.values, groups, row_taps)}


def _narrow(weights: Array, groups: int, row_taps: bool) -> dict[str, Any]:
    """16-bit activations on AMX: the weights as bytes too, where they fit."""
    if _native.level() != "amx" or weights.min(initial=0) < -128 or weights.max(initial=0) > 127:
        return {}
    if int(np.prod(weights.shape[:4])) > 65536:
        return {}
    sums = spread(weights.sum((0, 1, 2, 3), dtype=np.int64), groups, np.int32)
    return {"weights8": packed(weights, 8, groups, row_taps), "weight_sums": sums}


def spread(values: Array, groups: int, dtype: Any) -> Array:
    """Per-output values padded to whole blocks in every group."""
    rows = np.asarray(values).reshape(groups, -1)
    padded = np.zeros((groups, -(-rows.shape[1] // BLOCK) * BLOCK), dtype)
    padded[:, : rows.shape[1]] = rows
    return padded.ravel()


class Weights:
    """A stationary operand [kd, kh, kw, in per group, out]: integers, zero points, scales."""

    planes = 1
    """How many integers of 8 bits make a weight; 0 where none of these kernels takes it."""

    def __init__(self, data: Array, type: TensorType, bits: int) -> None:
        encoding = type.encoding
        self.offset = 0
        if bits == 32:
            self.values = np.asarray(data)  # rounded to float16 where they are packed
            return
        assert isinstance(encoding, (ScaleOffset, AxisScaleOffset))
        zero = -np.asarray(encoding.offset if isinstance(encoding, ScaleOffset) else encoding.offsets, np.int64)
        self.scales = np.asarray(encoding.scale if isinstance(encoding, ScaleOffset) else encoding.scales, np.float64)
        # as they are where that will do: a copy of 64 bits would be eight times the model
        wide = type.dtype in (DType.INT16, DType.UINT16)
        own: Any = np.int32 if wide else np.int8 if type.dtype in (DType.INT8, DType.INT4) else np.int16
        values: Array = data.astype(own, copy=False)
        shift = 128 if type.dtype is DType.UINT8 and bits == 8 else 0
        if bits == 8 and zero.ndim == 0 and (shift or int(zero)):
            self.values, self.offset = (values - np.int16(shift) if shift else values), int(zero) - shift
        else:
            self.values = values - zero.astype(np.int32 if wide else np.int16) if zero.any() else values
        least, most = int(self.values.min(initial=0)), int(self.values.max(initial=0))
        if bits == 8:
            self.planes = 1 if least >= -128 and most <= 127 else 0
        else:
            self.planes = 1 if least >= -255 and most <= 255 else 2 if least >= -0x8080 and most <= 0x807F else 0

    def magnitudes(self) -> Array:
        """The sum of what the weights of each output are without their signs."""
        outputs = self.values.shape[-1]
        sums = np.zeros(outputs, np.int64)
        for columns in _stretches(outputs, self.values.size // max(1, outputs)):
            sums[columns] = np.abs(self.values[..., columns].astype(np.int32)).sum((0, 1, 2, 3), dtype=np.int64)
        return sums

    @property
    def planes_of_bytes(self) -> tuple[Array, ...]:
        """What is multiplied: the numbers, or where they have 16 bits what 256 is multiplied with, and the rest."""
        if self.planes < 2:
            return (self.values,)
        low = ((self.values + 128) & 255) - 128
        return (self.values - low) >> 8, low

    @property
    def stacked(self) -> Array:
        """The planes one after the other, as kernels read them."""
        return self.values if self.planes < 2 else np.concatenate(self.planes_of_bytes)


def expanded(weight: Value) -> Value:
    """LPBQ weights as what they are: integers times small integers, with one scale per channel."""
    encoding = weight.encoding
    if weight.data is None or not isinstance(encoding, BlockwiseExpansion):
        return weight
    offsets = (0,) * len(encoding.scales)
    along = [-1 if i == encoding.axis else 1 for i in range(len(weight.shape))]
    factors = np.rint(scale_array(encoding, weight.shape) / np.asarray(encoding.scales, np.float64).reshape(along))
    integers = centered(weight.data, weight.type) * factors
    if integers.min(initial=0) < -128 or integers.max(initial=0) > 127:
        return weight
    type = TensorType(DType.INT8, weight.shape, AxisScaleOffset(encoding.axis, encoding.scales, offsets))
    return Value(weight.name, type, weight.role, integers.astype(np.int8))


def kept_weights(weights: Array, bits: int = 32) -> dict[str, Any]:
    """Weights as attributes, with the word that they lie in half as many bytes as they are multiplied in, where so."""
    return {"weights": weights} | ({"half_weights": 1} if weights.itemsize * 16 == bits else {})
