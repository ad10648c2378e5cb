# SPDX-License-Identifier: Apache-2.0
"""DeviceSignal: ends a call before it is done, by `abort` or by itself after a time of the device's clock."""

from __future__ import annotations

from typing import Protocol

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.scheduling.clock import ClockTask, VirtualClock
from hexforge.errors import CallError


class Interruptible(Protocol):
    """A call that can be ended before it is done."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def interrupt(self, error: BaseException) -> None:
        """End it with an error."""
        ...


class DeviceSignal:
    """Qnn_SignalHandle_t: for one call at a time."""

    def __init__(self, timeout_us: float | None = None) -> None:
        if timeout_us is not None and not timeout_us > 0:
            raise CallError(f"timeout_us {timeout_us}: must be more than 0; without it a signal is only aborted")
        self._timeout_us = timeout_us
        self._task: Interruptible | None = None
        self._aborted: Code | None = None

    @property
    def timeout_us(self) -> float | None:
        """After how long it ends a call by itself."""
        return self._timeout_us

    def watch(self, clock: VirtualClock, task: ClockTask, *, creation: bool) -> None:
        """End this call when the signal is given, or its time is over."""
        if self.follow(task, creation=creation) and self._timeout_us is not None:
            code = Code.QNN_CONTEXT_ERROR_TIMED_OUT if creation else Code.QNN_GRAPH_ERROR_TIMED_OUT
            error = DeviceError(code, f"the call was not done after {self._timeout_us:g} us, the signal's timeout")
            timer = clock.after(self._timeout_us, task.interrupt, error)
            task.then(lambda _: clock.cancel(timer))

    def follow(self, task: Interruptible, *, creation: bool) -> bool:
        """End this call when the signal is given; False where it has another one."""
        if self._task is not None and not self._task.done:
            task.interrupt(DeviceError(Code.QNN_GRAPH_ERROR_INVALID_ARGUMENT, "the signal is in use by another call"))
            return False
        self._task = task
        self._aborted = Code.QNN_CONTEXT_ERROR_ABORTED if creation else Code.QNN_GRAPH_ERROR_ABORTED
        return True

    def abort(self) -> None:
        """End the call that it watches, if there is one."""
        if self._task is not None and self._aborted is not None:
            self._task.interrupt(DeviceError(self._aborted, "the call was aborted by its signal"))
