# SPDX-License-Identifier: Apache-2.0
"""Codes: the errors of QNN's API that the device gives, and the exceptions that carry them."""

from __future__ import annotations

from enum import Enum, auto

from hexforge.errors import HexforgeError
from hexforge.qnn_api.error_codes import ErrorCode, code_named


class Code(Enum):
    """The codes that the device gives, as the headers spell them; the table of error codes has what they are."""

    QNN_COMMON_ERROR_NOT_SUPPORTED = auto()
    QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED = auto()
    QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED = auto()
    QNN_COMMON_ERROR_SYSTEM_COMMUNICATION = auto()
    QNN_COMMON_ERROR_LOADING_BINARIES = auto()
    QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE = auto()
    QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE = auto()
    QNN_CONTEXT_ERROR_MEM_ALLOC = auto()
    QNN_CONTEXT_ERROR_INVALID_ARGUMENT = auto()
    QNN_CONTEXT_ERROR_INVALID_HANDLE = auto()
    QNN_CONTEXT_ERROR_CREATE_FROM_BINARY = auto()
    QNN_CONTEXT_ERROR_INVALID_CONFIG = auto()
    QNN_CONTEXT_ERROR_BINARY_SUBOPTIMAL = auto()
    QNN_CONTEXT_ERROR_ABORTED = auto()
    QNN_CONTEXT_ERROR_TIMED_OUT = auto()
    QNN_GRAPH_ERROR_UNSUPPORTED_FEATURE = auto()
    QNN_GRAPH_ERROR_MEM_ALLOC = auto()
    QNN_GRAPH_ERROR_INVALID_ARGUMENT = auto()
    QNN_GRAPH_ERROR_INVALID_HANDLE = auto()
    QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST = auto()
    QNN_GRAPH_ERROR_INVALID_TENSOR = auto()
    QNN_GRAPH_ERROR_ABORTED = auto()
    QNN_GRAPH_ERROR_TIMED_OUT = auto()
    QNN_GRAPH_ERROR_DISABLED = auto()
    QNN_MEM_ERROR_INVALID_ARGUMENT = auto()
    QNN_MEM_ERROR_INVALID_HANDLE = auto()
    QNN_MEM_ERROR_ALREADY_REGISTERED = auto()
    QNN_MEM_ERROR_MAPPING = auto()
    QNN_MEM_ERROR_INVALID_SHAPE = auto()
    QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE = auto()
    QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT = auto()
    QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED_CONFIG = auto()

    @property
    def entry(self) -> ErrorCode:
        """The row of the table."""
        row = code_named(self.name)
        assert row is not None
        return row

    @property
    def number(self) -> int:
        """What the C API returns."""
        return self.entry.number


class DeviceError(HexforgeError):
    """A call to the device failed; `name` and `code` are QNN's."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{message} ({code.name}, {code.number})", code.number)
        self.name = code.name


class ProcessEndedError(HexforgeError):
    """The process that a call is of has ended: there is nobody whom a code could be told."""


def codes_table() -> str:
    """The codes as a table for the documentation."""
    rows = [f"| `{code.name}` | {code.number} | {code.entry.on_device} |" for code in Code]
    return "\n".join(["| code | number | when |", "|---|---:|---|", *rows])
