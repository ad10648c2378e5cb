# SPDX-License-Identifier: Apache-2.0
"""Device: a chip that several processes share, under a virtual clock: memory, cores, power, faults, one log."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from hexforge.addons.device.chip import MB, Chip
from hexforge.addons.device.codes import Code, DeviceError, ProcessEndedError
from hexforge.addons.device.contexts.handles import Process, State
from hexforge.addons.device.contexts.loading import release
from hexforge.addons.device.contexts.tensors import deregister_all
from hexforge.addons.device.memory import CdspSession
from hexforge.chips.graph_config import VTCM_BYTES_ARCH, VTCM_GRANULE
from hexforge.errors import CallError


class Client(Process):
    """One process of applications on the host, from its beginning to its end."""

    device: Device

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
        self.device.clients.pop(self.name, None)
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


class Fault(StrEnum):
    """What can happen to a device."""

    SSR = "ssr"
    """The subsystem restarts."""
    PD = "pd"
    """A session crashes."""
    KILL = "kill"
    """A process ends."""


RESTART_US = 400_000.0
"""Assumed: from a crash of the subsystem to when sessions can be opened again."""
VTCM_SHARING_ARCH = 73


class Device(Chip):
    """A simulated Snapdragon."""

    @cached_property
    def clients(self) -> dict[str, Client]:
        """The processes that use it, by name."""
        return {}

    def process(self, name: str = "app", *, signed: bool = False, privileged: bool = False) -> Client:
        """A process that uses the device; its process domain is signed or not."""
        if name in self.clients:
            raise CallError(f"the device has a process {name!r} already; give this one another name")
        client = self.clients[name] = Client(self, name, signed=signed, privileged=privileged)
        return client

    # -- VTCM for others ----------------------------------------------------------------------------------------------

    def reserve_vtcm(self, size: int, client: Client | None = None) -> None:
        """Another thread, of a process where one is named, takes VTCM; graphs that need more than is left wait."""
        if self.soc.htp_arch < VTCM_SHARING_ARCH:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_NOT_SUPPORTED,
                f"VTCM is shared from v{VTCM_SHARING_ARCH} on, {self.soc.name} is v{self.soc.htp_arch}",
            )
        step = VTCM_GRANULE if self.soc.htp_arch >= VTCM_BYTES_ARCH else MB
        if size < 1 or size % step:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_NOT_SUPPORTED, f"{size} bytes of VTCM: {self.soc.name} gives multiples of {step}"
            )
        if size + self.cores.reserved_bytes > self.cores.vtcm_bytes:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE,
                f"{size} bytes of VTCM: {self.cores.vtcm_bytes - self.cores.reserved_bytes} are left",
            )
        if client is not None:
            client.reserved_vtcm_bytes += size
        self.cores.reserve_vtcm(size, client.name if client is not None else "")

    def release_vtcm(self, size: int, client: Client | None = None) -> None:
        """The other thread gives VTCM back."""
        held = self.cores.reserved_bytes if client is None else client.reserved_vtcm_bytes
        if not 0 < size <= held:
            raise CallError(f"{size} bytes of VTCM: {held} are reserved")
        if client is not None:
            client.reserved_vtcm_bytes -= size
        self.cores.release_vtcm(size, client.name if client is not None else "")

    # -- faults -------------------------------------------------------------------------------------------------------

    def fault(self, kind: Fault, client: Client | None = None, session: int = 0) -> None:
        """A fault at this moment; that of a session or of a process names the process."""
        if kind is Fault.SSR:
            self.restart()
        elif client is None:
            raise CallError(f"{kind}: say of which process: {', '.join(self.clients) or 'the device has none'}")
        elif kind is Fault.KILL:
            self.kill(client)
        else:
            self.crash(client, session)

    def crash(self, client: Client, index: int = 0) -> None:
        """A process domain crashes: one session of one process; everybody else goes on."""
        session = next((s for s in client.sessions if s.index == index), None)
        if session is None:
            raise CallError(f"{client.name} has no session {index}; it has {len(client.sessions)}")
        self.log.write("fault", kind="pd", process=client.name, session=session.number, index=index)
        self._lose_session(client, session)

    def restart(self) -> None:
        """The subsystem crashes and restarts (SSR): every session of every process is gone."""
        self.log.write("fault", kind="ssr")
        self.down_until_us = self.clock.now_us + RESTART_US
        for client in list(self.clients.values()):
            for session in list(client.sessions):
                self._lose_session(client, session)

    def kill(self, client: Client) -> None:
        """A process is killed: all that it has on the device goes, its calls end without a word, others go on."""
        client.close(killed=True)

    def _lose_session(self, client: Client, session: CdspSession) -> None:
        """First the contexts are lost, then whatever waits for them is told."""
        client.lose(session)
        error = DeviceError(
            Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, f"session {session.index} of {client.name} crashed"
        )
        self.cores.withdraw(lambda job: self.owners.get(job.pending) is session, error)
