# SPDX-License-Identifier: Apache-2.0
"""Prepare: the one road from a model to its parts, and what a request may change of it.

`prepare_model` is the whole order, step by step, up to graphs of QNN ops. `runtime.plan.Plan` hands these to the
backend, whose `compile` has passes and a lowering of its own (`backends/htp/pipeline`), and the rest to onnxruntime.
So the graph that is timed is the graph that is run and the graph that a context holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hexforge.backend import Backend
from hexforge.errors import UnsupportedError
from hexforge.frontends.onnx.fusions.table import fuse_units
from hexforge.frontends.onnx.node_units import node_units
from hexforge.frontends.onnx.placing import (
    CONVERTS,
    EpLimits,
    PlacedUnits,
    Placement,
    node_label,
    place,
    reads_of,
    refused_beforehand,
    require_sound,
    without_inner_reads,
    writes_of,
)
from hexforge.frontends.onnx.unit_encodings import write_zeros
from hexforge.ir import Graph, Node
from hexforge.model.reader import Model, read
from hexforge.model.source import ModelSource
from hexforge.rules import refusal_lines
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.partition import Part, PartitionStep, partition
from hexforge.runtime.stages import PlacedNode


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """How a model is to be read and placed. By default it is placed as the backend can, which is what is timed."""

    dims: Mapping[str, int] | None = None
    """Sizes of symbolic dimensions: a graph has static shapes, and a model's file may leave them open."""
    shapes: Mapping[str, Sequence[int]] | None = None
    """Shapes of inputs by name, for dimensions that have no name."""
    constants: Mapping[str, Any] | None = None
    """Inputs that are always given the same value, which then is folded into the graph."""
    offload_io_quantization: bool = False
    """Leave the quantization of inputs and outputs outside: the application has the integers already."""
    obey_ep: bool = False
    """Refuse also what onnxruntime's QNN EP refuses though the backend could take it: placement as on a device."""
    open_shapes: bool = False
    """Let shapes stay open: units that read or write them are refused, as by the EP."""
    no_backend: str = ""
    """Why the backend takes no unit at all, where that is so."""
    affinity: Mapping[str, str] = field(default_factory=dict)
    """Op types pinned to backends by name (op_affinity), to try what a model does without them on this one."""


DEFAULT_REQUEST = ModelRequest()
"""A model as its file has it, placed as the backend can."""


OFFLOADED = "offload_graph_io_quantization=1"
"""What the reason begins with where a quantization is left outside on purpose."""
_ALONE = "a graph of one single {} is not worth making; it runs on the CPU"


@dataclass(frozen=True, slots=True, eq=False)
class PreparedParts:
    """A placed model in parts, before anything is compiled."""

    placed: PlacedUnits
    placements: tuple[Placement, ...]
    """The model's units; one that is not worth a graph by itself is refused now."""
    parts: tuple[Part, ...]
    rows_by_unit: tuple[tuple[PlacedNode, ...], ...]

    @property
    def model(self) -> Model:
        """The model whose nodes were placed."""
        return self.placed.model

    @property
    def rows(self) -> tuple[PlacedNode, ...]:
        """Every node of the model, in the model's order."""
        return tuple(row for rows in self.rows_by_unit for row in rows)

    @property
    def left_on_cpu(self) -> tuple[PlacedNode, ...]:
        """Nodes that stay with the CPU, apart from quantization that the request leaves outside."""
        return tuple(row for row in self.rows if row.reason is not None and not row.reason.startswith(OFFLOADED))

    @property
    def offloaded(self) -> tuple[PlacedNode, ...]:
        """Quantization of inputs and outputs that the request leaves outside."""
        return tuple(row for row in self.rows if (row.reason or "").startswith(OFFLOADED))

    @property
    def ep_refused(self) -> tuple[PlacedNode, ...]:
        """Nodes that the backend takes and onnxruntime's QNN EP leaves to the CPU all the same."""
        return tuple(row for row in self.rows if row.reason is None and row.ep_refuses)

    @property
    def refused(self) -> tuple[PlacedNode, ...]:
        """The nodes on the CPU that the backend refuses; the others are too few for a graph of their own."""
        return tuple(row for row in self.left_on_cpu if not self.placed.placements[row.unit].taken)

    def graph(self, part: Part, name: str) -> Graph:
        """The QNN graph of a part, after the neutral passes."""
        return self.placed.graph(name, [self.placements[i] for i in part.steps], part.outputs)

    def names(self) -> list[str]:
        """What each part is called: graphs after the model, parts on the CPU by their number."""
        stem, taken, names = _stem(self.model), 0, []
        for number, part in enumerate(self.parts):
            names.append(f"{stem}_{taken}_0" if part.taken else f"cpu_{number}")
            taken += part.taken
        return names

    def require_whole(
        self, where: str, backend: str, remedy: str, kind: type[UnsupportedError] = UnsupportedError
    ) -> None:
        """An error of the kind telling every reason why the backend refuses nodes, and what can be done, if it does."""
        if not self.refused:
            return
        lines = refusal_lines((str(row), row.reason or "") for row in self.refused)
        count = f"the {backend} backend refuses {len(self.refused)} of {len(self.rows)} nodes"
        raise kind("\n".join([f"{where} {count}:", *lines, remedy]))


def prepare_model(
    source: ModelSource | Model, backend: Backend, request: ModelRequest = DEFAULT_REQUEST, *, give_away: bool = False
) -> PreparedParts:
    """A model placed on a backend, in the parts that run one after another; it is left as it is unless given away.

    The request's sizes and constants are for a model that is read here.
    """
    # Read: the file is checked, functions are inlined, shapes inferred, constants folded, all sizes known.
    read_model = read_static(source, request)
    model = read_model if give_away or read_model is not source else read_model.copied()
    write_zeros(model.ir)
    require_sound(model)

    # Units: every node in exactly one of them: a node with its Q and DQ, several that QNN has one op for, or one alone.
    pinned = {op: name for op, name in request.affinity.items() if name != backend.name}
    units = node_units(model.ir.graph, offload_io_quantization=request.offload_io_quantization)
    units = fuse_units([refused_beforehand(unit, pinned, request.no_backend) for unit in units])

    # Place: each is translated to QNN ops once, and the backend is asked about each of these.
    shown: list[tuple[Node, str | None]] = []

    def unsupported(node: Node) -> str | None:
        shown.append((node, backend.unsupported(node)))
        return shown[-1][1]

    limits = EpLimits.of(model, request.obey_ep) if backend.ep_limited else None
    placements = without_inner_reads(place(units, unsupported, limits), (value.name for value in model.outputs))
    placed = PlacedUnits(
        model, tuple(placements), limits is not None, limits is not None and limits.obeyed, tuple(shown)
    )

    # Partition: taken units that run together become one graph (`PreparedParts.graph`), the others go to the CPU.
    return _partitioned(placed)


def read_static(source: ModelSource | Model, request: ModelRequest) -> Model:
    """A model whose shapes are all known; a path or bytes are read with the request's sizes and constants."""
    model = source
    if not isinstance(model, Model):
        model = read(model, dims=request.dims, shapes=request.shapes, constants=request.constants)
    if not request.open_shapes:
        model.require_static()
    return model


def _partitioned(placed: PlacedUnits) -> PreparedParts:
    """The parts of a placed model.

    A graph of one single Quantize or Dequantize is not worth its call to the device: the CPU has to run its neighbours
    anyway. It is made where it is the whole model; the EP does not make it even then.
    """
    placements = list(placed.placements)
    steps = [_step(placement) for placement in placements]
    whole = all(placement.taken for placement in placements) and not placed.ep_obeyed
    parts = partition(steps, placed.outputs, keep_converts=whole)
    for part in parts:
        for i in part.steps:
            alone = _ALONE.format(placements[i].unit.target.op_type)
            if placed.ep_limited and part.taken and len(part.steps) == 1 and steps[i].convert:
                placements[i] = replace(placements[i], ep_refuses=alone)
            if placements[i].taken and not part.taken:
                placements[i] = replace(placements[i], reason=alone)
    if placed.ep_limited:  # what the backend refuses, the EP refuses as well
        placements = [replace(p, ep_refuses=p.ep_refuses or p.reason or "") for p in placements]
    rows = tuple(_rows(i, placement) for i, placement in enumerate(placements))
    return PreparedParts(placed, tuple(placements), tuple(parts), rows)


def _step(placement: Placement) -> PartitionStep:
    unit = placement.unit
    convert = len(unit.nodes) == 1 and unit.target.op_type in CONVERTS
    return PartitionStep(tuple(reads_of(placement)), tuple(writes_of(placement)), placement.taken, convert)


def _rows(index: int, placement: Placement) -> tuple[PlacedNode, ...]:
    where, ops = QNN if placement.taken else CPU, placement.ops
    return tuple(
        PlacedNode(
            node_label(n), n.op_type, n.domain, where, placement.reason, ops, index, ep_refuses=placement.ep_refuses
        )
        for n in placement.unit.nodes
    )


def _stem(model: Model) -> str:
    """A name for the model's graphs that other models' graphs do not have: they may end up in one context."""
    names = [f"{n.op_type} {n.name} {[v.name for v in n.outputs]}" for n in model.ir.graph]
    names += [f"{v.name} {v.shape}" for v in model.ir.graph.inputs]
    names.append(model.path.name if model.path is not None else "")
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=8).digest()
    return f"{QNN}_{QNN}_{int.from_bytes(digest)}"
