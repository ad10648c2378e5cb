# SPDX-License-Identifier: Apache-2.0
"""Client: a process that uses the device, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Callable

from hexforge.device.chip import Chip
from hexforge.device.codes import Code, DeviceError
from hexforge.device.contexts.handles import Process, State
from hexforge.device.contexts.loading import release
from hexforge.device.contexts.registration import deregister_all
from hexforge.device.memory import CdspSession


class Client(Process):
    """One process of applications on the host."""

    def __init__(
        self,
        device: Chip,
        name: str,
        forget_client: Callable[[str], None],
        *,
        signed: bool = False,
        privileged: bool = False,
    ) -> None:
        super().__init__(device, name, signed=signed, privileged=privileged)
        self._forget_client = forget_client

    def lose(self, session: CdspSession) -> None:
        """A session has crashed: what is in it is lost."""
        what = f"session {session.index} of {self.name} crashed"
        error = DeviceError(Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, what)
        for context in [c for c in self.contexts.values() if c.session is session]:
            if context.state is State.CREATING:
                task = self.creating.get(context.number)
                if task is not None:
                    task.interrupt(error)
                    continue  # else it is being loaded again, and whoever does that looks
            release(context)
            context.state = State.LOST
            self.device.log.write("lost", context=context.label, process=self.name, embedded=context.binary.embedded)
        self.mappings.forget(session)
        self.sessions.remove(session)
        self.device.memory.close(session)

    def close(self) -> None:
        """The process ends: its contexts, sessions and votes go."""
        for task in list(self.creating.values()):
            task.interrupt(DeviceError(Code.QNN_CONTEXT_ERROR_ABORTED, f"{self.name} ends"))
        for context in list(self.contexts.values()):
            deregister_all(context)
            release(context)
            context.state = State.FREED
        self.contexts.clear()
        for session in self.sessions:
            self.device.memory.close(session)
        self.sessions.clear()
        self.votes.withdraw()
        self._forget_client(self.name)
        self.device.log.write("process_end", process=self.name)
