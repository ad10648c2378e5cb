# SPDX-License-Identifier: Apache-2.0
"""Creation: contexts into sessions and groups, one or a list of them at once; and out again."""

from __future__ import annotations

from collections.abc import Sequence

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.callbacks import DmaBufferCallback, check_callback
from hexforge.addons.device.contexts.configs import CreationConfig, GroupRegistration, ListConfig, SharingType
from hexforge.addons.device.contexts.groups import Group
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph, Process, State
from hexforge.addons.device.contexts.loading import (
    CreationNotice,
    Notify,
    check_order,
    first_graphs,
    load_binary,
    load_graph,
    needs_of,
    release,
)
from hexforge.addons.device.contexts.tensors import deregister_all, register_again
from hexforge.addons.device.memory import ADVISED_BYTES, SESSIONS_PER_PROCESS, CdspSession, Need, first_fit
from hexforge.addons.device.scheduling.clock import ClockTask, Waits
from hexforge.addons.device.signal import DeviceSignal
from hexforge.chips.soc import SESSION_BYTES

ATTEMPT_US = 500.0
"""Assumed: a session that had no room was tried."""
OPEN_US = 20_000.0
"""Assumed: a session is opened."""
HEAP_BASE_BYTES = 12 << 20
"""Assumed: what a session has of the DSP's heap with no context in it."""
RESERVED, ESTIMATE = "I/O reserved", "I/O estimate"
"""What memory for inputs and outputs is called: kept for the group, or counted while the context is created."""


def join_registered_group(context: DeviceContext, given: GroupRegistration, *, concurrent: bool) -> Group:
    """The group that a context registers with; DeviceError where the context does not fit the group."""
    specs = context.specs()
    handle = given.first_group_handle
    if handle is None:
        group = Group(given.max_spill_fill_buffer, concurrent, priority=context.config.priority if concurrent else None)
        group.max_vtcm = max((s.vtcm_bytes for s in specs), default=0)
    else:
        first = next((known for known in context.client.contexts.values() if known is handle), None)
        if first is None:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"{context.label}: firstGroupHandle is none of this process"
            )
        first.require_alive()
        if first.group is None or first.group.concurrent != concurrent:
            raise _invalid(f"{context.label}: firstGroupHandle {first.label} began no such group of this process")
        group = first.group
        if given.max_spill_fill_buffer not in (0, group.max_spill_fill):
            raise _invalid(
                f"{context.label}: maxSpillFillBuffer {given.max_spill_fill_buffer:,} differs from the group's "
                f"{group.max_spill_fill:,}; give the same, or none"
            )
        if concurrent and context.config.priority is not group.priority:
            raise _invalid(f"{context.label}: contexts of a concurrent group have one priority, {group.priority!r}")
        if concurrent and max((s.vtcm_bytes for s in specs), default=0) > group.max_vtcm:
            raise _invalid(f"{context.label}: needs more VTCM than the group's first context, whose backup it shares")
    if concurrent and any(p is not context.config.priority for p in context.config.graph_priorities.values()):
        raise _invalid(f"{context.label}: graphs of a concurrent group have the context's priority")
    for spec in specs:
        if spec.spill_fill_bytes > group.max_spill_fill:
            raise _invalid(
                f"{context.label}: graph {spec.name!r} needs {spec.spill_fill_bytes:,} bytes of spill-fill, the group "
                f"has {group.max_spill_fill:,}; give the largest of all contexts"
            )
    return group


def list_group(contexts: list[DeviceContext], sharing: SharingType) -> Group:
    """What a list of contexts shares: buffers as large as the largest asks for."""
    specs = [spec for context in contexts for spec in context.specs()]
    concurrent = sharing is SharingType.CONCURRENT_OPTIMIZATION
    group = Group(max((s.spill_fill_bytes for s in specs), default=0), concurrent, sharing)
    group.max_vtcm = max((s.vtcm_bytes for s in specs), default=0)
    return group


def _invalid(message: str) -> DeviceError:
    return DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_CONFIG, message)


def create(
    client: Process,
    binary: Binary,
    config: CreationConfig,
    signal: DeviceSignal | None = None,
    callback: DmaBufferCallback | None = None,
) -> ClockTask:
    """Begin to create one context; the result is the context."""
    context = client.new_context(binary, config)
    task = client.start(_create_steps(context, callback, None, None))
    client.creating[context.number] = task
    task.then(lambda _: _forget(client, context))
    if signal is not None:
        signal.watch(client.device.clock, task, creation=True)
    return task


def create_list(
    client: Process, members: Sequence[tuple[Binary, CreationConfig]], shared: ListConfig, notify: Notify
) -> list[ClockTask]:
    """Begin to create several contexts at once; `notify` is told of every graph and every context."""
    if not members:
        raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, "the list of contexts is empty")
    shared.check(client.device.facts, tuple(config for _, config in members))
    contexts = [client.new_context(binary, config) for binary, config in members]
    group = list_group(contexts, shared.share_resources_optimization_type) if shared.share_resources else None
    tasks = []
    for context in contexts:
        task = client.start(_create_steps(context, None, group, notify))
        client.creating[context.number] = task
        task.then(lambda ended, made=context: _report_end(client, made, notify, ended.error))  # type: ignore[misc]
        tasks.append(task)
    return tasks


def _forget(client: Process, context: DeviceContext) -> None:
    client.creating.pop(context.number, None)


def _report_end(client: Process, context: DeviceContext, notify: Notify, error: BaseException | None) -> None:
    _forget(client, context)
    if isinstance(error, DeviceError):
        notify(CreationNotice(context.binary.name, None, error=error))


def _create_steps(
    context: DeviceContext, callback: DmaBufferCallback | None, group: Group | None, notify: Notify | None
) -> Waits:
    client, config = context.client, context.config
    device = client.device
    device.log.write("create", context=context.label, process=client.name)
    yield 0.0  # whoever began this goes on first
    try:
        require_config(client, config)
        _require_uncompressed(context, shares=group is not None)
        if callback is not None:
            check_callback(callback, context.binary, config, device.facts.platform)
        yield from client.votes.begin("INIT")
        yield from _place_in_session(context, group)
        yield from load_binary(context, callback, notify)
    except DeviceError as error:
        _undo(context, str(error))
        client.votes.done()
        raise
    context.state = State.ALIVE
    device.created_us = device.clock.now_us
    assert context.session is not None
    device.log.write("created", context=context.label, process=client.name, session=context.session.number,
                     index=context.session.index, graphs=list(context.graphs))  # fmt: skip
    client.votes.done()
    if notify is not None:
        notify(CreationNotice(context.binary.name, context))
    return context


def require_config(client: Process, config: CreationConfig) -> None:
    """DeviceError for what a context of a process cannot be created with, whatever its binary."""
    config.check(client.device.facts)
    client.require_priority(config.priority, *config.graph_priorities.values())


def _require_uncompressed(context: DeviceContext, *, shares: bool) -> None:
    """DeviceError where a context with DLBC would share a spill-fill buffer with others."""
    given = (context.config.register_multi_contexts, context.config.register_concurrent_resource_sharing)
    if context.binary.dlbc and (shares or any(registration is not None for registration in given)):
        raise DeviceError(
            Code.QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE,
            f"{context.label}: was prepared with DLBC, which does not go with a spill-fill buffer that contexts share; "
            "prepare it without DLBC, or leave the group out",
        )


def _dsp_heap_bytes(client: Process) -> int:
    """What a process has of the DSP's heap: of each session that is open, one at least, and what is in use in them."""
    return client.heap_bytes + HEAP_BASE_BYTES * max(1, len(client.sessions))


def _place_in_session(context: DeviceContext, group: Group | None) -> Waits:
    """Find a session with room, and take it."""
    client, config, device = context.client, context.config, context.client.device
    yield max(0.0, device.down_until_us - device.clock.now_us)
    if context.group is None:  # one that is loaded again has its group already
        context.group = group if group is not None else _registered_group(context)
    if config.switching:
        check_order(context)
    if config.dsp_memory_profiling_enabled and not any(c.state is State.ALIVE for c in client.contexts.values()):
        device.log.write("DSP:before_context_created", process=client.name, bytes=_dsp_heap_bytes(client))
    whole = sum(size for _, size in _needs(context, None))
    if whole > ADVISED_BYTES:
        device.log.write("warning", context=context.label, message=f"needs {whole:,} bytes; at most 3 GB is advised")
    device.memory.require_ram(whole, context.label)
    context.session = yield from _session_with_room(context, whole)
    for spec in context.specs():
        context.graphs[spec.name] = DeviceGraph(context, spec, config.graph_priorities.get(spec.name, config.priority))
    _allocate(context, context.session)


def _registered_group(context: DeviceContext) -> Group | None:
    """The group that the context's own config registers it with."""
    multi, concurrent = context.config.register_multi_contexts, context.config.register_concurrent_resource_sharing
    if multi is not None:
        return join_registered_group(context, multi, concurrent=concurrent is not None)
    return None if concurrent is None else join_registered_group(context, concurrent, concurrent=True)


def _needs(context: DeviceContext, session: CdspSession | None) -> list[Need]:
    """What the context needs of a session, inputs and outputs included where memory is kept for them."""
    io = sum(spec.io_bytes for spec in context.specs())
    reserve = context.group is not None and context.group.sharing is SharingType.SEQUENTIAL_WITH_VA_OPTIMIZATION
    kept = [(RESERVED, io)] if reserve and io else []
    estimate = [(ESTIMATE, io)] if context.config.io_mem_estimation and io else []
    return [*needs_of(context, session), *kept, *estimate]


def _session_with_room(context: DeviceContext, whole: int) -> Waits:
    """The first session that the context fits in, opened where none is."""
    sessions = context.client.sessions

    def fit() -> tuple[CdspSession | None, int]:
        return first_fit(sessions, lambda session: _needs(context, session))

    session, tried = fit()
    while session is None or tried:
        if tried:
            yield ATTEMPT_US * tried
            session, _ = fit()  # time has passed: others may have come and gone
            if session is not None:
                break
        _open_session(context, whole)
        yield OPEN_US
        session, tried = fit()
        if session is not None:
            break
    return session


def _allocate(context: DeviceContext, session: CdspSession) -> None:
    """Take what the context needs; graphs that are switched take their own when they are loaded."""
    config = context.config
    shared, estimates = [], []
    for what, size in _needs(context, session):
        if what == ESTIMATE:
            estimates.append(size)  # last, when everything else has its place
        elif not config.switching or what not in ("weights", "spill-fill"):
            made = session.allocate(context.label, what, size)
            if what.startswith("group "):
                shared.append(made)
            elif what == RESERVED:
                context.reserved = made
            else:
                context.allocations.append(made)
    if context.group is not None:
        context.group.join(context, session, shared)
    if config.switching:
        for name in first_graphs(context):
            load_graph(context.graphs[name])
    context.allocations += [session.allocate(context.label, ESTIMATE, size) for size in estimates]


def _open_session(context: DeviceContext, whole: int) -> CdspSession:
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


def _undo(context: DeviceContext, why: str) -> None:
    release(context)
    context.state = State.FREED
    context.client.contexts.pop(context.number, None)
    context.client.device.log.write("create_failed", context=context.label, process=context.client.name, message=why)


def free(context: DeviceContext) -> Waits:
    """Free a context; DeviceError where a graph of it runs."""
    client, device = context.client, context.client.device
    if context.state not in (State.ALIVE, State.LOST):
        raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"{context.label}: is {context.state}")
    if context.runs:
        raise DeviceError(
            Code.QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, f"{context.label}: a graph of it runs; wait for it"
        )
    yield from client.votes.begin("DE-INIT")
    deregister_all(context)
    release(context)
    context.state = State.FREED
    client.contexts.pop(context.number, None)
    device.log.write("free", context=context.label, process=client.name)
    if context.config.dsp_memory_profiling_enabled and not client.contexts:
        device.log.write("DSP:after_context_freed", process=client.name, bytes=_dsp_heap_bytes(client))
    client.votes.done()
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
        yield from client.votes.begin("INIT")
        yield from _place_in_session(context, None)
        for name, graph in context.graphs_before.items():  # the handles that people have stay good
            graph.program = None
            context.graphs[name] = graph
            graph.priority = priorities[name]
        yield from load_binary(context, None, None)
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
        client.votes.done()
        raise
    client.device.log.write("recovered", context=context.label, process=client.name,
                            session=context.session.number if context.session else -1)  # fmt: skip
    client.votes.done()
    yield from register_again(context)
    return context
