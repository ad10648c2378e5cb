# SPDX-License-Identifier: Apache-2.0
"""QNN's enumerations, with the names and numbers of QnnTypes.h that ExecuTorch's Python code uses."""

from __future__ import annotations

from enum import IntEnum


class _QnnEnum(IntEnum):
    """A number that is written as the stock module writes it, with the names of its enumeration and of itself."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class Qnn_TensorType_t(_QnnEnum):  # noqa: N801 - QNN's name
    """Who writes and reads a tensor."""

    QNN_TENSOR_TYPE_APP_WRITE = 0
    QNN_TENSOR_TYPE_APP_READ = 1
    QNN_TENSOR_TYPE_APP_READWRITE = 2
    QNN_TENSOR_TYPE_NATIVE = 3
    QNN_TENSOR_TYPE_STATIC = 4
    QNN_TENSOR_TYPE_NULL = 5
    QNN_TENSOR_TYPE_UNDEFINED = 0x7FFFFFFF


class Qnn_DataType_t(_QnnEnum):  # noqa: N801 - QNN's name
    """Element type of a tensor."""

    QNN_DATATYPE_INT_8 = 0x0008
    QNN_DATATYPE_INT_16 = 0x0016
    QNN_DATATYPE_INT_32 = 0x0032
    QNN_DATATYPE_INT_64 = 0x0064
    QNN_DATATYPE_UINT_8 = 0x0108
    QNN_DATATYPE_UINT_16 = 0x0116
    QNN_DATATYPE_UINT_32 = 0x0132
    QNN_DATATYPE_UINT_64 = 0x0164
    QNN_DATATYPE_FLOAT_16 = 0x0216
    QNN_DATATYPE_FLOAT_32 = 0x0232
    QNN_DATATYPE_FLOAT_64 = 0x0264
    QNN_DATATYPE_SFIXED_POINT_4 = 0x0304
    QNN_DATATYPE_SFIXED_POINT_8 = 0x0308
    QNN_DATATYPE_SFIXED_POINT_16 = 0x0316
    QNN_DATATYPE_SFIXED_POINT_32 = 0x0332
    QNN_DATATYPE_UFIXED_POINT_4 = 0x0404
    QNN_DATATYPE_UFIXED_POINT_8 = 0x0408
    QNN_DATATYPE_UFIXED_POINT_16 = 0x0416
    QNN_DATATYPE_UFIXED_POINT_32 = 0x0432
    QNN_DATATYPE_BOOL_8 = 0x0508
    QNN_DATATYPE_STRING = 0x0608
    QNN_DATATYPE_UNDEFINED = 0x7FFFFFFF


class Qnn_QuantizationEncoding_t(_QnnEnum):  # noqa: N801 - QNN's name
    """How integers of a tensor stand for real numbers."""

    QNN_QUANTIZATION_ENCODING_SCALE_OFFSET = 0
    QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET = 1
    QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET = 2
    QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET = 3
    QNN_QUANTIZATION_ENCODING_BLOCK = 4
    QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION = 5
    QNN_QUANTIZATION_ENCODING_VECTOR = 6
    QNN_QUANTIZATION_ENCODING_UNDEFINED = 0x7FFFFFFF


class Qnn_Definition_t(_QnnEnum):  # noqa: N801 - QNN's name
    """Whether something is defined."""

    QNN_DEFINITION_IMPL_GENERATED = 0
    QNN_DEFINITION_DEFINED = 1
    QNN_DEFINITION_UNDEFINED = 0x7FFFFFFF


class Qnn_BlockwiseExpansionBlockScaleStorageType_t(_QnnEnum):  # noqa: N801 - QNN's name
    """How the integer scales of blocks are stored."""

    QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_8 = 0
    QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_16 = 1
    QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_UNDEFINED = 0x7FFFFFFF


class Error(_QnnEnum):
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
