# SPDX-License-Identifier: Apache-2.0
"""QNN's enumerations, with the names of QnnTypes.h that ExecuTorch's Python code uses; the numbers are the table's."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

from hexforge.qnn_api.enumerations import value_of


class _NumberedEnum(IntEnum):
    """A number that is written as the stock module writes it, with the names of its enumeration and of itself."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class _QnnEnum(_NumberedEnum):
    """An enumeration of QNN's: the table of enumerations has the numbers of its names."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> int:
        return value_of(name)


class Qnn_TensorType_t(_QnnEnum):  # noqa: N801 - QNN's name
    """Who writes and reads a tensor."""

    QNN_TENSOR_TYPE_APP_WRITE = auto()
    QNN_TENSOR_TYPE_APP_READ = auto()
    QNN_TENSOR_TYPE_APP_READWRITE = auto()
    QNN_TENSOR_TYPE_NATIVE = auto()
    QNN_TENSOR_TYPE_STATIC = auto()
    QNN_TENSOR_TYPE_NULL = auto()
    QNN_TENSOR_TYPE_UNDEFINED = auto()


class Qnn_DataType_t(_QnnEnum):  # noqa: N801 - QNN's name
    """Element type of a tensor."""

    QNN_DATATYPE_INT_8 = auto()
    QNN_DATATYPE_INT_16 = auto()
    QNN_DATATYPE_INT_32 = auto()
    QNN_DATATYPE_INT_64 = auto()
    QNN_DATATYPE_UINT_8 = auto()
    QNN_DATATYPE_UINT_16 = auto()
    QNN_DATATYPE_UINT_32 = auto()
    QNN_DATATYPE_UINT_64 = auto()
    QNN_DATATYPE_FLOAT_16 = auto()
    QNN_DATATYPE_FLOAT_32 = auto()
    QNN_DATATYPE_FLOAT_64 = auto()
    QNN_DATATYPE_SFIXED_POINT_4 = auto()
    QNN_DATATYPE_SFIXED_POINT_8 = auto()
    QNN_DATATYPE_SFIXED_POINT_16 = auto()
    QNN_DATATYPE_SFIXED_POINT_32 = auto()
    QNN_DATATYPE_UFIXED_POINT_4 = auto()
    QNN_DATATYPE_UFIXED_POINT_8 = auto()
    QNN_DATATYPE_UFIXED_POINT_16 = auto()
    QNN_DATATYPE_UFIXED_POINT_32 = auto()
    QNN_DATATYPE_BOOL_8 = auto()
    QNN_DATATYPE_STRING = auto()
    QNN_DATATYPE_UNDEFINED = auto()


class Qnn_QuantizationEncoding_t(_QnnEnum):  # noqa: N801 - QNN's name
    """How integers of a tensor stand for real numbers."""

    QNN_QUANTIZATION_ENCODING_SCALE_OFFSET = auto()
    QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET = auto()
    QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET = auto()
    QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET = auto()
    QNN_QUANTIZATION_ENCODING_BLOCK = auto()
    QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION = auto()
    QNN_QUANTIZATION_ENCODING_VECTOR = auto()
    QNN_QUANTIZATION_ENCODING_UNDEFINED = auto()


class Qnn_Definition_t(_QnnEnum):  # noqa: N801 - QNN's name
    """Whether something is defined."""

    QNN_DEFINITION_IMPL_GENERATED = auto()
    QNN_DEFINITION_DEFINED = auto()
    QNN_DEFINITION_UNDEFINED = auto()


class Qnn_BlockwiseExpansionBlockScaleStorageType_t(_QnnEnum):  # noqa: N801 - QNN's name
    """How the integer scales of blocks are stored."""

    QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_8 = auto()
    QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_16 = auto()
    QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_UNDEFINED = auto()


class Error(_NumberedEnum):
    """ExecuTorch's error codes."""

    Ok = 0
    Internal = 1
    InvalidState = 2
    EndOfMethod = 3
    NotSupported = 16
    NotImplemented = 17
    InvalidArgument = 18
    InvalidType = 19
    OperatorMissing = 20
    NotFound = 32
    MemoryAllocationFailed = 33
    AccessFailed = 34
    InvalidProgram = 35
    DelegateInvalidCompatibility = 48
    DelegateMemoryAllocationFailed = 49
    DelegateInvalidHandle = 50
