# SPDX-License-Identifier: Apache-2.0
"""Devices: what OpenCL offers on this computer, and which of it runs graphs."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hexforge.addons.gpu.resident.cuda import OUT_OF_MEMORY, Cuda, CudaError
from hexforge.addons.gpu.resident.read_write_lock import ReadWriteLock
from hexforge.errors import CallError, UnsupportedError

if TYPE_CHECKING:
    import types

_LOG = logging.getLogger("hexforge")
VARIABLE = "HEXFORGE_GPU_DEVICE"
"""The environment variable that names a device where no option does."""
_INSTALL = (
    "install `hexforge[gpu]`, which brings PoCL (OpenCL on the processor), or your GPU's OpenCL driver; "
    "`hexforge devices` lists what is there"
)


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


def code_of(error: Exception) -> int | None:
    """OpenCL's number for an error, None where it has none."""
    try:
        return int(getattr(error, "code", None))  # type: ignore[arg-type]
    except (AttributeError, TypeError):  # pyopencl's errors with a text of their own have no number to give
        return None


class MemoryHolder(Protocol):
    """Something that has memory in a device's context."""

    def forget(self) -> None:
        """Let go of everything in the context; what is needed again is made again."""


@dataclass(eq=False)
class ClDevice:
    """An OpenCL device, with the context that everything on it lives in."""

    handle: Any
    platform: str
    lock: ReadWriteLock = field(default_factory=ReadWriteLock)
    """Everything that uses the context is inside; only who is alone inside replaces it."""
    generation: int = 0
    """How many contexts were lost before this one."""
    programs: weakref.WeakSet[MemoryHolder] = field(default_factory=weakref.WeakSet)
    name: str = field(init=False)
    """As OpenCL calls it."""
    memory_bytes: int = field(init=False)
    """Global memory."""
    most_bytes: int = field(init=False)
    """The largest buffer."""
    _context: Any = None
    _making: threading.Lock = field(default_factory=threading.Lock)
    _cuda: Cuda | None = None
    _cuda_known: bool = False
    _lost_cuda: Cuda | None = None

    def __post_init__(self) -> None:
        self.name = str(self.handle.name).strip()  # a device that is gone cannot be asked
        self.memory_bytes, self.most_bytes = int(self.handle.global_mem_size), int(self.handle.max_mem_alloc_size)

    @property
    def context(self) -> Any:
        """One context for the process: buffers of constants are shared by all programs."""
        with self._making:
            if self._context is None:
                self._context = opencl().Context([self.handle])
            return self._context

    @property
    def cuda(self) -> Cuda | None:
        """CUDA on the same device, where the driver is NVIDIA's and nothing was lost there before."""
        with self._making:
            if not self._cuda_known and self.platform == "NVIDIA CUDA":
                handle = self.handle
                try:
                    self._cuda = Cuda.at(handle.pci_domain_id_nv, handle.pci_bus_id_nv, handle.pci_slot_id_nv)
                except (AttributeError, CudaError, opencl().Error) as error:
                    _LOG.warning("CUDA cannot record kernels on %r, OpenCL enqueues them: %s", self.name, error)
            self._cuda_known = True
            return self._cuda

    @contextmanager
    def giving_up_cuda(self) -> Iterator[None]:
        """Where CUDA fails, other than for want of memory, OpenCL alone is used from then on."""
        try:
            yield
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                self._lost_cuda, self._cuda = self._lost_cuda or self._cuda, None
            raise

    def answers(self) -> bool:
        """Whether the context still works: after a fault none of its calls does."""
        cl = opencl()
        try:
            queue, word = self.queue(), cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 4)
            cl.enqueue_fill_buffer(queue, word, b"\0", 0, 4)
            queue.finish()
        except cl.Error:
            return False
        return True

    def renew_if_lost(self) -> None:
        """Drop a context that does not answer, and all that is in it; the caller must hold the device alone."""
        if self._lost_cuda is not None:
            self._forget_all()
            self._lost_cuda.destroy()
            self._lost_cuda = None
        if not self.answers():
            self._context = None
            self.generation += 1
            self._forget_all()

    def _forget_all(self) -> None:
        for program in list(self.programs):
            program.forget()

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
        """Compute units, each of which runs work-groups by itself."""
        return int(self.handle.max_compute_units)

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        return int(self.handle.local_mem_size)

    @property
    def most_items(self) -> int:
        """Work-items of a work-group at most."""
        return int(self.handle.max_work_group_size)

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
        return cl.CommandQueue(self.context, self.handle, properties)


_known: list[ClDevice] | None = None
_lock = threading.Lock()


def devices() -> tuple[ClDevice, ...]:
    """Every OpenCL device, GPUs first."""
    global _known
    cl = opencl()
    with _lock:
        if _known is None:
            every = []
            try:
                platforms = cl.get_platforms()
            except cl.Error:
                platforms = []  # a loader without a single driver
            for platform in platforms:
                try:
                    every += [ClDevice(handle, str(platform.name)) for handle in platform.get_devices()]
                except cl.Error:
                    continue
            _known = sorted(every, key=lambda d: (not d.is_gpu, d.is_processor))
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
