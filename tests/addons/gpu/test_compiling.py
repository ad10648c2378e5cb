# SPDX-License-Identifier: Apache-2.0
"""Processes that compile kernels beside this one: the same numbers with and without them, and none is left behind."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyopencl")

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.gpu import building, cache, compiling
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.building import KernelBuilder
from hexforge.addons.gpu.device import choose
from hexforge.errors import UnsupportedError
from hexforge.ir import DType, Graph, Role, TensorType

pytestmark = pytest.mark.gpu


def graph() -> Graph:
    """Four kernels."""
    g = Graph("g")
    x = g.value("x", TensorType(DType.FLOAT32, (6, 10)), Role.APP_WRITE)
    for i, op in enumerate(("Softmax", "LogSoftmax")):
        out = g.value(f"y{i}", TensorType(DType.FLOAT32, (6, 10)), Role.APP_READ)
        g.node(op, [x], [out], axis=1)
    for i, op in enumerate(("ReduceMax", "ReduceSum")):
        g.node(op, [x], [g.value(f"z{i}", TensorType(DType.FLOAT32, (6,)), Role.APP_READ)], axes=(1,))
    return g


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[compiling.CompilerProcess]]:
    """The processes that were started; afterwards every one has ended, and so have the threads that saw to it."""
    every: list[compiling.CompilerProcess] = []
    make = compiling.CompilerProcess.__init__

    def recorded(self: compiling.CompilerProcess, *arguments: Any) -> None:
        make(self, *arguments)
        every.append(self)

    monkeypatch.setenv(cache.VARIABLE, "")
    monkeypatch.setattr(compiling.CompilerProcess, "__init__", recorded)
    monkeypatch.setattr(building, "helpful_processes", lambda device, missing: 2 if missing else 0)
    monkeypatch.setattr(compiling, "_HERE", 0)  # nothing is compiled here unless a process fails
    monkeypatch.setattr(building, "_builders", {})
    yield every
    for thread in threading.enumerate():
        if thread.name == "hexforge-gpu-compiler":
            thread.join(60)
    assert every
    assert all(process._process.returncode is not None for process in every)


def test_processes_compile_and_numbers_stay(
    started: list[compiling.CompilerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = {"x": np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)}
    with monkeypatch.context() as alone:
        alone.setattr(building, "helpful_processes", lambda device, missing: 0)
        alone.setattr(building, "_builders", {})
        want = GpuBackend().compile(graph()).run(feeds)

    def refused(*_: object) -> None:
        raise AssertionError("compiled here")

    monkeypatch.setattr(building, "compiled_program", refused)
    got = GpuBackend().compile(graph()).run(feeds)
    assert len(started) == 2
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_what_a_process_does_not_compile_is_compiled_here(
    started: list[compiling.CompilerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = KernelBuilder(choose())
    with compiling.Compilers(made.device, made._options, 1) as compilers:
        with pytest.raises(UnsupportedError, match="cannot compile a kernel"):
            made._compile("wrong", "kernel void run(global float* x) { x[0] = nothing; }", compilers)
        (process,) = started
        assert process.is_alive  # a source with a fault is no fault of the process
        source = "kernel void run(global float* x) { x[0] = 1.0f; }"
        assert made._compile("right", source, compilers) is None
        process.kill()
        process._process.wait()
        compilers._free.put(None)
        assert compilers._free.get() is process
        compilers._free.put(process)
        assert made._compile("gone", source, compilers) is not None
        assert made._compile("gone too", source, compilers) is not None
    assert all(made.cache.binary(key) for key in ("right", "gone", "gone too"))


def test_a_process_for_another_device_does_nothing(started: list[compiling.CompilerProcess]) -> None:
    device = choose()
    process = compiling.CompilerProcess(device, "-cl-no-such-option")
    assert process.is_up()
    assert process.compiled("kernel void run(global float* x) { x[0] = 1.0f; }") is None
    process.end()
    other = SimpleNamespace(name=device.name, driver="another driver")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "devices", lambda: (other,))
        stranger = compiling.CompilerProcess(other, "")  # type: ignore[arg-type]
    assert not stranger.is_up()
    stranger.end()


def test_what_drivers_say_is_silenced_in_all_threads_and_no_longer() -> None:
    import pyopencl

    def said() -> None:
        warnings.warn("a log that is not empty", pyopencl.CompilerWarning, stacklevel=1)

    before = list(warnings.filters)
    with compiling.silence:
        inside = threading.Thread(target=compiling.silence.__enter__)
        inside.start()
        inside.join()
        compiling.silence.__exit__()
        said()  # one is inside still
    assert list(warnings.filters) == before
    with pytest.warns(pyopencl.CompilerWarning):
        said()


def test_few_kernels_other_drivers_and_small_devices_start_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(missing: int = 75, platform: str = "NVIDIA CUDA", gib: int = 140) -> int:
        device: Any = SimpleNamespace(platform=platform, memory_bytes=gib << 30)
        return compiling.helpful_processes(device, missing)

    monkeypatch.setattr(compiling, "processors", lambda: 16)
    assert (count(), count(missing=20), count(gib=16)) == (8, 8, 4)
    assert (count(missing=19), count(platform="Portable Computing Language"), count(gib=6)) == (0, 0, 0)
    monkeypatch.setattr(compiling, "processors", lambda: 2)
    assert count() == 0
    monkeypatch.setattr(compiling, "processors", lambda: 4)
    assert count() == 3
    monkeypatch.setattr("multiprocessing.spawn.get_executable", lambda: "/usr/bin/program-with-python-inside")
    assert count() == 0
