# SPDX-License-Identifier: Apache-2.0
"""Model file: a .tflite as checked data. Everything that a number in the file names is there when this has read it.

Names and numbers are those of tensorflow/compiler/mlir/lite/schema/schema.fbs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hexforge.errors import CapacityError, FormatError, UnsupportedError
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable
from hexforge.ir import Array

IDENTIFIER = b"TFL3"
CUSTOM = "CUSTOM"
OPERATORS = tuple(
    """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG
SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE
MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5
SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO
RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE
RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX
UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD
STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE
STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE
STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
""".split()
)
"""Every builtin operator, at the place that is its number."""
TYPES: dict[int, npt.DTypeLike] = {
    0: np.float32,
    1: np.float16,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    6: np.bool_,
    7: np.int16,
    9: np.int8,
    10: np.float64,
    12: np.uint64,
    15: np.uint32,
    16: np.uint16,
    17: ml_dtypes.int4,
    18: ml_dtypes.bfloat16,
    19: ml_dtypes.int2,
    20: ml_dtypes.uint4,
}
"""Types of tensors by number; the others (strings, complex numbers, resources, 8-bit floats) are in `OTHER_TYPES`."""
OTHER_TYPES = {
    5: "STRING",
    8: "COMPLEX64",
    11: "COMPLEX128",
    13: "RESOURCE",
    14: "VARIANT",
    21: "FLOAT8_E4M3FN",
    22: "FLOAT8_E5M2",
}
PACKED_BITS = {17: 4, 19: 2, 20: 4}
"""Types of which several elements share a byte."""


class FusedActivation(IntEnum):
    """What an operator applies to its result."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5


T = TypeVar("T")
MOST_RANK = 16
MOST_ELEMENTS = 1 << 31
"""Of one tensor; nothing that a phone runs has as many."""
LONGEST_VECTOR = 1 << 22
"""Of what is computed and has one dimension: onnx's shape inference looks at each of its elements."""


@dataclass(frozen=True, slots=True)
class TensorScales:
    """real = scale * (integer - zero point), one pair for all or one for each index of an axis."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class SparseDimension:
    """One level of a sparse tensor: dense with a size, or the segments and indices of what is there."""

    size: int
    segments: tuple[int, ...] | None
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sparsity:
    """The order in which a sparse tensor's dimensions are walked, blocks last."""

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    dimensions: tuple[SparseDimension, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a subgraph; `data` are the bytes of a constant, None for what is computed."""

    name: str
    type: int
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    """The shape with -1 where a size is open; empty where all are fixed."""
    data: memoryview | None
    quantization: TensorScales | None
    sparsity: Sparsity | None
    is_variable: bool

    @property
    def type_name(self) -> str:
        """The type in words."""
        return OTHER_TYPES.get(self.type) or np.dtype(TYPES[self.type]).name


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator: its name, its tensors by number (-1: none) and its options, still in their tables."""

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: FlatTable | None
    custom_options: memoryview
    is_custom: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """A function of the model: the first one is the model itself unless a signature says otherwise."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Names that an application calls a subgraph's inputs and outputs by."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class TfliteModel:
    """A whole file."""

    where: str
    description: str
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()
    metadata: Mapping[str, memoryview] = field(default_factory=dict)
    buffer_count: int = 0


def parse(content: bytes | memoryview, where: str) -> TfliteModel:
    """The model in the bytes of a file."""
    whole = memoryview(content)
    if bytes(whole[4:8]) != IDENTIFIER:
        raise FormatError(f"{where}: is no TensorFlow Lite model: it does not say TFL3 at its fourth byte", 4)
    root = Flatbuffer(whole, where).root()
    if (version := root.integer(0, "I")) != 3:
        raise root.fault(f"has version {version} of the schema; 3 is read, which converters write since 2017")
    buffers = [_buffer(table, whole) for table in root.tables(4)]
    codes = [_code(table) for table in root.tables(1)]
    subgraphs = tuple(_subgraph(table, buffers, codes) for table in root.tables(2))
    if not subgraphs:
        raise root.fault("has no subgraph, so nothing to run; get the file again")
    metadata = {}
    for table in root.tables(6):
        data = _item(table, buffers, table.integer(1, "I"), "a buffer")
        metadata[table.text(0) or ""] = memoryview(b"") if data is None else data
    signatures = tuple(_signature(table, subgraphs) for table in root.tables(7))
    return TfliteModel(where, root.text(3) or "", subgraphs, signatures, metadata, len(buffers))


def _buffer(table: FlatTable, whole: memoryview) -> memoryview | None:
    """The bytes of a buffer, which in files of 2 GB and more lie behind the flatbuffer; None for an empty one."""
    offset, size = table.integer(1, "Q"), table.integer(2, "Q")
    if offset > 1:
        if offset + size > len(whole):
            raise table.fault(f"has a buffer of {size} bytes at {offset}, outside its {len(whole)} bytes")
        return whole[offset : offset + size]
    data = table.raw(0)
    return data if data else None


def _code(table: FlatTable) -> tuple[str, int, bool]:
    """Name and version of an operator, and whether it is somebody's own; old files have the number in one byte."""
    number = max(table.integer(0, "b"), table.integer(3, "i"))
    if not 0 <= number < len(OPERATORS):
        raise table.fault(
            f"uses builtin operator {number}, which is newer than the schema read here (0 to {len(OPERATORS) - 1})"
        )
    name = OPERATORS[number]
    return (table.text(1) or CUSTOM if name == CUSTOM else name), table.integer(2, "i", 1), name == CUSTOM


def _subgraph(
    table: FlatTable, buffers: Sequence[memoryview | None], codes: Sequence[tuple[str, int, bool]]
) -> Subgraph:
    tensors = tuple(_tensor(t, number, buffers) for number, t in enumerate(table.tables(0)))

    def indices(of: FlatTable, field_number: int, optional: bool) -> tuple[int, ...]:
        found = of.numbers(field_number, "i")
        for index in found:
            if not (-1 if optional else 0) <= index < len(tensors):
                raise of.fault(f"names tensor {index} of a subgraph with {len(tensors)}")
        return found

    operators = []
    for entry in table.tables(3):
        name, version, custom = _item(entry, codes, entry.integer(0, "I"), "an operator code")
        options = entry.table(4) or entry.table(12)
        inputs, outputs, between = indices(entry, 1, True), indices(entry, 2, False), indices(entry, 8, True)
        own = entry.raw(5) or memoryview(b"")
        operators.append(Operator(name, version, inputs, outputs, between, options, own, custom))
    return Subgraph(table.text(4) or "", tensors, indices(table, 1, False), indices(table, 2, False), tuple(operators))


def _tensor(table: FlatTable, number: int, buffers: Sequence[memoryview | None]) -> Tensor:
    shape, kind = table.numbers(0, "i"), table.integer(1, "b")
    name = table.text(3) or f"tensor_{number}"
    if kind not in TYPES and kind not in OTHER_TYPES:
        raise table.fault(f"tensor {name!r} has type {kind}, which the schema read here does not have")
    if len(shape) > MOST_RANK or any(size < 0 for size in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise table.fault(f"tensor {name!r} has shape {list(shape)[:MOST_RANK]}, which no sound file has")
    if len(shape) == 1 and shape[0] > LONGEST_VECTOR and not table.integer(2, "I"):
        raise table.fault(f"tensor {name!r} is a vector of {shape[0]} elements; at most {LONGEST_VECTOR} are read")
    if table.integer(10, "I"):
        raise table.fault(f"tensor {name!r} lies in another file; convert the model again with its weights inside")
    data = _item(table, buffers, table.integer(2, "I"), "a buffer")
    quantization, sparsity = table.table(4), table.table(6)
    return Tensor(
        name,
        kind,
        shape,
        table.numbers(7, "i"),
        data,
        None if quantization is None else _quantization(quantization, shape, name),
        None if sparsity is None else _sparsity(sparsity, len(shape)),
        table.flag(5),
    )


def _quantization(table: FlatTable, shape: tuple[int, ...], name: str) -> TensorScales | None:
    scales = table.numbers(2, "f")
    zero_points = table.numbers(3, "q")
    if table.integer(4, "B") > 1:
        raise table.fault(f"tensor {name!r} has one scale for each block, which is not translated; use per-channel")
    if not scales:
        return None
    axis = table.integer(6, "i")
    if len(scales) > 1 and (not 0 <= axis < len(shape) or shape[axis] != len(scales)):
        raise table.fault(f"tensor {name!r} of shape {list(shape)} has {len(scales)} scales along axis {axis}")
    if any(not math.isfinite(scale) or scale < 0 for scale in scales):
        raise table.fault(f"tensor {name!r} has a scale that is no positive number")
    if len(zero_points) not in (0, 1, len(scales)):
        raise table.fault(f"tensor {name!r} has {len(scales)} scales and {len(zero_points)} zero points")
    full = zero_points * len(scales) if len(zero_points) == 1 else zero_points or (0,) * len(scales)
    return TensorScales(tuple(map(float, scales)), full, axis)


_INDEX_CODES = {1: "i", 2: "H", 3: "B"}


def _sparsity(table: FlatTable, rank: int) -> Sparsity:
    order, blocks = table.numbers(0, "i"), table.numbers(1, "i")
    dimensions = tuple(_sparse_dimension(entry) for entry in table.tables(2))
    if sorted(order) != list(range(rank + len(blocks))) or len(dimensions) != len(order):
        raise table.fault("has a sparse tensor whose dimensions do not match its shape")
    if any(not 0 <= axis < rank for axis in blocks):
        raise table.fault("has a sparse tensor with a block along a dimension that it has not")
    return Sparsity(order, blocks, dimensions)


def _sparse_dimension(table: FlatTable) -> SparseDimension:
    if table.integer(0, "b") == 0:
        return SparseDimension(table.integer(1, "i"), None, ())
    parts = []
    for number in (2, 4):
        kind, vector = table.union(number)
        if kind not in _INDEX_CODES:
            raise table.fault(f"has a sparse tensor with indices of kind {kind}, which the schema has not")
        parts.append(vector.numbers(0, _INDEX_CODES[kind]))
    return SparseDimension(0, parts[0], parts[1])


def _signature(table: FlatTable, subgraphs: Sequence[Subgraph]) -> Signature:
    number = table.integer(4, "I")
    tensors = _item(table, subgraphs, number, "a subgraph").tensors
    sides: list[dict[str, int]] = []
    for side in (0, 1):
        named = {entry.text(0) or "": entry.integer(1, "I") for entry in table.tables(side)}
        for index in named.values():
            _item(table, tensors, index, "a tensor")
        sides.append(named)
    return Signature(table.text(2) or "", number, *sides)


def _item(table: FlatTable, items: Sequence[T], number: int, what: str) -> T:
    if not 0 <= number < len(items):
        raise table.fault(f"names {what} by number {number}, and has {len(items)}")
    return items[number]


# -- constants --------------------------------------------------------------------------------------------------------

MOST_DENSE_BYTES = 1 << 30
"""Of a sparse tensor made dense, whose file may be small."""


def array_of(tensor: Tensor, where: str) -> Array:
    """The values of a constant, as integers where it is quantized."""
    data = memoryview(b"") if tensor.data is None else tensor.data
    if tensor.type in OTHER_TYPES:
        raise UnsupportedError(f"{where}: constant {tensor.name!r} is of type {tensor.type_name}, which ONNX has not")
    dtype = np.dtype(TYPES[tensor.type])
    if tensor.sparsity is not None:
        return _dense(tensor, tensor.sparsity, dtype, where)
    count = math.prod(tensor.shape)
    bits = PACKED_BITS.get(tensor.type)
    wanted = count * dtype.itemsize if bits is None else -(-count * bits // 8)
    if len(data) != wanted:
        raise FormatError(
            f"{where}: constant {tensor.name!r} of shape {list(tensor.shape)} and type {tensor.type_name} has "
            f"{len(data)} bytes, not {wanted}; the file is damaged"
        )
    values = _unpacked(data, bits, dtype)[:count] if bits is not None else np.frombuffer(data, dtype)
    return values.reshape(tensor.shape)


def _unpacked(data: memoryview, bits: int, dtype: np.dtype) -> Array:
    """Elements of a few bits, the first in the lowest."""
    packed, mask = np.frombuffer(data, np.uint8), (1 << bits) - 1
    wide = np.stack([packed >> shift & mask for shift in range(0, 8, bits)], axis=-1).reshape(-1)
    if not dtype.name.startswith("uint"):
        wide = ((wide ^ (1 << bits - 1)).astype(np.int8) - (1 << bits - 1)).astype(np.int8)
    return wide.astype(dtype)


def _dense(tensor: Tensor, sparsity: Sparsity, dtype: np.dtype, where: str) -> Array:
    """A sparse tensor with its zeros: levels are walked in their order, then blocks are put in their places."""
    damaged = FormatError(f"{where}: sparse constant {tensor.name!r} does not fit its shape; the file is damaged")
    rank = len(tensor.shape)
    if math.prod(tensor.shape) * dtype.itemsize > MOST_DENSE_BYTES:
        raise CapacityError(f"{where}: sparse constant {tensor.name!r} takes more than 1 GiB without its gaps")
    block_sizes = {
        rank + i: sparsity.dimensions[sparsity.order.index(rank + i)].size for i in range(len(sparsity.blocks))
    }
    sizes = list(tensor.shape)
    for i, axis in enumerate(sparsity.blocks):
        block = block_sizes[rank + i]
        if block <= 0 or sizes[axis] % block:
            raise damaged
        sizes[axis] //= block
    sizes += [block_sizes[rank + i] for i in range(len(sparsity.blocks))]
    positions = np.zeros((1, 0), np.int64)
    most = max(len(tensor.data or b""), *(len(level.segments or ()) for level in sparsity.dimensions))
    for axis, level in zip(sparsity.order, sparsity.dimensions, strict=True):
        if level.segments is None:
            if level.size != sizes[axis] or len(positions) * level.size > most:
                raise damaged
            index = np.tile(np.arange(level.size), len(positions))
            owner = np.repeat(np.arange(len(positions)), level.size)
        else:
            segments, indices = np.array(level.segments, np.int64), np.array(level.indices, np.int64)
            if len(segments) != len(positions) + 1 or segments[0] != 0 or segments[-1] != len(indices):
                raise damaged
            if (np.diff(segments) < 0).any() or ((indices < 0) | (indices >= sizes[axis])).any():
                raise damaged
            index, owner = indices, np.repeat(np.arange(len(positions)), np.diff(segments))
        positions = np.concatenate([positions[owner], index[:, None]], axis=1)
    assert tensor.data is not None
    if len(tensor.data) != len(positions) * dtype.itemsize:
        raise damaged
    by_axis = positions[:, np.argsort(sparsity.order)]
    place = by_axis[:, :rank].copy()
    for i, axis in enumerate(sparsity.blocks):
        place[:, axis] = place[:, axis] * block_sizes[rank + i] + by_axis[:, rank + i]
    dense = np.zeros(tensor.shape, dtype)
    dense[tuple(place.T)] = np.frombuffer(tensor.data, dtype)
    return dense
