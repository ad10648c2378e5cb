# SPDX-License-Identifier: Apache-2.0
"""CUDA's driver, as far as NVIDIA's GPUs need it: memory, modules, and graphs of kernels that one call starts.

NVIDIA's OpenCL takes 5 to 10 µs of a processor for each kernel; a CUDA graph starts all kernels of a program at once.
The kernels stay what OpenCL compiled: its binaries are PTX, which CUDA loads.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_void_p
from functools import cache

OUT_OF_MEMORY = 2
NOT_LOADED = frozenset({200, 218, 222})
"""CUDA_ERROR_INVALID_IMAGE, INVALID_PTX and UNSUPPORTED_PTX_VERSION: a binary is to be made again."""
_BUS, _SLOT, _DOMAIN = 33, 34, 50
_PTX, _ELF = 1, b"\x7fELF"
_OFFSET = re.compile(rb"%envreg[0-5]\b")
"""What NVIDIA's OpenCL adds to group and global ids, 0 in every launch: CUDA leaves these registers undefined."""


class CudaError(Exception):
    """A call of CUDA's driver that failed."""

    def __init__(self, routine: str, code: int) -> None:
        super().__init__(f"{routine} failed: {error_name(code)}")
        self.routine = routine
        self.code = code


@cache
def _driver() -> ctypes.CDLL | None:
    """CUDA's driver, initialised, or None where there is none."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def error_name(code: int) -> str:
    """CUDA's name of an error."""
    driver, text = _driver(), ctypes.c_char_p()
    if driver is None or driver.cuGetErrorName(code, byref(text)) or text.value is None:
        return f"CUDA error {code}"
    return text.value.decode()


def call(name: str, *arguments: object) -> None:
    """Call the driver; CudaError where that fails."""
    code = getattr(_driver(), name)(*arguments)
    if code:
        raise CudaError(name, code)


class Cuda:
    """A context of our own on one of CUDA's devices, for all threads, and the kernels that were loaded there."""

    def __init__(self, device: c_int) -> None:
        self.context = c_void_p()
        self._functions: dict[str, c_void_p] = {}
        self._lock = threading.Lock()
        call("cuCtxCreate_v2", byref(self.context), 0, device)
        call("cuCtxPopCurrent_v2", byref(c_void_p()))

    @classmethod
    def at(cls, domain: int, bus: int, slot: int) -> Cuda | None:
        """A context on the device at a place on the PCI bus; None where CUDA has none there."""
        if _driver() is None:
            return None
        count, device, number = c_int(), c_int(), c_int()
        call("cuDeviceGetCount", byref(count))
        for i in range(count.value):
            call("cuDeviceGet", byref(device), i)
            place = []
            for attribute in (_DOMAIN, _BUS, _SLOT):
                call("cuDeviceGetAttribute", byref(number), attribute, device)
                place.append(number.value)
            if place == [domain, bus, slot]:
                return cls(device)
        return None

    def destroy(self) -> None:
        """End a context that was lost: while it is there, the driver makes no other."""
        driver, lost = _driver(), self.context
        self.context, self._functions = c_void_p(), {}
        if driver is not None:
            driver.cuCtxDestroy_v2(lost)

    @contextmanager
    def current(self) -> Iterator[None]:
        """The thread calls the driver for this context for a while."""
        if not self.context:
            raise CudaError("cuCtxPushCurrent_v2", 201)
        call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def linked(self, binary: bytes) -> bytes:
        """The machine code of what NVIDIA's OpenCL compiled: threads make it side by side, as loading PTX does not."""
        if b".entry run" not in binary or binary.startswith(_ELF):
            raise CudaError("cuLinkAddData_v2", 218)
        source = _OFFSET.sub(b"0", binary).rstrip(b"\0") + b"\0"
        state, code, size = c_void_p(), c_void_p(), c_size_t()
        with self.current():
            call("cuLinkCreate_v2", 0, None, None, byref(state))
            try:
                call("cuLinkAddData_v2", state, _PTX, source, c_size_t(len(source)), b"run", 0, None, None)
                call("cuLinkComplete", state, byref(code), byref(size))
                return ctypes.string_at(code, size.value)
            finally:
                call("cuLinkDestroy", state)

    def function(self, key: str, binary: bytes) -> c_void_p:
        """A kernel that NVIDIA's OpenCL compiled and `linked` made machine code of, loaded once."""
        with self._lock:
            if key in self._functions:
                return self._functions[key]
        if not binary.startswith(_ELF):
            raise CudaError("cuModuleLoadData", 200)
        module, function = c_void_p(), c_void_p()
        with self.current():
            call("cuModuleLoadData", byref(module), binary)
            call("cuModuleGetFunction", byref(function), module, b"run")
        with self._lock:
            return self._functions.setdefault(key, function)


class CudaHandles:
    """What was made in a context, each with the call that ends it: ended with the last who has them, or when told."""

    def __init__(self, cuda: Cuda) -> None:
        self._made: list[tuple[str, c_void_p]] = []
        self._end = weakref.finalize(self, _destroy_all, cuda, self._made)
        self._end.atexit = False

    def add(self, ending: str, handle: c_void_p) -> c_void_p:
        """Keep a handle, and the call that ends it."""
        self._made.append((ending, handle))
        return handle

    def release(self) -> None:
        """End everything now."""
        self._end()


def _destroy_all(cuda: Cuda, made: list[tuple[str, c_void_p]]) -> None:
    """End what was made last first, unless the context is lost with it all."""
    driver = _driver()
    if driver is not None and cuda.context and driver.cuCtxPushCurrent_v2(cuda.context) == 0:
        for ending, handle in reversed(made):
            getattr(driver, ending)(handle)
        driver.cuCtxPopCurrent_v2(byref(c_void_p()))


class CudaBuffer(CudaHandles):
    """Memory of a device, or memory of the host that the device reads and writes by itself."""

    def __init__(self, cuda: Cuda, size: int, host: bool = False) -> None:
        super().__init__(cuda)
        self.pointer, whole = c_void_p(), c_size_t(max(16, -(-size // 16) * 16))
        with cuda.current():
            if host:
                call("cuMemHostAlloc", byref(self.pointer), whole, 0)
            else:
                call("cuMemAlloc_v2", byref(self.pointer), whole)
        self.add("cuMemFreeHost" if host else "cuMemFree_v2", self.pointer)
        self.address = self.pointer.value or 0
