# SPDX-License-Identifier: Apache-2.0
"""Plan: a placed model partitioned and compiled, ready to run part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from hexforge.backend import Backend, Program, TellsReferences, TellsUnsafe
from hexforge.errors import UnsupportedError
from hexforge.frontends.onnx.pipeline import CONVERTS, PlacedModel, Placement, node_label, reads_of, writes_of
from hexforge.ir import Array, Graph
from hexforge.model.extraction import extract_parts
from hexforge.model.reader import Model
from hexforge.model.standalone import Extract
from hexforge.runtime.cpu_part import CPU, QNN, CpuPart
from hexforge.runtime.partition import Part, PartitionStep, partition
from hexforge.runtime.refusals import refusal_lines
from hexforge.runtime.stages import PlacedNode, Stage, Stages

_ALONE = "a graph of one single {} is not worth making; it runs on the CPU"


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedModel:
    """A placed model in parts, before anything is compiled."""

    placed: PlacedModel
    placements: tuple[Placement, ...]
    """The model's units; one that is not worth a graph by itself is refused now."""
    parts: tuple[Part, ...]
    rows_by_unit: tuple[tuple[PlacedNode, ...], ...]

    @property
    def rows(self) -> tuple[PlacedNode, ...]:
        """Every node of the model, in the model's order."""
        return tuple(row for rows in self.rows_by_unit for row in rows)

    @property
    def refused(self) -> tuple[PlacedNode, ...]:
        """Nodes that stay with the CPU, those left there on purpose included."""
        return tuple(row for row in self.rows if row.reason is not None)

    def graph(self, part: Part, name: str) -> Graph:
        """The QNN graph of a part, after the neutral passes."""
        return self.placed.graph(name, [self.placements[i] for i in part.steps], part.outputs)

    def names(self) -> list[str]:
        """What each part is called: graphs after the model, parts on the CPU by their number."""
        stem, taken, names = _stem(self.placed.model), 0, []
        for number, part in enumerate(self.parts):
            names.append(f"{stem}_{taken}_0" if part.taken else f"cpu_{number}")
            taken += part.taken
        return names


def partitioned(placed: PlacedModel, *, keep_converts: bool = False) -> PartitionedModel:
    """The parts of a placed model; with `keep_converts` a Quantize or Dequantize alone is worth a graph."""
    placements = list(placed.placements)
    steps = [_step(placement) for placement in placements]
    parts = partition(steps, placed.outputs, keep_converts=keep_converts and not placed.ep_obeyed)
    for part in parts:
        for i in part.steps:
            if placed.ep_limited and part.taken and len(part.steps) == 1 and steps[i].convert:
                placements[i] = replace(placements[i], ep_refuses=_ALONE.format(placements[i].unit.target.op_type))
            if placements[i].taken and not part.taken:
                reason = _ALONE.format(placements[i].unit.target.op_type)
                placements[i] = replace(placements[i], reason=reason)
    if placed.ep_limited:  # what the backend refuses, the EP refuses as well
        placements = [replace(p, ep_refuses=p.ep_refuses or p.reason or "") for p in placements]
    rows = tuple(_rows(i, placement) for i, placement in enumerate(placements))
    return PartitionedModel(placed, tuple(placements), tuple(parts), rows)


def require_whole(parts: PartitionedModel, backend: str) -> None:
    """UnsupportedError telling every reason why nodes are not taken."""
    if not parts.refused:
        return
    lines = refusal_lines((str(row), row.reason or "") for row in parts.refused)
    raise UnsupportedError(
        f"session.disable_cpu_ep_fallback=1, and the {backend} backend refuses {len(parts.refused)} of "
        f"{len(parts.rows)} nodes:\n"
        + "\n".join(lines)
        + "\nset session.disable_cpu_ep_fallback=0 to run them on the CPU, or change the model as said"
    )


class Plan(Stages):
    """What a session does with a model on a backend."""

    def __init__(
        self,
        parts: PartitionedModel,
        backend: Backend,
        make_cpu_part: Callable[[Extract, Sequence[str]], CpuPart] = CpuPart,
        exposed: Sequence[str] = (),
    ) -> None:
        """`exposed`: patterns of the names of tensors inside that become outputs of their graphs, too."""
        model = parts.placed.model
        stages: list[Stage] = []
        for part, name in zip(parts.parts, parts.names(), strict=True):
            rows = tuple(row for i in part.steps for row in parts.rows_by_unit[i])
            runner: Program | CpuPart
            reads = tuple(part.inputs)
            if part.taken:
                graph = parts.graph(part, name)
                if exposed:
                    expose(graph, exposed)
                rows = _with_unsafe(rows, graph, backend)
                runner = backend.compile(graph)
                reads = tuple(v.name for v in runner.graph.inputs)
            else:
                nodes = [node for i in part.steps for node in parts.placements[i].unit.nodes]
                cut = extract_parts(model, nodes, part.inputs, part.outputs)
                runner = make_cpu_part(cut, [str(row) for row in rows])
            stages.append(Stage(name, part, _with_slow(rows, runner), runner, reads))
        placed = {(row.node, row.unit): row for stage in stages for row in stage.rows}
        self._rows = tuple(placed.get((row.node, row.unit), row) for row in parts.rows)
        super().__init__(stages, _constant_outputs(parts))

    @property
    def rows(self) -> tuple[PlacedNode, ...]:
        """Every node of the model, in the model's order."""
        return self._rows


def expose(graph: Graph, patterns: Sequence[str]) -> None:
    """Let tensors inside whose names have one of the patterns be outputs, too."""
    written = [value.name for node in graph for value in node.outputs]
    kept = {value.name for value in graph.outputs}
    graph.expose(kept | {name for name in written if any(fnmatchcase(name, pattern) for pattern in patterns)})


def _stem(model: Model) -> str:
    """A name for the model's graphs that other models' graphs do not have: they may end up in one context."""
    names = [f"{n.op_type} {n.name} {[v.name for v in n.outputs]}" for n in model.ir.graph]
    names += [f"{v.name} {v.shape}" for v in model.ir.graph.inputs]
    names.append(model.path.name if model.path is not None else "")
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=8).digest()
    return f"{QNN}_{QNN}_{int.from_bytes(digest)}"


def _rows(index: int, placement: Placement) -> tuple[PlacedNode, ...]:
    where, ops = QNN if placement.taken else CPU, placement.ops
    return tuple(
        PlacedNode(
            node_label(n), n.op_type, n.domain, where, placement.reason, ops, index, ep_refuses=placement.ep_refuses
        )
        for n in placement.unit.nodes
    )


def _with_slow(rows: tuple[PlacedNode, ...], runner: Program | CpuPart) -> tuple[PlacedNode, ...]:
    """The rows of a part, with what its program says of their QNN ops."""
    if not isinstance(runner, TellsReferences) or not runner.references:
        return rows
    slow: dict[str, list[str]] = {}
    for node in runner.references:
        for name in node.source:
            slow.setdefault(name, []).append(node.op.name)
    return tuple(replace(row, slow=tuple(slow.get(row.node, ()))) for row in rows)


def _with_unsafe(rows: tuple[PlacedNode, ...], graph: Graph, backend: Backend) -> tuple[PlacedNode, ...]:
    """The rows of a part, with what the backend's real numbers cannot hold of it."""
    if not isinstance(backend, TellsUnsafe):
        return rows
    unsafe: dict[str, dict[str, None]] = {}
    for node in graph:
        if (reason := backend.unsafe(node)) is not None:
            for name in node.source:
                unsafe.setdefault(name, {})[reason] = None
    return tuple(replace(row, unsafe=tuple(unsafe.get(row.node, ()))) for row in rows)


def _step(placement: Placement) -> PartitionStep:
    unit = placement.unit
    convert = len(unit.nodes) == 1 and unit.target.op_type in CONVERTS
    return PartitionStep(tuple(reads_of(placement)), tuple(writes_of(placement)), placement.taken, convert)


def _constant_outputs(parts: PartitionedModel) -> dict[str, Array]:
    """Outputs of the model that are constants, which no part writes."""
    written = {name for placement in parts.placements for name in writes_of(placement)}
    return {
        str(value.name): np.asarray(value.const_value.numpy())
        for value in parts.placed.model.ir.graph.outputs
        if value.name not in written and value.const_value is not None
    }
