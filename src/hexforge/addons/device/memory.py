# SPDX-License-Identifier: Apache-2.0
"""Memory: cDSP sessions with 32-bit address spaces, filled first fit, and buffers that host and HTP share (rpcmem).

A session has 4 GB of addresses, of which 3.75 GB can be used; one context lies in one session as a whole. A shared
buffer has the memory of one registered tensor or of many, and is mapped into a session once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.log import DeviceLog
from hexforge.chips.soc import SESSION_BYTES
from hexforge.ir import Array

ADVISED_BYTES = 3 << 30
"""The most that one context is advised to need."""
SESSIONS_PER_PROCESS = 4
"""Assumed: how many sessions one process can open; the hardware decides."""
PAGE = 4096
_FDS = itertools.count(100)

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

    def by_kind(self) -> Counter[str]:
        """Bytes in use by what for."""
        sizes: Counter[str] = Counter()
        for allocation in self.allocations.values():
            sizes[allocation.what] += allocation.size
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


class SharedBuffer:
    """A page-aligned buffer with a file descriptor number, as rpcmem_alloc and rpcmem_to_fd give."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise DeviceError(Code.QNN_MEM_ERROR_INVALID_ARGUMENT, f"a shared buffer of {size} bytes; give 1 or more")
        room = np.empty(size + PAGE, np.uint8)
        start = -room.ctypes.data % PAGE
        self.bytes: Array = room[start : start + size]
        self.fd = next(_FDS)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.bytes.size

    @property
    def address(self) -> int:
        """Where it lies."""
        return int(self.bytes.ctypes.data)

    def array(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> Array:
        """A tensor in it, over its own memory."""
        try:
            kind = np.dtype(dtype)
        except TypeError:
            message = f"data type {dtype!r} is none that numpy knows; give one as 'float32'"
            raise DeviceError(Code.QNN_MEM_ERROR_INVALID_ARGUMENT, message) from None
        count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if offset < 0 or offset % max(1, min(kind.itemsize, 8)) or offset + count > self.size:
            raise DeviceError(
                Code.QNN_MEM_ERROR_INVALID_SHAPE,
                f"{kind.name}{list(shape)} at byte {offset} does not lie in a shared buffer of {self.size} bytes, or "
                "not at a multiple of its element",
            )
        tensor: Array = self.bytes[offset : offset + count].view(kind).reshape(tuple(shape))
        return tensor


class AddressRange(SharedBuffer):
    """A buffer that takes addresses of a session and no memory of this program: nothing is read of it here."""

    def __init__(self, size: int) -> None:
        super().__init__(min(size, 1))
        self._size = size

    @property
    def size(self) -> int:
        """Bytes of addresses."""
        return self._size

    def array(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> Array:
        """One byte, whatever is asked for."""
        return self.bytes


@dataclass(frozen=True, slots=True, eq=False)
class MemDescriptor:
    """Qnn_MemDescriptor_t: a tensor of a context in a shared buffer."""

    buffer: SharedBuffer
    tensor: str
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0
    """Where in a multi-tensor buffer it begins."""


class BufferOwner(Protocol):
    """A context, as far as memory is registered with it."""

    session: CdspSession | None

    @property
    def label(self) -> str:
        """As the log calls it."""
        ...


@dataclass(slots=True, eq=False)
class MemHandle:
    """A tensor that is registered."""

    number: int
    context: BufferOwner
    descriptor: MemDescriptor
    live: bool = True

    def array(self) -> Array:
        """The tensor over the buffer's memory."""
        d = self.descriptor
        return d.buffer.array(d.shape, d.dtype, d.offset)


@dataclass(slots=True)
class Mappings:
    """Which buffers are mapped into which sessions: once each, however many tensors lie in them."""

    mapped: dict[tuple[int, int], tuple[SessionMemory, int]] = field(default_factory=dict)
    """By session and descriptor: the addresses, and how many tensors need them."""

    def needs(self, session: CdspSession, buffers: Sequence[SharedBuffer]) -> int:
        """Bytes of addresses that are yet to be mapped."""
        fresh = {b.fd: b.size for b in buffers if (session.number, b.fd) not in self.mapped}
        return sum(fresh.values())

    def add(self, session: CdspSession, owner: str, buffer: SharedBuffer) -> None:
        """One more tensor in a buffer."""
        key = session.number, buffer.fd
        if key in self.mapped:
            allocation, count = self.mapped[key]
            self.mapped[key] = allocation, count + 1
        else:
            self.mapped[key] = session.allocate(owner, "shared buffer", buffer.size), 1

    def remove(self, session: CdspSession, buffer: SharedBuffer) -> SessionMemory | None:
        """One tensor less; the addresses where it was the last."""
        key = session.number, buffer.fd
        if key not in self.mapped:
            return None
        allocation, count = self.mapped[key]
        if count > 1:
            self.mapped[key] = allocation, count - 1
            return None
        del self.mapped[key]
        return allocation

    def forget(self, session: CdspSession) -> None:
        """A session is gone."""
        self.mapped = {key: value for key, value in self.mapped.items() if key[0] != session.number}
