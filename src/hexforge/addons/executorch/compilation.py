# SPDX-License-Identifier: Apache-2.0
"""Graphs of QNN ops compiled into one context file, with what ExecuTorch's runtime looks for in it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from hexforge.addons.executorch.blob import REFUSED, ops_key, source_key
from hexforge.addons.executorch.resizing import dynamic_key, dynamic_text
from hexforge.addons.qnn_graphs import compiling
from hexforge.addons.qnn_graphs.declarations import QnnOp
from hexforge.backend import Backend
from hexforge.ir import Graph, text


def compile_graphs(graphs: Mapping[str, Sequence[QnnOp]], backend: Backend, weight_sharing: bool = False,
                   refused: Mapping[str, str] | None = None, keep_source: bool = False) -> bytes:  # fmt: skip
    """A context file with each graph under its name; UnsupportedError names every op that the backend refuses.

    `refused` are nodes of the model that it refused before, with why; the file keeps them for those who look at it.
    With `keep_source` it keeps the graphs as they were handed over, too, so that each op can be run alone.
    """
    metadata = {}
    if refused:
        metadata[REFUSED] = "\n".join(f"{node}\t{reason}" for node, reason in refused.items())
    return compiling.compile_graphs(graphs, backend, weight_sharing, functools.partial(_notes, keep_source), metadata)


def _notes(keep_source: bool, graph: Graph, ops: Sequence[QnnOp]) -> dict[str, str]:
    """The ops of a graph as they were handed over, and which of its dimensions vary."""
    notes = {ops_key(graph.name): "\n".join(node.name for node in graph.nodes)}
    if keep_source:
        notes[source_key(graph.name)] = text.dumps(graph)
    if (dynamic := dynamic_text(graph, ops)) is not None:
        notes[dynamic_key(graph.name)] = dynamic
    return notes
