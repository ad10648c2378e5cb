# SPDX-License-Identifier: Apache-2.0
"""Loss: failures of a device as plain errors; and how every session but the one at fault goes on.

A fault of one kernel ends the OpenCL context that all sessions of a process share. What a run computes depends on its
inputs alone, so a run that meets a failure is tried once more with everything made anew, in a new context where the old
one does not answer, and with nobody else on the device: a run that fails then is itself at fault, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from hexforge.addons.gpu.device import ClDevice, code_of, opencl
from hexforge.addons.gpu.resident.cuda import OUT_OF_MEMORY, CudaError, error_name
from hexforge.addons.gpu.resident.read_write_lock import NotAloneError
from hexforge.amounts import size
from hexforge.errors import CapacityError, HexforgeError, UnsupportedError

T = TypeVar("T")
_PATIENCE_S = 60.0
"""How long a run that is to be alone waits for the others at most."""
_LOG = logging.getLogger("hexforge")
_LOST, _FULL = 1007, 1002
"""QNN's codes: QNN_COMMON_ERROR_SYSTEM_COMMUNICATION and QNN_COMMON_ERROR_MEM_ALLOC."""
_FULL_NAMES = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """Memory that a graph takes on a device."""

    activations: int = 0
    constants: int = 0
    largest: int = 0
    """Bytes of its largest buffer."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An action of a graph on a device: its name, the memory that it needs, and how to release that."""

    device: ClDevice
    graph: str
    doing: str
    needs: Callable[[], MemoryNeeds]
    forget: Callable[[], None]

    def carried_out(self, action: Callable[[], T]) -> T:
        """What the action gives; a HexforgeError where the device cannot do it."""
        failure, result = self._tried(action, alone=False)
        if failure is None:
            return result[0]
        if not isinstance(failure, CapacityError):
            _LOG.warning("%s; it is tried once more, alone and with everything made anew", failure)
            with suppress(NotAloneError):  # a run that hangs on the lost device: the first failure is said
                failure, result = self._tried(action, alone=True)
            if failure is None:
                return result[0]
        raise failure  # outside of the handler: the first error's frames would keep buffers alive

    def _tried(self, action: Callable[[], T], alone: bool) -> tuple[HexforgeError | None, list[T]]:
        """The failure, or what the action gave."""
        with self.device.lock.alone(_PATIENCE_S) if alone else self.device.lock.shared():
            if alone:
                self.device.renew_if_lost()
            try:
                return None, [action()]
            except HexforgeError as error:
                if isinstance(error, CapacityError):
                    self.forget()
                raise
            except Exception as error:
                failure = self._failure(error)
                if failure is None:
                    raise
            self.forget()
            if alone:
                self.device.renew_if_lost()
        return failure, []

    def _failure(self, error: Exception) -> HexforgeError | None:
        """The error of OpenCL as one of hexforge's; None where it is something else."""
        name = status(error)
        if name is None:
            return None
        device, doing = self.device, f"while it {self.doing} graph {self.graph!r}"
        if name in _FULL_NAMES:
            needs = self.needs()
            return CapacityError(
                f"gpu device {device.name!r} is out of memory {doing} ({name}): the graph needs "
                f"{size(needs.activations + needs.constants)} (activations {size(needs.activations)}, constants "
                f"{size(needs.constants)}, its largest buffer {size(needs.largest)}), the device has "
                f"{size(device.memory_bytes)} for all sessions and buffers of at most {size(device.most_bytes)}; "
                "close other sessions, use gpu_precision=fp16, a smaller batch, or another gpu_device",
                _FULL,
            )
        return UnsupportedError(
            f"gpu device {device.name!r} was lost or failed {doing} ({name}, {_call(error)}); other sessions go on, "
            "and the next run of this one begins anew; if it fails every time, choose another gpu_device or the cpu "
            "backend",
            _LOST,
        )


def opencl_error(call: str, code: int) -> Exception:
    """An error of OpenCL that came as a number, as pyopencl would raise it."""
    cl = opencl()
    error: Exception = cl.RuntimeError(cl._cl._ErrorRecord(call, code, ""))
    return error


def status(error: Exception) -> str | None:
    """The name of the status of OpenCL or CUDA that an error is about; None where it is neither's."""
    cl = opencl()
    if isinstance(error, CudaError):
        return _FULL_NAMES[0] if error.code == OUT_OF_MEMORY else error_name(error.code)
    if isinstance(error, MemoryError):
        return _FULL_NAMES[1]
    if not isinstance(error, cl.Error):
        return None
    code = code_of(error)
    return str(cl.status_code.to_string(code, "status %d")) if code is not None else "an error of pyopencl"


def _call(error: Exception) -> str:
    """The call that failed, or the message of the error."""
    try:
        return f"in {error.routine}"  # type: ignore[attr-defined]
    except AttributeError:
        return (str(error).splitlines() or ["no reason given"])[0]
