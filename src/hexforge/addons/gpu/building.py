# SPDX-License-Identifier: Apache-2.0
"""Building: sources of kernels become kernels, once for each device, from the cache where it has them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hexforge.addons.gpu.cache import DeviceCache
from hexforge.addons.gpu.compiling import Compilers, binary_of, compiled_program, helpful_processes, silence
from hexforge.addons.gpu.device import ClDevice, code_of, opencl
from hexforge.addons.gpu.kernels.launch import Launch
from hexforge.addons.gpu.resident.cuda import NOT_LOADED, Cuda, CudaError
from hexforge.backend import processors
from hexforge.errors import UnsupportedError

T = TypeVar("T")
OPTIONS, DIVISION = "-cl-std=CL1.2 -w", "-cl-fp32-correctly-rounded-divide-sqrt"
"""What kernels are compiled with, without warnings, which PoCL prints to the terminal; the second where a device can:
OpenCL lets quotients be off by 2.5 units else."""


NEWER_PROCESSOR = (
    "; this PoCL's compiler is older than the processor and does not know it: `pip install intel-opencl-rt "
    "intel-cmplr-lib-rt`, and set OCL_ICD_VENDORS to lib/libintelocl.so of that environment, or install a newer PoCL"
)


def linked_name(key: str) -> str:
    """What the machine code of a kernel is known by in the cache, which has its binary, too."""
    return f"{key}:linked"


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

        def make(item: tuple[str, str], compilers: Compilers) -> None:
            key, source = item
            program = self._built(key, source, (binaries or {}).get(key), compilers)
            with self._lock:
                self._programs.setdefault(key, program)

        self._each(make, sources.items(), sum(not self._is_there(key, binaries) for key in sources))

    def _is_there(self, key: str, binaries: Mapping[str, bytes] | None) -> bool:
        """Whether a kernel was compiled before."""
        return self.cache.binary(key) is not None or (binaries is not None and key in binaries)

    def _each(self, make: Callable[[T, Compilers], None], items: Iterable[T], missing: int) -> None:
        """Do something for every kernel, several at a time where the driver can."""
        with Compilers(self.device, self._options, helpful_processes(self.device, missing)) as compilers:
            threads = 1 if self.device.is_processor else min(8, processors())
            if compilers.count:
                threads = compilers.threads
            if threads == 1:
                for item in items:
                    make(item, compilers)
            else:
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(lambda item: make(item, compilers), items))
        self.cache.flush()

    def functions(
        self, launches: Sequence[Launch], binaries: Mapping[str, bytes] | None, cuda: Cuda
    ) -> list[ctypes.c_void_p]:
        """The kernels of launches for CUDA: binaries of the cache or a context file, or what OpenCL compiles now."""

        def make(launch: Launch, compilers: Compilers) -> None:
            key = launch.key
            linked = self.cache.binary(linked_name(key))
            for name, binary in (
                (linked_name(key), linked),
                (key, self.cache.binary(key)),
                (key, (binaries or {}).get(key)),
            ):
                if binary is None:
                    continue
                try:
                    by_key[key] = cuda.function(key, binary) if binary is linked else self._linked(cuda, key, binary)
                    return
                except CudaError as error:
                    if error.code not in NOT_LOADED:
                        raise
                    self.cache.drop(name)
            self._compile(key, launch.source, compilers)
            by_key[key] = self._linked(cuda, key, self.cache.binary(key) or b"")

        by_key: dict[str, ctypes.c_void_p] = {}
        wanted = {launch.key: launch for launch in launches}
        self._each(make, wanted.values(), sum(not self._is_there(key, binaries) for key in wanted))
        return [by_key[launch.key] for launch in launches]

    def _linked(self, cuda: Cuda, key: str, binary: bytes) -> ctypes.c_void_p:
        """A kernel for CUDA from PTX; its machine code is remembered, for that takes half as long as compiling."""
        code = cuda.linked(binary)
        function = cuda.function(key, code)
        self.cache.add(linked_name(key), code)
        return function

    def _compile(self, key: str, source: str, compilers: Compilers) -> Any | None:
        """Bring a compiled kernel into the cache; its program, if this process compiled it."""
        with compilers.turn() as process:
            binary = process.compiled(source) if process is not None else None
            program = None
            if binary is None:
                try:
                    program = compiled_program(self.device, source, self._options)
                except (opencl().RuntimeError, RuntimeError) as error:
                    if not _is_about_the_kernel(error):
                        raise
                    advice = NEWER_PROCESSOR if "unknown target CPU" in str(error) else ""
                    message = f"gpu device {self.device.name!r} cannot compile a kernel: {error}{advice}"
                    raise UnsupportedError(message) from None
                binary = binary_of(program)
            self.cache.add(key, binary)
            return program

    def _built(self, key: str, source: str, saved: bytes | None, compilers: Compilers) -> Any:
        for binary in (self.cache.binary(key), saved):
            if binary is None:
                continue
            try:
                return self._loaded(binary)
            except (opencl().Error, RuntimeError) as error:
                if not _is_about_the_kernel(error):
                    raise
                self.cache.drop(key)  # another build of the driver, or damage that a checksum cannot show
        program = self._compile(key, source, compilers)
        return self._loaded(self.cache.binary(key) or b"") if program is None else program

    def _loaded(self, binary: bytes) -> Any:
        handle = self.device.handle
        with silence:
            return opencl().Program(self.device.context, [handle], [binary]).build(devices=[handle])

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
