# SPDX-License-Identifier: Apache-2.0
"""Loading: what a context takes in a session, what is read of its binary into it, and which graphs make room.

Without a retention order one graph is loaded at a time. With one, graphs that are not in it go first whenever another
is loaded, then those in it from its end, until there is room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import GraphSpec, loaded_program, require_suits
from hexforge.addons.device.contexts.callbacks import DmaBufferCallback, request_buffers
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.memory import CdspSession, Need
from hexforge.addons.device.scheduling.clock import Waits

LOAD_BYTES_PER_US = 2000.0
"""Assumed: how fast a context is read and deserialized."""
ACCELERATED = 0.7
"""Assumed: the part of that time that is left with INIT_ACCELERATION."""
CALLBACK_LEFT = 0.6
"""Assumed: the part that is left where the client reads the weights into buffers that the HTP uses as they are."""
GRAPH_US = 200.0
"""Assumed: per graph."""


def needs_of(context: DeviceContext, session: CdspSession | None) -> list[Need]:
    """What a context needs in a session, including buffers of its group that the session does not have yet."""
    specs, config = context.specs(), context.config
    needs: list[Need] = []
    if config.switching:
        needs.append(("shared weights", context.binary.shared_bytes))
        needs += client_buffers(context)
        needs += [need for spec in specs if spec.name in first_graphs(context) for need in graph_needs(context, spec)]
    else:
        needs.append(("weights", context.binary.shared_bytes + sum(s.weights_bytes for s in specs)))
        if context.group is None:
            needs += [("spill-fill", s.spill_fill_bytes) for s in specs]
    backup = max((s.vtcm_bytes for s in specs), default=0)
    if context.group is None:
        needs.append(("VTCM backup", backup))
    else:
        needs += context.group.needs(context, session)
    adapters = [s.adapter_bytes for s in specs]
    if any(adapters):  # one blob as large as the largest, or one for each graph
        needs.append(("LoRA weights", max(adapters) if config.lora_weight_sharing_enabled else sum(adapters)))
    return [(what, size) for what, size in needs if size]


def client_buffers(context: DeviceContext) -> list[Need]:
    """Buffers that the client shares with the backend for graphs that are switched."""
    needs: list[Need] = []
    for what, given, most in (
        ("client spill-fill", context.config.spill_fill_buffer, max(s.spill_fill_bytes for s in context.specs())),
        ("client weights", context.config.weights_buffer, max(s.weights_bytes for s in context.specs())),
    ):
        if 0 < given < most:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_CONFIG,
                f"{context.binary.name}: a {what} buffer of {given:,} bytes is too small, a graph needs {most:,}; -1 "
                "takes what QNN says",
            )
        if given:
            needs.append((what, most if given == -1 else given))
    return needs


def graph_needs(context: DeviceContext, spec: GraphSpec) -> list[Need]:
    """What a graph that is switched in needs."""
    weights = 0 if context.config.weights_buffer else spec.weights_bytes
    spill = 0 if context.config.spill_fill_buffer else spec.spill_fill_bytes
    return [(what, size) for what, size in (("weights", weights), ("spill-fill", spill)) if size]


def first_graphs(context: DeviceContext) -> tuple[str, ...]:
    """Graphs that are loaded at once where graphs are switched: the retained ones, or the first."""
    return context.config.graph_retention_order or (context.specs()[0].name,)


@dataclass(frozen=True, slots=True)
class CreationNotice:
    """A graph, or (graph None) a whole context of a list, that is there or failed."""

    binary: str
    context: DeviceContext | None
    graph: DeviceGraph | None = None
    error: DeviceError | None = None


Notify = Callable[[CreationNotice], None]


def load_binary(context: DeviceContext, callback: DmaBufferCallback | None, notify: Notify | None) -> Waits:
    """Read the binary, and make the programs of the graphs that are loaded."""
    client, config, device = context.client, context.config, context.client.device
    size = context.binary.weights_bytes
    if config.file_read_memory_budget_in_mb:
        peak = min(size, config.file_read_memory_budget_in_mb << 20)
        chunks = math.ceil(size / peak) if peak else 0
        device.log.write("file_read", context=context.label, peak_bytes=peak, chunks=chunks)
    left = (ACCELERATED if config.init_acceleration else 1.0) * (CALLBACK_LEFT if callback is not None else 1.0)
    if callback is not None:
        context.held = request_buffers(context.binary, callback)
        context.opened = context.held.context
    else:
        context.opened = context.binary.open()
    if context.opened is not None:
        context.backend = require_suits(context.opened, device.soc.name, config.binary_compatibility)
        context.opened.skip_validation_on_binary_section = config.skip_validation_on_binary_section
    wanted = context.loaded
    for name, graph in context.graphs.items():
        if name in wanted:
            yield (
                GRAPH_US
                + (graph.spec.weights_bytes + context.binary.shared_bytes / len(wanted)) / LOAD_BYTES_PER_US * left
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
    needs = graph_needs(context, graph.spec)
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


def graphs_to_unload(
    wanted: str, loaded: Sequence[str], retained: Sequence[str], sizes: dict[str, int], free_bytes: int
) -> list[str]:
    """The graphs to unload, in order, before `wanted` is loaded where so many bytes are free."""
    if wanted in loaded:
        return []
    if not retained:
        return list(loaded)
    unloaded = [name for name in loaded if name not in retained]
    room = free_bytes + sum(sizes[name] for name in unloaded)
    for name in reversed([n for n in retained if n in loaded]):
        if room >= sizes[wanted]:
            break
        unloaded.append(name)
        room += sizes[name]
    return unloaded


def check_order(context: DeviceContext) -> None:
    """DeviceError for a retention order with graphs that the context does not have, or that are not enabled."""
    names = [spec.name for spec in context.specs()]
    strange = [name for name in context.config.graph_retention_order if name not in names]
    if strange:
        raise DeviceError(
            Code.QNN_CONTEXT_ERROR_INVALID_CONFIG,
            f"{context.label}: graph_retention_order names {strange[0]!r}, which is not among the enabled graphs: "
            f"{', '.join(names)}",
        )


def require_alone(graph: DeviceGraph) -> None:
    """DeviceError where another graph of the context runs: switched graphs do not run at the same time."""
    others = [g.name for g in graph.context.graphs.values() if g is not graph and g.executing]
    if others:
        raise DeviceError(
            Code.QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED,
            f"{graph.label}: graph {others[0]!r} runs, and graphs that are switched do not run at the same time; wait "
            "for it",
        )
