# SPDX-License-Identifier: Apache-2.0
"""QNN's enumerations, with the names of QnnTypes.h that ExecuTorch's Python code uses; the numbers are the table's."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from hexforge.qnn_api.enumerations import members_of


class _NumberedEnum(IntEnum):
    """A number that is written as the stock module writes it, with the names of its enumeration and of itself."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


def _of_table(name: str) -> Any:
    """An enumeration of QNN's, with the names and numbers that the table of enumerations has."""
    return _NumberedEnum(name, members_of(name), module=__name__)  # type: ignore[call-arg, arg-type]


Qnn_TensorType_t = _of_table("Qnn_TensorType_t")
"""Who writes and reads a tensor."""
Qnn_DataType_t = _of_table("Qnn_DataType_t")
"""Element type of a tensor."""
Qnn_QuantizationEncoding_t = _of_table("Qnn_QuantizationEncoding_t")
"""How integers of a tensor stand for real numbers."""
Qnn_Definition_t = _of_table("Qnn_Definition_t")
"""Whether something is defined."""
Qnn_BlockwiseExpansionBlockScaleStorageType_t = _of_table("Qnn_BlockwiseExpansionBlockScaleStorageType_t")
"""How the integer scales of blocks are stored."""
QnnNumber = IntEnum
"""A member of one of them."""


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
