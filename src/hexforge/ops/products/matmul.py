# SPDX-License-Identifier: Apache-2.0
"""Matrix ops: product, fully connected layer, inverse."""

from __future__ import annotations

import math

import numpy as np

from hexforge.ir import Array, AxisScaleOffset, Call, Measure, Param, QuantRule, TensorType, Work, define
from hexforge.ops.pointwise.elementwise import broadcast, same_dtype


def product(a: Array, b: Array) -> Array:
    """a @ b; integers exactly (wrapping in int64), through BLAS where float64 holds every sum."""
    if a.dtype.kind == "f" or not a.size or not b.size:
        return np.asarray(np.matmul(a, b))
    largest = max(abs(int(a.min())), abs(int(a.max()))) * max(abs(int(b.min())), abs(int(b.max())))
    if largest * a.shape[-1] < 1 << 53:
        return np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64))
    return np.asarray(np.matmul(a.astype(np.int64), b.astype(np.int64)))


def _flip(array: Array, flipped: bool) -> Array:
    return np.swapaxes(array, -1, -2) if flipped else array


def _matmul_dims(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the operands after their transpositions."""
    shapes = []
    for index, name in ((0, "transpose_in0"), (1, "transpose_in1")):
        shape = call.input(index).shape
        if len(shape) < 2:
            raise call.fail(f"in{index} has shape {list(shape)}; it needs at least 2 dimensions")
        shapes.append((*shape[:-2], shape[-1], shape[-2]) if call[name] else shape)
    return shapes[0], shapes[1]


def _infer_matmul(call: Call) -> tuple[TensorType, ...]:
    a, b = _matmul_dims(call)
    if a[-1] != b[-2]:
        raise call.fail(f"cannot multiply {list(a)} by {list(b)}: {a[-1]} is not {b[-2]}")
    encoding = call.input(1).encoding
    if call["transpose_in1"] and isinstance(encoding, AxisScaleOffset) and encoding.axis == len(b) - 1:
        raise call.fail("scales of in1 run along the axis that is summed over; use one per output column")
    if call.has(2) and call.input(2).shape not in ((b[-1],), (1,)):
        raise call.fail(f"bias has shape {list(call.input(2).shape)}, not [{b[-1]}]")
    return (TensorType(same_dtype(call, 0, 1), (*broadcast(call, a[:-2], b[:-2]), a[-2], b[-1])),)


def _matmul(call: Call, a: Array, b: Array, bias: Array | None = None) -> Array:
    out = product(_flip(a, call["transpose_in0"]), _flip(b, call["transpose_in1"]))
    return out if bias is None else out + bias


define(
    "MatMul",
    "in0 in1 bias?",
    params=(Param("transpose_in0", "bool", default=False), Param("transpose_in1", "bool", default=False)),
    infer=_infer_matmul,
    reference=_matmul,
    kind=Work.MATMUL,
    work=Measure(macs=lambda call: call.out().size * _matmul_dims(call)[0][-1]),
    quant=QuantRule(weight=1, weight_axis=-1, bias=2, bilinear=True),
    doc="Matrix product over the last two axes, the others broadcast.",
)


def _infer_fully_connected(call: Call) -> tuple[TensorType, ...]:
    shape, weight = call.input(0).shape, call.input(1).shape
    if len(weight) != 2:
        raise call.fail(f"weight has shape {list(weight)}, not [out, in]")
    if call.has(2) and call.input(2).shape != weight[:1]:
        raise call.fail(f"bias has shape {list(call.input(2).shape)}, not [{weight[0]}]")
    dtype = same_dtype(call, 0, 1)
    if call["keep_dims"]:
        if not shape or shape[-1] != weight[1]:
            raise call.fail(f"the last axis of {list(shape)} is not the {weight[1]} inputs of the weight")
        return (TensorType(dtype, (*shape[:-1], weight[0])),)
    if not weight[1] or math.prod(shape) % weight[1]:
        raise call.fail(f"{list(shape)} does not flatten to rows of {weight[1]}")
    return (TensorType(dtype, (math.prod(shape) // weight[1], weight[0])),)


def _fully_connected(call: Call, x: Array, weight: Array, bias: Array | None = None) -> Array:
    rows = math.prod(x.shape[:-1]) if call["keep_dims"] else x.size // max(weight.shape[1], 1)
    out = product(x.reshape(rows, weight.shape[1]), weight.T)
    out = out if bias is None else out + bias
    return out.reshape(*x.shape[:-1], weight.shape[0]) if call["keep_dims"] else out


define(
    "FullyConnected",
    "in weight bias?",
    params=(Param("keep_dims", "bool", default=False),),
    infer=_infer_fully_connected,
    reference=_fully_connected,
    kind=Work.FULLY_CONNECTED,
    work=Measure(macs=lambda call: call.out().size * call.input(1).shape[1]),
    quant=QuantRule(weight=1, weight_axis=0, bias=2, bilinear=True),
    doc="Rows of the input times the transposed weight [out, in], plus bias; keep_dims keeps the leading axes.",
)


def _infer_inverse(call: Call) -> tuple[TensorType, ...]:
    shape = call.input(0).shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise call.fail(f"{list(shape)} does not hold square matrices")
    return (TensorType(call.input(0).dtype, shape),)


def _inverse(call: Call, x: Array) -> Array:
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:  # one singular matrix fails the batch: the others are still inverted
        flat = x.reshape(-1, *x.shape[-2:])
        out = np.full_like(flat, np.nan)
        regular = np.linalg.det(flat) != 0
        out[regular] = np.linalg.inv(flat[regular])
        return out.reshape(x.shape)


define(
    "Inverse",
    "in",
    infer=_infer_inverse,
    reference=_inverse,
    kind=Work.OTHER,
    work=Measure(macs=lambda call: call.out().size * call.out().shape[-1]),
    doc="Inverse of each square matrix; NaN for singular ones.",
)
