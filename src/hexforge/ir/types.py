# SPDX-License-Identifier: Apache-2.0
"""Data types, encodings and tensor types: frozen leaves of the IR; and the elements of tensors as bytes."""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from hexforge.errors import FormatError, ModelError

MANY = 4096
"""More numbers than these are an array, fewer a tuple: equal ones are then of one kind."""
_PIECE = 1 << 16
_KINDS = {"f": ("float16", "float32", "float64"), "i": ("int8", "int16", "int32", "int64")}
KINDS = tuple(kind for kinds in _KINDS.values() for kind in kinds)
"""The types that numbers are kept in: the smallest that holds all of them exactly."""


class NumberArray(Sequence[Any]):
    """Floats or integers that never change, as an array of the smallest type that holds them."""

    __slots__ = ("array",)

    def __init__(self, values: Any) -> None:
        given = np.asarray(values).reshape(-1)
        self.array = next(
            kept for kind in _KINDS["f" if given.dtype.kind == "f" else "i"] for kept in _kept(given, kind)
        )
        self.array.flags.writeable = False

    def __len__(self) -> int:
        return int(self.array.size)

    def __getitem__(self, index: Any) -> Any:
        part = self.array[index]
        return tuple(part.tolist()) if isinstance(part, np.ndarray) else part.item()

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, self.array.size, _PIECE):
            yield from self.array[first : first + _PIECE].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.array.astype(self.array.dtype if dtype is None else dtype, copy=bool(copy))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberArray) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.dtype.str, self.array.tobytes()))

    def __repr__(self) -> str:
        return f"NumberArray({len(self)} of {self.array.dtype.name})"


def _kept(values: np.ndarray[Any, Any], kind: str) -> Iterator[np.ndarray[Any, Any]]:
    """The numbers as a smaller type, where that holds them."""
    with np.errstate(over="ignore", invalid="ignore"):
        kept = values.astype(kind)
    if np.array_equal(kept, values) or kept.dtype == np.promote_types(values.dtype, kind):
        yield kept


def many(values: Sequence[Any]) -> Sequence[Any]:
    """A sequence as encodings have it: a tuple, or an array of many."""
    if len(values) > MANY:
        return values if isinstance(values, NumberArray) else NumberArray(values)
    return values if isinstance(values, tuple) else tuple(values)


Array = NDArray[Any]


class DType(enum.Enum):
    """Element type of a tensor; fixed-point is an integer type plus an encoding."""

    INT4 = "int4"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT4 = "uint4"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    BOOL = "bool"

    bits: int
    """Width of one element as QNN stores it."""
    is_float: bool
    """True for float16, bfloat16 and float32."""
    is_integer: bool
    """True for signed and unsigned integers, not for bool."""
    is_signed: bool
    """True for signed integers and floats."""

    def __init__(self, name: str) -> None:
        self.bits = 8 if name == "bool" else int(name.lstrip("bfuinloat"))
        self.is_float, self.is_integer = "float" in name, "int" in name
        self.is_signed = not name.startswith("u") and name != "bool"

    __hash__ = object.__hash__  # members are what they are; hashing their names takes longer than looking them up

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy (or ml_dtypes) type that holds one element."""
        return _NUMPY[self]

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest integer of an integer type."""
        if not self.is_integer:
            raise TypeError(f"{self.value} has no integer range")
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.is_signed else (0, (1 << self.bits) - 1)

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """The DType of a numpy dtype; ModelError for a type QNN has no tensor of."""
        member = _FROM_NUMPY.get(np.dtype(dtype))
        if member is None:
            raise ModelError(f"QNN has no tensor data type for {np.dtype(dtype).name}")
        return member

    def qnn_name(self, fixed_point: bool = False) -> str:
        """QNN's name, e.g. QNN_DATATYPE_UFIXED_POINT_8."""
        if self is DType.BOOL:
            return "QNN_DATATYPE_BOOL_8"
        if self.is_float:
            return f"QNN_DATATYPE_{'BFLOAT' if self is DType.BFLOAT16 else 'FLOAT'}_{self.bits}"
        sign = "" if self.is_signed else "U"
        if fixed_point:
            return f"QNN_DATATYPE_{sign or 'S'}FIXED_POINT_{self.bits}"
        return f"QNN_DATATYPE_{sign}INT_{self.bits}"


_NUMPY: dict[DType, np.dtype[Any]] = {
    d: np.dtype(getattr(ml_dtypes, d.value)) if d.value in ("int4", "uint4", "bfloat16") else np.dtype(d.value)
    for d in DType
}
_FROM_NUMPY = {v: k for k, v in _NUMPY.items()}


@dataclass(frozen=True, slots=True)
class ScaleOffset:
    """One scale and offset for the tensor: real = scale * (q + offset); offset = -zero_point."""

    scale: float
    offset: int = 0
    bitwidth: int = 0  # 0: all bits of the data type; otherwise values use only this many (QNN's BW_ encodings)

    @property
    def qnn_name(self) -> str:
        """QNN's name of this encoding."""
        return "QNN_QUANTIZATION_ENCODING_" + ("BW_SCALE_OFFSET" if self.bitwidth else "SCALE_OFFSET")


@dataclass(frozen=True, slots=True)
class AxisScaleOffset:
    """One scale and offset per slice along `axis`."""

    axis: int
    scales: tuple[float, ...]
    offsets: tuple[int, ...]
    bitwidth: int = 0

    @property
    def qnn_name(self) -> str:
        """QNN's name of this encoding."""
        return "QNN_QUANTIZATION_ENCODING_" + ("BW_AXIS_SCALE_OFFSET" if self.bitwidth else "AXIS_SCALE_OFFSET")


@dataclass(frozen=True, slots=True)
class BlockwiseExpansion:
    """LPBQ: a float scale per slice along `axis` times a small integer scale per block within the slice.

    The other axis of the (two-dimensional view of the) weight is cut into `len(block_scales) / len(scales)` blocks;
    `block_scales` lists them slice by slice. real = scales[c] * block_scales[c][b] * (q + offsets[c]).
    """

    axis: int
    block_axis: int
    scales: tuple[float, ...]
    offsets: tuple[int, ...]
    block_scales: Sequence[int]
    bitwidth: int = 4
    block_scale_bitwidth: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_scales", many(self.block_scales))

    @property
    def qnn_name(self) -> str:
        """QNN's name of this encoding."""
        return "QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION"


@dataclass(frozen=True, slots=True)
class Block:
    """A float scale and offset per block; `block_shape` divides the tensor's shape, blocks in row-major order."""

    block_shape: tuple[int, ...]
    scales: Sequence[float]
    offsets: Sequence[int]
    bitwidth: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", many(self.scales))
        object.__setattr__(self, "offsets", many(self.offsets))

    @property
    def qnn_name(self) -> str:
        """QNN's name of this encoding."""
        return "QNN_QUANTIZATION_ENCODING_BLOCK"


Encoding = ScaleOffset | AxisScaleOffset | BlockwiseExpansion | Block


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type, shape and, for fixed point, encoding of a tensor."""

    dtype: DType
    shape: tuple[int, ...]
    encoding: Encoding | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor as QNN stores it (4-bit types packed two to a byte)."""
        return (self.size * self.dtype.bits + 7) // 8

    @property
    def qnn_dtype(self) -> str:
        """QNN's data type name, fixed-point where there is an encoding."""
        return self.dtype.qnn_name(self.encoding is not None)

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        """The same element type and encoding in another shape."""
        return TensorType(self.dtype, shape, self.encoding)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(map(str, self.shape))}]"


_NIBBLES = (DType.INT4, DType.UINT4)


def pack(data: Array, dtype: DType) -> bytes:
    """The elements as QNN stores them: little-endian, row-major, 4-bit types two to a byte (low nibble first)."""
    flat = np.ascontiguousarray(data).reshape(-1)
    if dtype in _NIBBLES:
        nibbles = flat.astype(np.int8).view(np.uint8) & 15
        nibbles = np.append(nibbles, np.zeros(len(nibbles) % 2, np.uint8))
        return (nibbles[::2] | nibbles[1::2] << 4).tobytes()
    return (flat.byteswap() if sys.byteorder == "big" else flat).tobytes()


def unpack(raw: bytes | memoryview, type: TensorType) -> Array:
    """The array whose `pack` bytes are `raw`, which must be exactly as many as the type has."""
    if len(raw) != type.nbytes:
        raise FormatError(f"{type} has {type.nbytes} bytes, not {len(raw)}")
    if type.dtype in _NIBBLES:
        pairs = np.frombuffer(raw, np.uint8)
        nibbles = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1)[: type.size]
        if type.dtype is DType.INT4:
            nibbles = (nibbles.astype(np.int8) ^ 8) - 8
        return nibbles.astype(type.dtype.numpy).reshape(type.shape)
    if type.dtype is DType.BOOL and bytes(raw).translate(None, b"\0\1"):
        raise FormatError(f"{type} has bytes other than 0 and 1")
    flat = np.frombuffer(raw, type.dtype.numpy)
    return (flat.byteswap() if sys.byteorder == "big" else flat).reshape(type.shape)
