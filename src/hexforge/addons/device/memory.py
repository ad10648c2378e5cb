# SPDX-License-Identifier: Apache-2.0
"""Memory: cDSP sessions with 32-bit address spaces, opened on demand, filled first fit.

A session has 4 GB of addresses, of which 3.75 GB can be used; one context lies in one session as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.log import DeviceLog
from hexforge.chips.soc import SESSION_BYTES

ADVISED_BYTES = 3 << 30
"""The most that one context is advised to need."""
SESSIONS_PER_PROCESS = 4
"""Assumed: how many sessions one process can open; the hardware decides."""

Need = tuple[str, int]
"""What for, and how many bytes."""


class SessionMemory:
    """Bytes of a session's addresses in use."""

    __slots__ = ("live", "number", "owner", "session", "size", "what")

    def __init__(self, session: CdspSession, number: int, owner: str, what: str, size: int) -> None:
        self.session, self.number, self.owner, self.what, self.size = session, number, owner, what, size
        self.live = True


class CdspSession:
    """One address space of a process on the cDSP: its process domain, signed or not."""

    def __init__(self, memory: DeviceMemory, number: int, index: int, process: str, signed: bool) -> None:
        self._memory = memory
        self.number = number
        """Over the whole device."""
        self.index = index
        """Of the process: 0 is its first."""
        self.process, self.signed = process, signed
        self.used_bytes = 0
        self.alive = True
        self.allocations: dict[int, SessionMemory] = {}

    @property
    def free_bytes(self) -> int:
        """What is left of its addresses."""
        return SESSION_BYTES - self.used_bytes

    def by_kind(self) -> dict[str, int]:
        """Bytes in use by what for."""
        sizes: dict[str, int] = {}
        for allocation in self.allocations.values():
            sizes[allocation.what] = sizes.get(allocation.what, 0) + allocation.size
        return sizes

    def allocate(self, owner: str, what: str, size: int) -> SessionMemory:
        """Take addresses; whoever asks has looked whether there are enough."""
        return self._memory.allocate(self, owner, what, size)


class DeviceMemory:
    """All sessions of a device, and its RAM."""

    def __init__(self, log: DeviceLog, ram_bytes: int) -> None:
        self._log = log
        self.ram_bytes = ram_bytes
        self.sessions: dict[int, CdspSession] = {}
        self._sessions_ever = self._allocations_ever = 0

    @property
    def used_bytes(self) -> int:
        """What all sessions have in use."""
        return self._log.memory_bytes

    def open(self, process: str, index: int, signed: bool) -> CdspSession:
        """A new session."""
        made = CdspSession(self, self._sessions_ever, index, process, signed)
        self._sessions_ever += 1
        self.sessions[made.number] = made
        domain = "signed" if signed else "unsigned"
        self._log.write(
            "session_open", session=made.number, process=process, index=index, domain=domain,
            capacity_bytes=SESSION_BYTES,
        )  # fmt: skip
        return made

    def close(self, session: CdspSession) -> None:
        """End a session; whatever is left in it is released first."""
        for allocation in list(session.allocations.values()):
            self.release(allocation)
        session.alive = False
        del self.sessions[session.number]
        self._log.write("session_close", session=session.number, process=session.process, index=session.index)

    def allocate(self, session: CdspSession, owner: str, what: str, size: int) -> SessionMemory:
        """Take addresses of a session."""
        assert session.alive
        assert 0 <= size <= session.free_bytes
        self._allocations_ever += 1
        made = SessionMemory(session, self._allocations_ever, owner, what, size)
        session.allocations[made.number] = made
        session.used_bytes += size
        self._log.memory_bytes += size
        self._log.write(
            "allocate", allocation=made.number, session=session.number, owner=owner, what=what, bytes=size,
            used_bytes=session.used_bytes,
        )  # fmt: skip
        return made

    def release(self, allocation: SessionMemory) -> None:
        """Give addresses back; nothing where they are gone with their session."""
        if not allocation.live:
            return
        allocation.live = False
        session = allocation.session
        del session.allocations[allocation.number]
        session.used_bytes -= allocation.size
        self._log.memory_bytes -= allocation.size
        self._log.write(
            "release", allocation=allocation.number, session=session.number, owner=allocation.owner,
            what=allocation.what, bytes=allocation.size, used_bytes=session.used_bytes,
        )  # fmt: skip

    def release_all(self, allocations: Iterable[SessionMemory]) -> None:
        """Give several back."""
        for allocation in allocations:
            self.release(allocation)

    def require_ram(self, size: int, what: str) -> None:
        """DeviceError where the device has no RAM left for it."""
        if self.used_bytes + size > self.ram_bytes:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_MEM_ALLOC,
                f"{what} needs {size:,} bytes, and {self.ram_bytes - self.used_bytes:,} of the device's "
                f"{self.ram_bytes:,} bytes of RAM are free; free a context",
            )


def first_fit(
    sessions: Sequence[CdspSession], needs: Callable[[CdspSession | None], Sequence[Need]]
) -> tuple[CdspSession | None, int]:
    """The first session with room for what is needed there, and how many were tried; None where it is a new one's."""
    for tried, session in enumerate(sessions):
        if sum(size for _, size in needs(session)) <= session.free_bytes:
            return session, tried
    return None, len(sessions)
