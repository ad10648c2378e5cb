# SPDX-License-Identifier: Apache-2.0
"""Conversions: QuantizeLinear and DequantizeLinear left to the CPU, by native kernels, bit for bit as onnxruntime.

A quantized model whose inputs and outputs are floats has them at its border (offload_graph_io_quantization=1). In a
session of onnxruntime its threads would wait for work awake, on the cores that the graph behind them needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge import _native
from hexforge.backend import Spinning, processors
from hexforge.errors import CallError
from hexforge.ir import Array

_STORED = {"uint8": ("u8", 0), "int8": ("u8", 128), "int16": ("s16", 0), "uint16": ("s16", -32768)}
"""How the kernels store a type: theirs is the integer plus so much, which is its highest bit turned over."""
TYPES = frozenset(_STORED)
"""The fixed-point types that are converted here."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """One QuantizeLinear or DequantizeLinear with a constant encoding, between float32 and a fixed-point type."""

    source: str
    target: str
    shape: tuple[int, ...]
    quantizes: bool
    dtype: np.dtype[Any]
    """The fixed-point type."""
    scale: Array
    """One float32, or one for each element of an axis."""
    zero_point: Array
    """As many integers of the fixed-point type."""
    axis: int = 0

    @property
    def per_tensor(self) -> bool:
        """Whether one scale is that of all elements."""
        return self.scale.size == 1


class Conversions:
    """Conversions that do not read each other, all run in one call."""

    def __init__(self, rows: Sequence[Conversion], threads: int, spinning: Spinning) -> None:
        self._rows = tuple(rows)
        self._threads, self._spinning = threads or processors(), spinning
        self._native = tuple(row for row in rows if row.per_tensor)
        self._program = _native.Program(0)
        for row in self._native:
            _add_step(self._program, row)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Outputs by name for inputs by name."""
        arrays = {row.source: _checked(row, feeds) for row in self._rows}
        ins = [arrays[row.source] if row.quantizes else _stored(arrays[row.source]) for row in self._native]
        outs = [np.empty(row.shape, _written(row)) for row in self._native]
        if outs:
            self._program.run(ins, outs, self._threads, self._spinning.during_us, self._spinning.after_us)
        results = {row.target: _shown(out, row) for row, out in zip(self._native, outs, strict=True)}
        for row in self._rows:
            if not row.per_tensor:
                results[row.target] = _along_an_axis(row, arrays[row.source])
        return results


def _add_step(program: _native.Program, row: Conversion) -> None:
    """A step from a new input to a new output; it reads nothing behind its input."""
    stored, shift = _STORED[row.dtype.name]
    count = int(np.prod(row.shape))
    wide, narrow = count * 4, count * row.dtype.itemsize
    zero, scale = int(row.zero_point.item()) + shift, float(row.scale.item())
    sizes = (wide, narrow) if row.quantizes else (narrow, wide)
    source, target = program.input_tensor(sizes[0]), program.output_tensor(sizes[1])
    attributes: dict[str, Any] = {"count": count, "scale": scale, "zero_point": zero}
    if row.quantizes:
        limits = np.iinfo(row.dtype)
        attributes |= {"low": int(limits.min) + shift, "high": int(limits.max) + shift}
    program.step(f"{'quantize' if row.quantizes else 'dequantize'}_{stored}", [source], [target], attributes)


def _checked(row: Conversion, feeds: Mapping[str, Any]) -> Array:
    array: Array = np.require(feeds[row.source], requirements=["C", "A"])  # which leaves a scalar one
    wanted = np.dtype(np.float32) if row.quantizes else row.dtype
    if array.dtype != wanted or array.shape != row.shape:
        raise CallError(
            f"{row.source!r} is {array.dtype.name} of shape {array.shape}; the model has {wanted.name} of {row.shape}"
        )
    return array


def _stored(array: Array) -> Array:
    """Integers as the kernels store them."""
    if array.dtype == np.int8:
        return np.asarray(array.view(np.uint8) ^ np.uint8(0x80))
    if array.dtype == np.uint16:
        return np.asarray(array ^ np.uint16(0x8000)).view(np.int16)
    return array


def _written(row: Conversion) -> np.dtype[Any]:
    if not row.quantizes:
        return np.dtype(np.float32)
    return np.dtype(np.uint8 if row.dtype.itemsize == 1 else np.uint16)


def _shown(array: Array, row: Conversion) -> Array:
    """What a step wrote as the model has it: its integers, with the highest bit turned back where one was turned."""
    if not row.quantizes:
        return array
    if _STORED[row.dtype.name][1]:
        np.bitwise_xor(array, array.dtype.type(0x80 if array.itemsize == 1 else 0x8000), out=array)
    return array.view(row.dtype)


def _along_an_axis(row: Conversion, array: Array) -> Array:
    """The same arithmetic with a scale for each element of an axis: rare at a border, so by numpy."""
    form = [1] * len(row.shape)
    form[row.axis] = -1
    scale, zero = row.scale.reshape(form), row.zero_point.astype(np.int32).reshape(form)
    if not row.quantizes:
        return np.asarray((array.astype(np.int32) - zero).astype(np.float32) * scale)
    limits = np.iinfo(row.dtype)
    low, high = (np.float32(limit) - zero.astype(np.float32) for limit in (limits.min, limits.max))
    with np.errstate(all="ignore"):
        steps = array / scale
    steps = np.where(np.isnan(steps), low, np.minimum(np.maximum(steps, low), high))
    return np.asarray((np.rint(steps).astype(np.int32) + zero).astype(row.dtype))
