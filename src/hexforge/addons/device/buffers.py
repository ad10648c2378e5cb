# SPDX-License-Identifier: Apache-2.0
"""Buffers: memory that host and HTP share (rpcmem), and tensors registered in it: one buffer, one tensor or many."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.memory import CdspSession, SessionMemory
from hexforge.ir import Array

PAGE = 4096
_FDS = itertools.count(100)


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
