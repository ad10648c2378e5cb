# SPDX-License-Identifier: Apache-2.0
"""Client: a process that uses the device, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Callable

from hexforge.addons.device.chip import Chip
from hexforge.addons.device.codes import Code, DeviceError, ProcessEndedError
from hexforge.addons.device.contexts.handles import Process, State
from hexforge.addons.device.contexts.loading import release
from hexforge.addons.device.contexts.registration import deregister_all
from hexforge.addons.device.memory import CdspSession


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

    def close(self, *, killed: bool = False) -> None:
        """The process ends: its calls, contexts, sessions, buffers and votes go; of one killed there is a fault."""
        if self.ended:
            return
        if any(task.running for task in self.tasks):  # it ends itself: as soon as it waits
            self.device.clock.after(0.0, lambda: self.close(killed=killed))
            return
        self.ended = True
        if killed:
            self.device.log.write("fault", kind="kill", process=self.name)
        self.votes.withdraw()
        self._end_tasks(ProcessEndedError(f"{self.name} {'was killed' if killed else 'has ended'}"))
        for context in list(self.contexts.values()):
            deregister_all(context)
            release(context)
            context.state = State.FREED
        self.contexts.clear()
        for session in self.sessions:
            self.device.memory.close(session)
        self.sessions.clear()
        if self.reserved_vtcm_bytes:
            size, self.reserved_vtcm_bytes = self.reserved_vtcm_bytes, 0
            self.device.cores.release_vtcm(size, self.name)
        self._forget_client(self.name)
        self.device.log.write("process_end", process=self.name)

    def _end_tasks(self, error: ProcessEndedError) -> None:
        """End all calls that are on their way: none wakes another of them, or begins to run, as they end."""
        tasks = list(self.tasks)
        if not tasks:
            return
        for task in tasks:
            task.detach()
        owners = self.device.owners
        self.device.cores.withdraw(lambda job: owners.get(job.pending) in self.sessions, error)
        for task in tasks:
            task.interrupt(error)
