# SPDX-License-Identifier: Apache-2.0
"""Conversions between data types and encodings; the output's type is declared."""

from __future__ import annotations

import numpy as np

from hexforge.ir import POINTWISE, Array, Call, DType, TensorType, Work, define, per_element
from hexforge.ops import rules


def cast(array: Array, dtype: DType) -> Array:
    """`array` as `dtype`: integers wrap, anything not 0 is true, floats truncate.

    A float outside the range, which ONNX leaves open (its own cases for 4 bits wrap), saturates to 32 and 64 bits and
    wraps from there to fewer; NaN becomes 0.
    """
    if dtype is DType.BOOL:
        return np.asarray(array != 0)
    if dtype.is_float or array.dtype == np.bool_:
        return array.astype(dtype.numpy)
    if not np.issubdtype(array.dtype, np.integer):
        array = _whole(array, dtype if dtype.bits >= 32 else DType.INT32)
    if dtype.bits == 4:
        low_bits = array.astype(np.int64).astype(np.int8) & 15
        array = (low_bits ^ 8) - 8 if dtype.is_signed else low_bits
    return array.astype(dtype.numpy)


def _whole(array: Array, dtype: DType) -> Array:
    """Floats truncated and saturated to an integer type of 32 or 64 bits."""
    low, high = dtype.range
    whole = np.trunc(np.where(np.isnan(array), 0, array))
    inside = (whole >= low) & (whole < float(high + 1))
    if inside.all():
        return whole.astype(dtype.numpy)
    limits = np.where(whole < 0, dtype.numpy.type(low), dtype.numpy.type(high))
    return np.where(inside, np.where(inside, whole, 0).astype(dtype.numpy), limits)


def _infer_cast(call: Call) -> tuple[TensorType, ...]:
    if call.out().shape != call.input(0).shape:
        raise call.fail(f"shape {list(call.input(0).shape)} cannot become {list(call.out().shape)}")
    return (call.out(),)


define(
    "Cast",
    "in",
    infer=_infer_cast,
    reference=lambda call, x: cast(x, call.out().dtype) if call.out().encoding is None else x,
    kind=Work.CONVERT,
    work=per_element(),
    quant=rules.NEVER,
    layout=POINTWISE,
    doc="Each element in the declared data type: floats truncate to integers, integers wrap; fixed point rounds.",
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
        kind=Work.CONVERT,
        work=per_element(),
        quant=rules.OWN,
        layout=POINTWISE,
        doc=_doc,
    )
