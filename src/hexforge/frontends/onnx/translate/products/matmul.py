# SPDX-License-Identifier: Apache-2.0
"""Matrix products: MatMul, Gemm and their fused, integer and quantized kin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.compose import binary, less_zero_point, scaled_output
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import AxisScaleOffset, Encoding, ScaleOffset, Value


@translates("MatMul", writes=("FullyConnected", "MatMul"))
def matmul(b: Builder, u: Unit) -> None:
    """numpy's matmul; a constant matrix on the right makes it a FullyConnected."""
    multiply(b, u, b.input(u, 0), b.input(u, 1))


@translates("QLinearMatMul", "com.microsoft:QLinearMatMul", writes=("FullyConnected", "MatMul"))
def qlinear_matmul(b: Builder, u: Unit) -> None:
    """MatMul of fixed-point tensors; the encodings come with the unit."""
    if any(o is None or o.encoding is None for o in (u.inputs[0], u.inputs[3], u.outputs[0])):
        raise Refusal("scales and zero points must be constant to become encodings")
    multiply(b, u, b.input(u, 0), b.input(u, 3))


def multiply(b: Builder, u: Unit, x: Value, y: Value) -> None:
    """Write x @ y to the unit's output, in its encoding; vectors as numpy's matmul takes them."""
    out = b.output(u)
    if y.data is not None and len(y.shape) == 2 and x.shape:
        if x.shape[-1] != y.shape[0]:
            raise Refusal(f"cannot multiply {list(x.shape)} by {list(y.shape)}")
        weight = b.transpose(y, (1, 0))
        b.emit("FullyConnected", [x, weight], out, keep_dims=True)
        return
    if not x.shape or not y.shape:
        raise Refusal("a scalar is no matrix")
    left = b.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    right = b.reshape(y, (*y.shape, 1)) if len(y.shape) == 1 else y
    if left is x and right is y:
        b.emit("MatMul", [x, y], out)
        return
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    b.finish(u, b.emit("MatMul", [left, right], out.type.with_shape((*batch, left.shape[-2], right.shape[-1]))))


def _row(b: Builder, bias: Value, width: int) -> Value | None:
    """A bias as a vector of `width`, None where it is more than one row."""
    if bias.shape == (width,):
        return bias
    if bias.shape == (1, width) and not hasattr(bias.encoding, "axis"):
        return b.reshape(bias, (width,))
    if bias.type.size == 1 and bias.data is not None and not hasattr(bias.encoding, "axis"):
        return b.static(np.broadcast_to(bias.data.reshape(1), (width,)), bias.encoding, f"{bias.name}_row")
    return None


@translates("Gemm", writes=("ElementWiseAdd", "ElementWiseMultiply", "FullyConnected", "MatMul"))
def gemm(b: Builder, u: Unit) -> None:
    """alpha A' B' + beta C; a FullyConnected where that is all, else MatMul and the rest of it."""
    alpha, beta = float(b.attr(u, "alpha", 1.0)), float(b.attr(u, "beta", 1.0))
    flip_a, flip_b = bool(b.attr(u, "transA", 0)), bool(b.attr(u, "transB", 0))
    out, given = b.output(u), b.has(u, 2) and beta != 0
    row = _row(b, b.input(u, 2), out.shape[-1]) if given and beta == 1 else None
    if alpha == 1 and given == (row is not None):
        x, y = b.input(u, 0), b.input(u, 1)
        if y.data is not None:
            x = b.transpose(x, (1, 0)) if flip_a else x
            b.emit("FullyConnected", [x, y if flip_b else b.transpose(y, (1, 0)), row], out)
        else:
            b.emit("MatMul", [x, y, row], out, transpose_in0=flip_a, transpose_in1=flip_b)
        return
    constant = row is not None and row.data is not None
    if alpha > 0 and (constant or not given) and out.encoding is not None:
        # a matrix that is constant could take alpha into its scale; this keeps it one weight for all that read it
        inputs = [b.input(u, 0), b.input(u, 1), *([_divided(b, row, alpha)] if row is not None else [])]
        flips = {"transpose_in0": flip_a, "transpose_in1": flip_b}
        if scaled_output(b, u, alpha, lambda to: b.emit("MatMul", inputs, to, **flips)):
            return
    if not u.quantized and not out.dtype.is_float and (alpha, beta) != (1, 1):
        raise Refusal(f"alpha {alpha} and beta {beta} on {out.dtype.value}; leave them 1, or cast to float")
    product = b.emit("MatMul", [b.real(u, 0), b.real(u, 1)], transpose_in0=flip_a, transpose_in1=flip_b)
    product = binary(b, "Multiply", product, alpha) if alpha != 1 else product
    if given:
        c = b.real(u, 2)
        product = binary(b, "Add", product, binary(b, "Multiply", c, beta) if beta != 1 else c)
    b.finish(u, product)


def _divided(b: Builder, bias: Value, divisor: float) -> Value:
    """A constant bias divided by a number: its steps are smaller, its integers what they are."""
    assert bias.data is not None
    match bias.encoding:
        case ScaleOffset():
            encoding: Encoding | None = replace(bias.encoding, scale=bias.encoding.scale / divisor)
        case AxisScaleOffset():
            encoding = replace(bias.encoding, scales=tuple(scale / divisor for scale in bias.encoding.scales))
        case _:
            return b.static((bias.data / divisor).astype(bias.data.dtype))
    return b.static(bias.data, encoding)


@translates(
    "com.microsoft:FusedMatMul",
    "com.microsoft:TransposeMatMul",
    writes=("ElementWiseMultiply", "FullyConnected", "MatMul"),
)
def fused_matmul(b: Builder, u: Unit) -> None:
    """alpha times the product of operands transposed in their last axes, or with the first axis moved inwards."""
    alpha = float(b.attr(u, "alpha", 1.0))
    values = [b.real(u, 0), b.real(u, 1)]
    for i, name in enumerate(("transBatchA", "transBatchB")):
        rank = len(values[i].shape)
        if b.attr(u, name, 0) and rank > 2:
            values[i] = b.transpose(values[i], (*range(1, rank - 1), 0, rank - 1))
    names = ("transA", "transB")
    flips = [bool(b.attr(u, name, 0)) and len(v.shape) > 1 for name, v in zip(names, values, strict=True)]
    if any(len(v.shape) < 2 for v in values) and (any(flips) or alpha != 1):
        raise Refusal("a vector operand with alpha or a transposed partner; use MatMul on matrices")
    if any(len(v.shape) < 2 for v in values):
        multiply(b, u, *values)
        return
    product = b.emit("MatMul", values, transpose_in0=flips[0], transpose_in1=flips[1])
    b.finish(u, binary(b, "Multiply", product, alpha) if alpha != 1 else product)


@translates("MatMulInteger", writes=("ElementWiseSubtract", "FullyConnected", "MatMul"))
def matmul_integer(b: Builder, u: Unit) -> None:
    """int32 product of 8-bit tensors less their zero points."""
    # a zero point for each row of A, each column of B
    multiply(b, u, less_zero_point(b, u, 0, 1), less_zero_point(b, u, 1))


@translates("com.microsoft:Inverse", writes=("Inverse",))
def inverse(b: Builder, u: Unit) -> None:
    """Inverse of square matrices."""
    b.emit("Inverse", [b.input(u, 0)], b.output(u))


@translates("Softmax", writes=("Softmax",))
@translates("LogSoftmax", writes=("LogSoftmax",))
def softmax(b: Builder, u: Unit) -> None:
    """Softmax or LogSoftmax."""
    write_softmax(b, u, 1.0)


def write_softmax(b: Builder, u: Unit, beta: float) -> None:
    """Softmax of `beta` times the input along an axis; before opset 13 over all axes from there on, as one."""
    x, out, op = b.input(u, 0), b.output(u), u.target.op_type
    rank, flattens = len(x.shape), b.opset(u) < 13
    axis = int(b.attr(u, "axis", 1 if flattens else -1))
    if not rank or not -rank <= axis < rank + flattens:
        raise Refusal(f"axis {axis} is outside a tensor of {rank} dimensions")
    axis = axis % rank if axis < rank else rank
    if not flattens or axis == rank - 1:
        b.emit(op, [x], out, axis=axis, beta=beta)
        return
    rows = int(np.prod(x.shape[:axis]))
    flat = b.reshape(x, (rows, x.type.size // max(rows, 1)))
    b.finish(u, b.emit(op, [flat], out.type.with_shape(flat.shape), axis=1, beta=beta))
