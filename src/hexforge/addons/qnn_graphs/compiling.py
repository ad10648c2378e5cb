# SPDX-License-Identifier: Apache-2.0
"""Graphs handed over as QNN ops, checked, compiled and recorded: the road of ExecuTorch's backend and of the C API."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hexforge.addons.qnn_graphs import library_limits
from hexforge.addons.qnn_graphs.declarations import QnnOp
from hexforge.addons.qnn_graphs.graph import build_fragment, build_graph
from hexforge.backend import Backend, ContextBackend, GraphSettings
from hexforge.errors import HexforgeError, UnsupportedError
from hexforge.ir import Graph
from hexforge.ir.verify import node_faults
from hexforge.passes import NEUTRAL, run
from hexforge.rules import require_taken
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from hexforge.runtime.registry import with_recorder

logger = logging.getLogger("hexforge.qnn")

Notes = Callable[[Graph, Sequence[QnnOp]], Mapping[str, str]]
"""What a context's metadata says of a graph before it is compiled."""


def refusal(ops: Sequence[QnnOp], backend: Backend) -> str | None:
    """Why ops are not taken, by the backend or by Qualcomm's library, and what would work; None where they are."""
    try:
        nodes = build_fragment(ops)
    except HexforgeError as error:
        return str(error)
    chips = backend if isinstance(backend, ContextBackend) else None
    for node in nodes:
        reason = next(node_faults(node), None) or backend.unsupported(node)
        if reason is None and chips is not None:
            reason = library_limits.library_refusal(node)
        if reason is not None:
            return f"op {node.name!r} ({node.op.name}): {reason}"
        if chips is not None and (warning := library_limits.preparation_failure(node, chips)) is not None:
            logger.warning("[hexforge] op %r (%s): %s", node.name, node.op.name, warning)
    return None


def context_builder(backend: Backend, weight_sharing: bool = False) -> ContextBuilder:
    """An empty context for what a backend prepares for."""
    chips = backend if isinstance(backend, ContextBackend) else None
    if weight_sharing and chips is not None and (reason := chips.no_weight_sharing()) is not None:
        raise UnsupportedError(f"weight sharing: {reason}")
    return ContextBuilder.of(backend, (), weight_sharing)


def compile_graph(name: str, ops: Sequence[QnnOp], backend: Backend, notes: Notes | None = None,
                  metadata: dict[str, str] | None = None, timed: bool = False) -> PreparedGraph:  # fmt: skip
    """A graph under its name, compiled; UnsupportedError names every op that the backend refuses.

    `timed`: the context keeps how the graph runs on each chip, also where it spills nothing.
    """
    chips = backend if isinstance(backend, ContextBackend) else None
    settings = {} if chips is None else _graph_settings(chips)
    graph = build_graph(name, ops)
    require_taken(graph, backend.unsupported, f"graph {graph.name!r}: the {backend.name} backend")
    if notes is not None and metadata is not None:
        metadata.update(notes(graph, ops))
    run(graph, NEUTRAL)
    program = backend.compile(graph)
    wanted = chips is not None and (timed or not chips.fits(program.graph))
    return PreparedGraph.prepared(name, program, backend, settings, timed=wanted)


def context_bytes(builder: ContextBuilder, graphs: Sequence[PreparedGraph]) -> bytes:
    """The file of a context with these graphs."""
    for graph in graphs:
        if not builder.weight_sharing:
            builder.pool.forget()
        builder.add(graph)
    return b"".join(builder.writer().parts())


def compile_graphs(graphs: Mapping[str, Sequence[QnnOp]], backend: Backend, weight_sharing: bool = False,
                   notes: Notes | None = None, metadata: Mapping[str, str] | None = None) -> bytes:  # fmt: skip
    """A context file with each graph under its name; UnsupportedError names every op that the backend refuses."""
    builder = context_builder(backend, weight_sharing)
    builder.metadata.update(metadata or {})
    compiled = [compile_graph(name, ops, backend, notes, builder.metadata) for name, ops in graphs.items()]
    return context_bytes(builder, compiled)


def record_graphs(graphs: Mapping[str, Sequence[QnnOp]], backend: Backend, folder: Path) -> None:
    """Write the QNN calls that make and prepare the graphs into a folder, as QNN's Saver does."""
    saver = with_recorder(backend, folder)
    for name, ops in graphs.items():
        graph = build_graph(name, ops)
        require_taken(graph, backend.unsupported, f"graph {graph.name!r}: the {backend.name} backend")
        saver.compile(graph)


@functools.lru_cache(16)
def _graph_settings(chips: ContextBackend) -> GraphSettings:
    return chips.graph_settings()
