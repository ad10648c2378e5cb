# SPDX-License-Identifier: Apache-2.0
"""Enqueueing: OpenCL's own call for each kernel of a program, with every argument made beforehand.

A wrapper that makes an event for each kernel costs more than the kernel's launch; where the library that pyopencl has
loaded cannot be found, pyopencl's wrapper does it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hexforge.addons.gpu.kernels.launch import Launch

_LIBRARY = re.compile(r"(/[^\n]*/libOpenCL[^/\s]*)(?=\s)")
"""A path in a line of /proc/self/maps, where it comes last and may have spaces."""


def mapped_library(maps: bytes) -> str | None:
    """The path of OpenCL's library among the files that a process has mapped."""
    line = _LIBRARY.search(os.fsdecode(maps))
    return line[1] if line else None


@cache
def _function() -> Any:
    """clEnqueueNDRangeKernel of the library that is loaded already, or None."""
    try:
        library = mapped_library(Path("/proc/self/maps").read_bytes())
        function = ctypes.CDLL(library).clEnqueueNDRangeKernel if library else None
    except (OSError, AttributeError):
        return None
    if function is not None:
        sizes = ctypes.POINTER(ctypes.c_size_t)
        pointer = ctypes.c_void_p
        function.argtypes = [pointer, pointer, ctypes.c_uint, sizes, sizes, sizes, ctypes.c_uint, pointer, pointer]
        function.restype = ctypes.c_int
    return function


def prepare_launches(queue: Any, kernels: Sequence[Any], launches: Sequence[Launch]) -> Callable[[], int] | None:
    """Something that enqueues all kernels in order and gives OpenCL's first error, or None where it cannot be."""
    function = _function()
    if function is None:
        return None
    calls = []
    for kernel, launch in zip(kernels, launches, strict=True):
        count = len(launch.global_size)
        sizes = ctypes.c_size_t * count
        whole, local = sizes(*launch.global_size), sizes(*launch.local_size)
        calls.append((queue.int_ptr, kernel.int_ptr, count, None, whole, local, 0, None, None))

    def enqueue() -> int:
        for call in calls:
            error: int = function(*call)
            if error:
                return error
        return 0

    return enqueue
