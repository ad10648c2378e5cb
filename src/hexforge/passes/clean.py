"""Clean: remove nodes whose outputs nobody reads, and values nobody writes or reads."""

from __future__ import annotations

from hexforge.ir import Graph, Role


def dead(graph: Graph) -> int:
    """Remove dead nodes, then dead NATIVE and STATIC values."""
    changes = 0
    for node in reversed(graph.nodes):
        if all(v.role is Role.NATIVE and not v.users for v in node.outputs):
            graph.remove(node)
            changes += 1
    for value in tuple(graph.values.values()):
        if value.role in (Role.NATIVE, Role.STATIC) and not value.users and value.producer is None:
            graph.remove_value(value)
            changes += 1
    return changes


def clean(graph: Graph) -> int:
    """Remove what does nothing."""
    return dead(graph)
