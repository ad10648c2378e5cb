# SPDX-License-Identifier: Apache-2.0
"""QNN's own description of a graph as plain data, and its tensors as types, roles and data of the IR."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hexforge.errors import ModelError
from hexforge.ir import Array, AxisScaleOffset, BlockwiseExpansion, DType, Encoding, Role, ScaleOffset, TensorType
from hexforge.ir.fixed_point import encoding_fault, quantized_range

QTI_PACKAGE = "qti.aisw"
"""The package of QNN's own ops."""


@dataclass(frozen=True, slots=True)
class QuantizeParams:
    """How a tensor is quantized, under QNN's name of the encoding; `real = scale * (q + offset)`."""

    encoding: str
    """Such as QNN_QUANTIZATION_ENCODING_SCALE_OFFSET."""
    scales: Sequence[float]
    offsets: Sequence[int]
    axis: int = 0
    bitwidth: int = 0
    """Bits of the BW_ encodings, in elements of one byte."""
    block_scales: Sequence[int] = ()
    """BLOCKWISE_EXPANSION: the integer scale of each block, slice by slice."""
    blocks_per_axis: int = 0
    block_scale_bitwidth: int = 4


@dataclass(frozen=True, slots=True, eq=False)
class QnnTensor:
    """A tensor of a graph, as in Qnn_Tensor_t."""

    name: str
    tensor_type: str
    """Such as QNN_TENSOR_TYPE_NATIVE."""
    data_type: str
    """Such as QNN_DATATYPE_UFIXED_POINT_8."""
    dimensions: tuple[int, ...]
    quantization: QuantizeParams | None = None
    dynamic: tuple[bool, ...] = ()
    """Which dimensions may be smaller at run time; `dimensions` are then what the graph is prepared for."""
    data: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QnnOp:
    """An op of a graph, as in Qnn_OpConfig_t; parameters are numbers, or arrays in the shape of their tensor."""

    name: str
    type: str
    inputs: tuple[QnnTensor, ...]
    outputs: tuple[QnnTensor, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    package: str = QTI_PACKAGE


ROLES = {f"QNN_TENSOR_TYPE_{role.value}": role for role in Role}
_ENCODING = "QNN_QUANTIZATION_ENCODING_"
_PLAIN = {d.qnn_name(): d for d in DType}
_INT16 = DType.INT16.qnn_name(fixed_point=True)
INT16_MOST = 0x7F7F
_FIXED = {d.qnn_name(fixed_point=True): d for d in DType if d.is_integer}


def role_of(tensor: QnnTensor) -> Role:
    """Who writes and reads the tensor."""
    role = ROLES.get(tensor.tensor_type)
    if role is None:
        raise ModelError(f"tensor {tensor.name!r}: {tensor.tensor_type} is not a type of tensor that a graph can have")
    return role


def type_of(tensor: QnnTensor) -> TensorType:
    """Element type, shape and encoding; ModelError naming the tensor where they do not go together."""
    wrong = [d for d in tensor.dimensions if d < 0]
    if wrong:
        raise ModelError(f"tensor {tensor.name!r}: dimensions {list(tensor.dimensions)} are not all known")
    quantization, dtype = tensor.quantization, _PLAIN.get(tensor.data_type)
    if dtype is None:
        dtype = _FIXED.get(tensor.data_type)
        if dtype is not None and quantization is None:
            raise ModelError(f"tensor {tensor.name!r}: is {tensor.data_type} but has no encoding")
    elif dtype.is_float and quantization is not None:
        raise ModelError(f"tensor {tensor.name!r}: has an encoding but is {tensor.data_type}, not fixed point")
    else:  # a plain integer's says nothing: ExecuTorch casts to INT_32 under the encoding of what it casts
        quantization = None
    if dtype is None:
        raise ModelError(f"tensor {tensor.name!r}: hexforge has no tensors of {tensor.data_type}")
    shape = tensor.dimensions or (1,)  # QNN has no tensors of rank 0
    if quantization is None:
        return TensorType(dtype, shape)
    type = TensorType(dtype, shape, encoding_of(quantization, tensor))
    problem = encoding_fault(type)
    if problem:
        raise ModelError(f"tensor {tensor.name!r}: {problem}")
    return type


def encoding_of(quantization: QuantizeParams, tensor: QnnTensor) -> Encoding:
    """The encoding; scales are float32, as QNN's structs have them."""
    q, rank = quantization, len(tensor.dimensions)
    scales = tuple(float(np.float32(s)) for s in q.scales)
    offsets = tuple(int(o) for o in q.offsets)
    if len(scales) != len(offsets) or not scales:
        raise ModelError(f"tensor {tensor.name!r}: has {len(scales)} scales and {len(offsets)} offsets")
    kind = q.encoding.removeprefix(_ENCODING)
    if kind in ("SCALE_OFFSET", "BW_SCALE_OFFSET"):
        if len(scales) != 1:
            raise ModelError(f"tensor {tensor.name!r}: {kind} has one scale, not {len(scales)}")
        return ScaleOffset(scales[0], offsets[0], q.bitwidth)
    if not -rank <= q.axis < rank:
        raise ModelError(f"tensor {tensor.name!r}: axis {q.axis} of its encoding is outside its {rank} dimensions")
    axis = q.axis % rank
    if kind in ("AXIS_SCALE_OFFSET", "BW_AXIS_SCALE_OFFSET"):
        return AxisScaleOffset(axis, scales, offsets, q.bitwidth)
    if kind == "BLOCKWISE_EXPANSION":
        return _blockwise(q, tensor, axis, scales, offsets)
    raise ModelError(f"tensor {tensor.name!r}: hexforge has no encoding {q.encoding}")


def _blockwise(
    q: QuantizeParams, tensor: QnnTensor, axis: int, scales: tuple[float, ...], offsets: tuple[int, ...]
) -> BlockwiseExpansion:
    """The blockwise encoding; blocks run along the input channels, the axis next to that of the scales."""
    rank = len(tensor.dimensions)
    block_axis = axis - 1 if axis == rank - 1 else axis + 1
    if rank < 2 or len(q.block_scales) != len(scales) * q.blocks_per_axis or not q.blocks_per_axis:
        raise ModelError(
            f"tensor {tensor.name!r}: {len(q.block_scales)} block scales do not fit {len(scales)} slices of "
            f"{q.blocks_per_axis} blocks"
        )
    if tensor.dimensions[block_axis] % q.blocks_per_axis:
        raise ModelError(
            f"tensor {tensor.name!r}: {tensor.dimensions[block_axis]} input channels are not {q.blocks_per_axis} "
            "blocks of one size; choose a block size that divides the channels, and 1 along the kernel"
        )
    blocks = tuple(int(s) for s in q.block_scales)
    return BlockwiseExpansion(axis, block_axis, scales, offsets, blocks, q.bitwidth or 4, q.block_scale_bitwidth)


def fit_int16_weights(tensor: QnnTensor) -> QnnTensor:
    """Int16 weights within what the HTP's matrix unit takes, by a scale a little larger where they go beyond it.

    ExecuTorch's 16a16w has -32767..32767, the unit takes -0x8000..0x7F7F; a weight moves by half a step at most.
    """
    q, data = tensor.quantization, tensor.data
    if q is None or data is None or tensor.data_type != _INT16 or not data.size or int(data.max()) <= INT16_MOST:
        return tensor
    share = INT16_MOST / int(data.max())
    scales = [float(s) / share for s in q.scales]
    return replace(tensor, data=np.rint(data * share).astype(np.int16), quantization=replace(q, scales=scales))


def data_of(tensor: QnnTensor, type: TensorType) -> Array:
    """A static tensor's elements, 4- and 2-bit ones extended from the low bits of their bytes."""
    if tensor.data is None:
        raise ModelError(f"tensor {tensor.name!r}: is STATIC but has no data")
    data = np.asarray(tensor.data)
    if data.size != math.prod(type.shape):
        raise ModelError(f"tensor {tensor.name!r}: is {type} but has {data.size} elements of data")
    data = data.reshape(type.shape)
    if type.encoding is not None and type.encoding.bitwidth and type.encoding.bitwidth < type.dtype.bits:
        return _extended(data, type)
    made = data.astype(type.dtype.numpy)
    if data.dtype.kind in "iub" and type.dtype.is_integer and not np.array_equal(made, data):
        raise ModelError(f"tensor {tensor.name!r}: its data are {data.dtype.name} and do not fit {type.dtype.value}")
    return np.ascontiguousarray(made)


def _extended(data: Array, type: TensorType) -> Array:
    assert type.encoding is not None
    bits = type.encoding.bitwidth
    low = data.astype(np.int64) & ((1 << bits) - 1)
    _, high = quantized_range(type.dtype, type.encoding)
    return np.where(low > high, low - (1 << bits), low).astype(type.dtype.numpy)
