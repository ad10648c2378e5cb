# SPDX-License-Identifier: Apache-2.0
"""The first tensor of a run that is not a number, or infinite: found by running the parts with every tensor exposed."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A tensor with elements that are no finite numbers."""

    tensor: str
    op: str
    """The QNN op that wrote it; empty for an input, or one that nodes on the CPU wrote."""
    nodes: tuple[str, ...]
    """The model's nodes that it comes from."""
    nan: int
    infinite: int
    elements: int

    def __str__(self) -> str:
        counts = [f"{n} of {self.elements} {kind}" for n, kind in ((self.nan, "NaN"), (self.infinite, "infinite")) if n]
        origin = f", written by {self.op} (node {', '.join(self.nodes)})" if self.op else ""
        return f"tensor {self.tensor!r}{origin}: {' and '.join(counts)}"


def has_nonfinite(arrays: Iterable[Any]) -> bool:
    """True where an array has a NaN or an infinity."""
    return any(_counts(np.asarray(a)) != (0, 0) for a in arrays)


def first_nonfinite(plan: Stages, backend: Backend, feeds: Mapping[str, Any]) -> NonFinite | None:
    """The first tensor of a run that is not finite, in the order they are written; None where all are."""
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
        if name in results and (fault := _described(name, results[name], node.op.name, node.source)) is not None:
            return fault
    return None


def _described(name: str, array: Array, op: str = "", nodes: tuple[str, ...] = ()) -> NonFinite | None:
    nan, infinite = _counts(array)
    return NonFinite(name, op, nodes, nan, infinite, array.size) if nan or infinite else None


def _counts(array: Array) -> tuple[int, int]:
    if array.dtype.kind not in "fV" or not array.size:
        return 0, 0
    if array.dtype == np.float32 and array.flags.c_contiguous and not extent(array)[3]:
        return 0, 0
    real = array.astype(np.float32) if array.dtype.kind == "V" else array
    return int(np.isnan(real).sum()), int(np.isinf(real).sum())
