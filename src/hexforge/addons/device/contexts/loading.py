# SPDX-License-Identifier: Apache-2.0
"""Loading: what is read of a binary into a session, graph by graph, and given back again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import loaded_program, require_suits
from hexforge.addons.device.contexts.callbacks import DmaBufferCallback, request_buffers
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.contexts.needs import graph_needs
from hexforge.scheduling.clock import Waits

LOAD_BYTES_PER_US = 2000.0
"""Assumed: how fast a context is read and deserialized."""
ACCELERATED = 0.7
"""Assumed: the part of that time that is left with INIT_ACCELERATION."""
CALLBACK_LEFT = 0.6
"""Assumed: the part that is left where the client reads the weights into buffers that the HTP uses as they are."""
GRAPH_US = 200.0
"""Assumed: per graph."""


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
