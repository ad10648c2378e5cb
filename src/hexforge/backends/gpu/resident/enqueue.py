# SPDX-License-Identifier: Apache-2.0
"""Enqueueing: OpenCL's own call for each kernel of a program, with every argument made beforehand.

A wrapper that makes an event for each kernel costs more than the kernel's launch; where the library that pyopencl has
loaded cannot be found, pyopencl's wrapper does it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hexforge.backends.gpu.kernels.launch import Launch

_LIBRARY = re.compile(r"(/\S*libOpenCL[^/\s]*)")


@cache
def _function() -> Any:
    """clEnqueueNDRangeKernel of the library that is loaded already, or None."""
    try:
        mapped = _LIBRARY.search(Path("/proc/self/maps").read_text(encoding="utf-8"))
        function = ctypes.CDLL(mapped[1]).clEnqueueNDRangeKernel if mapped else None
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
