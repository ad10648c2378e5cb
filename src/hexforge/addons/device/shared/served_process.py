# SPDX-License-Identifier: Apache-2.0
"""ServedProcess: the calls of one program on a shared device: each request is one of QNN's calls in its process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from hexforge.addons.device.api import Qnn
from hexforge.addons.device.scheduling.clock import Pending
from hexforge.addons.device.shared.messages import Message
from hexforge.addons.device.shared.request_fields import ANSWERS, ProcessHandles, read_request
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Client
from hexforge.errors import CallError
from hexforge.formats.validated import Count, arguments
from hexforge.options import did_you_mean
from hexforge.qnn_api.calls import messages

MOST_CALLS = 1000
"""That one program may have begun and not waited for."""
Answer = Callable[[Any], Any]
"""What of a call's result is sent."""
ABORT = "abort"
"""The request that ends another one; everything else that a program can ask for is a row of the table of calls."""


class BegunCalls(Qnn):
    """Calls that nobody waits for here: of one that takes time `begun` is what has begun."""

    begun: Pending

    def wait(self, pending: Pending) -> Any:
        """Do not wait."""
        self.begun = pending


class ServedProcess:
    """A process of the device, and what its program has begun there."""

    def __init__(self, client: Client) -> None:
        self.client, self.qnn = client, BegunCalls(client)
        self._begun: dict[int, tuple[Pending, Answer]] = {}
        self._signals: dict[int, DeviceSignal] = {}
        self._handles = ProcessHandles(client)
        self._ever = 0

    def do(self, name: str, given: Message) -> Any:
        """Do what a request asks for; what comes later is a call with a number, and is waited for."""
        if name == ABORT:
            return self._abort(**arguments(self._abort, given, f"request {name}"))
        call = messages().get(name)
        if call is None:
            known = [*messages(), ABORT]
            raise CallError(f"request: do is {name!r}; it is one of {', '.join(known)}{did_you_mean(name, known)}")
        asked = read_request(self._handles, call, given)
        method = getattr(self.qnn, call.name)
        bound = inspect.signature(method).bind_partial()
        bound.arguments |= asked
        made = method(*bound.args, **bound.kwargs)
        if call.answer == "contexts":
            return [self._begin(task, ANSWERS["context"], None) for task in made]
        answer = ANSWERS[call.answer]
        if not call.takes_time:
            return answer(made)
        return self._begin(made if isinstance(made, Pending) else self.qnn.begun, answer, asked.get("signal"))

    def waited_for(self, *, call: Count) -> tuple[Pending, Answer]:
        """The call that a program waits for: it is forgotten with its answer."""
        if call not in self._begun:
            raise CallError(f"there is no call {call}, or it was waited for before")
        self._signals.pop(call, None)
        return self._begun.pop(call)

    def _begin(self, call: Pending, answer: Answer, signal: DeviceSignal | None) -> Message:
        if len(self._begun) >= MOST_CALLS:
            raise CallError(f"{MOST_CALLS:,} calls were begun and not waited for; wait for one")
        self._ever += 1
        self._begun[self._ever] = call, answer
        if signal is not None:
            self._signals[self._ever] = signal
        return {"call": self._ever}

    def _abort(self, *, call: Count) -> Message:
        """End a call as its signal would; nothing where it has none, or is over."""
        if call in self._signals:
            self._signals[call].abort()
        return {}
