# SPDX-License-Identifier: Apache-2.0
"""Kernels that CUDA records, on NVIDIA's GPUs alone: the bits of OpenCL's, faults, failures and memory."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyopencl")

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.gpu import building, cache
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import ClDevice, choose
from hexforge.addons.gpu.resident import cuda, cuda_graph
from hexforge.backend import kernel_times
from hexforge.errors import CallError, CapacityError
from hexforge.ir import Array, DType, Graph, Role, TensorType

pytestmark = pytest.mark.gpu


@pytest.fixture
def device() -> Iterator[ClDevice]:
    found = choose()
    if found.cuda is None:
        pytest.skip("CUDA has no device here")
    before = found._cuda
    yield found
    found._cuda, found._lost_cuda = before, None


def convolutions(seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    g = Graph("g")
    x = g.value("x", TensorType(DType.FLOAT32, (1, 14, 14, 64)), Role.APP_WRITE)
    for i in range(3):
        filters = g.static(rng.standard_normal((3, 3, 64, 64)).astype(np.float32) * np.float32(0.05))
        out = g.value("y" if i == 2 else f"h{i}", x.type, Role.APP_READ if i == 2 else Role.NATIVE)
        pads = ((1, 1), (1, 1))
        g.node("Conv2d", [x, filters], [out], stride=(1, 1), pad_amount=pads, dilation=(1, 1), group=1)
        x = out
    return g


def picture(seed: int = 1) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 14, 14, 64)).astype(np.float32)}


def test_recorded_kernels_give_the_bits_of_opencl(device: ClDevice) -> None:
    recorded, enqueued = (
        GpuBackend(GpuConfig(gpu_use_queue_recording=flag)).compile(convolutions()) for flag in (True, False)
    )
    for seed in range(3):
        want = enqueued.run(picture(seed))["y"]
        np.testing.assert_array_equal(recorded.run(picture(seed))["y"], want)
    times: list[object] = []
    token = kernel_times.set(times)  # type: ignore[arg-type]
    try:
        np.testing.assert_array_equal(recorded.run(picture(2))["y"], want)
    finally:
        kernel_times.reset(token)
    assert len(times) == len(recorded.launches)
    begin = time.perf_counter()
    _, measured = recorded.timed(picture())
    assert 0 < measured.span_us < 1e6 * (time.perf_counter() - begin)
    assert len(measured.kernels) == len(recorded.launches)
    assert all(us > 0 for us in measured.kernels_us)


def test_machine_code_is_remembered_and_made_again_where_it_is_damaged(
    device: ClDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    linked: list[bytes] = []
    link = cuda.Cuda.linked
    monkeypatch.setattr(cuda.Cuda, "linked", lambda self, binary: linked.append(binary) or link(self, binary))
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))

    def anew(code: bytes | None = None) -> tuple[Array, int]:
        """What a program gives whose kernels nobody has loaded, and how many were linked for it."""
        monkeypatch.setattr(building, "_builders", {})
        assert device.cuda is not None
        device.cuda._functions.clear()
        made = building.builder(device)
        for key in [k for k in made.cache._binaries if k.endswith(":linked") and code is not None]:
            made.cache._binaries[key] = code or b""
        linked.clear()
        return GpuBackend().compile(convolutions()).run(picture())["y"], len(linked)

    want, first = anew()
    assert first
    for damage, expected in ((None, 0), (b"nonsense", first), (b"\x7fELF nonsense", first)):
        got, count = anew(damage)
        assert count == expected
        np.testing.assert_array_equal(got, want)


def test_an_index_outside_is_a_fault_once(device: ClDevice) -> None:
    g = Graph("g")
    x = g.value("x", TensorType(DType.INT32, (3,)), Role.APP_WRITE)
    table = g.static(np.arange(8, dtype=np.float32))
    g.node("Gather", [table, x], [g.value("y", TensorType(DType.FLOAT32, (3,)), Role.APP_READ)], axis=0)
    program = GpuBackend().compile(g)
    with pytest.raises(CallError, match="outside"):
        program.run({"x": np.asarray([1, 9, 2], np.int32)})
    np.testing.assert_array_equal(program.run({"x": np.asarray([1, 7, 2], np.int32)})["y"], [1, 7, 2])


def test_a_failure_of_cuda_leaves_the_run_to_opencl(device: ClDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [GpuBackend().compile(convolutions(seed)) for seed in (0, 1)]
    want = [p.run(picture())["y"] for p in programs]
    real = cuda.call

    def failing(name: str, *arguments: object) -> None:
        if name == "cuGraphLaunch":
            raise cuda.CudaError(name, 700)
        real(name, *arguments)

    monkeypatch.setattr(cuda_graph, "call", failing)
    monkeypatch.setattr(cuda.Cuda, "destroy", lambda self: None)
    for program, expected in zip(programs, want, strict=True):
        np.testing.assert_array_equal(program.run(picture())["y"], expected)
    assert device.cuda is None


def test_want_of_memory_is_said_and_cuda_stays(device: ClDevice) -> None:
    g = Graph("large")
    rows = device.memory_bytes // 4096
    x = g.value("x", TensorType(DType.FLOAT32, (rows, 1024)), Role.APP_WRITE)
    g.node("ReduceMax", [x], [g.value("y", TensorType(DType.FLOAT32, ()), Role.APP_READ)], axes=(0, 1))
    with pytest.raises(CapacityError, match="memory"):
        GpuBackend().compile(g)
    assert device.cuda is not None


def test_memory_is_given_back(device: ClDevice) -> None:
    def free() -> int:
        left, whole = ctypes.c_size_t(), ctypes.c_size_t()
        gc.collect()
        assert device.cuda is not None
        with device.cuda.current():
            cuda.call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(whole))
        return left.value

    left = []
    for _ in range(3):  # the driver keeps some of what the first ones took
        for seed in range(20):
            GpuBackend().compile(convolutions(seed)).run(picture())
        left.append(free())
    assert left[2] >= left[1] - (4 << 20)
