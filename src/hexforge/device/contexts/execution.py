# SPDX-License-Identifier: Apache-2.0
"""Execution: one call of a graph: checked, switched in, run on a core by priority; its numbers are the program's own.

Numbers never depend on the device: when, where and how often a graph was interrupted changes its time alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexforge.backends.htp.chip.power import CPU_WAKE_US, VOTE_US
from hexforge.device.buffers import MemHandle
from hexforge.device.clock import ClockTask, Waits
from hexforge.device.codes import Code, DeviceError
from hexforge.device.contexts.creation import LOAD_BYTES_PER_US, load_graph, make_program, reload, unload_graph
from hexforge.device.contexts.handles import DeviceGraph, State
from hexforge.device.contexts.switching import leaving, require_alone
from hexforge.device.cores import CoreJob
from hexforge.device.signal import DeviceSignal
from hexforge.ir import Array, TensorType

if TYPE_CHECKING:
    from hexforge.device.client import Client

SHARED_IO_LEFT = 0.5
"""Assumed: the part of the host's work on inputs and outputs that is left where they lie in shared buffers."""
MAP_US = 50.0
"""Assumed: inputs and outputs mapped for one run."""
ADAPTER_US = 300.0
"""Assumed: an adapter put into the one blob for adapters again."""
SHORT_US = 1000.0
"""Adaptive polling is not for inferences shorter than this."""

Feed = Array | MemHandle


@dataclass(frozen=True, slots=True, eq=False)
class Executed:
    """What one execution gave, and took."""

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


def execute(
    graph: DeviceGraph,
    inputs: Mapping[str, Feed] | None = None,
    outputs: Mapping[str, MemHandle] | None = None,
    signal: DeviceSignal | None = None,
    *,
    batch: int = 1,
    recover: bool = False,
) -> ClockTask:
    """Begin to execute a graph; the result is an `Executed`.

    `recover`: where the graph's session has crashed, load its context again and try once more, as the EP does.
    """
    client = graph.context.client
    waits = _recovering if recover else _executed
    task = client.device.clock.start(waits(graph, dict(inputs or {}), dict(outputs or {}), batch))
    if signal is not None:
        signal.watch(client.device.clock, task, creation=False)
    return task


def _recovering(graph: DeviceGraph, inputs: dict[str, Feed], outputs: dict[str, MemHandle], batch: int) -> Waits:
    began = graph.context.client.device.clock.now_us
    try:
        return (yield from _executed(graph, inputs, outputs, batch))
    except DeviceError as error:
        if error.code != Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION.number:
            raise
        if graph.context.state is State.LOST:
            yield from reload(graph.context)
        while graph.context.state is State.CREATING:
            yield 1000.0  # another call loads it
    return (yield from _executed(graph, inputs, outputs, batch, began))


def _executed(
    graph: DeviceGraph, inputs: dict[str, Feed], outputs: dict[str, MemHandle], batch: int, began: float | None = None
) -> Waits:
    context = graph.context
    client, device = context.client, context.client.device
    began = device.clock.now_us if began is None else began
    yield 0.0  # whoever began this goes on first
    context.require_alive()
    if context.graphs.get(graph.name) is not graph:
        raise DeviceError(Code.QNN_GRAPH_ERROR_INVALID_HANDLE, f"{graph.label}: is not a graph of its context any more")
    _check_allowed(graph)
    feeds, multiple = _feeds(graph, inputs, batch)
    for name, handle in outputs.items():
        _check_output(graph, name, handle, multiple)
    graph.executing += 1
    session, loaded = context.session, False
    try:
        if context.group is not None and context.group.sharing is None and context.group.sequential:
            while context.group.busy(context):  # they have one spill-fill buffer: one after the other
                waiting = context.group.turn
                graph.executing -= 1
                try:
                    yield waiting
                finally:
                    graph.executing += 1
                _require_session(graph, session)
        yield from client.stage("INFERENCE")
        try:
            _require_session(graph, session)
            yield from _mapped_io(graph, inputs, outputs)
            _require_session(graph, session)
            first = graph.time.inference(device.cores.clocks(device.cores.cores[0]), multiple)
            shared = bool(outputs) or any(isinstance(feed, MemHandle) for feed in inputs.values())
            io = first.io_us * (SHARED_IO_LEFT if shared else 1.0)
            yield (first.rpc_us + io) / 2
            _require_session(graph, session)
            if context.config.switching:
                loaded = graph.name not in context.loads
                yield from _switched(graph)
                _require_session(graph, session)
            if context.config.lora_weight_sharing_enabled and context.blob != graph.name:
                yield ADAPTER_US
                _require_session(graph, session)
                context.blob = graph.name
                device.log.write("adapter_again", graph=graph.label, adapter=graph.adapter)
            spec = graph.spec
            job = CoreJob(
                graph.label,
                graph.time,
                graph.priority,
                spec.vtcm_bytes,
                min(spec.num_cores, len(device.cores.cores)),
                multiple,
            )
            device.owners[job.pending] = session
            try:
                yield device.cores.submit(job)
            except DeviceError:
                if not job.pending.done:
                    aborted = DeviceError(Code.QNN_GRAPH_ERROR_ABORTED, f"{graph.label}: was aborted")
                    device.cores.withdraw(lambda other: other is job, aborted)
                raise
            finally:
                device.owners.pop(job.pending, None)
            _require_session(graph, session)
            results = _numbers(graph, feeds, multiple, outputs)
            wake = _cpu_wake_us(client, job.ran_us)
            yield (first.rpc_us + io) / 2 + wake
        finally:
            client.stage_done()
    finally:
        graph.executing -= 1
        _unmap_large_io(graph)
        if context.group is not None:
            context.group.next_turn()
    if client.lowers_after:
        yield VOTE_US
    graph.executions += 1
    done = Executed(
        results, device.clock.now_us - began, job.ready_us - began, job.ran_us, job.moved_us, wake, job.yields,
        job.energy_uj, multiple, loaded,
    )  # fmt: skip
    device.energy_uj += job.energy_uj
    device.log.write(
        "executed", graph=graph.label, process=client.name, latency_us=round(done.latency_us, 3), batch=multiple,
        accelerator_us=round(job.ran_us, 3), yields=job.yields, energy_uj=round(job.energy_uj, 3),
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
    if group.busy(context) or any(g.executing for g in context.graphs.values()):
        raise _not_permitted(
            f"{graph.label}: {group.sharing} runs graphs one after the other, and another runs; wait for it"
        )


def _not_permitted(message: str) -> DeviceError:
    return DeviceError(Code.QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, message)


def _require_session(graph: DeviceGraph, session: object) -> None:
    """DeviceError where the session has crashed meanwhile."""
    if graph.context.session is not session or graph.context.state is not State.ALIVE:
        raise DeviceError(
            Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, f"{graph.label}: its session crashed while it was executed"
        )


def _feeds(graph: DeviceGraph, inputs: dict[str, Feed], batch: int) -> tuple[dict[str, Array], int]:
    """Inputs as arrays, and the batch multiple that all of them have."""
    if graph.program is None and graph.context.binary.source is None:
        return {}, batch
    known = dict(graph.spec.inputs)
    if strange := sorted(inputs.keys() ^ known.keys()):
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
            f"{graph.label}: {strange[0]!r} is {'missing' if strange[0] in known else 'no input'}; inputs are "
            f"{', '.join(known)}",
        )
    feeds, multiples = {}, {}
    for name, given in inputs.items():
        array = given.array() if isinstance(given, MemHandle) else np.asarray(given)
        if isinstance(given, MemHandle) and (not given.live or given.context is not graph.context):
            raise _not_registered(graph, name)
        multiples[name] = _multiple(graph, name, array, known[name])
        feeds[name] = array
    if len(set(multiples.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in multiples.items())
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
            f"{graph.label}: all tensors have one batch multiple; given: {listed}",
        )
    return feeds, next(iter(multiples.values()), batch)


def _not_registered(graph: DeviceGraph, name: str) -> DeviceError:
    return DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"{graph.label}: {name!r}: its memory is not registered")


def _multiple(graph: DeviceGraph, name: str, array: Array, type: TensorType) -> int:
    shape = type.shape
    if array.dtype == type.dtype.numpy and array.ndim == len(shape) and array.shape[1:] == shape[1:]:
        if not shape:
            return 1
        count, rest = divmod(int(array.shape[0]), shape[0])
        if count and not rest:
            return count
    raise DeviceError(
        Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
        f"{graph.label}: {name!r} is {array.dtype.name}{list(array.shape)}, it must be {type}, or a multiple of its "
        "batch",
    )


def _check_output(graph: DeviceGraph, name: str, handle: MemHandle, multiple: int) -> None:
    known = dict(graph.spec.outputs)
    if name not in known:
        raise DeviceError(Code.QNN_GRAPH_ERROR_INVALID_TENSOR, f"{graph.label}: {name!r} is no output")
    if not handle.live or handle.context is not graph.context:
        raise _not_registered(graph, name)
    if _multiple(graph, name, handle.array(), known[name]) != multiple:
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
            f"{graph.label}: output {name!r} has another batch than inputs",
        )


def _mapped_io(graph: DeviceGraph, inputs: dict[str, Feed], outputs: dict[str, MemHandle]) -> Waits:
    """Inputs and outputs that lie in no shared buffer are copied through one of the context's own, mapped once."""
    context = graph.context
    raw = any(not isinstance(f, MemHandle) for f in inputs.values()) or len(outputs) < len(graph.spec.outputs)
    size = max((spec.io_bytes for spec in context.specs()), default=0)
    if context.io_mapped or not size or not (raw or not inputs):
        return
    session = context.session
    assert session is not None
    kept = context.reserved.size if context.reserved is not None else 0
    if size > session.free_bytes + kept:
        context.client.device.log.write("mapping_failed", context=context.label, session=session.number, bytes=size)
        raise DeviceError(
            Code.QNN_MEM_ERROR_MAPPING,
            f"{graph.label}: {size:,} bytes for its inputs and outputs cannot be mapped, its session has "
            f"{session.free_bytes:,} left",
        )
    context.client._shrink_reserve(context, size)
    context.allocations.append(session.allocate(context.label, "I/O", size))
    context.io_mapped = True
    if 0 < context.config.reused_io_limit_bytes < size:
        yield MAP_US


def _unmap_large_io(graph: DeviceGraph) -> None:
    """Inputs and outputs above the limit of what is kept between runs go, once nothing of the context runs."""
    context = graph.context
    limit = context.config.reused_io_limit_bytes
    if not context.io_mapped or not limit or any(g.executing for g in context.graphs.values()):
        return
    for memory in [a for a in context.allocations if a.what == "I/O" and a.size > limit]:
        context.allocations.remove(memory)
        context.client.device.memory.release(memory)
        context.io_mapped = False


def _switched(graph: DeviceGraph) -> Waits:
    """Load the graph where it is not, after others that make room."""
    context = graph.context
    if graph.name in context.loads:
        return
    device, session = context.client.device, context.session
    assert session is not None
    sizes = {s.name: sum(n for _, n in context.graph_needs(s)) for s in context.specs()}
    order = context.config.graph_retention_order
    for name in leaving(graph.name, tuple(context.loads), order, sizes, session.free_bytes):
        unload_graph(context.graphs[name])
        device.log.write("graph_unload", graph=context.graphs[name].label)
    load_graph(graph)
    yield graph.spec.weights_bytes / LOAD_BYTES_PER_US
    _require_session(graph, session)
    make_program(graph)
    context.switches += 1
    device.log.write("graph_load", graph=graph.label, loaded=list(context.loads))


# -- after ------------------------------------------------------------------------------------------------------------


def _numbers(
    graph: DeviceGraph, feeds: dict[str, Array], multiple: int, outputs: dict[str, MemHandle]
) -> dict[str, Array]:
    """What the graph computes, batch by batch; written where its outputs are registered."""
    if graph.program is None:
        return {}
    if multiple == 1:
        found = dict(graph.program.run(feeds))
    else:
        rows = {name: type.shape[0] if type.shape else 1 for name, type in graph.spec.inputs}
        parts = [
            graph.program.run({n: a[k * rows[n] : (k + 1) * rows[n]] if a.ndim else a for n, a in feeds.items()})
            for k in range(multiple)
        ]
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name, handle in outputs.items():
        target = handle.array()
        target[...] = found[name]
        found[name] = target
    return found


def _cpu_wake_us(client: Client, accelerator_us: float) -> float:
    """What the CPU takes to wake up for the result, unless it polls that long."""
    polling, adaptive, latency = client.device.power.polling_us(client.name)
    if adaptive and accelerator_us < SHORT_US:
        client.device.log.write("warning", process=client.name, message="adaptive polling is not for less than 1 ms")
    polled = polling >= accelerator_us or 0 < adaptive <= accelerator_us
    return 0.0 if polled and polling else min(CPU_WAKE_US, latency or CPU_WAKE_US)
