# SPDX-License-Identifier: Apache-2.0
"""Codes: the errors of QNN's API by name and number, and what raises each here."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from hexforge.errors import HexforgeError


class _Entry(NamedTuple):
    number: int
    about: str


class Code(Enum):
    """QNN_*_ERROR_*: the name as the headers spell it, the number, and when the device gives it."""

    QNN_COMMON_ERROR_NOT_SUPPORTED = _Entry(1000, "the chip or the platform lacks what is asked for")
    QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED = _Entry(
        1005, "a restricted priority, or graphs run at the same time that must not be"
    )
    QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED = _Entry(1006, "a call that this platform does not have")
    QNN_COMMON_ERROR_SYSTEM_COMMUNICATION = _Entry(1007, "the subsystem or the process domain crashed (SSR)")
    QNN_COMMON_ERROR_LOADING_BINARIES = _Entry(
        1009, "a second copy of the backend library in one process, or a signed process domain without a signed image"
    )
    QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE = _Entry(1010, "no more cDSP session, or no more VTCM, can be had")
    QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE = _Entry(1000, "a context option that excludes another, or needs more")
    QNN_CONTEXT_ERROR_MEM_ALLOC = _Entry(1002, "a context fits into no session, or a callback gave no memory")
    QNN_CONTEXT_ERROR_INVALID_ARGUMENT = _Entry(5000, "an argument of QnnContext_* is wrong")
    QNN_CONTEXT_ERROR_INVALID_HANDLE = _Entry(5002, "the context was freed, or never was")
    QNN_CONTEXT_ERROR_CREATE_FROM_BINARY = _Entry(5005, "the binary cannot run on this chip")
    QNN_CONTEXT_ERROR_INVALID_CONFIG = _Entry(5010, "an option of a context has a value it cannot have")
    QNN_CONTEXT_ERROR_BINARY_SUBOPTIMAL = _Entry(5011, "the binary does not use all the chip has, and must (STRICT)")
    QNN_CONTEXT_ERROR_ABORTED = _Entry(5012, "a signal aborted the creation")
    QNN_CONTEXT_ERROR_TIMED_OUT = _Entry(5013, "a signal's timeout ended the creation")
    QNN_GRAPH_ERROR_UNSUPPORTED_FEATURE = _Entry(1000, "a graph option that the chip, or the context, does not allow")
    QNN_GRAPH_ERROR_MEM_ALLOC = _Entry(1002, "a graph that is switched in fits into the session no more")
    QNN_GRAPH_ERROR_INVALID_ARGUMENT = _Entry(6000, "an argument of QnnGraph_* is wrong")
    QNN_GRAPH_ERROR_INVALID_HANDLE = _Entry(6001, "the graph's context was freed, or never was")
    QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST = _Entry(6002, "the context has no graph of that name")
    QNN_GRAPH_ERROR_INVALID_TENSOR = _Entry(6004, "a tensor has a wrong name, type, shape or batch multiple")
    QNN_GRAPH_ERROR_ABORTED = _Entry(6031, "a signal aborted the execution")
    QNN_GRAPH_ERROR_TIMED_OUT = _Entry(6033, "a signal's timeout ended the execution")
    QNN_GRAPH_ERROR_DISABLED = _Entry(6035, "the graph is not among enable_graphs")
    QNN_MEM_ERROR_INVALID_ARGUMENT = _Entry(8000, "a descriptor of QnnMem_register is wrong")
    QNN_MEM_ERROR_INVALID_HANDLE = _Entry(8001, "the memory, or its context, is not registered")
    QNN_MEM_ERROR_ALREADY_REGISTERED = _Entry(8002, "the tensor has this memory already")
    QNN_MEM_ERROR_MAPPING = _Entry(8003, "the context's session has no room to map the buffer")
    QNN_MEM_ERROR_INVALID_SHAPE = _Entry(8004, "the tensor does not lie inside the buffer, or at an odd address")
    QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE = _Entry(8005, "memory that is no shared buffer")
    QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT = _Entry(
        13001, "a power config id, a field, or an HMX vote without an HVX vote (INVALID_INPUT)"
    )
    QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED_CONFIG = _Entry(13002, "a power option this chip or platform lacks")

    @property
    def number(self) -> int:
        """What the C API returns."""
        return self.value.number

    @property
    def about(self) -> str:
        """When the device gives it."""
        return self.value.about


class DeviceError(HexforgeError):
    """A call to the device failed; `name` and `code` are QNN's."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{message} ({code.name}, {code.number})", code.number)
        self.name = code.name


class ProcessEndedError(HexforgeError):
    """The process that a call is of has ended: there is nobody whom a code could be told."""


def codes_table() -> str:
    """The codes as a table for the documentation."""
    rows = [f"| `{code.name}` | {code.number} | {code.about} |" for code in Code]
    return "\n".join(["| code | number | when |", "|---|---:|---|", *rows])
