"""Evaluate one op on arrays by its reference: float as it is, fixed point as the op's quantization rule says.

Fixed point is computed three ways, all exact up to one final rounding (nearest, ties to even, saturating):
- data movement with equal encodings moves the integers;
- bilinear ops (convolution, matrix product) accumulate q + offset exactly in float64, then scale once;
- everything else is dequantized to float64, computed, and quantized.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexforge.ir import Array, AxisScaleOffset, Call, DType, ScaleOffset, TensorType
from hexforge.ir.fixed_point import centered, dequantize, quantize

_WIDER = {
    DType.FLOAT16.numpy: np.dtype(np.float32),
    DType.BFLOAT16.numpy: np.dtype(np.float32),
    DType.INT4.numpy: np.dtype(np.int8),
    DType.UINT4.numpy: np.dtype(np.uint8),
}


def evaluate(call: Call, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
    """The outputs of `call` for inputs `arrays`, in the outputs' data types."""
    rule = call.op.quant
    encoded = [t is not None and t.encoding is not None for t in call.ins]
    if not any(encoded) and not any(t.encoding for t in call.outs):
        return _narrow(call, _run(call, [None if a is None else _widen(a) for a in arrays]))
    if rule.output == "input" and _one_encoding(call):
        return _narrow(call, _run(call, [None if a is None else _widen(a) for a in arrays]), raw=True)
    if rule.bilinear and _integer_accumulators(call):
        return (_bilinear(call, arrays),)
    real: list[Array | None] = []
    for array, type in zip(arrays, call.ins, strict=False):
        if array is None or type is None:
            real.append(None)
        elif type.encoding is not None:
            real.append(dequantize(array, type))
        else:
            wide = _widen(array)
            exact = any(encoded) and wide.dtype == np.float32
            real.append(wide.astype(np.float64) if exact else wide)
    return _narrow(call, _run(call, real))


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
    first = ins[0]
    return isinstance(first.encoding, ScaleOffset) and all(
        t.encoding == first.encoding and t.dtype == first.dtype for t in (*ins, *call.outs)
    )


def _integer_accumulators(call: Call) -> bool:
    x, w, y = call.input(0), call.input(1), call.out()
    return (
        isinstance(x.encoding, ScaleOffset)
        and y.encoding is not None
        and (
            isinstance(w.encoding, ScaleOffset)
            or (isinstance(w.encoding, AxisScaleOffset) and w.encoding.axis == _axis(call.op.quant.weight_axis, w))
        )
    )


def _axis(axis: int | None, type: TensorType) -> int | None:
    return None if axis is None else axis % len(type.shape)


def _bilinear(call: Call, arrays: Sequence[Array | None]) -> Array:
    x, w = call.input(0), call.input(1)
    assert isinstance(x.encoding, ScaleOffset)
    assert arrays[0] is not None
    assert arrays[1] is not None
    assert isinstance(w.encoding, (ScaleOffset, AxisScaleOffset))
    operands: list[Array | None] = [centered(arrays[0], x), centered(arrays[1], w)]
    scales = w.encoding.scale if isinstance(w.encoding, ScaleOffset) else np.asarray(w.encoding.scales)
    scale = x.encoding.scale * np.asarray(scales, np.float64)  # broadcasts along the output's last axis
    operands += [None] * (len(arrays) - 2)
    accumulator = _run(call, operands)[0]
    bias_index = call.op.quant.bias
    if bias_index is None or not call.has(bias_index):
        return quantize(accumulator * scale, call.out())
    bias_type, bias = call.input(bias_index), arrays[bias_index]
    assert bias is not None
    if bias_type.encoding is None:
        return quantize(accumulator * scale + bias.astype(np.float64), call.out())
    steps = centered(bias, bias_type)
    if _is_product(bias_type, scale):
        return quantize((accumulator + steps) * scale, call.out())
    return quantize(accumulator * scale + dequantize(bias, bias_type), call.out())


def _is_product(bias: TensorType, scale: Array) -> bool:
    """True where the bias counts in units of input scale times weight scale, up to float32 rounding."""
    assert isinstance(bias.encoding, (ScaleOffset, AxisScaleOffset))
    own = bias.encoding.scale if isinstance(bias.encoding, ScaleOffset) else np.asarray(bias.encoding.scales)
    return bool(np.all(np.abs(own - scale) <= 1e-6 * np.abs(scale)))
