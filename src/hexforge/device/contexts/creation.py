# SPDX-License-Identifier: Apache-2.0
"""Creation: contexts into sessions, one or a list of them at once; and out again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexforge.backends.htp.chip.soc import SESSION_BYTES
from hexforge.device.clock import ClockTask, Waits
from hexforge.device.codes import Code, DeviceError
from hexforge.device.contexts.binary import Binary, loaded_program, require_suits
from hexforge.device.contexts.callbacks import DmaBufferCallback, check_callback, provided
from hexforge.device.contexts.configs import CreationConfig, ListConfig, SharingType
from hexforge.device.contexts.groups import Group, list_group, registered
from hexforge.device.contexts.handles import DeviceContext, DeviceGraph, State
from hexforge.device.contexts.switching import check_order
from hexforge.device.memory import ADVISED_BYTES, SESSIONS_PER_PROCESS, CdspSession, Need, first_fit
from hexforge.device.signal import DeviceSignal

if TYPE_CHECKING:
    from hexforge.device.client import Client

LOAD_BYTES_PER_US = 2000.0
"""Assumed: how fast a context is read and deserialized."""
ACCELERATED = 0.7
"""Assumed: the part of that time that is left with INIT_ACCELERATION."""
CALLBACK_LEFT = 0.6
"""Assumed: the part that is left where the client reads the weights into buffers that the HTP uses as they are."""
GRAPH_US = 200.0
"""Assumed: per graph."""
ATTEMPT_US = 500.0
"""Assumed: a session that had no room was tried."""
OPEN_US = 20_000.0
"""Assumed: a session is opened."""
HEAP_BASE_BYTES = 12 << 20
"""Assumed: the DSP's heap with no context in it."""


@dataclass(frozen=True, slots=True)
class CreationNotice:
    """A graph, or (graph None) a whole context of a list, that is there or failed."""

    binary: str
    context: DeviceContext | None
    graph: DeviceGraph | None = None
    error: DeviceError | None = None


Notify = Callable[[CreationNotice], None]


def create(
    client: Client,
    binary: Binary,
    config: CreationConfig,
    signal: DeviceSignal | None = None,
    callback: DmaBufferCallback | None = None,
) -> ClockTask:
    """Begin to create one context; the result is the context."""
    context = client.new_context(binary, config)
    task = client.device.clock.start(_created(context, callback, None, None))
    client.creating[context.number] = task
    task.then(lambda _: _forget(client, context))
    if signal is not None:
        signal.watch(client.device.clock, task, creation=True)
    return task


def create_list(
    client: Client, members: Sequence[tuple[Binary, CreationConfig]], shared: ListConfig, notify: Notify
) -> list[ClockTask]:
    """Begin to create several contexts at once; `notify` is told of every graph and every context."""
    if not members:
        raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "the list of contexts is empty")
    shared.check(client.device.facts, tuple(config for _, config in members))
    contexts = [client.new_context(binary, config) for binary, config in members]
    group = list_group(contexts, shared.share_resources_optimization_type) if shared.share_resources else None
    tasks = []
    for context in contexts:
        task = client.device.clock.start(_created(context, None, group, notify))
        client.creating[context.number] = task
        task.then(lambda ended, made=context: _ended(client, made, notify, ended.error))  # type: ignore[misc]
        tasks.append(task)
    return tasks


def _forget(client: Client, context: DeviceContext) -> None:
    client.creating.pop(context.number, None)


def _ended(client: Client, context: DeviceContext, notify: Notify, error: BaseException | None) -> None:
    _forget(client, context)
    if isinstance(error, DeviceError):
        notify(CreationNotice(context.binary.name, None, error=error))


def _created(
    context: DeviceContext, callback: DmaBufferCallback | None, group: Group | None, notify: Notify | None
) -> Waits:
    client, config = context.client, context.config
    device = client.device
    device.log.write("create", context=context.label, process=client.name)
    yield 0.0  # whoever began this goes on first
    try:
        config.check(device.facts)
        client.require_priority(config.priority, *config.graph_priorities.values())
        if callback is not None:
            check_callback(callback, context.binary, config, device.facts.platform)
        yield from client.stage("INIT")
        yield from _placed(context, group)
        yield from _loaded(context, callback, notify)
    except DeviceError as error:
        _undone(context, str(error))
        client.stage_done()
        raise
    context.state = State.ALIVE
    assert context.session is not None
    device.log.write("created", context=context.label, process=client.name, session=context.session.number,
                     index=context.session.index, graphs=list(context.graphs))  # fmt: skip
    client.stage_done()
    if notify is not None:
        notify(CreationNotice(context.binary.name, context))
    return context


def _placed(context: DeviceContext, group: Group | None) -> Waits:
    """Find a session with room, and take it."""
    client, config, device = context.client, context.config, context.client.device
    yield max(0.0, device.down_until_us - device.clock.now_us)
    if context.group is None:  # one that is loaded again has its group already
        multi, concurrent = config.register_multi_contexts, config.register_concurrent_resource_sharing
        if group is not None:
            context.group = group
        elif multi is not None or concurrent is not None:
            context.group = registered(context, multi or concurrent, concurrent=concurrent is not None)  # type: ignore[arg-type]
    if config.switching:
        check_order(context)
    if config.dsp_memory_profiling_enabled and not any(c.state is State.ALIVE for c in client.contexts.values()):
        device.log.write("DSP:before_context_created", process=client.name, bytes=client.heap_bytes + HEAP_BASE_BYTES)
    io = sum(spec.io_bytes for spec in context.specs())
    reserve = context.group is not None and context.group.sharing is SharingType.SEQUENTIAL_WITH_VA_OPTIMIZATION
    during = io if config.io_mem_estimation else 0

    def needs(session: CdspSession | None) -> list[Need]:
        kept = [("I/O reserved", io)] if reserve and io else []
        return [*context.needs(session), *kept, *([("I/O estimate", during)] if during else [])]

    whole = sum(size for _, size in needs(None))
    if whole > ADVISED_BYTES:
        device.log.write("warning", context=context.label, message=f"needs {whole:,} bytes; at most 3 GB is advised")
    device.memory.require_ram(whole, context.label)
    session, tried = first_fit(client.sessions, needs)
    while session is None or tried:
        if tried:
            yield ATTEMPT_US * tried
            session, _ = first_fit(client.sessions, needs)  # time has passed: others may have come and gone
            if session is not None:
                break
        _opened(context, whole)
        yield OPEN_US
        session, tried = first_fit(client.sessions, needs)
        if session is not None:
            break
    shared = []
    context.session = session
    for spec in context.specs():
        context.graphs[spec.name] = DeviceGraph(context, spec, config.graph_priorities.get(spec.name, config.priority))
    for what, size in needs(session):
        if what == "I/O estimate":
            continue
        if config.switching and what in ("weights", "spill-fill"):
            continue  # graph by graph, below
        made = session.allocate(context.label, what, size)
        if what.startswith("group "):
            shared.append(made)
        elif what == "I/O reserved":
            context.reserved = made
        else:
            context.allocations.append(made)
    if context.group is not None:
        context.group.join(context, session, shared)
    if config.switching:
        for name in context.first():
            load_graph(context.graphs[name])
    if during:
        estimate = session.allocate(context.label, "I/O estimate", during)
        context.allocations.append(estimate)


def _opened(context: DeviceContext, whole: int) -> CdspSession:
    client = context.client
    if whole > SESSION_BYTES:
        raise DeviceError(
            Code.QNN_CONTEXT_ERROR_MEM_ALLOC,
            f"{context.label}: needs {whole:,} bytes and a session has {SESSION_BYTES:,}; a context is not split over "
            "sessions: split the model",
        )
    if len(client.sessions) >= SESSIONS_PER_PROCESS:
        raise DeviceError(
            Code.QNN_CONTEXT_ERROR_MEM_ALLOC,
            f"{context.label}: needs {whole:,} bytes, and none of {len(client.sessions)} sessions, which is all that a "
            "process can open, has them; free a context",
        )
    return client.open_session()


def _loaded(context: DeviceContext, callback: DmaBufferCallback | None, notify: Notify | None) -> Waits:
    """Read the binary, and make the programs of the graphs that are loaded."""
    client, config, device = context.client, context.config, context.client.device
    size = context.binary.weights_bytes
    if config.file_read_memory_budget_in_mb:
        peak = min(size, config.file_read_memory_budget_in_mb << 20)
        chunks = math.ceil(size / peak) if peak else 0
        device.log.write("file_read", context=context.label, peak_bytes=peak, chunks=chunks)
    left = (ACCELERATED if config.init_acceleration else 1.0) * (CALLBACK_LEFT if callback is not None else 1.0)
    if callback is not None:
        context.held = provided(context.binary, callback)
        context.opened = context.held.context
    else:
        context.opened = context.binary.open()
    if context.opened is not None:
        context.backend = require_suits(context.opened, device.soc.name, config.binary_compatibility)
        context.opened.skip_validation_on_binary_section = config.skip_validation_on_binary_section
    loaded = context.loaded
    for name, graph in context.graphs.items():
        if name in loaded:
            yield (
                GRAPH_US
                + (graph.spec.weights_bytes + context.binary.shared_bytes / len(loaded)) / LOAD_BYTES_PER_US * left
            )
            make_program(graph)
            if notify is not None:
                notify(CreationNotice(context.binary.name, context, graph))
        elif notify is not None:
            notify(CreationNotice(context.binary.name, context, graph))
    for allocation in [a for a in context.allocations if a.what == "I/O estimate"]:
        context.allocations.remove(allocation)
        device.memory.release(allocation)
    if client.device.cores.vtcm_bytes < max(s.vtcm_bytes for s in context.specs()):
        raise DeviceError(
            Code.QNN_CONTEXT_ERROR_CREATE_FROM_BINARY,
            f"{context.label}: a graph was prepared for more VTCM than {device.soc.name} has; prepare it again",
        )


def make_program(graph: DeviceGraph) -> None:
    """The program of a graph that is loaded, where the binary exists."""
    context = graph.context
    if context.opened is not None and graph.program is None:
        assert context.backend is not None
        graph.program = loaded_program(context.opened, graph.name, context.backend)


def load_graph(graph: DeviceGraph) -> None:
    """Take the memory of a graph that is switched in."""
    context = graph.context
    assert context.session is not None
    needs = context.graph_needs(graph.spec)
    if sum(size for _, size in needs) > context.session.free_bytes:
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_MEM_ALLOC,
            f"{graph.label}: needs {sum(s for _, s in needs):,} bytes, its session has {context.session.free_bytes:,}; "
            "retain fewer graphs",
        )
    context.loads[graph.name] = [context.session.allocate(graph.label, what, size) for what, size in needs]


def unload_graph(graph: DeviceGraph) -> None:
    """Give back the memory of a graph that is switched out."""
    graph.program = None
    memory = graph.context.client.device.memory
    memory.release_all(graph.context.loads.pop(graph.name, []))


def _undone(context: DeviceContext, why: str) -> None:
    release(context)
    context.state = State.FREED
    context.client.contexts.pop(context.number, None)
    context.client.device.log.write("create_failed", context=context.label, process=context.client.name, message=why)


def release(context: DeviceContext) -> None:
    """Give back all that a context has on the device."""
    memory = context.client.device.memory
    for name in list(context.loads):
        unload_graph(context.graphs[name])
    if context.group is not None:
        memory.release_all(context.group.leave(context))
    memory.release_all(context.allocations)
    context.allocations = []
    if context.reserved is not None:
        memory.release(context.reserved)
        context.reserved = None
    for graph in context.graphs.values():
        graph.program = None
    context.opened = None
    if context.held is not None:
        context.held.release()
        context.held = None
    context.io_mapped = False
    context.session = None


def free(context: DeviceContext) -> Waits:
    """Free a context; DeviceError where a graph of it runs."""
    client, device = context.client, context.client.device
    if context.state not in (State.ALIVE, State.LOST):
        raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"{context.label}: is {context.state}")
    if any(graph.executing for graph in context.graphs.values()):
        raise DeviceError(
            Code.QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, f"{context.label}: a graph of it runs; wait for it"
        )
    yield from client.stage("DE-INIT")
    client.deregister_all(context)
    release(context)
    context.state = State.FREED
    client.contexts.pop(context.number, None)
    device.log.write("free", context=context.label, process=client.name)
    if context.config.dsp_memory_profiling_enabled and not client.contexts:
        device.log.write("DSP:after_context_freed", process=client.name, bytes=client.heap_bytes + HEAP_BASE_BYTES)
    client.stage_done()
    return None


def reload(context: DeviceContext) -> Waits:
    """Load a context again that was lost in a crash; DeviceError where it is embedded."""
    client = context.client
    if context.state is not State.LOST:
        context.require_alive()
        return context
    if context.binary.embedded:
        raise DeviceError(
            Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION,
            f"{context.label}: is embedded in its model and cannot be loaded again; create the session again "
            "(ENGINE_ERROR)",
        )
    client.device.log.write("recover", context=context.label, process=client.name)
    context.state = State.CREATING
    priorities = {name: graph.priority for name, graph in context.graphs.items()}
    adapters = {name: graph.adapter for name, graph in context.graphs.items() if graph.adapter}
    context.graphs_before = dict(context.graphs)
    try:
        yield from client.stage("INIT")
        yield from _placed(context, None)
        for name, graph in context.graphs_before.items():  # the handles that people have stay good
            graph.program = None
            context.graphs[name] = graph
            graph.priority = priorities[name]
        yield from _loaded(context, None, None)
        if context.state is not State.CREATING:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION,
                f"{context.label}: its session crashed while it was loaded again",
            )
        context.state = State.ALIVE
        for name, adapter in adapters.items():
            client.apply_adapter(context.graphs[name], adapter)
    except DeviceError:
        release(context)
        context.state = State.LOST
        client.stage_done()
        raise
    client.device.log.write("recovered", context=context.label, process=client.name,
                            session=context.session.number if context.session else -1)  # fmt: skip
    client.stage_done()
    yield from client.register_again(context)
    return context
