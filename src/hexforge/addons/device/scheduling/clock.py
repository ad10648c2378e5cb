# SPDX-License-Identifier: Apache-2.0
"""VirtualClock: a small discrete-event kernel. Nothing waits for real time; the same calls give the same events.

A task is a generator that yields what it waits for: microseconds, or a `Pending` whose result it is then sent.
"""

from __future__ import annotations

import heapq
import inspect
import math
from collections.abc import Callable, Generator
from typing import Any

from hexforge.errors import HexforgeError

Waits = Generator["float | Pending", Any, Any]
"""A task on its way."""


class Pending:
    """A result that comes later."""

    __slots__ = ("_then", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._then: list[Callable[[Pending], None]] = []

    def resolve(self, value: Any = None) -> None:
        """The result is there."""
        if not self.done:
            self.done, self.value = True, value
            self._tell()

    def fail(self, error: BaseException) -> None:
        """There will be no result."""
        if not self.done:
            self.done, self.error = True, error
            self._tell()

    def then(self, call: Callable[[Pending], None]) -> None:
        """Call a function when the result is there; at once where it already is."""
        if self.done:
            call(self)
        else:
            self._then.append(call)

    def result(self) -> Any:
        """The result, or its error raised."""
        if self.error is not None:
            raise self.error
        return self.value

    def _tell(self) -> None:
        waiting, self._then = self._then, []
        for call in waiting:
            call(self)


Timer = list[Any]
"""A call that is to come; `VirtualClock.cancel` takes it back."""


class VirtualClock:
    """Virtual microseconds, and what is to happen at which of them."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.count = 0
        """Events that have happened."""
        self._heap: list[Timer] = []
        self._number = 0
        self._when_idle: list[Callable[[], bool]] = []
        self._runs_to_end = False

    @property
    def free_until_us(self) -> float:
        """Until when nothing else happens and nobody looks, so that time may be passed without an event for it.

        That is the time of the next event while everything runs to its end, and now where somebody may stop before.
        """
        if not self._runs_to_end:
            return self.now_us
        return self._heap[0][0] if self._heap else math.inf

    def pass_to(self, us: float) -> None:
        """Let time pass to a moment before `free_until_us`, as an event that only goes on would."""
        self.now_us = us
        self.count += 1

    def at(self, us: float, call: Callable[..., Any], *arguments: Any) -> Timer:
        """Call a function at a time; calls of the same time run in the order in which they were made."""
        self._number += 1
        timer: Timer = [us, self._number, call, arguments]
        heapq.heappush(self._heap, timer)
        return timer

    def after(self, us: float, call: Callable[..., Any], *arguments: Any) -> Timer:
        """Call something so many microseconds from now."""
        return self.at(self.now_us + us, call, *arguments)

    def cancel(self, timer: Timer) -> None:
        """Take a call back."""
        timer[2] = None

    def when_idle(self, call: Callable[[], bool]) -> None:
        """Call a function whenever nothing is left to happen; True where it has made something happen."""
        self._when_idle.append(call)

    def step(self) -> bool:
        """Let the next event happen; False where none is left."""
        while self._heap:
            us, _, call, arguments = heapq.heappop(self._heap)
            if call is not None:
                self.now_us = us
                self.count += 1
                call(*arguments)
                return True
        return any(call() for call in self._when_idle)

    def run(self, until_us: float = math.inf) -> None:
        """Let everything happen that is to happen until then."""
        if until_us == math.inf:
            before, self._runs_to_end = self._runs_to_end, True
            try:
                while self.step():
                    pass
            finally:
                self._runs_to_end = before
            return
        while self._heap and self._heap[0][0] <= until_us:
            if self._heap[0][2] is None:
                heapq.heappop(self._heap)
            else:
                self.step()
        self.now_us = max(self.now_us, until_us)

    def wait(self, pending: Pending) -> Any:
        """Let time pass until a result is there."""
        while not pending.done:
            if not self.step():
                raise HexforgeError("the device waits for something that never comes: nothing is left to happen")
        return pending.result()

    def start(self, waits: Waits) -> ClockTask:
        """Start a task; it runs until it first waits."""
        task = ClockTask(self, waits)
        task.go(None, None)
        return task


class ClockTask(Pending):
    """A generator that runs on the clock; its result is what it returns."""

    __slots__ = ("_clock", "_timer", "_waits", "_wanted")

    def __init__(self, clock: VirtualClock, waits: Waits) -> None:
        super().__init__()
        self._clock, self._waits = clock, waits
        self._timer: Timer | None = None
        self._wanted: Pending | None = None

    @property
    def running(self) -> bool:
        """Whether it runs at this moment, and does not wait."""
        return inspect.getgeneratorstate(self._waits) == inspect.GEN_RUNNING

    def detach(self) -> None:
        """Wait for nothing any more: only `interrupt` lets it go on."""
        if self._timer is not None:
            self._clock.cancel(self._timer)
        self._timer, self._wanted = None, None

    def interrupt(self, error: BaseException) -> None:
        """Raise an error in the task where it waits; nothing where it has ended."""
        if self.done:
            return
        self.detach()
        self.go(None, error)

    def go(self, value: Any, error: BaseException | None) -> None:
        """Let it run until it waits again, or ends."""
        try:
            wanted = self._waits.throw(error) if error is not None else self._waits.send(value)
        except StopIteration as end:
            self.resolve(end.value)
        except HexforgeError as failed:
            self.fail(failed)
        else:
            if isinstance(wanted, Pending):
                self._wanted = wanted
                wanted.then(self._on_result)
            else:
                self._timer = self._clock.after(wanted, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.go(None, None)

    def _on_result(self, pending: Pending) -> None:
        if pending is self._wanted:  # else the task was interrupted and waits for something else, or for nothing
            self._wanted = None
            self.go(pending.value, pending.error)
