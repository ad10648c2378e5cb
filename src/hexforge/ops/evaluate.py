# SPDX-License-Identifier: Apache-2.0
"""Evaluate one op on arrays by its reference: float as it is, fixed point as the op's quantization rule says.

Fixed point is computed three ways, all exact up to one final rounding (nearest, ties to even, saturating):
- data movement with equal encodings moves the integers;
- bilinear ops (convolution, matrix product) accumulate q + offset exactly, then `requantize`: this is their definition;
- everything else is dequantized to float64, computed, and quantized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hexforge._native import requantize as _native_requantize
from hexforge.ir import Array, AxisScaleOffset, Call, DType, ScaleOffset, TensorType, moves
from hexforge.ir.fixed_point import centered, dequantize, quantize, quantized_range

_WIDER: dict[Any, np.dtype[Any]] = {
    DType.FLOAT16.numpy: np.dtype(np.float32),
    DType.BFLOAT16.numpy: np.dtype(np.float32),
    DType.INT4.numpy: np.dtype(np.int8),
    DType.UINT4.numpy: np.dtype(np.uint8),
}
_NATIVE_OUTPUTS = (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)
_FLOAT32_INTEGERS = 1 << 24
"""Up to here every integer is a float32, so sums of integers that stay below it are exact in any order."""


def evaluate(call: Call, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
    """The outputs of `call` for inputs `arrays`, in the outputs' data types."""
    return PreparedCall(call)(arrays)


class PreparedCall:
    """A call, with what it needs of its constant inputs prepared once."""

    def __init__(self, call: Call, constants: Sequence[Array | None] = ()) -> None:
        self.call = call
        self._path = _path(call)
        self._working: Any = np.float64
        self._prepared: dict[int, Array] = {}
        self._table = _table(call) if constants else None
        self.prepared_bytes = 0 if self._table is None else self._table.nbytes
        for index, array in enumerate(constants):
            if array is not None:
                ready = self._convert(index, array)
                if ready is array:
                    continue
                if self._path == "bilinear" and index == 1 and _fits_float32(call, ready):
                    self._working = np.float32
                    ready = ready.astype(np.float32)
                self._prepared[index] = np.asarray(ready, order="C")
                self.prepared_bytes += ready.nbytes

    def __call__(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        """The outputs; constants that were prepared are taken from there."""
        return tuple(map(np.asarray, self._results(arrays)))  # numpy makes numbers of results without axes

    def _results(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        call = self.call
        if self._table is not None and arrays[0] is not None:
            return (self._table[arrays[0].view(f"u{arrays[0].itemsize}")],)
        ready = [
            None if array is None else self._prepared[i] if i in self._prepared else self._convert(i, array)
            for i, array in enumerate(arrays)
        ]
        if self._path != "bilinear":
            return _narrow(call, _run(call, ready), raw=self._path == "move")
        bias = call.op.quant.bias
        steps = ready[bias] if bias is not None and bias < len(ready) else None
        accumulators = _run(call, [*ready[:2], *[None] * (len(ready) - 2)])[0]
        if steps is not None:
            accumulators = accumulators + steps  # float64: exact beyond float32's integers
        return (requantize(accumulators, _product_scale(call) / _scale(call.out()), call.out()),)

    def _convert(self, index: int, array: Array) -> Array:
        """An input as the reference wants it on this path."""
        type = self.call.ins[index]
        assert type is not None
        if self._path == "bilinear":
            if index < 2:
                return centered(array, type, self._working)
            return _bias_steps(self.call, array, type)
        if self._path == "real":
            if type.encoding is not None:
                return dequantize(array, type)
            wide = _widen(array)
            return wide.astype(np.float64) if wide.dtype == np.float32 and _any_encoded_input(self.call) else wide
        # what is only moved needs no wider type: an embedding table is not to be converted by every look-up
        op = self.call.op
        return array if op.work is moves and op.quant.output == "input" else _widen(array)


def requantize(accumulators: Array, multipliers: Array, type: TensorType) -> Array:
    """round_half_even(accumulators * multipliers) + zero point, saturated: the definition of bilinear results.

    `multipliers` (float64) is a scalar or runs along the last axis.
    """
    assert isinstance(type.encoding, ScaleOffset)
    if type.dtype not in _NATIVE_OUTPUTS or not accumulators.size:
        return requantize_numpy(accumulators, multipliers, type)
    channels = accumulators.shape[-1] if accumulators.ndim else 1
    out = np.empty(accumulators.shape, type.dtype.numpy)
    low, high = quantized_range(type.dtype, type.encoding)
    _native_requantize(
        np.ascontiguousarray(accumulators, np.float64).reshape(-1, channels),
        np.ascontiguousarray(np.broadcast_to(multipliers, (channels,)), np.float64),
        out.reshape(-1, channels), -type.encoding.offset, low, high,
    )  # fmt: skip
    return out


def requantize_numpy(accumulators: Array, multipliers: Array, type: TensorType) -> Array:
    """`requantize` in numpy, bit for bit the same."""
    assert isinstance(type.encoding, ScaleOffset)
    low, high = quantized_range(type.dtype, type.encoding)
    with np.errstate(over="ignore"):
        steps = np.rint(accumulators.astype(np.float64, copy=False) * multipliers) - type.encoding.offset
    saturated: Array = np.clip(steps, low, high).astype(np.int64).astype(type.dtype.numpy)
    return saturated


def _path(call: Call) -> Literal["plain", "move", "bilinear", "real"]:
    if not _any_encoded_input(call) and not any(t.encoding for t in call.outs):
        return "plain"
    if call.op.quant.output == "input" and _one_encoding(call):
        return "move"
    if call.op.quant.bilinear and _integer_accumulators(call):
        return "bilinear"
    return "real"


def _table(call: Call) -> Array | None:
    """The output for every integer the input can be, by its bits; None where that is not all there is to it."""
    if len(call.ins) != 1 or call.ins[0] is None or not call.op.pointwise:
        return None
    x, y = call.ins[0], call.out()
    entries = 1 << x.dtype.bits
    if not isinstance(x.encoding, ScaleOffset) or not isinstance(y.encoding, ScaleOffset | None):
        return None
    if x.dtype.bits not in (8, 16) or x.size < entries:
        return None
    every = np.arange(entries, dtype=f"u{x.dtype.bits // 8}").view(x.dtype.numpy)
    table = Call(call.op, (x.with_shape((entries,)),), (y.with_shape((entries,)),), call.params)
    return PreparedCall(table)([every])[0]


def _any_encoded_input(call: Call) -> bool:
    return any(t is not None and t.encoding is not None for t in call.ins)


def _run(call: Call, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        out = call.op.reference(call, *arrays)
    return out if isinstance(out, tuple) else (out,)


def _widen(array: Array) -> Array:
    wider = _WIDER.get(array.dtype)
    return array if wider is None else array.astype(wider)


def _narrow(call: Call, results: tuple[Array, ...], raw: bool = False) -> tuple[Array, ...]:
    out = []
    for array, type in zip(results, call.outs, strict=False):
        if type.encoding is not None and not raw:
            out.append(quantize(np.asarray(array), type))
        else:
            with np.errstate(all="ignore"):
                out.append(np.asarray(array).astype(type.dtype.numpy, copy=False))
    return tuple(out)


def _one_encoding(call: Call) -> bool:
    data = call.op.quant.data
    ins = [t for i, t in enumerate(call.ins) if t is not None and (data is None or i in data)]
    types = (*ins, *call.outs)
    return isinstance(types[0].encoding, ScaleOffset) and all(
        t.encoding == types[0].encoding and t.dtype == types[0].dtype for t in types
    )


def _integer_accumulators(call: Call) -> bool:
    x, w, y = call.input(0), call.input(1), call.out()
    return (
        isinstance(x.encoding, ScaleOffset)
        and isinstance(y.encoding, ScaleOffset)
        and (
            isinstance(w.encoding, ScaleOffset)
            or (isinstance(w.encoding, AxisScaleOffset) and w.encoding.axis == _weight_axis(call))
        )
    )


def _weight_axis(call: Call) -> int | None:
    """The axis of input 1 that becomes the output's last."""
    axis = call.op.quant.weight_axis
    if axis is None:
        return None
    if call.params.get("transpose_in1"):
        axis = -2
    return axis % len(call.input(1).shape)


def _scale(type: TensorType) -> Array:
    assert isinstance(type.encoding, (ScaleOffset, AxisScaleOffset))
    scales = type.encoding.scale if isinstance(type.encoding, ScaleOffset) else type.encoding.scales
    return np.asarray(scales, np.float64)


def _product_scale(call: Call) -> Array:
    """The scale of the accumulator: a scalar, or one number per slice of the output's last axis."""
    return np.asarray(_scale(call.input(0)) * _scale(call.input(1)))


def _bias_steps(call: Call, bias: Array, type: TensorType) -> Array:
    """The bias in steps of the accumulator, as float64."""
    scale = _product_scale(call)
    # A bias scale that is the product up to float32 rounding is meant to be it: the integers add up.
    simple = isinstance(type.encoding, (ScaleOffset, AxisScaleOffset))
    if simple and np.all(np.abs(_scale(type) - scale) <= 1e-6 * np.abs(scale)):
        return centered(bias, type)
    real = bias.astype(np.float64) if type.encoding is None else dequantize(bias, type)
    return np.nan_to_num(real / scale)


def _fits_float32(call: Call, weight: Array) -> bool:
    """True where no partial sum of the accumulator can leave float32's exact integers."""
    x = call.input(0)
    assert isinstance(x.encoding, ScaleOffset)
    largest = max(abs(q + x.encoding.offset) for q in quantized_range(x.dtype, x.encoding))
    axis = _weight_axis(call)
    summed = tuple(i for i in range(weight.ndim) if i != axis)
    return bool(weight.size) and float(np.abs(weight).sum(axis=summed).max()) * largest < _FLOAT32_INTEGERS
