# SPDX-License-Identifier: Apache-2.0
"""Execution: one call of a graph: checked, switched in, run on a core by priority; its numbers are the program's own.

Numbers never depend on the device: when, where and how often a graph was interrupted changes its time alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.creation import reload
from hexforge.addons.device.contexts.handles import DeviceGraph, Process, State
from hexforge.addons.device.contexts.loading import (
    LOAD_BYTES_PER_US,
    graph_needs,
    graphs_to_unload,
    load_graph,
    make_program,
    require_alone,
    unload_graph,
)
from hexforge.addons.device.contexts.tensors import Feed, check_output, checked_feeds, compute_outputs, take_reserve
from hexforge.addons.device.cores import CoreJob
from hexforge.addons.device.graph_time import Clocks
from hexforge.addons.device.memory import MemHandle
from hexforge.addons.device.scheduling.clock import ClockTask, Waits
from hexforge.addons.device.signal import DeviceSignal
from hexforge.chips.power import cpu_wake_us
from hexforge.errors import HexforgeError
from hexforge.ir import Array

SHARED_IO_LEFT = 0.5
"""Assumed: the part of the host's work on inputs and outputs that is left where they lie in shared buffers."""
MAP_US = 50.0
"""Assumed: inputs and outputs mapped for one run."""
ADAPTER_US = 300.0
"""Assumed: an adapter put into the one blob for adapters again."""
SHORT_US = 1000.0
"""Adaptive polling is not for inferences shorter than this."""


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionResult:
    """The outputs of one execution and the time it took."""

    outputs: Mapping[str, Array]
    latency_us: float
    """As the application sees it."""
    queued_us: float
    accelerator_us: float
    moved_us: float
    """VTCM saved and restored."""
    wake_us: float
    """The CPU waking up for the result."""
    yields: int
    energy_uj: float
    """Assumed."""
    batch: int = 1
    loaded: bool = False
    """Whether the graph had to be loaded first."""
    waited_us: float = 0.0
    """Ready and not running: for its turn behind others, and for its core to wake."""
    clocks: Clocks = Clocks()  # noqa: RUF009 - it is frozen
    """The corners that it ran at, in the end."""
    cores: int = 1
    """How many cores it ran on."""


def execute(
    graph: DeviceGraph,
    inputs: Mapping[str, Feed] | None = None,
    outputs: Mapping[str, MemHandle] | None = None,
    signal: DeviceSignal | None = None,
    *,
    batch: int = 1,
    recover: bool = False,
) -> ClockTask:
    """Begin to execute a graph; the result is an `ExecutionResult`.

    `recover`: where the graph's session has crashed, load its context again and try once more, as the EP does.
    """
    client = graph.context.client
    waits = _execute_with_recovery if recover else _execute_steps
    task = client.start(waits(graph, dict(inputs or {}), dict(outputs or {}), batch))
    if signal is not None:
        signal.watch(client.device.clock, task, creation=False)
    return task


def _execute_with_recovery(
    graph: DeviceGraph, inputs: dict[str, Feed], outputs: dict[str, MemHandle], batch: int
) -> Waits:
    began = graph.context.client.device.clock.now_us
    try:
        return (yield from _execute_steps(graph, inputs, outputs, batch))
    except DeviceError as error:
        if error.code != Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION.number:
            raise
        if graph.context.state is State.LOST:
            yield from reload(graph.context)
        while graph.context.state is State.CREATING:
            yield 1000.0  # another call loads it
    return (yield from _execute_steps(graph, inputs, outputs, batch, began))


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One execution that was asked for, checked."""

    graph: DeviceGraph
    inputs: dict[str, Feed]
    outputs: dict[str, MemHandle]
    feeds: dict[str, Array]
    multiple: int
    session: object

    @property
    def shared(self) -> bool:
        """Whether some tensors lie in shared buffers."""
        return bool(self.outputs) or any(isinstance(feed, MemHandle) for feed in self.inputs.values())

    def require_session(self) -> None:
        """DeviceError where the session has crashed meanwhile."""
        _require_session(self.graph, self.session)

    def after(self, waits: float) -> Waits:
        """Let time pass; the session must be there still."""
        yield waits
        self.require_session()


@dataclass(frozen=True, slots=True, eq=False)
class _DeviceRun:
    """The results and times of a call on the device."""

    results: dict[str, Array]
    job: CoreJob
    wake_us: float
    loaded: bool
    waited_us: float


def _execute_steps(
    graph: DeviceGraph, inputs: dict[str, Feed], outputs: dict[str, MemHandle], batch: int, began: float | None = None
) -> Waits:
    """The whole of one execution: checks, the group's turn, the stage of the profile, the run, the report."""
    context, votes = graph.context, graph.context.client.votes
    began = context.client.device.clock.now_us if began is None else began
    yield 0.0  # whoever began this goes on first
    call = _checked_call(graph, inputs, outputs, batch)
    graph.executing += 1
    try:
        yield from _wait_for_turn(call)
        yield from votes.begin("INFERENCE")
        try:
            ran = yield from _run_on_device(call)
        finally:
            votes.done()
    finally:
        graph.executing -= 1
        _unmap_large_io(graph)
        if context.group is not None:
            context.group.next_turn()
    yield votes.lowering_us
    return _report(call, ran, began)


def _checked_call(graph: DeviceGraph, inputs: dict[str, Feed], outputs: dict[str, MemHandle], batch: int) -> _Call:
    """The checked call; DeviceError where it cannot be made now."""
    context = graph.context
    context.require_alive()
    if context.graphs.get(graph.name) is not graph:
        raise DeviceError(Code.QNN_GRAPH_ERROR_INVALID_HANDLE, f"{graph.label}: is not a graph of its context any more")
    _check_allowed(graph)
    feeds, multiple = checked_feeds(graph, inputs, batch)
    for name, handle in outputs.items():
        check_output(graph, name, handle, multiple)
    return _Call(graph, inputs, outputs, feeds, multiple, context.session)


def _wait_for_turn(call: _Call) -> Waits:
    """Contexts that were registered together have one spill-fill buffer: one runs after the other."""
    graph, group = call.graph, call.graph.context.group
    if group is None or group.sharing is not None or not group.sequential:
        return
    while group.busy(graph.context):
        waiting = group.turn
        graph.executing -= 1
        try:
            yield waiting
        finally:
            graph.executing += 1
        call.require_session()


def _run_on_device(call: _Call) -> Waits:
    """From the host's call to its return: mapping, switching, adapters, the cores, and the way back."""
    graph, context = call.graph, call.graph.context
    device = context.client.device
    call.require_session()
    yield from _map_io(graph, call.inputs, call.outputs)
    call.require_session()
    first = graph.time.inference(device.cores.clocks(device.cores.cores[0]), call.multiple)
    host_us = (first.rpc_us + first.io_us * (SHARED_IO_LEFT if call.shared else 1.0)) / 2
    yield from call.after(host_us)
    loaded = context.config.switching and graph.name not in context.loads
    if context.config.switching:
        yield from _switch_in(graph)
        call.require_session()
    job = yield from _run_on_cores(call, device.created_us - host_us - _return_us(context.client, first.accelerator_us))
    waited_us = max(0.0, device.clock.now_us - job.ready_us - job.ran_us - job.moved_us)
    call.require_session()
    results = compute_outputs(graph, call.feeds, call.multiple, call.outputs)
    wake_us = _cpu_wake_us(context.client, job.ran_us)
    yield host_us + wake_us
    return _DeviceRun(results, job, wake_us, loaded, waited_us)


def _run_on_cores(call: _Call, worked_us: float) -> Waits:
    """The job on the NSP cores; withdrawn where the call is ended before it.

    `worked_us` is when the HTP last worked on a context: the creation returned as a call does.
    """
    graph, device = call.graph, call.graph.context.client.device
    cores = min(graph.spec.num_cores, len(device.cores.cores))
    job = CoreJob(graph.label, graph.time, graph.priority, graph.spec.vtcm_bytes, cores, call.multiple)
    job.worked_us = worked_us
    job.restore_shared_us = functools.partial(_adapt_again, graph)
    device.owners[job.pending] = graph.context.session
    try:
        yield device.cores.submit(job)
    except HexforgeError:
        if not job.pending.done:
            aborted = DeviceError(Code.QNN_GRAPH_ERROR_ABORTED, f"{graph.label}: was aborted")
            device.cores.withdraw(lambda other: other is job, aborted)
        raise
    finally:
        device.owners.pop(job.pending, None)
    return job


def _adapt_again(graph: DeviceGraph) -> float:
    """Put the adapter of a graph into the one blob for adapters, where another graph's lies there; the time of that."""
    context = graph.context
    if not (context.config.lora_weight_sharing_enabled and graph.spec.adapter_bytes) or context.blob == graph.name:
        return 0.0
    context.blob = graph.name
    context.client.device.log.write("adapter_again", graph=graph.label, adapter=graph.adapter)
    return ADAPTER_US


def _report(call: _Call, ran: _DeviceRun, began: float) -> ExecutionResult:
    """Build the result for the caller, and log it."""
    graph, job = call.graph, ran.job
    device = graph.context.client.device
    graph.executions += 1
    device.energy_uj += job.energy_uj
    done = ExecutionResult(
        ran.results, device.clock.now_us - began, job.ready_us - began, job.ran_us, job.moved_us, ran.wake_us,
        job.yields, job.energy_uj, call.multiple, ran.loaded, ran.waited_us, job.clocks, job.cores,
    )  # fmt: skip
    device.log.write(
        "executed", graph=graph.label, process=graph.context.client.name, latency_us=round(done.latency_us, 3),
        batch=call.multiple, accelerator_us=round(job.ran_us, 3), yields=job.yields, energy_uj=round(job.energy_uj, 3),
    )  # fmt: skip
    return done


# -- before -----------------------------------------------------------------------------------------------------------


def _check_allowed(graph: DeviceGraph) -> None:
    context = graph.context
    if context.config.prepare_only:
        raise _not_permitted(f"{context.label}: was created with PREPARE_ONLY; its graphs cannot be executed")
    if context.config.lora_weight_sharing_enabled and graph.spec.adapter_bytes and not graph.adapter:
        raise _not_permitted(f"{graph.label}: shares LoRA weights; QnnContext_applyBinarySection comes first")
    if context.config.switching:
        require_alone(graph)
    group = context.group
    if group is None or group.sharing is None or not group.sequential:
        return
    if group.busy(context) or context.runs:
        raise _not_permitted(
            f"{graph.label}: {group.sharing} runs graphs one after the other, and another runs; wait for it"
        )


def _not_permitted(message: str) -> DeviceError:
    return DeviceError(Code.QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, message)


def _require_session(graph: DeviceGraph, session: object) -> None:
    """Raise a DeviceError where the session has crashed since the call began."""
    if graph.context.session is not session or graph.context.state is not State.ALIVE:
        raise DeviceError(
            Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, f"{graph.label}: its session crashed while it was executed"
        )


def _map_io(graph: DeviceGraph, inputs: dict[str, Feed], outputs: dict[str, MemHandle]) -> Waits:
    """Inputs and outputs that lie in no shared buffer are copied through one of the context's own, mapped once."""
    context = graph.context
    raw = any(not isinstance(f, MemHandle) for f in inputs.values()) or len(outputs) < len(graph.spec.outputs)
    size = max((spec.io_bytes for spec in context.specs()), default=0)
    if context.io_mapped or not size or not (raw or not inputs):
        return
    session = context.session
    assert session is not None
    left = f"its session has {session.free_bytes:,} left"
    take_reserve(context, size, f"{graph.label}: {size:,} bytes for its inputs and outputs cannot be mapped, {left}")
    context.allocations.append(session.allocate(context.label, "I/O", size))
    context.io_mapped = True
    if 0 < context.config.reused_io_limit_bytes < size:
        yield MAP_US


def _unmap_large_io(graph: DeviceGraph) -> None:
    """Inputs and outputs above the limit of what is kept between runs go, once nothing of the context runs."""
    context = graph.context
    limit = context.config.reused_io_limit_bytes
    if not context.io_mapped or not limit or context.runs:
        return
    for memory in [a for a in context.allocations if a.what == "I/O" and a.size > limit]:
        context.allocations.remove(memory)
        context.client.device.memory.release(memory)
        context.io_mapped = False


def _switch_in(graph: DeviceGraph) -> Waits:
    """Load the graph if it is not loaded, after unloading others to make room."""
    context = graph.context
    if graph.name in context.loads:
        return
    device, session = context.client.device, context.session
    assert session is not None
    sizes = {s.name: sum(n for _, n in graph_needs(context, s)) for s in context.specs()}
    order = context.config.graph_retention_order
    for name in graphs_to_unload(graph.name, tuple(context.loads), order, sizes, session.free_bytes):
        unload_graph(context.graphs[name])
        device.log.write("graph_unload", graph=context.graphs[name].label)
    load_graph(graph)
    try:
        yield graph.spec.weights_bytes / LOAD_BYTES_PER_US
        _require_session(graph, session)
        make_program(graph)
    except DeviceError:  # ended on the way: a graph is loaded as a whole, or not
        if graph.context.session is session:
            unload_graph(graph)
        raise
    context.switches += 1
    device.log.write("graph_load", graph=graph.label, loaded=list(context.loads))


# -- after ------------------------------------------------------------------------------------------------------------


def _cpu_wake_us(client: Process, accelerator_us: float) -> float:
    """What the CPU takes to wake up for the result, unless it polls that long."""
    polling, adaptive, latency = client.device.power.polling_us(client.name)
    if adaptive and accelerator_us < SHORT_US:
        client.device.log.write("warning", process=client.name, message="adaptive polling is not for less than 1 ms")
    return cpu_wake_us(accelerator_us, polling, adaptive, latency)


def _return_us(client: Process, accelerator_us: float) -> float:
    """What the CPU's wake-up and the vote after a call take."""
    return cpu_wake_us(accelerator_us, *client.device.power.polling_us(client.name)) + client.votes.lowering_us
