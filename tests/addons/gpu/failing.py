# SPDX-License-Identifier: Apache-2.0
"""OpenCL that fails on demand: two sessions in a process of its own, while calls beneath pyopencl fail one by one.

`OPENCL_LAYERS=layer.so python -m tests.addons.gpu.failing SCENARIO`: each scenario prints what it went through, or
ends with an assertion. failing_opencl.cpp is the layer.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.building import builder
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import choose
from hexforge.addons.gpu.program import GpuProgram
from hexforge.backend import KernelTime, kernel_times
from hexforge.errors import CapacityError, HexforgeError, UnsupportedError
from hexforge.ir import DType, Graph, Role, TensorType

LAYER = ctypes.CDLL(os.environ["OPENCL_LAYERS"])
LAYER.failing_arm.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int32, ctypes.c_int]
LAYER.failing_count.restype = LAYER.failing_living.restype = ctypes.c_int64
CALLS = {
    "clCreateContext": 4, "clCreateCommandQueue": 9, "clCreateBuffer": 14, "clCreateProgramWithSource": 26,
    "clCreateProgramWithBinary": 27, "clBuildProgram": 30, "clGetProgramInfo": 32, "clCreateKernel": 34,
    "clSetKernelArg": 38, "clWaitForEvents": 41, "clGetEventInfo": 42, "clGetEventProfilingInfo": 45, "clFinish": 47,
    "clEnqueueReadBuffer": 48, "clEnqueueWriteBuffer": 49, "clEnqueueNDRangeKernel": 59, "clCreateSubBuffer": 82,
    "clEnqueueFillBuffer": 102,
}  # fmt: skip
KINDS = ("contexts", "queues", "memory", "programs", "kernels", "events")
FULL = {"MEM_OBJECT_ALLOCATION_FAILURE": -4, "OUT_OF_HOST_MEMORY": -6}
LOST = {"DEVICE_NOT_AVAILABLE": -2, "OUT_OF_RESOURCES": -5, "INVALID_COMMAND_QUEUE": -36, "NVIDIA's fault": -9999}
ONCE, GOES, QUIET, GONE = range(4)
WHOLE = bool(os.environ.get("HEXFORGE_GPU_SWEEP"))
"""Whether every call fails; else the first, the middle and the last of each kind."""
FEEDS = {
    "x": np.random.default_rng(0).standard_normal((1, 6, 6, 8)).astype(np.float32),
    "rows": np.asarray([1, 0, 3], np.int64),
}


def graph(seed: int, name: str = "g") -> Graph:
    """A convolution, a look-up (whose faults are reported in memory), a product and a softmax."""
    g, rng = Graph(name), np.random.default_rng(seed)
    x = g.value("x", TensorType(DType.FLOAT32, (1, 6, 6, 8)), Role.APP_WRITE)
    rows = g.value("rows", TensorType(DType.INT64, (3,)), Role.APP_WRITE)
    w, v = (g.static(rng.standard_normal(s).astype(np.float32)) for s in ((3, 3, 8, 8), (8, 12)))
    y = g.node("Conv2d", [x, w], stride=(1, 1), pad_amount=((1, 1), (1, 1))).outputs[0]
    picked = g.node("Gather", [g.node("Tanh", [y]).outputs[0], rows], axis=1).outputs[0]
    scores = g.node("MatMul", [picked, v]).outputs[0]
    g.node("Softmax", [scores], [g.value("y", TensorType(DType.FLOAT32, (1, 3, 6, 12)), Role.APP_READ)], axis=3)
    return g


def arm(call: str = "", after: int = 0, code: int = 0, mode: int = ONCE) -> None:
    LAYER.failing_arm(CALLS.get(call, -1), after, code, mode)


def living() -> tuple[int, ...]:
    gc.collect()
    return tuple(LAYER.failing_living(i) for i in range(len(KINDS)))


def counted(action: Callable[[], Any]) -> dict[str, int]:
    """How often an action makes each call."""
    arm()
    action()
    return {name: n for name, number in CALLS.items() if (n := LAYER.failing_count(number))}


def refusal(action: Callable[[], Any]) -> HexforgeError | None:
    """What an action was refused with."""
    try:
        action()
    except HexforgeError as error:
        return error
    return None


class Pair:
    """Two sessions on one device, and what they give where nothing fails."""

    def __init__(self, config: GpuConfig | None = None) -> None:
        self.backend = GpuBackend(config)
        self.one, self.two = (self.backend.compile(graph(i, f"session {i}")) for i in range(2))
        self.expected = [self._run(p) for p in (self.one, self.two)]

    def _run(self, program: GpuProgram) -> bytes:
        return program.run(FEEDS)["y"].tobytes()  # type: ignore[arg-type]

    def right(self, number: int = 1) -> None:
        """Assert that a session gives its own numbers."""
        assert self._run((self.one, self.two)[number]) == self.expected[number], f"session {number} is wrong"

    def timed(self) -> None:
        """A run of the first one whose kernels are timed."""
        times: list[KernelTime] = []
        token = kernel_times.set(times)
        try:
            self.right(0)
        finally:
            kernel_times.reset(token)
        assert len(times) == len(self.one.launches)

    def load(self, config: GpuConfig | None = None) -> None:
        """A third session, compiled from nothing or from the cache."""
        made = GpuBackend(config).compile(graph(0, "session 0")) if config else self.backend.compile(graph(0))
        assert self._run(made) == self.expected[0]


def sweep(pair: Pair, action: Callable[[], Any], codes: dict[str, int], modes: tuple[int, ...]) -> tuple[int, int]:
    """Let every call that an action makes fail, one after the other: how many failures were healed, and said."""
    counts = counted(action)
    pair.right(0), pair.right(1)
    healed = said = 0
    before = living()
    for call, count in counts.items():
        for after in range(1, count + 1) if WHOLE else sorted({1, (count + 1) // 2, count}):
            for name, code in codes.items():
                for mode in modes:
                    arm(call, after, code, mode)
                    error = refusal(action)
                    where = f"{call} number {after} with {name}, mode {mode}: {error}"
                    assert error is None or (isinstance(error, CapacityError) and name in FULL), where
                    assert error is None or "the graph needs" in str(error), where
                    healed, said = healed + (error is None), said + (error is not None)
                    assert LAYER.failing_fired(), f"{call} number {after} never came"
                    pair.right(1)  # the other one first: it meets what was left behind
                    arm()
                    pair.right(1), pair.right(0)
    after_all = living()
    grown = {k: (b, a) for k, b, a in zip(KINDS, before, after_all, strict=True) if a > b}
    assert not grown, f"left behind: {grown}"
    return healed, said


def forgotten(action: Callable[[], Any]) -> Callable[[], Any]:
    """An action after which compiled kernels are made anew, from what the cache has."""

    def fresh() -> Any:
        builder(choose()).forget()
        return action()

    return fresh


def runs(pair: Pair) -> None:
    """Every call of a run fails: lost contexts, one failure, a kernel that quietly never ran, memory that ran out."""
    print("runs", sweep(pair, lambda: pair.right(0), LOST, (ONCE, GOES, QUIET)))
    print("full runs", sweep(pair, lambda: pair.right(0), FULL, (ONCE,)))
    print("timed runs", sweep(pair, pair.timed, dict(list(LOST.items())[1:2]), (ONCE, GOES, QUIET)))


def loads(pair: Pair) -> None:
    """Every call of a load fails, with kernels from the cache and compiled from source."""
    codes = dict(list(LOST.items())[1:2])
    print("loads", sweep(pair, forgotten(pair.load), codes, (ONCE, GOES)))
    print("full loads", sweep(pair, forgotten(pair.load), FULL, (ONCE,)))


def compiles(pair: Pair) -> None:
    """Kernels compiled from source while calls fail."""

    def from_source() -> None:
        made = builder(choose())
        made.forget()
        made.cache._binaries.clear()
        pair.load()

    print("compiles", sweep(pair, from_source, dict(list(LOST.items())[1:2]), (ONCE, GOES)))


def tuned(pair: Pair) -> None:
    """Every call fails while tiles are measured; whatever is measured, numbers stay."""
    config = GpuConfig(gpu_tuning=True)

    def tuning() -> None:
        builder(choose()).cache._choices.clear()
        pair.load(config)

    tuning()  # kernels of tiles that are not chosen are compiled at the first time alone
    print("tuned loads", sweep(pair, forgotten(tuning), {"OUT_OF_RESOURCES": -5}, (ONCE, GOES)))
    print("full tuned loads", sweep(pair, forgotten(tuning), {"MEM_OBJECT_ALLOCATION_FAILURE": -4}, (ONCE,)))


def gone(pair: Pair) -> None:
    """A device that is gone: every session says so each time, and works when it is back."""
    for call in ("clEnqueueNDRangeKernel", "clFinish", "clEnqueueReadBuffer"):
        arm(call, 1, LOST["DEVICE_NOT_AVAILABLE"], GONE)
        for number in (0, 1, 0, 1, 1, 0):
            error = refusal(lambda number=number: pair.right(number))  # type: ignore[misc]
            assert isinstance(error, UnsupportedError), error
            assert error.code == 1007
            assert f"graph 'session {number}' (DEVICE_NOT_AVAILABLE, in" in str(error), error
        assert "while it loaded graph" in str(refusal(pair.load))
        arm()
        pair.right(0), pair.right(1)
    print("gone and back")


def threads(pair: Pair) -> None:
    """Four threads over two sessions while contexts are lost again and again: each number is right, none refused."""
    stop, wrong, done = threading.Event(), list[str](), [0] * 4

    def work(number: int) -> None:
        while not stop.is_set():
            try:
                pair.right(number % 2)
                done[number] += 1
            except (AssertionError, HexforgeError) as error:
                wrong.append(str(error))
                return

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    chance, lost = np.random.default_rng(3), 0
    calls = ["clEnqueueNDRangeKernel", "clEnqueueWriteBuffer", "clEnqueueReadBuffer", "clFinish", "clGetEventInfo"]
    for _ in range(int(os.environ.get("HEXFORGE_GPU_LOSSES", "60"))):
        code, mode = int(chance.choice(list(LOST.values()))), int(chance.choice([ONCE, GOES, QUIET]))
        arm(str(chance.choice(calls)), int(chance.integers(1, 8)), code, mode)
        while not (LAYER.failing_fired() or wrong):
            stop.wait(0.002)
        before = list(done)
        while not (wrong or all(now >= then + 2 for now, then in zip(done, before, strict=True))):
            stop.wait(0.002)  # so that no run meets two failures
        lost += 1
    stop.set()
    for worker in workers:
        worker.join(60)
    assert not any(w.is_alive() for w in workers), "a thread hangs"
    assert not wrong, wrong
    arm()
    pair.right(0), pair.right(1)
    print(f"threads: {sum(done)} runs right, {lost} failures among them")


def damaged(pair: Pair) -> None:
    """The cache on disk is damaged while sessions run and lose contexts: kernels are made again, numbers stay."""
    path = builder(choose()).cache.path
    assert path is not None
    for junk in (b"", b"nonsense", path.read_bytes()[:-9]):
        path.write_bytes(junk)
        arm("clEnqueueNDRangeKernel", 2, LOST["OUT_OF_RESOURCES"], GOES)
        pair.right(0), pair.right(1)
        made = builder(choose())
        made.forget()
        for key in list(made.cache._binaries):
            made.cache.add(key, b"no kernel of this driver")
        pair.load()
        made.cache.flush()
        assert path.stat().st_size > 1000
    print("damaged caches are made again")


def sessions(pair: Pair) -> None:
    """What code written for onnxruntime sees: EngineError and Fail at the session at fault, results at the other."""
    from onnxruntime.capi.onnxruntime_pybind11_state import EngineError, Fail

    from tests.addons.gpu.test_gpu_session import X, network, session

    one, two = (session(network().SerializeToString()) for _ in range(2))
    expected = one.run(None, {"x": X})[0].tobytes()
    cases = ((GONE, LOST["DEVICE_NOT_AVAILABLE"], EngineError), (ONCE, FULL["OUT_OF_HOST_MEMORY"], Fail))
    for mode, code, kind in cases:
        arm("clEnqueueNDRangeKernel", 1, code, mode)
        error = refusal(lambda: one.run(None, {"x": X}))
        assert isinstance(error, kind), error
        arm()
        assert all(s.run(None, {"x": X})[0].tobytes() == expected for s in (two, one))
    pair.right(0), pair.right(1)
    print("sessions say EngineError and Fail")


SCENARIOS = {f.__name__: f for f in (sessions, runs, loads, compiles, tuned, gone, threads, damaged)}

if __name__ == "__main__":
    if sys.argv[1] == "tuned":  # tiles are measured for GPUs alone
        from hexforge.addons.gpu.device import ClDevice

        ClDevice.is_processor = property(lambda self: False)  # type: ignore[method-assign,assignment]
        ClDevice.units = 1  # type: ignore[method-assign,assignment]
    both = Pair()
    SCENARIOS[sys.argv[1]](both)
    del both
