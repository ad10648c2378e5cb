# SPDX-License-Identifier: Apache-2.0
"""Switching: which graphs make room when another is loaded, of one context with a memory limit hint.

Without a retention order one graph is loaded at a time. With one, graphs that are not in it go first whenever another
is loaded, then those in it from its end, until there is room.
"""

from __future__ import annotations

from collections.abc import Sequence

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph


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
