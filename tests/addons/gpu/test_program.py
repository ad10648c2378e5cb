# SPDX-License-Identifier: Apache-2.0
"""Programs on OpenCL devices: caches, contexts, threads, faults, devices and what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyopencl")

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.gpu import building, cache
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.cache import DeviceCache, cache_bytes, parse
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import choose
from hexforge.addons.gpu.resident.resident import mapped_library
from hexforge.errors import CallError
from hexforge.ir import DType, Graph, Role, TensorType
from hexforge.ir.arena import arena

pytestmark = pytest.mark.gpu


def graph(scale: float = 2.0) -> Graph:
    g = Graph("g")
    x = g.value("x", TensorType(DType.FLOAT32, (4, 8)), Role.APP_WRITE)
    doubled = g.node("ElementWiseMultiply", [x, g.static(np.array(scale, np.float32))]).outputs[0]
    g.node("Softmax", [doubled], [g.value("y", TensorType(DType.FLOAT32, (4, 8)), Role.APP_READ)], axis=1)
    return g


def large(size: int) -> Graph:
    """A graph whose input alone takes so many bytes."""
    g = Graph("large")
    x = g.value("x", TensorType(DType.FLOAT32, (-(-size // 4096), 1024)), Role.APP_WRITE)
    g.node("ReduceMax", [x], [g.value("y", TensorType(DType.FLOAT32, ()), Role.APP_READ)], axes=(0, 1))
    return g


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_damaged_cache_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = cache_bytes("device", {"a": b"123", "b": b"4567"}, {"k": "v"})
    assert parse(data, "device") == ({"a": b"123", "b": b"4567"}, {"k": "v"})
    for broken in (data[:-1], data[:60] + b"x" + data[61:], b"", data.replace(b"4567", b"4568")):
        with pytest.raises(ValueError, match=r"."):
            parse(broken, "device")
    with pytest.raises(ValueError, match="another"):
        parse(data, "another device")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    first = DeviceCache("d", "v")
    first.add("kernel", b"binary")
    first.flush()
    assert DeviceCache("d", "v").binary("kernel") == b"binary"
    assert first.path is not None
    first.path.write_bytes(first.path.read_bytes()[:-2])
    assert DeviceCache("d", "v").binary("kernel") is None


def test_threads_and_many_runs_agree() -> None:
    programs = [GpuBackend().compile(graph(scale)) for scale in (1.0, 3.0)]
    wrong: list[str] = []

    def work(number: int, scale: float) -> None:
        rng = np.random.default_rng(number)
        for _ in range(40):
            x = rng.standard_normal((4, 8)).astype(np.float32)
            if not np.allclose(programs[number].run({"x": x})["y"], softmax(scale * x), atol=1e-6):
                wrong.append(str(number))

    threads = [threading.Thread(target=work, args=(i, s)) for i, s in ((0, 1.0), (1, 3.0), (0, 1.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_indices_outside_are_said() -> None:
    g = Graph("g")
    data = g.value("data", TensorType(DType.FLOAT32, (5, 2)), Role.APP_WRITE)
    indices = g.value("indices", TensorType(DType.INT64, (3,)), Role.APP_WRITE)
    g.node("Gather", [data, indices], [g.value("y", TensorType(DType.FLOAT32, (3, 2)), Role.APP_READ)], axis=0)
    program = GpuBackend().compile(g)
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(program.run({"data": x, "indices": np.asarray([0, -1, 4])})["y"], x[[0, 4, 4]])
    with pytest.raises(CallError, match="outside"):
        program.run({"data": x, "indices": np.asarray([0, 5, 1])})
    np.testing.assert_array_equal(program.run({"data": x, "indices": np.asarray([1, 2, 3])})["y"], x[1:4])


def test_devices_are_chosen_by_number_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first = choose()
    assert choose("0") is first
    assert choose(first.name[:6].lower()) is not None
    with pytest.raises(CallError, match="no OpenCL device of this computer; there are 0:"):
        choose("no such device")
    monkeypatch.setenv("HEXFORGE_GPU_DEVICE", "nothing like it")
    with pytest.raises(CallError, match="nothing like it"):
        GpuBackend().compile(graph())


_FULL = """
import resource, numpy as np
from pathlib import Path
from hexforge.addons.gpu.device import choose
from hexforge.errors import CapacityError
from tests.addons.gpu.test_program import GpuBackend, graph, large, softmax
device, x = choose(), np.ones((4, 8), np.float32)
other = GpuBackend().compile(graph())
other.run({"x": x})
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), -1))
for size in (device.most_bytes + 1, 1 << 30):
    try:
        GpuBackend().compile(large(size))
    except CapacityError as error:
        print(error)
assert np.allclose(other.run({"x": x})["y"], softmax(2 * x), atol=1e-6)
print("the other one runs")
"""


def test_a_full_device_is_said_and_loses_no_other_session() -> None:
    """Memory is asked of OpenCL for real, in a process that may have little: PoCL's buffers are the process's own."""
    if not choose().is_processor:
        pytest.skip("a GPU has memory of its own")
    done = subprocess.run([sys.executable, "-c", _FULL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, two, last = done.stdout.splitlines()
    assert "has buffers of at most" in one
    assert "is out of memory while it loaded graph 'large'" in two
    assert "the graph needs 1.00 GiB (activations 1.00 GiB, constants 0 B" in two
    assert last == "the other one runs"


def test_a_damaged_kernel_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache whose checksum is right and whose kernels are nonsense, as another build of a driver leaves it."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(building, "_builders", {})
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    expected = GpuBackend().compile(graph(1.5)).run({"x": x})["y"]
    (path,) = tmp_path.glob("*.cache")
    device = choose()
    key = f"{device.name} | {device.driver}"
    binaries, choices = parse(path.read_bytes(), key)
    assert binaries
    for broken in (cache_bytes(key, dict.fromkeys(binaries, b"nonsense"), choices), path.read_bytes()[:-7], b"nothing"):
        path.write_bytes(broken)
        monkeypatch.setattr(building, "_builders", {})
        np.testing.assert_array_equal(GpuBackend().compile(graph(1.5)).run({"x": x})["y"], expected)
        assert set(parse(path.read_bytes(), key)[0]) == set(binaries)


def test_tensors_that_never_meet_share_memory() -> None:
    offsets, total = arena({"a": 100, "b": 100, "c": 50}, {"a": (0, 1), "b": (2, 3), "c": (1, 2)}, 128)
    assert offsets["a"] == offsets["b"]
    assert total == 256
    assert arena({"a": 100, "b": 100}, {"a": (0, 1), "b": (2, 3)}, 128, share=False)[1] == 256


def test_equal_weights_are_shared() -> None:
    def weighted() -> Graph:
        g = Graph("g")
        x = g.value("x", TensorType(DType.FLOAT32, (1, 64)), Role.APP_WRITE)
        w = g.static(np.ones((32, 64), np.float32))
        g.node("FullyConnected", [x, w], [g.value("y", TensorType(DType.FLOAT32, (1, 32)), Role.APP_READ)])
        return g

    one, two = (GpuBackend().compile(weighted()) for _ in range(2))
    apart = GpuBackend(GpuConfig(gpu_use_weight_sharing=False)).compile(weighted())
    held = [{id(h) for h in p._resident.held} for p in (one, two, apart) if p._resident is not None]
    assert held[0] & held[1]
    assert not held[0] & held[2]


def test_refusals_have_reasons() -> None:
    g = Graph("g")
    x = g.value("x", TensorType(DType.FLOAT32, (3, 3)), Role.APP_WRITE)
    node = g.node("Inverse", [x])
    assert "QNN's GPU has no Inverse" in str(GpuBackend().unsupported(node))


def test_the_librarys_path_may_have_spaces_and_any_bytes() -> None:
    line = "7f0a-7f0b r-xp 00000000 08:01 42                         {}\n"
    for path in ("/usr/lib/libOpenCL.so.1", "/home/a cloné/lib/libOpenCL-1a2b.so.1.0.0", "/home/\udcff/libOpenCL.so"):
        maps = line.format("/usr/lib/libc.so.6") + line.format(path) + line.format("[stack]")
        assert mapped_library(maps.encode("utf-8", "surrogateescape")) == path
    assert mapped_library(line.format("/usr/lib/libOpenCLish/libc.so").encode()) is None
