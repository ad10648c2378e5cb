# SPDX-License-Identifier: Apache-2.0
"""Memory of a device: sessions, groups, sharing, I/O, switching, to the numbers of the HTP backend's guide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import hexforge
from hexforge.addons.budgets.gate import gate
from hexforge.addons.device import (
    Binary,
    CreationConfig,
    DeclaredTime,
    Device,
    DeviceError,
    DeviceSignal,
    GraphSpec,
    GroupRegistration,
    ListConfig,
    MemDescriptor,
    Qnn,
    SharingType,
    audit,
)
from hexforge.addons.device.contexts.execution import ADAPTER_US
from hexforge.addons.device.contexts.handles import DeviceContext
from hexforge.addons.device.contexts.loading import CreationNotice
from hexforge.addons.device.memory import AddressRange, SharedBuffer
from hexforge.chips.priority import Priority
from hexforge.chips.soc import require_chip
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.describe import describe, memory_bytes
from hexforge.runtime.registry import backend
from tests.addons.device import tiny

GB, MB = 1 << 30, 1 << 20


def binary(name: str, weights_gb: float, **more: Any) -> Binary:
    return Binary(name, (GraphSpec("g", round(weights_gb * GB), **more),))


def qnn(soc: str = "SM8650", **more: Any) -> Qnn:
    return Qnn(Device(soc, **more).process("app", privileged=True))


def sessions(contexts: Sequence[DeviceContext]) -> list[int]:
    return [c.session.index for c in contexts if c.session is not None]


def code(error: pytest.ExceptionInfo[DeviceError]) -> tuple[str, int | None]:
    return error.value.name, error.value.code


def by_kind(q: Qnn) -> dict[str, int]:
    found: dict[str, int] = {}
    for session in q.client.sessions:
        for what, size in session.by_kind().items():
            found[what] = found.get(what, 0) + size
    return found


@pytest.mark.feature("Multiple cDSP sessions", guide="3095-3139")
def test_contexts_go_to_the_first_session_with_room() -> None:
    q = qnn()
    made = [q.QnnContext_createFromBinary(binary(f"m{i}", gb)) for i, gb in enumerate((1.5, 1.5, 1, 1, 0.25))]
    assert sessions(made) == [0, 0, 1, 1, 0]
    assert [s.free_bytes for s in q.client.sessions] == [GB // 2, 7 * GB // 4]
    assert audit(q.client.device.log.entries) == 5.25 * GB
    for context in made:
        q.QnnContext_free(context)
    assert audit(q.client.device.log.entries) == 0


def test_a_context_is_not_split_and_more_than_3_gb_is_warned_of() -> None:
    q = qnn()
    with pytest.raises(DeviceError, match="split the model") as error:
        q.QnnContext_createFromBinary(binary("large", 3.8))
    assert code(error) == ("QNN_CONTEXT_ERROR_MEM_ALLOC", 1002)
    q.QnnContext_createFromBinary(binary("advised", 3.1))
    assert "3 GB is advised" in q.client.device.log.of("warning")[0]["message"]
    q.QnnContext_createFromBinary(binary("second", 3))
    q.QnnContext_createFromBinary(binary("third", 3))
    q.QnnContext_createFromBinary(binary("fourth", 3))
    with pytest.raises(DeviceError, match="4 sessions"):
        q.QnnContext_createFromBinary(binary("fifth", 3))


def test_later_sessions_cost_a_little_more_initialization() -> None:
    q = qnn()
    first, second = binary("a", 3), binary("b", 1)

    def took(made: Binary) -> float:
        before = q.client.device.clock.now_us
        q.QnnContext_createFromBinary(made)
        return q.client.device.clock.now_us - before

    took(first)
    took(second)
    again = took(binary("c", 1))
    alone = Qnn(Device("SM8650").process())
    start = alone.client.device.clock.now_us
    alone.QnnContext_createFromBinary(binary("x", 0.25))
    start = alone.client.device.clock.now_us
    alone.QnnContext_createFromBinary(binary("c", 1))
    assert 0 < again - (alone.client.device.clock.now_us - start) < 0.01 * again


def test_ram_is_a_limit_too() -> None:
    with pytest.raises(DeviceError, match="RAM"):
        qnn(ram_bytes=GB).QnnContext_createFromBinary(binary("m", 2))


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("Register multi contexts", guide="139-145, 249-289")
def test_a_group_has_one_buffer_as_large_as_the_largest() -> None:
    first, second = 16_252_928, 37_224_448
    q = qnn()
    made = [q.QnnContext_createFromBinary(binary(n, 0.1, spill_fill_bytes=s)) for n, s in (("a", first), ("b", second))]
    assert by_kind(q)["spill-fill"] == first + second
    for context in made:
        q.QnnContext_free(context)
    one = q.QnnContext_createFromBinary(
        binary("a", 0.1, spill_fill_bytes=first),
        CreationConfig(register_multi_contexts=GroupRegistration(None, second)),
    )
    two = q.QnnContext_createFromBinary(
        binary("b", 0.1, spill_fill_bytes=second), CreationConfig(register_multi_contexts=GroupRegistration(one))
    )
    assert by_kind(q)["group spill-fill"] == second
    assert "spill-fill" not in by_kind(q)
    q.QnnContext_free(one)
    assert by_kind(q)["group spill-fill"] == second
    q.QnnContext_free(two)
    assert audit(q.client.device.log.entries) == 0


@pytest.mark.feature("Register multi contexts", guide="139-145, 249-289")
@pytest.mark.parametrize(
    ("size", "later", "spill", "message"),
    [
        (0, 0, 0, "more than 0"),
        (30_081_024, 30_081_025, 0, "differs from the group's"),
        (30_081_024, 0, 30_081_025, "the group has 30,081,024"),
    ],
)
def test_what_a_group_refuses(size: int, later: int, spill: int, message: str) -> None:
    q = qnn()

    def two() -> None:
        first = CreationConfig(register_multi_contexts=GroupRegistration(None, size))
        one = q.QnnContext_createFromBinary(binary("a", 0.1), first)
        second = CreationConfig(register_multi_contexts=GroupRegistration(one, later))
        q.QnnContext_createFromBinary(binary("b", 0.1, spill_fill_bytes=spill), second)

    with pytest.raises(DeviceError, match=message) as error:
        two()
    assert code(error) == ("QNN_CONTEXT_ERROR_INVALID_CONFIG", 5010)


def concurrent(first: DeviceContext | None, priority: Priority, size: int = 30_081_024) -> CreationConfig:
    given = GroupRegistration(first, size if first is None else 0)
    return CreationConfig(priority=priority, register_concurrent_resource_sharing=given)


@pytest.mark.feature("Concurrent resource sharing", guide="203-209, 291-345")
def test_concurrent_groups_share_backup_buffers_and_freeze_priorities() -> None:
    with pytest.raises(DeviceError, match="v81") as error:
        qnn("SM8650").QnnContext_createFromBinary(binary("a", 0.1), concurrent(None, Priority.NORMAL))
    assert code(error) == ("QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE", 1000)
    with pytest.raises(DeviceError, match="Android"):
        qnn("SM8850", platform="windows").QnnContext_createFromBinary(
            binary("a", 0.1), concurrent(None, Priority.NORMAL)
        )
    q = qnn("SM8850")
    one = q.QnnContext_createFromBinary(binary("a", 0.1, vtcm_bytes=8 * MB), concurrent(None, Priority.LOW))
    q.QnnContext_createFromBinary(binary("b", 0.1, vtcm_bytes=8 * MB), concurrent(one, Priority.LOW))
    q.QnnContext_createFromBinary(binary("c", 0.1, vtcm_bytes=8 * MB), concurrent(None, Priority.NORMAL))
    assert by_kind(q)["group VTCM backup"] == 2 * 8 * MB  # one for each priority
    assert "VTCM backup" not in by_kind(q)
    with pytest.raises(DeviceError, match="one priority"):
        q.QnnContext_createFromBinary(binary("d", 0.1), concurrent(one, Priority.NORMAL))
    with pytest.raises(DeviceError, match="cannot be changed"):
        q.QnnContext_setConfig(one, priority=Priority.NORMAL)
    with pytest.raises(DeviceError, match="cannot be changed"):
        q.QnnGraph_setConfig(one.graphs["g"], priority=Priority.NORMAL)


# -- lists ------------------------------------------------------------------------------------------------------------


def listed(
    q: Qnn, members: Sequence[Binary], config: ListConfig, each: CreationConfig | None = None
) -> tuple[list[DeviceContext], list[CreationNotice], int]:
    notices: list[CreationNotice] = []
    tasks = q.QnnContext_createFromBinaryListAsync(
        [(m, each or CreationConfig()) for m in members], config, notices.append
    )
    before = len(notices)
    return [q.wait(task) for task in tasks], notices, before


@pytest.mark.feature("createFromBinaryListAsync", guide="3059-3093")
def test_a_list_is_created_while_time_passes_and_tells_of_each() -> None:
    q = qnn()
    two = Binary("two", (GraphSpec("a", MB), GraphSpec("b", MB)))
    made, notices, before = listed(q, [two, binary("one", 1)], ListConfig())
    assert before == 0
    assert [(n.binary, n.graph.name if n.graph else "") for n in notices] == [
        ("two", "a"), ("two", "b"), ("two", ""), ("one", "g"), ("one", ""),
    ]  # fmt: skip
    assert all(n.context in made and n.error is None for n in notices)
    assert q.QnnGraph_execute(made[0].graphs["b"]).latency_us > 0


def test_one_bad_context_of_a_list_does_not_keep_the_others() -> None:
    q = qnn()
    notices: list[CreationNotice] = []
    tasks = q.QnnContext_createFromBinaryListAsync(
        [(binary("large", 4), CreationConfig()), (binary("good", 1), CreationConfig())], ListConfig(), notices.append
    )
    assert q.wait(tasks[1]).label.startswith("good")
    with pytest.raises(DeviceError, match="split the model"):
        q.wait(tasks[0])
    assert [n.error is None for n in notices if n.graph is None] == [False, True]


@pytest.mark.feature("createFromBinaryListAsync", guide="3059-3093")
@pytest.mark.parametrize(
    ("soc", "platform", "shared", "each", "name"),
    [
        ("SM8650", "linux", ListConfig(), CreationConfig(), "QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED"),
        (
            "SM8650", "android", ListConfig(),
            CreationConfig(register_multi_contexts=GroupRegistration(None, 1)), "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE",
        ),
        (
            "SM8850", "android", ListConfig(),
            CreationConfig(register_concurrent_resource_sharing=GroupRegistration(None, 1)),
            "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE",
        ),
        (
            "SM8650", "android", ListConfig(True), CreationConfig(is_persistent_binary=True, memory_limit_hint=1),
            "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE",
        ),
        ("SM8550", "android", ListConfig(True), CreationConfig(), "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE"),
        (
            "SM8650", "android", ListConfig(True, SharingType.CONCURRENT_OPTIMIZATION), CreationConfig(),
            "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE",
        ),
    ],
)  # fmt: skip
def test_what_a_list_refuses(soc: str, platform: str, shared: ListConfig, each: CreationConfig, name: str) -> None:
    q = qnn(soc, platform=platform)
    with pytest.raises(DeviceError) as error:
        listed(q, [binary("m", 0.1)], shared, each)
    assert error.value.name == name
    assert audit(q.client.device.log.entries) == 0


@pytest.mark.feature("Share resources", guide="171-185, 365-410")
def test_share_resources_is_of_a_list_and_its_type_alone_is_ignored() -> None:
    with pytest.raises(DeviceError, match="config of a list"):
        qnn().QnnContext_createFromBinary(binary("m", 0.1), CreationConfig(share_resources=True))
    q = qnn("SM8650")
    listed(q, [binary("m", 0.1)], ListConfig(False, SharingType.CONCURRENT_OPTIMIZATION))


@pytest.mark.feature("Share resources", guide="171-185, 365-410")
def test_lists_share_one_buffer_and_run_one_after_the_other() -> None:
    members = [binary(n, 0.1, spill_fill_bytes=s * MB, vtcm_bytes=8 * MB) for n, s in (("a", 3), ("b", 5))]
    q = qnn("SM8550")
    made, _, _ = listed(q, members, ListConfig(True, SharingType.SEQUENTIAL_WITHOUT_VA_OPTIMIZATION))
    assert by_kind(q)["group spill-fill"] == 5 * MB
    assert by_kind(q)["VTCM backup"] == 2 * 8 * MB
    running = q.QnnGraph_executeAsync(made[0].graphs["g"])
    q.client.device.clock.run(q.client.device.clock.now_us + 10)
    with pytest.raises(DeviceError, match="one after the other") as error:
        q.QnnGraph_execute(made[1].graphs["g"])
    assert code(error) == ("QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED", 1005)
    q.wait(running)
    q.QnnGraph_execute(made[1].graphs["g"])
    q = qnn("SM8850")
    made, _, _ = listed(q, members, ListConfig(True, SharingType.CONCURRENT_OPTIMIZATION))
    assert by_kind(q)["group VTCM backup"] == 8 * MB
    one, two = (q.QnnGraph_executeAsync(c.graphs["g"]) for c in made)
    assert q.wait(one).latency_us < q.wait(two).latency_us


# -- inputs and outputs -----------------------------------------------------------------------------------------------

IO = round(0.1 * GB)
FIVE = [binary(f"m{i}", 0.9, io_bytes=IO) for i in range(5)]


def registered(q: Qnn, context: DeviceContext) -> None:
    q.QnnMem_register(context, [MemDescriptor(AddressRange(IO), "io", (IO,), "uint8")])


@pytest.mark.feature("I/O mapping failures", guide="3141-3165")
def test_registering_fails_where_a_session_is_packed_and_each_remedy_helps() -> None:
    q = qnn()
    made = [q.QnnContext_createFromBinary(b) for b in FIVE]
    assert sessions(made) == [0, 0, 0, 0, 1]
    registered(q, made[0])
    with pytest.raises(DeviceError, match="VA optimization") as error:
        registered(q, made[1])
    assert code(error) == ("QNN_MEM_ERROR_MAPPING", 8003)
    registered(q, made[4])

    q = qnn()  # I/O memory estimation, each context's I/O registered right after it
    made = []
    for b in FIVE:
        made.append(q.QnnContext_createFromBinary(b, CreationConfig(io_mem_estimation=True)))
        registered(q, made[-1])
    assert sessions(made) == [0, 0, 0, 1, 1]

    q = qnn()  # a dummy buffer while contexts are created
    made = [q.QnnContext_createFromBinary(b) for b in FIVE[:3]]
    dummy = q.QnnMem_register(made[0], [MemDescriptor(AddressRange(GB // 2), "dummy", (GB // 2,), "uint8")])
    made += [q.QnnContext_createFromBinary(b) for b in FIVE[3:]]
    q.QnnMem_deRegister(dummy)
    for context in made:
        registered(q, context)
    assert sessions(made) == [0, 0, 0, 1, 1]

    q = qnn()  # a list with VA optimization keeps room
    made, _, _ = listed(q, FIVE, ListConfig(True, SharingType.SEQUENTIAL_WITH_VA_OPTIMIZATION))
    for context in made:
        registered(q, context)
    for context in made:
        q.QnnContext_free(context)
    assert audit(q.client.device.log.entries) == 0


@pytest.mark.feature("I/O memory estimation", guide="155-161, 357-363")
def test_estimated_memory_is_of_the_peak_only() -> None:
    plain, estimated = qnn(), qnn()
    plain.QnnContext_createFromBinary(FIVE[0])
    estimated.QnnContext_createFromBinary(FIVE[0], CreationConfig(io_mem_estimation=True))
    peaks = [max(e["memory_bytes"] for e in q.client.device.log.entries) for q in (plain, estimated)]
    assert peaks[1] - peaks[0] == IO
    assert plain.client.device.memory.used_bytes == estimated.client.device.memory.used_bytes


def test_without_shared_buffers_io_is_mapped_when_it_first_runs_and_can_fail() -> None:
    q = qnn()
    made = [q.QnnContext_createFromBinary(b) for b in FIVE[:4]]
    q.QnnGraph_execute(made[0].graphs["g"])
    with pytest.raises(DeviceError, match="inputs and outputs") as error:
        q.QnnGraph_execute(made[1].graphs["g"])
    assert code(error) == ("QNN_MEM_ERROR_MAPPING", 8003)


@pytest.mark.feature("Qmem graph, shared buffers", guide="2733-2735, 1373-1378")
def test_many_tensors_in_one_buffer_are_mapped_once() -> None:
    q = qnn()
    context = q.QnnContext_createFromBinary(binary("m", 0.1))
    buffer = SharedBuffer(4096)
    tensors = [MemDescriptor(buffer, f"t{i}", (16,), "float32", 64 * i) for i in range(8)]
    handles = q.QnnMem_register(context, tensors)
    assert by_kind(q)["shared buffer"] == 4096
    with pytest.raises(DeviceError) as error:
        q.QnnMem_register(context, tensors[:1])
    assert code(error) == ("QNN_MEM_ERROR_ALREADY_REGISTERED", 8002)
    with pytest.raises(DeviceError) as error:
        q.QnnMem_register(context, [MemDescriptor(buffer, "t9", (1024,), "float32", 64)])
    assert code(error) == ("QNN_MEM_ERROR_INVALID_SHAPE", 8004)
    q.QnnMem_deRegister(handles[1:])
    assert by_kind(q)["shared buffer"] == 4096
    q.QnnMem_deRegister(handles[:1])
    assert "shared buffer" not in by_kind(q)
    with pytest.raises(DeviceError) as error:
        q.QnnMem_deRegister(handles[:1])
    assert code(error) == ("QNN_MEM_ERROR_INVALID_HANDLE", 8001)


# -- switching --------------------------------------------------------------------------------------------------------

ABCD = Binary("m", tuple(GraphSpec(name, round(1.8 * GB)) for name in "ABCD"))


@pytest.mark.feature("Multi-graph switching", guide="2849-2947")
@pytest.mark.parametrize(
    ("order", "loads", "traditional", "sets"),
    [("ABAB", 0, 3, "AB AB AB AB"), ("ABCD", 2, 3, "AB AB AC AD"), ("ABCABD", 3, 5, "AB AB AC AC AB AD")],
)
def test_retention_loads_what_the_guide_says(order: str, loads: int, traditional: int, sets: str) -> None:
    for retained, wanted in ((("A", "B"), loads), ((), traditional)):
        q = qnn()
        config = CreationConfig(is_persistent_binary=True, memory_limit_hint=1, graph_retention_order=retained)
        context = q.QnnContext_createFromBinary(ABCD, config)
        loaded = []
        for name in order:
            q.QnnGraph_execute(context.graphs[name])
            loaded.append("".join(sorted(context.loaded)))
        assert context.switches == len(q.client.device.log.of("graph_load")) == wanted
        assert loaded == (sets.split() if retained else list(order))
        q.QnnContext_free(context)
        assert audit(q.client.device.log.entries) == 0


@pytest.mark.feature("Graph switching", guide="2775-2847")
def test_the_value_of_the_hint_does_not_matter_and_without_it_nothing_is_retained() -> None:
    for hint in (1, 12345):
        q = qnn()
        config = CreationConfig(is_persistent_binary=True, memory_limit_hint=hint, enable_graphs=("C", "A"))
        context = q.QnnContext_createFromBinary(ABCD, config)
        assert context.loaded == ("C",)
        assert list(context.graphs) == ["C", "A"]
        with pytest.raises(DeviceError) as error:
            q.QnnGraph_retrieve(context, "B")
        assert code(error) == ("QNN_GRAPH_ERROR_DISABLED", 6035)
        with pytest.raises(DeviceError) as error:
            q.QnnGraph_retrieve(context, "E")
        assert code(error) == ("QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST", 6002)
    small = Binary("m", tuple(GraphSpec(name, MB) for name in "ABCD"))
    context = qnn().QnnContext_createFromBinary(small, CreationConfig(graph_retention_order=("A",)))
    assert context.loaded == tuple("ABCD")


@pytest.mark.feature("Graph switching", guide="2775-2847")
def test_what_switching_refuses() -> None:
    q = qnn()
    with pytest.raises(DeviceError, match="is_persistent_binary"):
        q.QnnContext_createFromBinary(ABCD, CreationConfig(memory_limit_hint=1))
    switched = CreationConfig(is_persistent_binary=True, memory_limit_hint=1)
    with pytest.raises(DeviceError, match="graph_retention_order names 'E'"):
        q.QnnContext_createFromBinary(
            ABCD, CreationConfig(is_persistent_binary=True, memory_limit_hint=1, graph_retention_order=("E",))
        )
    context = q.QnnContext_createFromBinary(ABCD, switched)
    running = q.QnnGraph_executeAsync(context.graphs["A"])
    q.client.device.clock.run(q.client.device.clock.now_us + 10)
    with pytest.raises(DeviceError, match="at the same time") as error:
        q.QnnGraph_execute(context.graphs["B"])
    assert code(error) == ("QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED", 1005)
    q.wait(running)
    with pytest.raises(DeviceError, match="MEM_ALLOC"):
        q.QnnContext_createFromBinary(
            ABCD, CreationConfig(is_persistent_binary=True, memory_limit_hint=1, graph_retention_order=("A", "B", "C"))
        )


@pytest.mark.parametrize(("given", "size"), [(0, 0), (-1, 5 * MB), (7 * MB, 7 * MB)])
def test_buffers_of_the_client_hold_spill_fill_and_weights(given: int, size: int) -> None:
    made = Binary("m", (GraphSpec("a", MB, 3 * MB), GraphSpec("b", 2 * MB, 5 * MB)))
    q = qnn()
    config = CreationConfig(is_persistent_binary=True, memory_limit_hint=1, spill_fill_buffer=given)
    context = q.QnnContext_createFromBinary(made, config)
    q.QnnGraph_execute(context.graphs["b"])
    assert by_kind(q).get("client spill-fill", 0) == size
    assert by_kind(q).get("spill-fill", 0) == (0 if given else 5 * MB)
    with pytest.raises(DeviceError, match="too small"):
        q.QnnContext_createFromBinary(
            made, CreationConfig(is_persistent_binary=True, memory_limit_hint=1, weights_buffer=MB)
        )


# -- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.feature("DSP heap profiling", guide="163-169, 1670-1743")
def test_heap_is_told_before_the_first_context_and_after_the_last_alone() -> None:
    q = qnn()
    profiled = CreationConfig(dsp_memory_profiling_enabled=True)
    one = q.QnnContext_createFromBinary(binary("a", 0.1), profiled)
    two = q.QnnContext_createFromBinary(binary("b", 0.1))
    three = q.QnnContext_createFromBinary(binary("c", 0.1), profiled)
    log = q.client.device.log
    assert len(log.of("DSP:before_context_created")) == 1
    for context in (one, two):
        q.QnnContext_free(context)
    assert not log.of("DSP:after_context_freed")
    q.QnnContext_free(three)
    assert log.of("DSP:after_context_freed")[0]["bytes"] == log.of("DSP:before_context_created")[0]["bytes"]
    more = [q.QnnContext_createFromBinary(binary(f"large {n}", 2.5), profiled) for n in range(2)]
    for context in more:
        q.QnnContext_free(context)
    assert log.of("DSP:after_context_freed")[1]["bytes"] == 2 * log.of("DSP:before_context_created")[1]["bytes"]
    last = q.QnnContext_createFromBinary(binary("a", 0.1))
    q.QnnContext_setConfig(last, dsp_memory_profiling=True)
    q.QnnContext_free(last)
    assert len(log.of("DSP:after_context_freed")) == 3
    with pytest.raises(DeviceError, match="Android and QNX"):
        qnn(platform="windows").QnnContext_createFromBinary(binary("a", 0.1), profiled)


@pytest.mark.feature("File read memory budget", guide="147-153, 347-355")
def test_the_file_is_read_in_pieces_of_the_budget() -> None:
    q = qnn()
    q.QnnContext_createFromBinary(binary("a", 0.1), CreationConfig(file_read_memory_budget_in_mb=25))
    q.QnnContext_createFromBinary(binary("b", 0.01), CreationConfig(file_read_memory_budget_in_mb=25))
    q.QnnContext_createFromBinary(binary("c", 0.01))
    peaks = [(e["peak_bytes"], e["chunks"]) for e in q.client.device.log.of("file_read")]
    assert peaks == [(25 * MB, 5), (round(0.01 * GB), 1)]


@pytest.mark.feature("LoRA weight sharing", guide="211-217, 428-444")
def test_adapters_share_one_blob_and_come_before_the_first_run() -> None:
    made = Binary("m", (GraphSpec("a", MB, adapter_bytes=3000), GraphSpec("b", MB, adapter_bytes=5000)))
    q = qnn()
    q.QnnContext_createFromBinary(made)
    assert by_kind(q)["LoRA weights"] == 8000
    q = qnn()
    context = q.QnnContext_createFromBinary(made, CreationConfig(lora_weight_sharing_enabled=True))
    assert by_kind(q)["LoRA weights"] == 5000
    with pytest.raises(DeviceError, match="applyBinarySection") as error:
        q.QnnGraph_execute(context.graphs["a"])
    assert code(error) == ("QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED", 1005)
    for name in "ab":
        q.QnnContext_applyBinarySection(context.graphs[name], "adapter")
    for name in "abba":
        q.QnnGraph_execute(context.graphs[name])
    assert [e["graph"][-1] for e in q.client.device.log.of("adapter_again")] == ["a", "b", "a"]


@pytest.mark.feature("LoRA weight sharing", guide="211-217, 428-444")
def test_the_one_blob_follows_a_graph_that_interrupts_and_the_one_that_goes_on() -> None:
    """A decode step of high priority beside a prefill: the prefill's adapter is put back before it goes on."""
    slow, quick = DeclaredTime(10_000, 10_000), DeclaredTime(500, 5)
    made = Binary("m", (GraphSpec("prefill", MB, adapter_bytes=3000, time=slow),
                        GraphSpec("decode", MB, adapter_bytes=3000, time=quick)))  # fmt: skip
    took = {}
    for shares in (False, True):
        q = Qnn(Device("SM8650").process("app", privileged=True))
        q.use_profile("burst")
        context = q.QnnContext_createFromBinary(made, CreationConfig(lora_weight_sharing_enabled=shares))
        prefill, decode = context.graphs["prefill"], context.graphs["decode"]
        for graph in (prefill, decode):
            q.QnnContext_applyBinarySection(graph, "adapter")
        q.QnnGraph_setConfig(decode, priority=Priority.HIGH)
        clock = q.client.device.clock
        begun = q.QnnGraph_executeAsync(prefill)
        clock.run(clock.now_us + 4000)
        step = q.wait(q.QnnGraph_executeAsync(decode))
        whole = q.wait(begun)
        assert whole.yields == 1
        took[shares] = step.latency_us, whole.latency_us
        again = [e["graph"].rpartition("/")[2] for e in q.client.device.log.of("adapter_again")]
        assert len(again) == (3 if shares else 0)  # prefill, decode, prefill
    assert took[True][0] - took[False][0] == pytest.approx(ADAPTER_US, abs=1)
    assert took[True][1] - took[False][1] == pytest.approx(3 * ADAPTER_US, abs=2)


@pytest.mark.feature("LoRA weight sharing", guide="211-217, 428-444")
def test_a_graph_without_an_adapter_pays_nothing_for_one() -> None:
    made = Binary("m", (GraphSpec("a", MB), GraphSpec("b", MB)))
    times = []
    for shares in (False, True):
        q = qnn()
        context = q.QnnContext_createFromBinary(made, CreationConfig(lora_weight_sharing_enabled=shares))
        times.append([q.QnnGraph_execute(context.graphs[name]).latency_us for name in "abab"])
        assert not q.client.device.log.of("adapter_again")
    assert times[0] == times[1]


@pytest.mark.feature("Init cancellation", guide="3167-3176")
def test_a_creation_that_is_cancelled_leaves_nothing() -> None:
    q = qnn()
    with pytest.raises(DeviceError) as error:
        q.QnnContext_createFromBinaryWithSignal(binary("a", 1), DeviceSignal(timeout_us=30_000))
    assert code(error) == ("QNN_CONTEXT_ERROR_TIMED_OUT", 5013)
    signal = DeviceSignal()
    q.client.device.clock.after(50_000, signal.abort)
    with pytest.raises(DeviceError) as error:
        q.QnnContext_createFromBinaryWithSignal(binary("a", 1), signal)
    assert code(error) == ("QNN_CONTEXT_ERROR_ABORTED", 5012)
    assert audit(q.client.device.log.entries) == 0
    assert not q.client.contexts
    q.QnnContext_createFromBinaryWithSignal(binary("a", 1), DeviceSignal(timeout_us=10_000_000))


@pytest.mark.feature("Library rules", guide="2737-2773")
def test_two_copies_of_the_library_fail_five_calls() -> None:
    q = qnn()
    q.load_backend("/a/libQnnHtp.so")
    context = q.QnnContext_create(binary("m", 0.1))
    q.load_backend("/b/libQnnHtp.so")
    calls = (
        lambda: q.QnnBackend_registerOpPackage("x"),
        q.QnnBackend_validateOpConfig,
        lambda: q.QnnContext_create(binary("m", 0.1)),
        q.QnnDevice_create,
        lambda: q.QnnGraph_create(context, "g"),
    )
    for call in calls:
        with pytest.raises(DeviceError) as error:
            call()
        assert code(error) == ("QNN_COMMON_ERROR_LOADING_BINARIES", 1009)


@pytest.mark.feature("DLBC inputs and weights", guide="1068-1086")
def test_contexts_with_dlbc_share_no_spill_fill_buffer() -> None:
    packed = replace(binary("a", 0.1, spill_fill_bytes=MB), dlbc=True)
    q = qnn("SM8850")
    alone = q.QnnContext_createFromBinary(packed)
    for config in (
        CreationConfig(register_multi_contexts=GroupRegistration(None, MB)),
        CreationConfig(register_concurrent_resource_sharing=GroupRegistration(None, MB)),
    ):
        with pytest.raises(DeviceError, match="prepared with DLBC") as error:
            q.QnnContext_createFromBinary(packed, config)
        assert error.value.name == "QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE"
    (task,) = q.QnnContext_createFromBinaryListAsync(
        [(packed, CreationConfig())], ListConfig(True), lambda notice: None
    )
    with pytest.raises(DeviceError, match="prepared with DLBC"):
        q.wait(task)
    q.QnnContext_free(alone)
    assert q.client.heap_bytes == 0


@pytest.mark.parametrize("option", ["dlbc", "dlbc_weights"])
def test_a_context_file_says_that_it_was_prepared_with_dlbc(option: str) -> None:
    made = hexforge.compile(tiny.dense(1), None, backend("htp", {"soc_model": "SM8650", option: "1"}))
    assert Binary.of(made.to_bytes(), require_chip("SM8650")).dlbc


@pytest.mark.parametrize("name", ["dense", "conv", "pair", "inside"])
def test_one_figure_says_what_a_context_takes_of_memory(tmp_path: Path, name: str) -> None:
    """The device's weights are the file's, each array once; so is what `info` says, and the estimate of the file."""
    tiny.binaries(tmp_path)
    file = tmp_path / f"{name.replace('inside', 'dense')}.bin"
    binary = Binary.of(file.read_bytes() if name == "inside" else file, require_chip(tiny.SOC), name)
    said = describe(file)["hexforge"]["weights"]
    assert binary.weights_bytes == said["stored_bytes"] <= file.stat().st_size
    assert binary.shared_bytes + binary.graphs[0].weights_bytes == next(iter(said["by_graph"].values()))
    qnn = Qnn(Device(tiny.SOC).process())
    qnn.QnnContext_createFromBinary(binary)
    assert qnn.memory_facts()["by_kind"]["weights"] == said["stored_bytes"]
    if len(binary.graphs) == 1:
        spec = binary.graphs[0]
        assert hexforge.estimate(file, tiny.SOC).memory_bytes == memory_bytes(Context(file))
        assert memory_bytes(Context(file)) == binary.weights_bytes + spec.spill_fill_bytes + spec.io_bytes


def test_the_gate_takes_the_memory_of_the_context_that_a_quantized_model_becomes(tmp_path: Path) -> None:
    (tmp_path / "conv.onnx").write_bytes(tiny.conv())
    budget = tmp_path / "budget.yaml"
    budget.write_text(yaml.safe_dump({"models": [{"model": "conv.onnx", "soc": tiny.SOC, "memory_mb": 100}]}))
    taken = next(check.value for check in gate(budget).checks if check.what.startswith("memory_mb"))
    hexforge.compile(tmp_path / "conv.onnx", tmp_path / "conv.bin", tiny.SOC)
    assert round(taken * MB) == memory_bytes(Context(tmp_path / "conv.bin"))


@pytest.mark.feature("Init acceleration", guide="187-193, 412-418")
def test_init_acceleration_loads_large_contexts_faster() -> None:
    def created_us(weights_gb: float, accelerated: bool) -> float:
        q = qnn()
        q.QnnContext_createFromBinary(binary("first", 0.001))  # opens the session
        start = q.client.device.clock.now_us
        q.QnnContext_createFromBinary(binary("m", weights_gb), CreationConfig(init_acceleration=accelerated))
        return q.client.device.clock.now_us - start

    large, small = ([created_us(size, on) for on in (False, True)] for size in (1.0, 0.0))
    assert large[1] < 0.75 * large[0]
    assert small[1] == small[0]  # of a few ops there is nothing to gain
