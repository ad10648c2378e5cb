# SPDX-License-Identifier: Apache-2.0
"""Guarded memory: arrays that end where a page begins that nobody may touch, so that reading past them is a crash."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class GuardedMemory:
    """Arrays with so many bytes behind them and not one more; they end with this object, which must outlive them."""

    def __init__(self) -> None:
        self._mapped: list[tuple[int, int]] = []

    def array(self, like: np.ndarray[Any, Any], room: int = 0) -> np.ndarray[Any, Any]:
        """A copy of an array that ends `room` bytes before a guarded page; all of that is its base's memory."""
        size = like.nbytes + room
        whole = -(-max(size, 1) // _PAGE) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = _LIBC.mmap(None, whole + _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value) or _LIBC.mprotect(start + whole, _PAGE, 0):
            raise MemoryError("no guarded memory can be had")
        self._mapped.append((start, whole + _PAGE))
        base = np.frombuffer((ctypes.c_uint8 * size).from_address(start + whole - size), np.uint8)
        made: np.ndarray[Any, Any] = base[: like.nbytes].view(like.dtype).reshape(like.shape)
        made[...] = like
        return made

    def with_room(self, like: np.ndarray[Any, Any], room: int) -> np.ndarray[Any, Any]:
        """The bytes of such a copy and of the room behind it, as a native program is given them."""
        made = self.array(like, room)
        base = (ctypes.c_uint8 * (like.nbytes + room)).from_address(made.ctypes.data)
        return np.frombuffer(base, np.uint8)

    def release(self) -> None:
        """Give the memory back."""
        for start, size in self._mapped:
            _LIBC.munmap(start, size)
        self._mapped.clear()
