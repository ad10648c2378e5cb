# SPDX-License-Identifier: Apache-2.0
"""Saved graphs: the graph that a program's data in a context file holds as text, checked against the file's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import FormatError
from hexforge.ir import Graph, Value, text


def saved_graph(
    name: str, inputs: Sequence[Value], outputs: Sequence[Value], data: Any, get: Callable[[int, int], memoryview]
) -> Graph:
    """The graph of a program's data; FormatError where it is none, or another than the table of graphs says."""
    if not isinstance(data, dict) or not isinstance(data.get("graph"), str):
        raise FormatError(f"program {name!r}: is malformed")
    graph = text.loads(data["graph"], get)
    for values, expected in ((graph.inputs, inputs), (graph.outputs, outputs)):
        if [(v.name, v.type) for v in values] != [(v.name, v.type) for v in expected]:
            raise FormatError(f"program {name!r}: has other inputs or outputs than the table of graphs says")
    if empty := [v.name for v in graph.values.values() if v.is_static and v.data is None]:
        raise FormatError(f"program {name!r}: constant {empty[0]!r} has no data")
    return graph
