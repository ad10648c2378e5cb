# SPDX-License-Identifier: Apache-2.0
"""Memory: an arena or buffers for what a graph computes, shared by liveness, and constants that programs share."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hexforge.addons.gpu.device import ClDevice, opencl
from hexforge.errors import CapacityError
from hexforge.ir import Array


def assign_buffers(
    sizes: Mapping[Any, int], lives: Mapping[Any, tuple[int, int]], share: bool = True
) -> tuple[dict[Any, int], list[int]]:
    """The buffer that each tensor lies in, where each has one whole buffer at a time, and the bytes of the buffers.

    NVIDIA's driver took 39 µs for a kernel over parts of one buffer, and 9 to 12 for one over whole buffers.
    """
    chosen: dict[object, int] = {}
    bytes_of: list[int] = []
    busy_until: list[int] = []
    order = {key: i for i, key in enumerate(sizes)}
    for key in sorted(sizes, key=lambda k: (lives[k][0], -sizes[k], order[k])):
        first, last = lives[key]
        need = max(sizes[key], 1)
        free = [i for i, until in enumerate(busy_until) if share and until < first]
        fits = [i for i in free if bytes_of[i] >= need]
        if free:
            slot = min(fits, key=lambda i: bytes_of[i]) if fits else max(free, key=lambda i: bytes_of[i])
            bytes_of[slot] = max(bytes_of[slot], need)
        else:
            slot = len(bytes_of)
            bytes_of.append(need)
            busy_until.append(0)
        busy_until[slot] = last
        chosen[key] = slot
    return chosen, bytes_of


_shared: weakref.WeakValueDictionary[tuple[int, int, str], ConstantBuffer] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class ConstantBuffer:
    """A buffer of constants; it lives as long as a program uses it."""

    __slots__ = ("__weakref__", "buffer")

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer


def constant(device: ClDevice, array: Array, share: bool) -> ConstantBuffer:
    """A buffer with an array; equal arrays in one context share one."""
    cl = opencl()
    data = np.ascontiguousarray(array)
    if data.nbytes == 0:
        data = np.zeros(1, data.dtype)
    if data.nbytes > device.most_bytes:
        raise CapacityError(
            f"a constant of {data.nbytes} bytes is larger than any buffer of gpu device {device.name!r} "
            f"({device.most_bytes} bytes)"
        )

    def made() -> ConstantBuffer:
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return ConstantBuffer(cl.Buffer(device.context, flags, hostbuf=data))

    return shared_constant((int(device.handle.int_ptr), device.generation), data, made) if share else made()


def shared_constant(context: tuple[int, int], array: Array, made: Callable[[], ConstantBuffer]) -> ConstantBuffer:
    """The buffer with an array in a context, made where no program there has one with the same bytes."""
    key = (*context, hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).hexdigest())
    with _lock:
        held = _shared.get(key)
        if held is None:
            held = _shared[key] = made()
        return held


def activation_buffer(device: ClDevice, size: int) -> Any:
    """Memory for what a program computes."""
    cl = opencl()
    if size > device.most_bytes:
        raise CapacityError(
            f"a run needs {size} bytes at a time, and gpu device {device.name!r} has buffers of at most "
            f"{device.most_bytes}; use gpu_precision=fp16 or a smaller batch"
        )
    flags = cl.mem_flags.READ_WRITE
    if device.is_processor:  # at once: PoCL would take memory at the first use, and end the process without it
        flags |= cl.mem_flags.ALLOC_HOST_PTR
    return cl.Buffer(device.context, flags, max(size, 1))


def sub_buffers(buffer: Any, offsets: Mapping[object, int], sizes: Mapping[object, int]) -> dict[object, Any]:
    """The parts of an arena."""
    return {key: buffer.get_sub_region(offset, max(sizes[key], 1)) for key, offset in offsets.items()}
