# SPDX-License-Identifier: Apache-2.0
"""Devices: what OpenCL offers on this computer, which of it runs graphs, and what goes wrong there in plain words."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hexforge.errors import CallError, CapacityError, HexforgeError, UnsupportedError

if TYPE_CHECKING:
    import types

VARIABLE = "HEXFORGE_GPU_DEVICE"
"""The environment variable that names a device where no option does."""
_INSTALL = (
    "install `hexforge[gpu]`, which brings PoCL (OpenCL on the processor), or your GPU's OpenCL driver; "
    "`hexforge devices` lists what is there"
)
_LOST = {"DEVICE_NOT_AVAILABLE", "INVALID_CONTEXT", "INVALID_COMMAND_QUEUE", "OUT_OF_RESOURCES"}
_FULL = {"MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE"}


def opencl() -> types.ModuleType:
    """pyopencl; UnsupportedError saying what to install where it is missing."""
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # the cache of gpu/cache.py is the one that is checked
    try:
        pyopencl: types.ModuleType = importlib.import_module("pyopencl")
    except ImportError as error:
        raise UnsupportedError(
            f"the gpu backend needs OpenCL, and pyopencl is not there ({error}); {_INSTALL}"
        ) from None
    return pyopencl


@dataclass(frozen=True, eq=False)
class ClDevice:
    """An OpenCL device, with the context that everything on it lives in."""

    handle: Any
    platform: str

    @cached_property
    def context(self) -> Any:
        """One context for the process: buffers of constants are shared by all programs."""
        with clear_errors(self.name):
            return opencl().Context([self.handle])

    @property
    def name(self) -> str:
        """As OpenCL calls it."""
        return str(self.handle.name).strip()

    @property
    def driver(self) -> str:
        """What compiles kernels: binaries are good for this alone."""
        return f"{self.platform} {self.handle.driver_version} {self.handle.version}".strip()

    @property
    def is_processor(self) -> bool:
        """Whether it is a CPU: local memory is cache there, and barriers cost."""
        return bool(self.handle.type & opencl().device_type.CPU)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return bool(self.handle.type & opencl().device_type.GPU)

    @property
    def kind(self) -> str:
        """GPU, CPU or accelerator."""
        return "GPU" if self.is_gpu else "CPU" if self.is_processor else "accelerator"

    @property
    def vendor(self) -> str:
        """Who makes it."""
        return str(self.handle.vendor).strip()

    @property
    def units(self) -> int:
        """Compute units."""
        return int(self.handle.max_compute_units)

    @property
    def memory_bytes(self) -> int:
        """Global memory."""
        return int(self.handle.global_mem_size)

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        return int(self.handle.local_mem_size)

    @property
    def most_items(self) -> int:
        """Work-items of a work-group at most."""
        return int(self.handle.max_work_group_size)

    @property
    def most_bytes(self) -> int:
        """The largest buffer."""
        return int(self.handle.max_mem_alloc_size)

    @property
    def alignment(self) -> int:
        """Bytes that pieces of a buffer begin at multiples of."""
        return max(128, int(self.handle.mem_base_addr_align) // 8)

    @property
    def extensions(self) -> tuple[str, ...]:
        """What it can do beyond OpenCL itself."""
        return tuple(sorted(str(self.handle.extensions).split()))

    @property
    def half_math(self) -> bool:
        """Whether it computes in float16; every device stores it."""
        return "cl_khr_fp16" in self.extensions

    def queue(self, profiled: bool = False) -> Any:
        """A queue whose commands run in order."""
        cl = opencl()
        properties = cl.command_queue_properties.PROFILING_ENABLE if profiled else 0
        with clear_errors(self.name):
            return cl.CommandQueue(self.context, self.handle, properties)


_known: list[ClDevice] | None = None
_lock = threading.Lock()


def devices() -> tuple[ClDevice, ...]:
    """Every OpenCL device, GPUs first."""
    global _known
    cl = opencl()
    with _lock:
        if _known is None:
            found = []
            try:
                platforms = cl.get_platforms()
            except cl.Error:
                platforms = []  # a loader without a single driver
            for platform in platforms:
                try:
                    found += [ClDevice(handle, str(platform.name)) for handle in platform.get_devices()]
                except cl.Error:
                    continue
            _known = sorted(found, key=lambda d: (not d.is_gpu, d.is_processor))
        return tuple(_known)


def choose(wanted: str = "") -> ClDevice:
    """The device by number or part of its name, else by the environment, else the first GPU, else the first."""
    wanted = wanted or os.environ.get(VARIABLE, "")
    every = devices()
    if not every:
        raise UnsupportedError(f"the gpu backend found no OpenCL device; {_INSTALL}")
    if not wanted:
        return every[0]
    if wanted.isdigit() and int(wanted) < len(every):
        return every[int(wanted)]
    named = [d for d in every if wanted.lower() in f"{d.platform} {d.name} {d.kind}".lower()]
    if wanted.isdigit() or not named:
        there = ", ".join(f"{i}: {d.name} ({d.platform}, {d.kind})" for i, d in enumerate(every))
        raise CallError(f"gpu_device {wanted!r} is no OpenCL device of this computer; there are {there}")
    return named[0]


@contextlib.contextmanager
def clear_errors(device: str, doing: str = "") -> Iterator[None]:
    """Say what OpenCL's errors mean; only the program that meets one is lost."""
    try:
        yield
    except HexforgeError:
        raise
    except Exception as error:
        raise translated(error, device, doing) from (error if "--debug-opencl" in sys.argv else None)


def translated(error: Exception, device: str, doing: str = "") -> Exception:
    """An error of OpenCL as one of hexforge's; any other as it is."""
    cl = opencl()
    when = f" {doing}" if doing else ""
    if isinstance(error, MemoryError | cl.MemoryError):
        return CapacityError(
            f"gpu device {device!r} is out of memory{when}; close other sessions, use gpu_precision=fp16, a smaller "
            "batch, or another gpu_device"
        )
    if isinstance(error, cl.Error):
        code = getattr(error, "code", None)
        name = cl.status_code.to_string(code, "%d") if code is not None else str(error)
        if any(known in name for known in _FULL):
            return translated(MemoryError(), device, doing)
        if any(known in name for known in _LOST):
            return UnsupportedError(
                f"gpu device {device!r} was lost or ran out of resources{when} ({name}); make the session again, or "
                "choose another gpu_device"
            )
        return UnsupportedError(f"gpu device {device!r} failed{when}: {name}: {error}")
    return error
