# SPDX-License-Identifier: Apache-2.0
"""Replay: recorded graphs run again, on the same backend or another, and compared with what came out then."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from hexforge.addons.saver.recorded_graphs import RecordedSession
from hexforge.backend import Backend
from hexforge.ir import Array, Graph, Node, Role
from hexforge.results import Key, Result
from hexforge.rules import require_taken


@dataclass(frozen=True, slots=True)
class ReplayedTensor(Result):
    """An output of an execution compared with what it was."""

    graph: str
    execution: int
    tensor: str
    equal: bool
    """Every bit is the same."""
    largest: float
    """The largest difference."""
    sqnr_db: float

    described = (
        "graph execution tensor equal",
        Key("largest_difference", of="largest"),
        Key("sqnr_db", of=lambda row: None if math.isinf(row.sqnr_db) else row.sqnr_db),
    )


def replay(session: RecordedSession, backend: Backend) -> Iterator[ReplayedTensor]:
    """Run every execution again; UnsupportedError names the nodes that a backend refuses."""
    for recorded in session.graphs.values():
        if not recorded.executions:
            continue
        graph = copy_graph(recorded.graph)
        require_taken(graph, backend.unsupported, f"graph {graph.name!r}: the {backend.name} backend")
        program = backend.compile(graph)
        for number, (feeds, before) in enumerate(recorded.executions):
            after = program.run(feeds)
            for name, array in before.items():
                yield _compared(recorded.name, number, name, array, after[name])


def copy_graph(graph: Graph, nodes: Collection[Node] | None = None) -> Graph:
    """A graph of its own with the same tensors and nodes, or some of these; the arrays of constants are shared.

    What other nodes wrote becomes an input then, and what they read an output.
    """
    chosen = set(graph.nodes if nodes is None else nodes)
    copy = Graph(graph.name)
    inner = {value for node in chosen for value in node.outputs}
    for value in graph.values.values():
        role = value.role
        if value in inner and role is Role.NATIVE and any(user not in chosen for user in value.users):
            role = Role.APP_READ
        elif value not in inner and value.producer is not None:
            role = Role.APP_WRITE
        if value in inner or any(user in chosen for user in value.users) or (nodes is None and value.producer is None):
            copy.value(value.name, value.type, role, value.data)
    for node in graph:
        if node in chosen:
            reads = [None if v is None else copy.values[v.name] for v in node.inputs]
            writes = [copy.values[v.name] for v in node.outputs]
            copy.node(node.op, reads, writes, name=node.name, source=node.source, **node.params)
    return copy


def _compared(graph: str, execution: int, name: str, before: Array, after: Array) -> ReplayedTensor:
    then, now = np.asarray(before, np.float64), np.asarray(after, np.float64)
    error = np.abs(then - now)
    error = np.where((then == now) | (np.isnan(then) & np.isnan(now)), 0.0, error)
    largest = float(np.nanmax(error, initial=0.0)) if not np.isnan(error).all() else float("nan")
    noise, signal = float(np.sum(error**2)), float(np.sum(then**2))
    sqnr = float("inf") if noise == 0 else 10 * float(np.log10(max(signal, 1e-300) / noise))
    equal = before.dtype == after.dtype and before.tobytes() == np.ascontiguousarray(after).tobytes()
    return ReplayedTensor(graph, execution, name, equal, largest, sqnr)
