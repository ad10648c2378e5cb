# SPDX-License-Identifier: Apache-2.0
"""What float16, the HTP's real numbers, cannot hold: constants that become 0 or 65536, and 16-bit steps."""

from __future__ import annotations

import math

import numpy as np

from hexforge.backends.htp.numbers.halves import LARGEST_FLOAT16, MATRIX_LIMIT, matrix_half
from hexforge.backends.htp.numbers.storage import storage
from hexforge.ir import Array, DType, Node, Role, ScaleOffset

SMALLEST = 2.0**-24
_REMEDY = "quantize the node to 16 bits, or keep numbers between 6e-8 and 65504 (for an epsilon: 1e-6)"
_GUARDS = ("ElementWiseAdd", "ElementWiseDivide", "ElementWiseMaximum", "ElementWiseSubtract", "ElementWisePower")
"""Ops where a constant near 0 keeps what follows (a logarithm, a quotient, a root) from being infinite."""


_SUMMED_AXES: dict[str, int | None] = {"FullyConnected": -1, "MatMul": -2, "Conv2d": None, "DepthWiseConv2d": None}
"""Products, and the axes of their weights that they sum over; None: all but the last."""


def float16_hazard(node: Node) -> str | None:
    """Why float16 cannot hold a node's numbers, and what would work; None where it can."""
    if node.op.name == "Dequantize":
        return _coarse(node)
    if node.op.name == "ElementWiseAdd" and (hazard := _partial_sum(node)) is not None:
        return hazard
    if (hazard := _integer_sums(node)) is not None:
        return hazard
    if not node.outputs or storage(node.outputs[0].type).kind != "f32":
        return None
    for value in node.inputs:
        if value is None or value.data is None or storage(value.type).kind != "f32":
            continue
        if (what := _constant(node, np.asarray(value.data))) is not None:
            return f"constant {value.name!r} {what}: {_REMEDY}"
    for name in ("min_value", "max_value"):
        bound = node.params.get(name)
        if (
            isinstance(bound, float)
            and math.isfinite(bound)
            and bound
            and not SMALLEST / 2 < abs(bound) <= LARGEST_FLOAT16
        ):
            becomes = 0.0 if abs(bound) < 1 else math.copysign(MATRIX_LIMIT, bound)
            return f"its {name} {bound:g} is {becomes:g} in float16: {_REMEDY}"
    return None


def _partial_sum(node: Node) -> str | None:
    """Why a partial sum of several 16-bit tensors is rounded to steps wider than the result's; None where none is."""
    part = node.outputs[0]
    user = next(iter(part.users)) if len(part.users) == 1 else None
    if user is None or user.op.name != "ElementWiseAdd" or user.source != node.source:
        return None
    own, whole = part.encoding, user.outputs[0].encoding
    if not isinstance(own, ScaleOffset) or not isinstance(whole, ScaleOffset) or own.scale <= whole.scale:
        return None
    steps = math.ceil(own.scale / whole.scale / 2)
    return (
        f"a sum of 16-bit tensors of different ranges is rounded on the way, up to {steps} steps off onnxruntime's: "
        "give its inputs one encoding and shape, or its result a wider range"
    )


def _integer_sums(node: Node) -> str | None:
    """Why sums of an integer product (a dynamic quantization's) pass what float16 holds; None where they do not."""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    if node.op.name not in _SUMMED_AXES or node.outputs[0].dtype is not DType.INT32 or node.outputs[0].encoding:
        return None
    if weight is None or weight.data is None or not weight.data.size:
        return None
    sizes = np.abs(weight.data.astype(np.int64))
    summed = _SUMMED_AXES[node.op.name] or tuple(range(sizes.ndim - 1))
    most = DType.UINT8.range[1] * int(sizes.sum(summed).max())
    if most <= LARGEST_FLOAT16:
        return None
    return (
        f"sums of integers up to {most:,} pass 65504, the largest float16: make the dynamic quantization a float "
        "product (hexforge advise --apply)"
    )


def _constant(node: Node, data: Array) -> str | None:
    if not data.size or data.size > 1 << 16:
        return None  # of a weight's many elements the small ones do not matter
    if node.op.name not in _GUARDS and np.abs(data).max() <= LARGEST_FLOAT16:
        return None
    real = data.astype(np.float64)
    finite = np.isfinite(real)
    rounded = matrix_half(data)
    lost = finite & (np.abs(rounded) == MATRIX_LIMIT)
    if lost.any():
        return f"has {real[lost].ravel()[0]:g}, which is {rounded[lost].ravel()[0]:g} on the chip, past float16"
    if node.op.name in _GUARDS and real.any() and not rounded.any():
        return f"is {real[real != 0].ravel()[0]:g}, which is 0 in float16"
    return None


def _coarse(node: Node) -> str | None:
    """16-bit integers that other nodes compute with as real numbers, of which float16 has 11 bits."""
    source, result = node.inputs[0], node.outputs[0]
    if source is None or storage(source.type).kind != "s16" or result.role is Role.APP_READ:
        return None
    if all(user.op.name == "Quantize" for user in result.users):
        return None
    return (
        "16-bit numbers are computed with in float16 (11 bits), some steps off onnxruntime's: quantize around ops "
        "that QNN has (hexforge ops)"
    )
