# SPDX-License-Identifier: Apache-2.0
"""Faults: crashes of the subsystem and of process domains; what is lost, what is recovered, who goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.addons.device import (
    Binary,
    CreationConfig,
    DataRequest,
    DeclaredTime,
    Device,
    DeviceError,
    DmaBufferCallback,
    DmaDataResponse,
    GraphSpec,
    GroupRegistration,
    MemDescriptor,
    Qnn,
    SharedBuffer,
    audit,
)
from hexforge.addons.device.contexts.callbacks import RAW_BUFFER
from hexforge.addons.device.contexts.handles import DeviceGraph, State
from tests.addons.device import tiny

X = np.random.default_rng(3).standard_normal((1, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Binary]:
    return tiny.binaries(tmp_path_factory.mktemp("contexts"))


def opened(q: Qnn, binary: Binary, config: CreationConfig | None = None) -> DeviceGraph:
    return next(iter(q.QnnContext_createFromBinary(binary, config).graphs.values()))


@pytest.mark.feature("SubSystem Restart", guide="2729-2731")
def test_a_crash_while_a_graph_runs_is_told_and_recovered_from(binaries: dict[str, Binary]) -> None:
    device = Device(tiny.SOC)
    q = Qnn(device.process("app"))
    graph = opened(q, binaries["dense"])
    right = q.QnnGraph_execute(graph, {"x": X}).outputs["y"]
    device.clock.after(60, device.restart)
    with pytest.raises(DeviceError, match="crashed") as error:
        q.QnnGraph_execute(graph, {"x": X})
    assert (error.value.name, error.value.code) == ("QNN_COMMON_ERROR_SYSTEM_COMMUNICATION", 1007)
    assert (graph.context.state, device.memory.used_bytes) == (State.LOST, 0)
    with pytest.raises(DeviceError, match="load it again"):
        q.QnnGraph_execute(graph, {"x": X})
    again = q.QnnGraph_execute(graph, {"x": X}, recover=True)
    assert np.array_equal(again.outputs["y"], right)
    assert again.latency_us > 300_000  # the restart is waited for
    device.clock.after(60, device.crash, q.client)
    at_once = q.QnnGraph_execute(graph, {"x": X}, recover=True)
    assert np.array_equal(at_once.outputs["y"], right)
    assert len(device.log.of("recovered")) == 2
    q.QnnContext_free(graph.context)
    assert audit(device.log.entries) == 0


def test_an_embedded_context_fails_clearly_and_a_new_one_works(binaries: dict[str, Binary]) -> None:
    device = Device(tiny.SOC)
    q = Qnn(device.process("app"))
    graph = opened(q, binaries["inside"])
    right = q.QnnGraph_execute(graph, {"x": X}).outputs["y"]
    device.restart()
    for recover in (False, True):
        with pytest.raises(DeviceError, match="create the session again") as error:
            q.QnnGraph_execute(graph, {"x": X}, recover=recover)
        assert error.value.code == 1007
    q.QnnContext_free(graph.context)
    again = opened(q, binaries["inside"])
    assert np.array_equal(q.QnnGraph_execute(again, {"x": X}).outputs["y"], right)


def test_other_sessions_and_processes_go_on(binaries: dict[str, Binary]) -> None:
    device = Device(tiny.SOC)
    one, two = Qnn(device.process("one")), Qnn(device.process("two"))
    first, second = opened(one, binaries["dense"]), opened(two, binaries["dense"])
    device.clock.after(60, device.crash, one.client)
    bad, good = one.QnnGraph_executeAsync(first, {"x": X}), two.QnnGraph_executeAsync(second, {"x": X})
    assert two.wait(good).outputs["y"].shape == (1, 8)
    with pytest.raises(DeviceError):
        one.wait(bad)
    big = Binary("big", (GraphSpec("g", 3 << 30, time=DeclaredTime(1000)),))
    graphs = [opened(one, big) for _ in range(2)]
    assert [g.context.session.index for g in graphs if g.context.session] == [0, 1]
    device.crash(one.client, 0)
    one.QnnGraph_execute(graphs[1])
    with pytest.raises(DeviceError):
        one.QnnGraph_execute(graphs[0])
    assert one.QnnGraph_execute(graphs[0], recover=True).latency_us > 0


def test_a_creation_that_the_crash_meets_fails_and_leaves_nothing(binaries: dict[str, Binary]) -> None:
    device = Device(tiny.SOC)
    q = Qnn(device.process("app"))
    opened(q, binaries["dense"])
    device.clock.after(100, device.restart)
    with pytest.raises(DeviceError, match="crashed"):
        q.QnnContext_createFromBinary(binaries["conv"])
    assert audit(device.log.entries) == 0
    assert opened(q, binaries["conv"])


def test_buffers_groups_and_priorities_come_back(binaries: dict[str, Binary]) -> None:
    device = Device(tiny.SOC)
    q = Qnn(device.process("app"))
    graph = opened(q, binaries["dense"], CreationConfig(register_multi_contexts=GroupRegistration(None, 1 << 20)))
    buffer = SharedBuffer(64)
    handles = q.QnnMem_register(
        graph.context,
        [MemDescriptor(buffer, "x", (1, 8), "float32"), MemDescriptor(buffer, "y", (1, 8), "float32", 32)],
    )
    buffer.array((1, 8), np.float32)[...] = X
    feeds, into = {"x": handles[0]}, {"y": handles[1]}
    before = device.memory.used_bytes
    done = q.QnnGraph_execute(graph, feeds, into)
    assert done.outputs["y"].ctypes.data == buffer.address + 32
    right = done.outputs["y"].copy()
    buffer.array((1, 8), np.float32, 32)[...] = 0
    device.restart()
    done = q.QnnGraph_execute(graph, feeds, into, recover=True)
    assert np.array_equal(buffer.array((1, 8), np.float32, 32), right)
    assert device.memory.used_bytes == before
    q.QnnMem_deRegister(handles)
    with pytest.raises(DeviceError) as error:
        q.QnnGraph_execute(graph, feeds)
    assert error.value.code == 8001
    q.QnnContext_free(graph.context)
    assert audit(device.log.entries) == 0


# -- callbacks: not faults, but what a client does wrong is ------------------------------------------------------------


class Provider:
    """A client with a file and page-aligned buffers."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.asked: list[DataRequest] = []
        self.released: list[int] = []
        self.buffers: list[SharedBuffer] = []

    def provide(self, request: DataRequest) -> DmaDataResponse:
        self.asked.append(request)
        aligned = -(-request.size // 4096) * 4096
        buffer = SharedBuffer(aligned)
        buffer.bytes[: request.size] = np.frombuffer(self.data, np.uint8, request.size, request.offset)
        self.buffers.append(buffer)
        return DmaDataResponse(buffer.bytes, buffer.fd, 0, aligned)

    def release(self, response: DmaDataResponse) -> None:
        self.released.append(response.fd)

    @property
    def callback(self) -> DmaBufferCallback:
        return DmaBufferCallback(self.provide, self.release)


@pytest.mark.feature("createFromBinaryWithCallback", guide="3373-3560")
@pytest.mark.parametrize(("name", "calls"), [("dense", 1), ("pair", 2)])
def test_weights_come_from_the_clients_buffers(binaries: dict[str, Binary], name: str, calls: int) -> None:
    q = Qnn(Device(tiny.SOC).process("app"))
    binary = binaries[name]
    assert isinstance(binary.source, Path)
    provider = Provider(binary.source)
    context = q.QnnContext_createFromBinaryWithCallback(binary, provider.callback)
    assert len(provider.asked) == calls
    assert all(request.offset % 4096 == 0 for request in provider.asked)
    plain = q.QnnContext_createFromBinary(binary)
    for graph, other in zip(context.graphs.values(), plain.graphs.values(), strict=True):
        x = np.ones(graph.spec.inputs[0][1].shape, np.float32)
        one, two = (q.QnnGraph_execute(g, {"x": x}).outputs["y"] for g in (graph, other))
        assert np.array_equal(one, two)
    assert provider.released == []
    q.QnnContext_free(context)
    assert sorted(provider.released) == sorted(b.fd for b in provider.buffers)


def test_what_is_wrong_with_a_callback_is_said(binaries: dict[str, Binary]) -> None:
    q = Qnn(Device(tiny.SOC).process("app"))
    binary = binaries["pair"]
    assert isinstance(binary.source, Path)
    path = binary.source

    def changed(**more: object) -> DmaBufferCallback:
        provider = Provider(path)

        def provide(request: DataRequest) -> DmaDataResponse:
            good = provider.provide(request)
            given = {"data": good.data, "fd": good.fd, "data_start_offset": 0, "aligned_size": good.aligned_size}
            return DmaDataResponse(**{**given, **more})

        return DmaBufferCallback(provide, provider.release)

    odd = np.empty(1 << 20, np.uint8)[64 - np.empty(0).ctypes.data % 1 :]
    for more, name in (
        ({"fd": 7}, "QNN_CONTEXT_ERROR_INVALID_ARGUMENT"),
        ({"data_start_offset": 64}, "QNN_CONTEXT_ERROR_INVALID_ARGUMENT"),
        ({"aligned_size": 100}, "QNN_CONTEXT_ERROR_INVALID_ARGUMENT"),
        ({"data": None}, "QNN_CONTEXT_ERROR_MEM_ALLOC"),
        ({"data": odd[1:]}, "QNN_CONTEXT_ERROR_INVALID_ARGUMENT"),
    ):
        with pytest.raises(DeviceError) as error:
            q.QnnContext_createFromBinaryWithCallback(binary, changed(**more))
        assert error.value.name == name
    assert audit(q.client.device.log.entries) == 0


@pytest.mark.feature("createFromBinaryWithCallback", guide="3373-3560")
@pytest.mark.parametrize("case", ["raw", "platform", "switching", "udma64", "defer", "secure"])
def test_what_callbacks_exclude(binaries: dict[str, Binary], case: str) -> None:
    from dataclasses import replace

    q = Qnn(Device(tiny.SOC, platform="windows" if case == "platform" else "android").process("app"))
    binary = binaries["dense"]
    assert isinstance(binary.source, Path)
    provider = Provider(binary.source)
    config = {
        "switching": CreationConfig(is_persistent_binary=True, memory_limit_hint=1),
        "defer": CreationConfig(defer_graph_init=True),
    }.get(case, CreationConfig())
    binary = replace(binary, udma64=case == "udma64", secure=case == "secure")
    callback = replace(provider.callback, type=RAW_BUFFER) if case == "raw" else provider.callback
    with pytest.raises(DeviceError) as error:
        q.QnnContext_createFromBinaryWithCallback(binary, callback, config)
    assert (error.value.name, error.value.code) == ("QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE", 1000)
    assert not provider.asked


# -- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("HNRD", guide="2969-2999")
@pytest.mark.feature("API version", guide="9-13")
def test_an_application_without_libraries_takes_the_drivers_on_windows() -> None:
    windows = Device("SM8650", platform="windows", user_driver=True)
    qnn = Qnn(windows.process("app"))
    assert qnn.QnnBackend_getApiVersion() == {"backendApiVersion": (5, 39, 0)}
    assert qnn.load_backend("QnnHtp.dll") == "traditional"
    assert not windows.log.of("warning")
    other = Qnn(windows.process("other"))
    assert other.load_backend("QnnHtp.dll", bundled=False, sdk="2.22.2") == "user driver"
    assert [entry["message"] for entry in windows.log.of("warning")] == [
        "Traditional path not available. Switching to user driver path",
        "HTP user driver is loaded. Switched to user driver path",
    ]
    with pytest.raises(DeviceError, match=r"older than 2\.22\.2"):
        Qnn(windows.process("old")).load_backend("QnnHtp.dll", bundled=False, sdk="2.22.1")
    with pytest.raises(DeviceError, match="bundle them") as error:
        Qnn(Device("SM8650").process("app")).load_backend("libQnnHtp.so", bundled=False)
    assert error.value.code == 1009
    with pytest.raises(hexforge.CallError, match="of Windows"):
        Device("SM8650", user_driver=True)
