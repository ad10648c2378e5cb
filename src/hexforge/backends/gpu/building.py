# SPDX-License-Identifier: Apache-2.0
"""Building: sources of kernels become kernels, once for each device, from the cache where it has them."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hexforge.backend import processors
from hexforge.backends.gpu.cache import DeviceCache
from hexforge.backends.gpu.device import ClDevice, code_of, opencl
from hexforge.backends.gpu.kernels.launch import Launch
from hexforge.backends.gpu.resident.cuda import NOT_LOADED, Cuda, CudaError
from hexforge.errors import UnsupportedError

T = TypeVar("T")
OPTIONS, DIVISION = "-cl-std=CL1.2 -w", "-cl-fp32-correctly-rounded-divide-sqrt"
"""What kernels are compiled with, without warnings, which PoCL prints to the terminal; the second where a device can:
OpenCL lets quotients be off by 2.5 units else."""


class KernelBuilder:
    """The kernels of one device."""

    def __init__(self, device: ClDevice) -> None:
        self.device = device
        self.cache = DeviceCache(device.name, device.driver)
        self._programs: dict[str, Any] = {}
        self._lock = threading.Lock()
        can = opencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self._options = f"{OPTIONS} {DIVISION}" if device.handle.single_fp_config & can else OPTIONS
        device.programs.add(self)

    def forget(self) -> None:
        """Compiled kernels of a context that was lost: the cache has their binaries."""
        self._programs = {}

    def build(self, launches: list[Launch], binaries: Mapping[str, bytes] | None = None) -> None:
        """Compile what is not there yet; `binaries` are those of a context file for this device."""
        sources = {launch.key: launch.source for launch in launches if launch.key not in self._programs}
        if not sources:
            return

        def make(item: tuple[str, str]) -> None:
            key, source = item
            program = self._built(key, source, (binaries or {}).get(key))
            with self._lock:
                self._programs.setdefault(key, program)

        self._each(make, sources.items())

    def _each(self, make: Callable[[T], None], items: Iterable[T]) -> None:
        """Do something for every kernel, several at a time where the driver can."""
        threads = 1 if self.device.is_processor else min(8, processors())
        if threads == 1:
            for item in items:
                make(item)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(make, items))
        self.cache.flush()

    def functions(
        self, launches: Sequence[Launch], binaries: Mapping[str, bytes] | None, cuda: Cuda
    ) -> list[ctypes.c_void_p]:
        """The kernels of launches for CUDA: binaries of the cache or a context file, or what OpenCL compiles now."""

        def make(launch: Launch) -> None:
            for binary in (self.cache.binary(launch.key), (binaries or {}).get(launch.key)):
                try:
                    by_key[launch.key] = cuda.function(launch.key, binary) if binary is not None else None
                except CudaError as error:
                    if error.code not in NOT_LOADED:
                        raise
                    self.cache.drop(launch.key)
                if by_key.get(launch.key) is not None:
                    return
            self._built(launch.key, launch.source, None)
            by_key[launch.key] = cuda.function(launch.key, self.cache.binary(launch.key) or b"")

        by_key: dict[str, ctypes.c_void_p | None] = {}
        self._each(make, {launch.key: launch for launch in launches}.values())
        return [function for launch in launches if (function := by_key[launch.key]) is not None]

    def _built(self, key: str, source: str, saved: bytes | None) -> Any:
        cl = opencl()
        handle, context = self.device.handle, self.device.context
        for binary in (self.cache.binary(key), saved):
            if binary is None:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return cl.Program(context, [handle], [binary]).build(devices=[handle])
            except (cl.Error, RuntimeError) as error:
                if not _is_about_the_kernel(error):
                    raise
                self.cache.drop(key)  # another build of the driver, or damage that a checksum cannot show
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = cl.Program(context, source).build(options=self._options, devices=[handle], cache_dir=False)
            except (cl.RuntimeError, RuntimeError) as error:
                if not _is_about_the_kernel(error):
                    raise
                raise UnsupportedError(f"gpu device {self.device.name!r} cannot compile a kernel: {error}") from None
        self.cache.add(key, bytes(program.get_info(cl.program_info.BINARIES)[0]))
        return program

    def kernel(self, launch: Launch) -> Any:
        """A kernel of its own for a launch: its arguments stay set."""
        return opencl().Kernel(self._programs[launch.key], "run")

    def binaries(self, launches: list[Launch]) -> dict[str, bytes]:
        """The compiled kernels of launches, for a context file."""
        by_key = {launch.key: self.cache.binary(launch.key) for launch in launches}
        return {key: binary for key, binary in by_key.items() if binary is not None}


def _is_about_the_kernel(error: Exception) -> bool:
    """Whether a kernel cannot be built, rather than the context doing nothing any more."""
    known = opencl().status_code
    return code_of(error) in (
        None, known.BUILD_PROGRAM_FAILURE, known.COMPILER_NOT_AVAILABLE, known.INVALID_BINARY, known.INVALID_VALUE,
        known.INVALID_BUILD_OPTIONS, known.INVALID_PROGRAM_EXECUTABLE,
    )  # fmt: skip


_builders: dict[int, KernelBuilder] = {}
_lock = threading.Lock()


def builder(device: ClDevice) -> KernelBuilder:
    """The builder of a device."""
    with _lock:
        key = int(device.handle.int_ptr)
        if key not in _builders:
            _builders[key] = KernelBuilder(device)
        return _builders[key]
