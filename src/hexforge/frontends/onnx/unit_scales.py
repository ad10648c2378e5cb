# SPDX-License-Identifier: Apache-2.0
"""Scales: the encodings that the scale and zero-point inputs of Q, DQ and QLinear nodes give tensors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir

from hexforge.errors import ModelError
from hexforge.frontends.onnx.unit import Refusal, constant, onnx_dtype, onnx_shape
from hexforge.frontends.onnx.unit_encodings import encoding_of
from hexforge.ir import Array, BlockwiseExpansion, DType, Encoding, TensorType
from hexforge.ir.fixed_point import dequantize, encoding_fault
from hexforge.patterns.nodes import integer, operand

DOMAINS = ("", "ai.onnx", "com.microsoft", "com.ms.internal.nhwc")

# Ops that name scales and zero points among their inputs: (tensor, scale, zero point, axis without an axis attribute).
# The tensor is an input index, or -1 for output 0.
QUANTIZED_OPS: Mapping[str, tuple[tuple[int, int, int, int], ...]] = MappingProxyType(
    {
        "QuantizeLinear": ((-1, 1, 2, 1),),
        "DequantizeLinear": ((0, 1, 2, 1),),
        "QLinearConv": ((0, 1, 2, 1), (3, 4, 5, 0), (-1, 6, 7, 1)),
        "QLinearMatMul": ((0, 1, 2, -2), (3, 4, 5, -1), (-1, 6, 7, -2)),
    }
)


def is_quantize(node: onnx_ir.Node | None) -> bool:
    """True for QuantizeLinear of either domain."""
    return node is not None and node.op_type == "QuantizeLinear" and node.domain in DOMAINS


def is_dequantize(node: onnx_ir.Node | None) -> bool:
    """True for DequantizeLinear of either domain."""
    return node is not None and node.op_type == "DequantizeLinear" and node.domain in DOMAINS


def _known(value: onnx_ir.Value | None, kind: str) -> Array | None:
    """A constant, or the real numbers of a constant's DequantizeLinear (scales that are themselves quantized)."""
    if value is None:
        return None
    data = constant(value)
    if data is not None:
        return data
    node = value.producer()
    if node is not None and is_dequantize(node):
        integers = constant(node.inputs[0])
        if integers is not None:
            type = TensorType(DType.of(integers.dtype), integers.shape, encodings_of(node)[0])
            return dequantize(integers, type, np.float32)
    raise Refusal(f"{kind} {value.name!r} is computed at run time; make it constant")


def encodings_of(node: onnx_ir.Node) -> dict[int, Encoding]:
    """Encodings of the tensors a quantized op names scales for; Refusal if one is not constant or wrong."""
    out: dict[int, Encoding] = {}
    for tensor, scale_index, zero_index, axis in QUANTIZED_OPS[node.op_type]:
        value = node.outputs[0] if tensor < 0 else operand(node, tensor)
        if value is None:
            continue
        scale = _known(operand(node, scale_index), "the scale")
        if scale is None:
            raise Refusal("the scale is missing")
        zero_point = _known(operand(node, zero_index), "the zero point")
        shape, dtype = onnx_shape(value), onnx_dtype(value)
        axis = integer(node, "axis", axis)
        block_size = integer(node, "block_size", 0)
        expansion = _blockwise(node, scale_index, zero_point, axis, block_size, shape, dtype)
        try:
            out[tensor] = expansion or encoding_of(scale, zero_point, axis, block_size, shape, dtype)
        except Refusal as error:
            raise Refusal(f"tensor {value.name!r}: {error}") from None
    return out


def _blockwise(
    node: onnx_ir.Node,
    scale_index: int,
    zero_point: Array | None,
    axis: int,
    block_size: int,
    shape: tuple[int, ...],
    dtype: DType,
) -> BlockwiseExpansion | None:
    """LPBQ: the block scales of a matrix are themselves integers with one float scale per channel."""
    scales = operand(node, scale_index)
    inner = None if scales is None else scales.producer()
    if not block_size or len(shape) != 2 or inner is None or not is_dequantize(inner):
        return None
    if dtype not in (DType.INT4, DType.INT8) or (zero_point is not None and np.any(zero_point.astype(np.int64))):
        return None
    steps, per_channel = constant(inner.inputs[0]), constant(operand(inner, 1))
    inner_zero = constant(operand(inner, 2))
    if steps is None or per_channel is None or steps.ndim != 2 or integer(inner, "block_size", 0):
        return None
    block_axis = axis % 2
    channel = 1 - block_axis
    if inner_zero is not None and np.any(inner_zero.astype(np.int64)):
        return None
    if per_channel.size != 1 and integer(inner, "axis", 1) % 2 != channel:
        return None
    integers = steps.astype(np.int64)
    if integers.min() < 1 or integers.max() > 256 or integers.shape[block_axis] * block_size != shape[block_axis]:
        return None
    by_channel = integers if channel == 0 else integers.T
    count = shape[channel]
    encoding = BlockwiseExpansion(
        axis=channel,
        block_axis=block_axis,
        scales=tuple(map(float, np.broadcast_to(per_channel.astype(np.float64).ravel(), (count,)))),
        offsets=(0,) * count,
        block_scales=tuple(map(int, by_channel.ravel())),
        bitwidth=dtype.bits,
        block_scale_bitwidth=4 if integers.max() <= 16 else 8,
    )
    return None if encoding_fault(TensorType(dtype, shape, encoding)) else encoding


def first_input(node: onnx_ir.Node) -> onnx_ir.Value:
    """Input 0 of a Q or DQ node; ModelError where it has none."""
    value = node.inputs[0]
    if value is None:
        raise ModelError(f"{node.op_type} {node.name!r} has no input")
    return value
