# SPDX-License-Identifier: Apache-2.0
"""Concurrency on a device: priorities, yields, VTCM, cores, batches, threads of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.device import (
    Binary,
    CreationConfig,
    DeclaredTime,
    Device,
    DeviceError,
    DeviceSignal,
    GraphSpec,
    Qnn,
    SimulatedTime,
)
from hexforge.addons.device.contexts.configs import thread_priorities
from hexforge.addons.device.contexts.handles import DeviceGraph
from hexforge.addons.device.graph_time import Clocks
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import parse_script
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backends.htp.time import cost
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.priority import Priority
from hexforge.chips.soc import require_chip
from tests.addons.device import tiny
from tests.backends.htp.test_graph_options import spilling_model

MB = 1 << 20


def large_convolutions() -> onnx.ModelProto:
    """Two convolutions of 192 x 192 pixels and 128 channels."""
    weights = [numpy_helper.from_array(np.full((128, 128, 3, 3), 0.01, np.float32), name) for name in ("a", "b")]
    nodes = [
        helper.make_node("Conv", [source, weight], [out], pads=[1, 1, 1, 1])
        for source, weight, out in (("x", "a", "m"), ("m", "b", "y"))
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 128, 192, 192]) for name in "xy"]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def qnn(soc: str = "SM8650", **more: Any) -> Qnn:
    q = Qnn(Device(soc, **more).process("app", privileged=True))
    q.use_profile("burst")
    return q


def graph(
    q: Qnn, name: str, us: float, tasks: int, priority: Priority = Priority.NORMAL, vtcm_mb: float = 8, **more: Any
) -> DeviceGraph:
    vtcm = round(vtcm_mb * MB)
    time = DeclaredTime(us, tasks, vtcm_bytes=vtcm)
    made = Binary(name, (GraphSpec("g", MB, vtcm_bytes=vtcm, time=time, **more),))
    context = q.QnnContext_createFromBinary(made, CreationConfig(priority=priority))
    return context.graphs["g"]


@pytest.mark.feature("Graph priority", guide="3178-3240")
def test_priorities_have_the_threads_of_the_guide() -> None:
    wanted = {Priority.LOW: (0xC5, 0xC6), Priority.NORMAL: (0xC0, 0xC1), Priority.NORMAL_HIGH: (0xBD, 0xBE)}
    assert {p: thread_priorities(p) for p in wanted} == wanted
    assert thread_priorities(Priority.HIGH) == (0xBB, 0xBC)
    assert [int(p) for p in (Priority.LOW, Priority.NORMAL, Priority.NORMAL_HIGH, Priority.HIGH)] == [0, 100, 150, 200]
    q = qnn()
    one = graph(q, "a", 100, 1)
    assert (one.hmx_thread, one.hvx_thread) == (0xC0, 0xC1)
    q.QnnGraph_setConfig(one, priority=Priority.HIGH)
    assert (one.hmx_thread, one.hvx_thread) == (0xBB, 0xBC)
    q.QnnContext_setConfig(one.context, priority=Priority.LOW)
    assert (one.hmx_thread, one.hvx_thread) == (0xC5, 0xC6)


@pytest.mark.feature("Graph priority", guide="3178-3240")
@pytest.mark.parametrize("priority", [p for p in Priority if p > Priority.NORMAL])
def test_high_priorities_are_restricted(priority: Priority) -> None:
    q = Qnn(Device("SM8650").process("app"))
    made = Binary("m", (GraphSpec("g", MB),))
    with pytest.raises(DeviceError, match="restricted") as error:
        q.QnnContext_createFromBinary(made, CreationConfig(priority=priority))
    assert error.value.code == 1005
    context = q.QnnContext_createFromBinary(made)
    with pytest.raises(DeviceError, match="restricted"):
        q.QnnGraph_setConfig(context.graphs["g"], priority=priority)
    with pytest.raises(DeviceError, match="restricted"):
        q.QnnContext_setConfig(context, priority=priority)
    with pytest.raises(DeviceError, match="restricted"):
        q.QnnContext_createFromBinary(made, CreationConfig(graph_priorities={"g": priority}))
    assert context.graphs["g"].priority is Priority.NORMAL


@pytest.mark.parametrize("priority", [p for p in Priority if p <= Priority.NORMAL])
def test_low_priorities_are_for_everybody(priority: Priority) -> None:
    q = Qnn(Device("SM8650").process("app"))
    context = q.QnnContext_createFromBinary(Binary("m", (GraphSpec("g", MB),)), CreationConfig(priority=priority))
    assert context.graphs["g"].priority is priority


@pytest.mark.feature("Yielding and pre-emption", guide="2696-2698")
def test_a_high_priority_waits_for_one_task_and_the_vtcm() -> None:
    q = qnn()
    low = graph(q, "low", 10_000, 20, Priority.LOW)
    high = graph(q, "high", 1000, 5, Priority.HIGH)
    clock = q.client.device.clock
    slow = q.QnnGraph_executeAsync(low)
    clock.run(clock.now_us + 3210)
    quick = q.wait(q.QnnGraph_executeAsync(high))
    move = 8 * cost.costs(q.client.device.soc).dram_us(MB)
    task = 10_000 / 20
    assert quick.accelerator_us == pytest.approx(1000)
    assert quick.latency_us <= 1000 + task + move + 1e-6
    done = q.wait(slow)
    assert done.yields == 1
    assert done.accelerator_us == pytest.approx(10_000)
    assert done.moved_us == pytest.approx(2 * move)


@pytest.mark.feature("Yielding and pre-emption", guide="2696-2698")
def test_a_high_priority_does_not_wait_for_a_whole_convolution(tmp_path: Path) -> None:
    """Large ops are cut into pieces that fit VTCM (the guide, 2643-2652), and a graph can yield after each of them."""
    time = SimulatedTime(graph_of(large_convolutions()), require_chip(tiny.SOC), GraphConfig(), precision="float")
    rows = time.timeline().rows
    longest = max(row.us for row in rows)
    assert max(row.pieces for row in rows) >= 8
    pieces = time.inference(Clocks()).pieces_us
    assert sum(pieces) == pytest.approx(time.timeline().accelerator_us)
    q = qnn(tiny.SOC)
    slow = Binary("low", (GraphSpec("g", MB, vtcm_bytes=8 * MB, time=time),))
    low = q.QnnContext_createFromBinary(slow, CreationConfig(priority=Priority.LOW)).graphs["g"]
    high = graph(q, "high", 100, 5, Priority.HIGH)
    q.QnnGraph_execute(low)
    alone = q.QnnGraph_execute(high).latency_us
    move = 8 * cost.costs(q.client.device.soc).dram_us(MB)
    waited = []
    for part in range(1, 8):
        begun = q.QnnGraph_executeAsync(low)
        q.client.device.clock.run(q.client.device.clock.now_us + 600 + part * 100)
        waited.append(q.wait(q.QnnGraph_executeAsync(high)).latency_us - alone)
        assert q.wait(begun).yields == 1
    assert max(waited) <= max(pieces) + move + 1e-6
    assert max(pieces) <= longest / 8


def test_equal_graphs_of_one_priority_share_the_time() -> None:
    q = qnn()
    graphs = [graph(q, name, 1000, 10) for name in "ab"]
    ends: dict[str, list[float]] = {"a": [], "b": []}

    def again(name: str, graph: DeviceGraph, left: int) -> None:
        def ended(_: Any) -> None:
            ends[name].append(q.client.device.clock.now_us)
            if left > 1:
                again(name, graph, left - 1)

        q.QnnGraph_executeAsync(graph).then(ended)

    start = q.client.device.clock.now_us
    for name, made in zip("ab", graphs, strict=True):
        again(name, made, 20)
    q.client.device.clock.run(start + 60_000)
    assert [len(e) for e in ends.values()] == [20, 20]
    assert ends["a"][-1] - start == pytest.approx(39_000, rel=0.01)
    assert ends["b"][-1] - start == pytest.approx(40_000, rel=0.01)


def test_vtcm_is_not_saved_where_both_fit() -> None:
    q = qnn("SM8850")
    low = graph(q, "low", 10_000, 20, Priority.LOW, vtcm_mb=4 - 1 / 16)
    high = graph(q, "high", 1000, 5, Priority.HIGH, vtcm_mb=4 + 1 / 16)
    clock = q.client.device.clock
    slow = q.QnnGraph_executeAsync(low)
    clock.run(clock.now_us + 3210)
    q.wait(q.QnnGraph_executeAsync(high))
    done = q.wait(slow)
    assert (done.yields, done.moved_us) == (1, 0.0)


@pytest.mark.feature("VTCM sharing", guide="2725-2727")
def test_vtcm_that_others_hold_is_waited_for() -> None:
    q = qnn()
    device = q.client.device
    one = graph(q, "a", 100, 1, vtcm_mb=8)
    device.reserve_vtcm(MB)
    running = q.QnnGraph_executeAsync(one)
    device.clock.after(5000, device.release_vtcm, MB)
    assert q.wait(running).latency_us > 5000
    small = graph(q, "b", 100, 1, vtcm_mb=7)
    device.reserve_vtcm(MB)
    assert q.wait(q.QnnGraph_executeAsync(small)).latency_us < 1000


@pytest.mark.feature("VTCM sharing", guide="2725-2727")
def test_vtcm_that_nobody_gives_back_is_code_1010() -> None:
    q = qnn()
    large, small = graph(q, "a", 100, 1, vtcm_mb=8), graph(q, "b", 100, 1, vtcm_mb=1)
    device = q.client.device
    device.reserve_vtcm(7 * MB)
    with pytest.raises(DeviceError, match="others hold 7,340,032 of 8,388,608") as error:
        q.QnnGraph_execute(large)
    assert (error.value.name, error.value.code) == ("QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE", 1010)
    q.QnnGraph_execute(small)  # the core is free
    device.release_vtcm(7 * MB)
    q.QnnGraph_execute(large)
    script = {
        "binaries": {"m": {"graphs": [{"name": "g", "vtcm_mb": 8}]}},
        "processes": [{"threads": [[
            {"do": "reserve_vtcm", "size_mb": 8},
            {"do": "create", "context": "c", "binary": "m"},
            {"do": "execute", "graph": "c/g", "expect": "QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE"},
            {"do": "release_vtcm", "size_mb": 8},
            {"do": "execute", "graph": "c/g"},
        ]]}],
    }  # fmt: skip
    assert play(parse_script(script)).unexpected == []


@pytest.mark.feature("VTCM sharing", guide="2725-2727")
@pytest.mark.parametrize(
    ("soc", "size", "code"),
    [("SM8450", MB, 1000), ("SM8650", 65536, 1000), ("SM8850", 65537, 1000), ("SM8650", 9 * MB, 1010)],
)
def test_vtcm_sharing_has_limits(soc: str, size: int, code: int) -> None:
    with pytest.raises(DeviceError) as error:
        Device(soc).reserve_vtcm(size)
    assert error.value.code == code


def test_bytes_of_vtcm_can_be_shared_from_v81_on() -> None:
    device = Device("SM8850")
    device.reserve_vtcm(65536)
    assert device.cores.reserved_bytes == 65536


@pytest.mark.feature("num_cores", guide="1248-1250")
def test_cores_run_side_by_side_and_together() -> None:
    one, two = qnn("SA8775P"), qnn("SA8775P", cores=2)
    times = []
    for q in (one, two):
        graphs = [graph(q, name, 1000, 10) for name in "ab"]
        pending = [q.QnnGraph_executeAsync(made) for made in graphs]
        times.append(max(q.wait(p).latency_us for p in pending))
    assert times[0] > 1.9 * times[1]
    both = graph(two, "both", 1000, 10, num_cores=2)
    assert two.QnnGraph_execute(both).accelerator_us == pytest.approx(1000 / 1.9)
    other = graph(two, "c", 1000, 10)
    alone = two.QnnGraph_executeAsync(other)
    two.client.device.clock.run(two.client.device.clock.now_us + 10)
    assert two.QnnGraph_execute(both).latency_us > 900 + 1000 / 1.9  # it needs both cores, and waited
    assert alone.done


def test_an_execution_can_be_aborted_and_the_core_goes_on() -> None:
    q = qnn()
    one, two = graph(q, "a", 10_000, 10), graph(q, "b", 100, 1)
    with pytest.raises(DeviceError) as error:
        q.QnnGraph_execute(one, signal=DeviceSignal(timeout_us=500))
    assert error.value.code == 6033
    signal = DeviceSignal()
    q.client.device.clock.after(500, signal.abort)
    with pytest.raises(DeviceError) as error:
        q.QnnGraph_execute(one, signal=signal)
    assert error.value.code == 6031
    assert q.QnnGraph_execute(two).latency_us < 1000
    assert q.QnnGraph_execute(one).accelerator_us == pytest.approx(10_000)


@pytest.mark.feature("Variable batch at execute", guide="43-45")
def test_a_batch_multiple_is_bit_equal_to_single_runs(tmp_path: Path) -> None:
    q = qnn(tiny.SOC)
    found = tiny.binaries(tmp_path)
    random = np.random.default_rng(0)
    for name, shape in (("dense", (1, 8)), ("conv", (1, 3, 8, 8))):
        context = q.QnnContext_createFromBinary(found[name])
        made = next(iter(context.graphs.values()))
        x = random.standard_normal((3, *shape[1:])).astype(np.float32)
        whole = q.QnnGraph_execute(made, {"x": x})
        single = [q.QnnGraph_execute(made, {"x": x[i : i + 1]}).outputs["y"] for i in range(3)]
        assert whole.batch == 3
        assert np.array_equal(whole.outputs["y"], np.concatenate(single))
        for wrong in (x[:, :-1], x.astype(np.float64), np.zeros((0, *shape[1:]), np.float32)):
            with pytest.raises(DeviceError) as error:
                q.QnnGraph_execute(made, {"x": wrong})
            assert error.value.code == 6004
    with pytest.raises(DeviceError, match="'x' is missing"):
        q.QnnGraph_execute(made, {"z": x})


@pytest.mark.feature("Variable batch at execute", guide="43-45")
def test_mixed_batch_multiples_are_refused(tmp_path: Path) -> None:
    import hexforge
    from tests.ort.models import FLOAT, model, node

    data = model([node("Add", ["a", "b"], ["y"], name="add")], {"a": (FLOAT, [1, 4]), "b": (FLOAT, [1, 4])},
                 {"y": (FLOAT, [1, 4])})  # fmt: skip
    hexforge.compile(data, tmp_path / "add.bin", tiny.SOC)
    q = qnn(tiny.SOC)
    context = q.QnnContext_createFromBinary(Binary.of(tmp_path / "add.bin", q.client.device.soc))
    made = next(iter(context.graphs.values()))
    one, two = np.ones((1, 4), np.float32), np.ones((2, 4), np.float32)
    with pytest.raises(DeviceError, match="one batch multiple; given: a 2, b 1") as error:
        q.QnnGraph_execute(made, {"a": two, "b": one})
    assert error.value.code == 6004
    assert np.array_equal(q.QnnGraph_execute(made, {"a": two, "b": two}).outputs["y"], two * 2)


def test_vtcm_in_bytes_is_compiled_and_shared(tmp_path: Path) -> None:
    import hexforge

    size = 4 * MB - 65536
    config = hexforge.GraphConfig(vtcm_size=size)
    for name, chosen in (("bytes", config), ("plain", hexforge.GraphConfig())):
        hexforge.compile(tiny.conv(), tmp_path / name, hexforge.Deployment("SM8850", config=chosen))
    q = qnn("SM8850")
    found = {name: Binary.of(tmp_path / name, q.client.device.soc) for name in ("bytes", "plain")}
    assert [b.graphs[0].vtcm_bytes for b in found.values()] == [size, 4 * MB]
    x = {"x": np.ones((1, 3, 8, 8), np.float32)}
    made = [q.QnnContext_createFromBinary(b).graphs[b.graphs[0].name] for b in found.values()]
    outs = [q.QnnGraph_execute(one, x).outputs["y"] for one in made]
    assert np.array_equal(*outs)  # type: ignore[arg-type]
    with pytest.raises(hexforge.CallError, match="64 KB"):
        hexforge.compile(tiny.conv(), None, hexforge.Deployment("SM8850", config=hexforge.GraphConfig(vtcm_size=65537)))
    with pytest.raises(hexforge.CallError, match="v81"):
        hexforge.compile(tiny.conv(), None, hexforge.Deployment("SM8650", config=config))


@pytest.mark.feature("HVX threads", guide="499-505, 1090-1129")
def test_hvx_threads_change_until_the_first_run(tmp_path: Path) -> None:
    q = qnn(tiny.SOC)
    context = q.QnnContext_createFromBinary(tiny.binaries(tmp_path)["conv"])
    made = next(iter(context.graphs.values()))
    feeds = {"x": np.zeros((1, 3, 8, 8), np.float32)}
    with pytest.raises(DeviceError) as error:
        q.QnnGraph_setConfig(made, num_hvx_threads=9)
    assert error.value.code == 6000
    q.QnnGraph_setConfig(made, num_hvx_threads=1)
    slow = q.QnnGraph_execute(made, feeds).accelerator_us
    with pytest.raises(DeviceError, match="after the first execution"):
        q.QnnGraph_setConfig(made, num_hvx_threads=4)
    other = q.QnnContext_createFromBinary(tiny.binaries(tmp_path)["conv"])
    assert q.QnnGraph_execute(next(iter(other.graphs.values())), feeds).accelerator_us < slow
    with pytest.raises(DeviceError, match="slc_alloc_enable"):
        q.QnnGraph_setConfig(made, slc=False)


@pytest.mark.feature("SLC allocator", guide="1131-1188")
def test_the_system_level_cache_is_forced_off_and_on_again_at_execution(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(spilling_model())
    config = hexforge.GraphConfig(slc_alloc_enable=True, vtcm_mb=1)
    hexforge.compile(str(tmp_path / "m.onnx"), tmp_path / "m.bin", hexforge.Deployment("SM8750", config=config))
    q = qnn("SM8750")
    context = q.QnnContext_createFromBinary(Binary.of(tmp_path / "m.bin", q.client.device.soc))
    made = next(iter(context.graphs.values()))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 32, 256, 256)).astype(np.float32)}
    on = q.QnnGraph_execute(made, feeds)
    q.QnnGraph_setConfig(made, slc=False)
    off = q.QnnGraph_execute(made, feeds)
    q.QnnGraph_setConfig(made, slc=True)
    again = q.QnnGraph_execute(made, feeds)
    assert off.accelerator_us > on.accelerator_us == again.accelerator_us
    for other in (off, again):
        assert np.array_equal(on.outputs["y"], other.outputs["y"])


def test_a_graph_whose_loading_is_ended_is_loaded_by_the_next_call(tmp_path: Path) -> None:
    q = qnn(tiny.SOC)
    config = CreationConfig(is_persistent_binary=True, memory_limit_hint=1)
    context = q.QnnContext_createFromBinary(tiny.binaries(tmp_path)["pair"], config)
    first, second = context.graphs["a"], context.graphs["b"]
    feeds = {"x": np.ones((1, 40), np.float32)}
    whole = q.QnnGraph_execute(second, feeds)
    q.QnnGraph_execute(first, feeds)
    used, ended = q.client.heap_bytes, 0
    for at in np.arange(1, whole.latency_us, 0.4):  # the loading of so small a graph is short
        try:
            q.QnnGraph_execute(second, feeds, signal=DeviceSignal(float(at)))
        except DeviceError as error:
            ended += error.code == 6033  # QNN_GRAPH_ERROR_TIMED_OUT
        assert np.array_equal(q.QnnGraph_execute(second, feeds).outputs["y"], whole.outputs["y"])
        q.QnnGraph_execute(first, feeds)
        assert q.client.heap_bytes == used
    assert ended > 10
