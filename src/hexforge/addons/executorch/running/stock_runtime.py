# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's own runtime (`executorch.runtime`, `portable_lib`) with hexforge behind its QnnBackend.

The runtime knows backends by name, and the first that registers a name has it. The wheel's own QnnBackend registers
when the Python bindings are loaded; a small library (runtime_backend.cpp), built against the wheel's headers and loaded
before, registers first and hands every delegate to this module.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.executorch.formats.pte import Delegate, ScalarType
from hexforge.addons.executorch.formats.qnn_options import KEY
from hexforge.addons.executorch.running.delegate import convert_border_type, output_order
from hexforge.addons.executorch.running.event_log import measures
from hexforge.addons.executorch.running.pte_loading import open_delegate
from hexforge.addons.executorch.stock_modules import BINDINGS
from hexforge.errors import CallError, HexforgeError

logger = logging.getLogger("hexforge.addons.executorch")
SOURCE = Path(__file__).with_name("runtime_backend.cpp")
_FAILED = 1
_MOST_DIMS = 16


class _Tensor(ctypes.Structure):
    """HexforgeTensor of runtime_backend.cpp."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("scalar_type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int32 * _MOST_DIMS),
    )


_Init = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p
)
_Execute = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int32, ctypes.POINTER(_Tensor), ctypes.c_void_p)
_Destroy = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class RuntimeBackend:
    """What the library calls: delegates by their handles."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._delegates: dict[int, Any] = {}
        self._handles = itertools.count()
        self._calls = (_Init(self._init), _Execute(self._execute), _Destroy(self._destroy))

    def register(self) -> None:
        """Be the QnnBackend of the runtime; CallError where another was there first."""
        if self._library.hexforge_register(*self._calls):
            raise CallError(
                "ExecuTorch's runtime has loaded a QnnBackend of its own already; call "
                "hexforge.addons.executorch.enable_runtime() before executorch.runtime is imported"
            )

    def _init(self, blob: int, size: int, spec: int, spec_size: int, method: bytes) -> int:
        try:
            data = ctypes.string_at(blob, size)
            specs = {KEY: memoryview(ctypes.string_at(spec, spec_size))} if spec else {}
            name = method.decode()
            delegate = Delegate("QnnBackend", memoryview(data), 0, specs)
            handle = next(self._handles)
            self._delegates[handle] = open_delegate(delegate, name, f"method {name!r}")
        except Exception as error:  # none may pass through C++
            logger.error("%s", error if isinstance(error, HexforgeError) else repr(error))
            return -1
        return handle

    def _execute(self, handle: int, count: int, arguments: Any, tracer: int | None) -> int:
        delegate = self._delegates.get(handle)
        if delegate is None:
            return _FAILED
        try:
            arrays = [_array(arguments[i]) for i in range(count)]
            given = len(delegate.inputs)
            if count != given + len(delegate.outputs):
                raise CallError(f"{delegate.where}: is called with {count} tensors")
            slots = [(into.dtype, into.size) for into in arrays[given:]]
            outputs = output_order(delegate.run(arrays[:given]), slots)
            for i, (output, into) in enumerate(zip(outputs, arrays[given:], strict=True)):
                output = convert_border_type(output, into.dtype, f"{delegate.where}: output {i}")
                if output.size != into.size:
                    into = self._resized(given + i, output.shape, arguments)
                np.copyto(into, output.reshape(into.shape))
        except Exception as error:  # none may pass through C++
            logger.error("%s", error if isinstance(error, HexforgeError) else repr(error))
            return _FAILED
        if tracer:
            for name, amount in measures(delegate, 0, 0):
                self._library.hexforge_log(ctypes.c_void_p(tracer), name.encode(), 0, ctypes.c_uint64(amount))
        return 0

    def _resized(self, index: int, shape: tuple[int, ...], arguments: Any) -> Any:
        sizes = (ctypes.c_int32 * _MOST_DIMS)(*shape)
        if self._library.hexforge_resize(index, sizes):
            raise CallError(f"output {index} cannot have the sizes {list(shape)}")
        tensor = arguments[index]
        tensor.sizes, tensor.bytes = sizes, int(np.prod(shape)) * ScalarType(tensor.scalar_type).numpy.itemsize
        return _array(tensor)

    def _destroy(self, handle: int) -> None:
        self._delegates.pop(handle, None)


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor's memory as an array."""
    shape = tuple(tensor.sizes[: tensor.rank])
    dtype = ScalarType(tensor.scalar_type).numpy
    if not tensor.bytes:
        return np.zeros(shape, dtype)
    memory = (ctypes.c_uint8 * tensor.bytes).from_address(tensor.data)
    return np.frombuffer(memory, dtype).reshape(shape)


_backend: RuntimeBackend | None = None


def enable_runtime() -> None:
    """Let ExecuTorch's runtime run QnnBackend delegates with hexforge; before `executorch.runtime` is imported."""
    global _backend
    if _backend is not None:
        return
    if BINDINGS in sys.modules:
        raise CallError(
            "executorch.runtime is imported already, and with it the wheel's own QnnBackend; call "
            "hexforge.addons.executorch.enable_runtime() before"
        )
    made = RuntimeBackend(ctypes.CDLL(str(build())))
    made.register()
    _backend = made


def build() -> Path:
    """The library, built where it was not yet for this version of ExecuTorch."""
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        raise CallError("executorch is not installed; pip install 'hexforge[executorch]'")
    package = Path(spec.submodule_search_locations[0])
    version = importlib.metadata.version("executorch")
    key = hashlib.blake2b(SOURCE.read_bytes() + str(package).encode(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hexforge"
    library = cache / f"executorch-{version}-{key}.so"
    if library.exists():
        return library
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise CallError("building the runtime's backend needs a C++ compiler; install one, or set CXX to it")
    if not (package / "include").is_dir() or not (package / "lib" / "libexecutorch.so").exists():
        raise CallError(f"executorch {version} ships no headers or no libexecutorch.so; 1.5.1 does")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = Path(folder) / library.name
        include = package / "include"
        command = [
            compiler, "-O2", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden",
            "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED", f"-I{include}",
            f"-I{include}/executorch/runtime/core/portable_type/c10", str(SOURCE), "-o", str(made),
            f"-L{package}/lib", "-lexecutorch", f"-Wl,-rpath,{package}/lib",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CallError(f"{SOURCE.name} cannot be compiled against executorch {version}: {done.stderr[-500:]}")
        made.replace(library)
    return library
