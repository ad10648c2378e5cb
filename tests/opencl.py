# SPDX-License-Identifier: Apache-2.0
"""Whether this computer's OpenCL compiles a kernel: PoCL's compiler may be older than the processor."""

from __future__ import annotations

from functools import cache

import pytest

from hexforge.addons.gpu.building import NEWER_PROCESSOR


@cache
def compiler_fault() -> str:
    """What the device that tests run on says of the least kernel; nothing where it compiles it."""
    from hexforge.addons.gpu.compiling import compiled_program
    from hexforge.addons.gpu.device import choose, opencl

    device = choose()
    try:
        compiled_program(device, "kernel void nothing(global float* x) { x[0] = 0; }", "")
    except (opencl().RuntimeError, RuntimeError) as error:
        return str(error)
    return ""


def require_compiler() -> None:
    """Skip a test where the processor is newer than PoCL's compiler; any other fault is the test's to meet."""
    pytest.importorskip("pyopencl")
    if "unknown target CPU" in compiler_fault():
        pytest.skip(f"OpenCL compiles nothing here{NEWER_PROCESSOR}")
