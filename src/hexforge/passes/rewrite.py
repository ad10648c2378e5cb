# SPDX-License-Identifier: Apache-2.0
"""Run passes: a pass is a function from a graph to the number of changes it made to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hexforge.ir import Graph

Pass = Callable[[Graph], int]
Observe = Callable[[str, Graph, int], None]
"""Called after each pass with its name, the graph as it is now, and the number of changes."""


def run(graph: Graph, passes: Iterable[Pass], observe: Observe | None = None) -> int:
    """Run the passes once each, in order; the number of changes they made together."""
    total = 0
    for rewrite in passes:
        changes = rewrite(graph)
        total += changes
        if observe is not None:
            observe(getattr(rewrite, "__name__", repr(rewrite)), graph, changes)
    return total
