"""Conversions between data types and encodings; the output's type is declared."""

from __future__ import annotations

import numpy as np

from hexforge.ir import Array, Call, DType, TensorType, define, per_element
from hexforge.ops import rules


def cast(array: Array, dtype: DType) -> Array:
    """`array` as `dtype`: floats truncate and saturate (NaN gives 0), integers wrap, anything not 0 is true."""
    if dtype is DType.BOOL:
        return np.asarray(array != 0)
    if dtype.is_float:
        return array.astype(dtype.numpy)
    if array.dtype == np.bool_:
        return array.astype(dtype.numpy)
    if not np.issubdtype(array.dtype, np.integer):
        low, high = dtype.range
        if array.dtype.itemsize < 4:
            array = array.astype(np.float32)
        whole = np.trunc(np.where(np.isnan(array), 0, array))
        inside = (whole >= low) & (whole < float(high + 1))
        safe = np.where(inside, whole, 0).astype(np.uint64 if high > 1 << 63 else np.int64)
        return np.where(inside, safe, np.where(whole < low, low, high).astype(safe.dtype)).astype(dtype.numpy)
    if dtype.bits == 4:
        low_bits = array.astype(np.int64).astype(np.int8) & 15
        array = (low_bits ^ 8) - 8 if dtype.is_signed else low_bits
    return array.astype(dtype.numpy)


def _infer_cast(call: Call) -> tuple[TensorType, ...]:
    if call.out().shape != call.input(0).shape:
        raise call.fail(f"shape {list(call.input(0).shape)} cannot become {list(call.out().shape)}")
    return (call.out(),)


define(
    "Cast",
    "in",
    infer=_infer_cast,
    reference=lambda call, x: cast(x, call.out().dtype),
    work=per_element(),
    quant=rules.NEVER,
    doc="Each element in the declared data type: floats truncate and saturate to integers, integers wrap.",
)


def _infer_conversion(call: Call) -> tuple[TensorType, ...]:
    name, source, target = call.op.name, call.input(0), call.out()
    if name != "Quantize" and source.encoding is None and not (name == "Convert" and source.dtype.is_float):
        raise call.fail(f"the input is {source.qnn_dtype}, not fixed point")
    if name == "Quantize" and not source.dtype.is_float:
        raise call.fail(f"the input is {source.qnn_dtype}, not a float")
    if name == "Quantize" and target.encoding is None:
        raise call.fail(f"the output is {target.qnn_dtype}, not fixed point")
    if name == "Dequantize" and not target.dtype.is_float:
        raise call.fail(f"the output is {target.qnn_dtype}, not a float")
    return _infer_cast(call)


# The numbers do not change, only how they are written: evaluate() does that for every op.
for _name, _doc in (
    ("Quantize", "A float tensor in the fixed point of the declared output."),
    ("Dequantize", "A fixed-point tensor as the declared float type."),
    ("Convert", "A fixed-point (or float) tensor in the data type and encoding of the declared output."),
):
    define(
        _name,
        "in",
        infer=_infer_conversion,
        reference=lambda call, x: x,
        work=per_element(),
        quant=rules.OWN,
        doc=_doc,
    )
