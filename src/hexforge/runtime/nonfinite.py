# SPDX-License-Identifier: Apache-2.0
"""The first tensor of a run whose numbers end: NaN, infinite, or past what the backend's floats hold.

It is found by running the parts with every tensor exposed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge._native import extent
from hexforge.backend import Backend
from hexforge.errors import HexforgeError
from hexforge.ir import Array, Graph, text
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stages

_MASK = 65536.0
"""What the HTP makes of the least float32, of which masks are made: no fault of the numbers."""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A tensor with elements that are no finite numbers, or past what the backend's floats hold."""

    tensor: str
    op: str
    """The QNN op that wrote it; empty for an input, or one that nodes on the CPU wrote."""
    nodes: tuple[str, ...]
    """The model's nodes that it comes from."""
    nan: int
    infinite: int
    beyond: int
    """How many are finite and past `limit`."""
    elements: int
    limit: float = math.inf

    def __str__(self) -> str:
        kinds = (self.nan, "NaN"), (self.infinite, "infinite"), (self.beyond, f"past {self.limit:g}")
        counts = [f"{n} of {self.elements} {kind}" for n, kind in kinds if n]
        origin = f", written by {self.op} (node {', '.join(self.nodes)})" if self.op else ""
        return f"tensor {self.tensor!r}{origin}: {' and '.join(counts)}"


def has_nonfinite(arrays: Iterable[Any]) -> bool:
    """True where an array has a NaN or an infinity."""
    return any(_described("", np.asarray(a)) is not None for a in arrays)


def first_nonfinite(plan: Stages, backend: Backend, feeds: Mapping[str, Any]) -> NonFinite | None:
    """The first tensor of a run that is not finite, or past what the backend's floats hold; None where none is."""
    for name, array in feeds.items():
        if (fault := _described(name, np.asarray(array))) is not None:
            return fault
    known: dict[str, Any] = {**plan.constants, **feeds}
    for stage in plan.current_stages():
        if isinstance(stage.runner, CpuPart):
            written = stage.run(known)
            for name, array in written.items():
                if (fault := _described(name, np.asarray(array))) is not None:
                    return fault
        else:
            inputs = {name: known[name] for name in stage.reads}
            if (fault := _first_in_graph(stage.runner.graph, backend, inputs)) is not None:
                return fault
            written = stage.run(known)
        known.update(written)
    return None


def _first_in_graph(graph: Graph, backend: Backend, feeds: Mapping[str, Array]) -> NonFinite | None:
    """The first such tensor within one graph: a copy of the graph is compiled with every tensor readable."""
    copy = text.loads(text.dumps(graph))
    order = [(value.name, node) for node in copy.nodes for value in node.outputs]
    copy.expose({name for name, _ in order})
    try:
        results = backend.compile(copy).run(feeds)
    except HexforgeError:
        return None  # a graph of a context without its constants
    for name, node in order:
        if name not in results:
            continue
        fault = _described(name, results[name], node.op.name, node.source, backend.largest_float)
        if fault is not None:
            return fault
    return None


def _described(
    name: str, array: Array, op: str = "", nodes: tuple[str, ...] = (), limit: float = math.inf
) -> NonFinite | None:
    if array.dtype.kind not in "fV" or not array.size:
        return None
    if array.dtype == np.float32 and array.flags.c_contiguous:
        low, high, _, nonfinite = extent(array)
        if not nonfinite and max(-low, high) <= limit:
            return None
    real = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    nan, infinite = int(np.isnan(real).sum()), int(np.isinf(real).sum())
    beyond = int((np.isfinite(real) & (np.abs(real) > limit) & (np.abs(real) != _MASK)).sum())
    return NonFinite(name, op, nodes, nan, infinite, beyond, array.size, limit) if nan or infinite or beyond else None
