# SPDX-License-Identifier: Apache-2.0
"""Encodings that the scales and zero points of QuantizeLinear, DequantizeLinear and QLinear nodes give tensors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir

from hexforge.errors import ModelError
from hexforge.frontends.onnx.unit import Refusal, constant, onnx_dtype, onnx_shape
from hexforge.ir import Array, AxisScaleOffset, Block, BlockwiseExpansion, DType, Encoding, ScaleOffset, TensorType
from hexforge.ir.fixed_point import dequantize, encoding_fault
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import integer, operand


def encoding_of(
    scale: Array, zero_point: Array | None, axis: int, block_size: int, shape: tuple[int, ...], dtype: DType
) -> Encoding:
    """The encoding of a tensor of `shape` and `dtype`: per tensor, per `axis`, or per `block_size` along `axis`."""
    if scale.size == 1 and not block_size and (zero_point is None or zero_point.size == 1):
        offset = 0 if zero_point is None else -int(zero_point.item())
        return _checked(ScaleOffset(float(scale.item()), offset), shape, dtype)
    scale = np.asarray(scale, np.float64)
    zero = np.zeros(scale.shape, np.int64) if zero_point is None else np.asarray(zero_point).astype(np.int64)
    if zero.size != scale.size:
        raise Refusal(f"{scale.size} scales but {zero.size} zero points; they must have one shape")
    scales, offsets = tuple(map(float, scale.ravel())), tuple(-int(z) for z in zero.ravel())
    encoding: Encoding
    if not shape or not -len(shape) <= axis < len(shape):
        raise Refusal(f"quantization axis {axis} is outside a tensor of {len(shape)} dimensions")
    if block_size:
        axis %= len(shape)
        block = tuple(block_size if i == axis else 1 for i in range(len(shape)))
        counts = tuple(-(-n // b) for n, b in zip(shape, block, strict=True))
        if scale.shape != counts:
            raise Refusal(f"scales of shape {list(scale.shape)} for blocks {list(counts)} of shape {list(shape)}")
        encoding = Block(block, scales, offsets)
    else:
        if scale.ndim != 1:
            raise Refusal(f"scales of shape {list(scale.shape)} without a block size; give a scalar or a vector")
        encoding = AxisScaleOffset(axis % len(shape), scales, offsets)
    return _checked(encoding, shape, dtype)


def _checked(encoding: Encoding, shape: tuple[int, ...], dtype: DType) -> Encoding:
    problem = encoding_fault(TensorType(dtype, shape, encoding))
    if problem:
        raise Refusal(problem)
    return encoding


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


def write_zeros(model: onnx_ir.Model) -> None:
    """Give constants under DequantizeLinear whose scale is 0 another scale, and zeros: the same numbers."""
    for node in list(model.graph):
        if node.op_type != "DequantizeLinear":
            continue
        data, scale, zero = (*node.inputs, None, None)[:3]
        if data is None or scale is None or data.const_value is None or scale.const_value is None:
            continue
        if zero is not None and zero.const_value is None:
            continue
        scales = np.asarray(scale.const_value.numpy())
        if scales.size == 1 and scales.item() != 0:
            continue
        if not np.any(scales == 0):
            continue
        integers = np.array(data.const_value.numpy())
        nothing = np.zeros((), integers.dtype)
        if zero is not None and zero.const_value is not None:
            nothing = np.asarray(zero.const_value.numpy())
        where, zeros = _spread(scales == 0, integers.shape, node), _spread(nothing, integers.shape, node)
        if where is None or zeros is None:
            continue  # it does not fit its data, and is refused with that reason
        editor = Editor(model)
        known = np.where(where, zeros, integers).astype(integers.dtype)
        nonzero = np.where(scales == 0, scales.dtype.type(1), scales)
        node.replace_input_with(0, editor.constant(known, f"{data.name}_zeros"))
        node.replace_input_with(1, editor.constant(nonzero, f"{scale.name}_ones"))


def _spread(values: Array, shape: tuple[int, ...], node: onnx_ir.Node) -> Array | None:
    """One value per tensor, per index of an axis or per block, as an array that broadcasts over the data."""
    if values.size == 1:
        return values.reshape(())
    axis, block = (
        node.attributes[k].as_int() if k in node.attributes else d for k, d in (("axis", 1), ("block_size", 0))
    )
    axis = axis % len(shape) if shape else 0
    if block and values.ndim == len(shape):
        values = np.repeat(values, block, axis)[tuple(slice(n) for n in shape)]
        return values if values.shape == shape else None
    if values.ndim != 1 or not shape or values.size != shape[axis]:
        return None
    return values.reshape([values.size if i == axis else 1 for i in range(len(shape))])
