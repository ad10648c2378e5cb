# SPDX-License-Identifier: Apache-2.0
"""Minimise: the smallest part of a recorded graph that a backend still computes wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.addons.saver.recorded_graphs import RecordedGraph
from hexforge.addons.saver.replay import copy_graph
from hexforge.backend import Backend
from hexforge.errors import CallError, HexforgeError
from hexforge.ir import Array, Graph, Node

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Minimised:
    """A part of a graph that fails, with what went in and what should come out."""

    graph: Graph
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]
    fault: str
    """What is wrong with it."""
    tried: int
    """How many parts were tried."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a backend may be from the reference: in steps of a fixed-point tensor, of the range of a float one."""

    steps: float = 1.0
    relative: float = 0.01


def minimise(
    recorded: RecordedGraph,
    backend: Backend,
    reference: Backend,
    tolerance: Tolerance = Tolerance(),  # noqa: B008 - it is frozen
    progress: Progress = lambda done, of: None,
) -> Minimised:
    """The smallest part that `backend` computes otherwise than `reference`, on the recorded inputs.

    Single nodes are tried first, each fed with what the reference computes before it; then parts, by delta debugging.
    CallError where the whole graph is right.
    """
    if not recorded.executions:
        raise CallError(f"graph {recorded.name!r} was never run in the recording")
    nodes = list(recorded.graph)
    for feeds, _ in recorded.executions:
        trial = _Trial(recorded.graph, backend, _every_tensor(recorded.graph, reference, feeds), tolerance)
        if not trial(nodes):
            continue
        for number, node in enumerate(nodes):
            progress(number, len(nodes))
            if trial([node]):
                return trial.minimised([node])
        return trial.minimised(_ddmin(nodes, trial))
    raise CallError(f"graph {recorded.name!r}: {backend.name} computes what {reference.name} does; nothing to minimise")


def _every_tensor(graph: Graph, reference: Backend, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of a run on the reference."""
    whole = copy_graph(graph)
    whole.expose({value.name for node in whole for value in node.outputs})
    given = {v.name: np.asarray(feeds[v.name]).astype(v.dtype.numpy) for v in whole.inputs}
    return {**given, **reference.compile(whole).run(given)}


class _Trial:
    """Says whether a backend computes some nodes of a graph wrongly."""

    def __init__(self, graph: Graph, backend: Backend, known: Mapping[str, Array], tolerance: Tolerance) -> None:
        self._graph, self._backend, self._known, self._tolerance = graph, backend, known, tolerance
        self.tried = 0

    def __call__(self, nodes: Sequence[Node]) -> bool:
        return self.fault(nodes) != ""

    def fault(self, nodes: Sequence[Node]) -> str:
        """What is wrong with what the nodes compute; empty where nothing is."""
        self.tried += 1
        part = copy_graph(self._graph, nodes)
        feeds = {value.name: self._known[value.name] for value in part.inputs}
        written = [(value.name, value.encoding is not None) for value in part.outputs]  # compiling changes the graph
        try:
            results = self._backend.compile(part).run(feeds)
        except HexforgeError as error:
            return f"the {self._backend.name} backend fails: {error}"
        for name, fixed in written:
            if difference := self._differs(np.asarray(results[name]), self._known[name], fixed):
                return f"tensor {name!r}: {difference}"
        return ""

    def _differs(self, result: Array, expected: Array, fixed: bool) -> str:
        now, then = result.astype(np.float64), expected.astype(np.float64)
        if now.shape != then.shape:
            return f"has the shape {now.shape}, not {then.shape}"
        if (np.isnan(now) != np.isnan(then)).any():
            return "has NaN where the reference has none"
        error = float(np.nanmax(np.where(now == then, 0.0, np.abs(now - then)), initial=0.0))
        finite = np.abs(then[np.isfinite(then)])
        allowed = (
            self._tolerance.steps if fixed else self._tolerance.relative * float(np.max(finite, initial=0.0)) + 1e-6
        )
        unit = "steps" if fixed else ""
        return f"is off by {error:.4g} {unit}".strip() if error > allowed else ""

    def minimised(self, nodes: Sequence[Node]) -> Minimised:
        """The failing part as a separate graph."""
        part = copy_graph(self._graph, nodes)
        feeds = {value.name: self._known[value.name] for value in part.inputs}
        expected = {value.name: self._known[value.name] for value in part.outputs}
        return Minimised(part, feeds, expected, self.fault(nodes), self.tried)


def _ddmin(nodes: Sequence[Node], fails: Callable[[Sequence[Node]], bool]) -> list[Node]:
    """Delta debugging: a part of which no chunk can be left out and it still fails."""
    left, chunks = list(nodes), 2
    while len(left) > 1:
        size = -(-len(left) // chunks)
        parts = [left[i : i + size] for i in range(0, len(left), size)]
        rest = [[n for n in left if n not in set(part)] for part in parts]
        smaller = next((part for part in (*parts, *rest) if part and len(part) < len(left) and fails(part)), None)
        if smaller is not None:
            left, chunks = smaller, max(2, chunks - 1 if len(smaller) > size else 2)
        elif chunks >= len(left):
            return left
        else:
            chunks = min(len(left), 2 * chunks)
    return left
