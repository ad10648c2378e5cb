# SPDX-License-Identifier: Apache-2.0
"""Graphs of QNN ops compiled into one context file, and the question whether the backend takes an op."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from hexforge.backend import Backend, ContextBackend, GraphSettings, Schematic
from hexforge.backends.saver import SaverBackend
from hexforge.errors import HexforgeError, UnsupportedError
from hexforge.executorch.blob import REFUSED, ops_key
from hexforge.executorch.resizing import dynamic_key, dynamic_text
from hexforge.frontends.qnn import library_limits
from hexforge.frontends.qnn.declarations import QnnOp
from hexforge.frontends.qnn.graph import build_fragment, build_graph
from hexforge.ir import Graph
from hexforge.ir.verify import node_faults
from hexforge.passes import NEUTRAL, run
from hexforge.rules import require_taken
from hexforge.runtime.contexts.context_builder import ContextBuilder, ContextGraph

logger = logging.getLogger("hexforge.executorch")


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


def compile_graphs(graphs: Mapping[str, Sequence[QnnOp]], backend: Backend, weight_sharing: bool = False,
                   refused: Mapping[str, str] | None = None) -> bytes:  # fmt: skip
    """A context file with each graph under its name; UnsupportedError names every op that the backend refuses.

    `refused` are nodes of the model that it refused before, with why; the file keeps them for those who look at it.
    """
    chips = backend if isinstance(backend, ContextBackend) else None
    settings = {} if chips is None else _graph_settings(chips)
    if weight_sharing and chips is not None and (reason := chips.no_weight_sharing()) is not None:
        raise UnsupportedError(f"weight sharing: {reason}")
    targets = () if chips is None else chips.targets
    builder = ContextBuilder(backend.name, targets, backend.config.pairs(), weight_sharing)
    if refused:
        builder.metadata[REFUSED] = "\n".join(f"{node}\t{reason}" for node, reason in refused.items())
    for name, ops in graphs.items():
        graph = build_graph(name, ops)
        builder.metadata[ops_key(name)] = "\n".join(node.name for node in graph.nodes)
        require_taken(graph, backend.unsupported, f"graph {graph.name!r}: the {backend.name} backend")
        if (dynamic := dynamic_text(graph, ops)) is not None:
            builder.metadata[dynamic_key(name)] = dynamic
        run(graph, NEUTRAL)
        program = backend.compile(graph)
        schematics = {} if chips is None or chips.fits(program.graph) else _schematics(program.graph, chips, settings)
        spill = max((s.spill_fill_bytes for s in schematics.values()), default=0)
        data = {soc: schematic.data for soc, schematic in schematics.items()}
        if not weight_sharing:
            builder.pool.forget()
        builder.add(ContextGraph(name, program, settings, spill, (), data))
    return b"".join(builder.writer().parts())


@functools.lru_cache(16)
def _graph_settings(chips: ContextBackend) -> GraphSettings:
    return chips.graph_settings()


def record_graphs(graphs: Mapping[str, Sequence[QnnOp]], backend: Backend, folder: Path) -> None:
    """Write the QNN calls that make and prepare the graphs into a folder, as QNN's Saver does."""
    saver = SaverBackend(backend, folder=folder)
    for name, ops in graphs.items():
        graph = build_graph(name, ops)
        require_taken(graph, backend.unsupported, f"graph {graph.name!r}: the {backend.name} backend")
        saver.compile(graph)


def _schematics(graph: Graph, backend: ContextBackend, settings: Mapping[str, int]) -> dict[str, Schematic]:
    by_chip = {target.name: backend.schematic(graph, target, settings) for target in backend.targets}
    return {soc: schematic for soc, schematic in by_chip.items() if schematic is not None}
