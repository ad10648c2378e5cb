# SPDX-License-Identifier: Apache-2.0
"""Placing: every unit of a model translated by itself and shown to a backend; and units joined to one graph.

`runtime.prepare.prepare_model` has the whole order, of which this is the middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir

from hexforge.errors import CallError, HexforgeError, ModelError
from hexforge.frontends.onnx.ep_limits import ep_refuses
from hexforge.frontends.onnx.fusions.table import FUSED
from hexforge.frontends.onnx.translate.builder import Builder, Translator, translator_of
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Encoding, Graph, Node, Role, Value
from hexforge.ir.verify import verify
from hexforge.model.reader import Model
from hexforge.passes import NEUTRAL, run
from hexforge.patterns.nodes import captured

CONVERTS = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where a unit goes: on the backend, or not, with the reason."""

    unit: Unit
    reason: str | None
    graph: Graph | None = None
    """The unit alone as QNN nodes; None where it was refused before any was written."""
    ep_refuses: str = ""
    """Why the QNN EP does not take the unit though the backend could, or nothing."""

    @property
    def taken(self) -> bool:
        """True where the backend takes the unit."""
        return self.reason is None

    @property
    def ops(self) -> tuple[str, ...]:
        """QNN op names the unit becomes."""
        return () if self.graph is None else tuple(node.op.name for node in self.graph)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedUnits:
    """A model whose units were shown to a backend."""

    model: Model
    """The model, or a copy of it, whose nodes the units are made of."""
    placements: tuple[Placement, ...]
    """Every unit, in topological order."""
    ep_limited: bool = False
    """True where placements say what the QNN EP refuses."""
    ep_obeyed: bool = False
    """True where what the EP refuses is not taken."""
    shown: tuple[tuple[Node, str | None], ...] = ()
    """Every node that the backend was asked about, and why it refuses it or None."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's outputs."""
        return tuple(value.name for value in self.model.outputs)

    def graph(self, name: str, placements: Iterable[Placement], outputs: Iterable[str]) -> Graph:
        """Taken units as one QNN graph after the neutral passes; `outputs` name the tensors read from outside."""
        graph = self.graph_before_passes(name, placements, outputs)
        run(graph, NEUTRAL)
        return graph

    def graph_before_passes(self, name: str, placements: Iterable[Placement], outputs: Iterable[str]) -> Graph:
        """The graph before any pass has changed it."""
        written = [placement.graph for placement in placements if placement.graph is not None]
        return join_graphs(name, written, outputs)


@dataclass(frozen=True, slots=True)
class EpLimits:
    """How placing heeds the limits of the QNN EP."""

    refuses: Callable[[Unit], str | None]
    obeyed: bool = False
    """True where a unit that the EP refuses is not taken."""

    @classmethod
    def of(cls, model: Model, obeyed: bool) -> EpLimits:
        """Those for a model, whose opset decides some of them."""
        return cls(lambda unit: ep_refuses(unit, model.declared_opset), obeyed)


def refused_beforehand(unit: Unit, pinned: Mapping[str, str], no_backend: str = "") -> Unit:
    """A unit, refused where its op type is pinned to another backend, or where no backend takes any."""
    if no_backend:
        return replace(unit, refusal=no_backend)
    other = pinned.get(unit.target.op_type)
    if other is None or unit.refusal is not None:
        return unit
    return replace(unit, refusal=f"op_affinity pins {unit.target.op_type} to the {other} backend; remove it there")


# -- one unit after the other ------------------------------------------------------------------------------------------


def translator(unit: Unit) -> Translator:
    """The function that translates a unit; Refusal if there is none, or if the unit must stay on the CPU."""
    if unit.refusal is not None:
        raise Refusal(unit.refusal)
    write = FUSED.get(unit.kind) if unit.kind.is_fusion else translator_of(unit)
    if write is None:
        raise Refusal(f"QNN EP has no op builder for {unit.op}; rewrite it with ops that have one (hexforge ops)")
    return write


def place(
    units: Sequence[Unit], unsupported: Callable[[Node], str | None], limits: EpLimits | None = None
) -> list[Placement]:
    """Try each unit by itself, a fusion that is refused as the units it was made of.

    A unit that uses a tensor with another encoding than the taken units before it is refused. Without `limits`
    nothing is said of the EP.
    """
    encodings: dict[str, Encoding | None] = {}
    placements: list[Placement] = []
    for unit in units:
        whole = _place(unit, unsupported, encodings, limits)
        if whole.taken or not unit.parts:
            placements.append(whole)
        else:
            placements += [_place(part, unsupported, encodings, limits) for part in unit.parts]
    return placements


def _place(
    unit: Unit,
    unsupported: Callable[[Node], str | None],
    encodings: dict[str, Encoding | None],
    limits: EpLimits | None,
) -> Placement:
    graph = Graph(unit.target.name or "unit")
    builder = Builder(graph)
    border = {
        o.value.name or "": o.encoding
        for o in (*unit.inputs, *unit.outputs)
        if o is not None and o.value.const_value is None
    }
    try:
        written = translator(unit)
        for name, encoding in border.items():
            if encodings.get(name, encoding) != encoding:
                raise Refusal(f"tensor {name!r} is used with two different encodings; quantize it once")
        builder.translate(unit, written)
        builder.close(o.value.name or "" for o in unit.outputs if o is not None)
        verify(graph)
    except (Refusal, HexforgeError) as error:
        return Placement(unit, str(error))
    reasons = [f"{node.op.name}: {reason}" for node in graph if (reason := unsupported(node)) is not None]
    ep_refusal = (limits.refuses(unit) if limits is not None and not reasons else None) or ""
    if ep_refusal and limits is not None and limits.obeyed:
        reasons.append(ep_refusal)
    if not reasons:
        encodings.update(border)
    return Placement(unit, "; ".join(dict.fromkeys(reasons)) or None, graph, ep_refusal)


# -- units together ----------------------------------------------------------------------------------------------------


def join_graphs(name: str, graphs: Sequence[Graph], outputs: Iterable[str]) -> Graph:
    """Graphs of single units as one graph: what one writes another reads; `outputs` become APP_READ."""
    whole = Graph(name)
    border = {v.name for graph in graphs for v in graph.values.values() if v.role in (Role.APP_WRITE, Role.APP_READ)}
    for graph in graphs:
        mapping = {value: _joined_value(whole, value, border) for value in graph.values.values()}
        for node in graph:
            inputs = [None if v is None else mapping[v] for v in node.inputs]
            written = [mapping[v] for v in node.outputs]
            whole.node(node.op, inputs, written, name=node.name, source=node.source, **node.params)
    output_names = set(outputs)
    for value in whole.values.values():
        if value.producer is not None:
            value.role = Role.APP_READ if value.name in output_names else Role.NATIVE
    whole.sort()
    return whole


def _joined_value(whole: Graph, value: Value, border: set[str]) -> Value:
    """The value of the whole graph that a unit's value is: by its name at the border, else one of its own."""
    known = whole.values.get(value.name)
    if value.role in (Role.APP_WRITE, Role.APP_READ):
        if known is None:
            return whole.value(value.name, value.type, Role.APP_WRITE if value.role is Role.APP_WRITE else Role.NATIVE)
        if known.type != value.type:
            raise ModelError(f"graph {whole.name}: tensor {value.name!r} is read with two different encodings")
        return known
    if known is not None and value.data is not None and known.data is value.data and known.type == value.type:
        return known
    stem = f"{value.name}_inner" if value.name in border else value.name
    return whole.value(whole.unique(stem), value.type, value.role, value.data)


def reads_of(placement: Placement) -> list[str]:
    """Names of what a unit reads, constants left out."""
    unit = placement.unit
    if placement.taken:
        reads = [o.value for o in unit.inputs if o is not None]
    else:
        reads = [v for node in unit.nodes for v in node.inputs if v is not None]
    reads += [v for node in unit.nodes for v in captured(node)]
    own = set(_written(placement))
    return list(dict.fromkeys(str(v.name) for v in reads if v not in own and not _is_constant(v)))


def writes_of(placement: Placement) -> list[str]:
    """Names of what a unit writes: of a taken one only what leaves it."""
    return [str(value.name) for value in _written(placement)]


def _written(placement: Placement) -> list[onnx_ir.Value]:
    unit = placement.unit
    if placement.taken:
        return [o.value for o in unit.outputs if o is not None]
    return [v for node in unit.nodes for v in node.outputs if v.name]


def _is_constant(value: onnx_ir.Value) -> bool:
    return value.const_value is not None and value.producer() is None


def without_inner_reads(placements: list[Placement], outputs: Iterable[str]) -> list[Placement]:
    """Refuse units whose inner tensors someone else reads: only what a unit writes at its border leaves a graph."""
    wanted_outside = set(outputs)
    while True:
        read_names = wanted_outside.union(*(reads_of(p) for p in placements))
        changed = False
        for i, placement in enumerate(placements):
            if not placement.taken:
                continue
            unit = placement.unit
            border = {o.value.name for o in unit.outputs if o is not None}
            inner = {v.name for node in unit.nodes for v in node.outputs if v.name} - border
            if lost := sorted(inner & read_names):
                reason = f"tensor {lost[0]!r} inside the group is read by another node; let only the group read it"
                placements[i] = replace(placement, reason=reason)
                changed = True
        if not changed:
            return placements


# -- faults no provider could run --------------------------------------------------------------------------------------


def node_label(node: Any) -> str:
    """A node's name, or what it writes where it has none."""
    return str(node.name or next((v.name for v in node.outputs if v.name), "") or node.op_type)


def require_sound(model: Model) -> None:
    """ModelError for quantization parameters that are no numbers; CallError for context models."""
    faults = []
    for node in model.ir.graph:
        if node.op_type == "EPContext":
            raise CallError(
                f"{model.name}: node {node_label(node)!r} is an EPContext: the model is compiled already; "
                "`hexforge info` says what it is, `hexforge run` runs it"
            )
        if node.op_type in CONVERTS:
            faults.extend(_bad_encoding(node))
    if faults:
        raise ModelError("\n".join(f"{model.name}: {fault}" for fault in faults))


def _bad_encoding(node: Any) -> list[str]:
    where = f"node {node_label(node)!r} ({node.op_type})"
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    faults = []
    if scale is not None and scale.const_value is not None:
        numbers = np.asarray(scale.const_value.numpy()).astype(np.float64)
        sound = numbers.size == 1 and math.isfinite(numbers.item()) and numbers.item() != 0  # which most are
        if not sound and (not np.all(np.isfinite(numbers)) or np.any(numbers == 0)):
            worst = numbers[~np.isfinite(numbers) | (numbers == 0)].ravel()[0]
            faults.append(f"{where}: scale {scale.name!r} is {worst}; a scale is a finite number other than 0")
    data = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    if zero is None or zero.const_value is None or data is None or data.dtype is None or zero.dtype == data.dtype:
        return faults
    integers = np.asarray(zero.const_value.numpy()).astype(np.int64)
    try:
        low, high = int(data.dtype.min), int(data.dtype.max)
    except (TypeError, ValueError):
        return faults
    if integers.size and (integers.min() < low or integers.max() > high):
        worst = integers.min() if integers.min() < low else integers.max()
        faults.append(f"{where}: zero point {zero.name!r} is {worst}, outside {low} to {high} of {data.dtype.name}")
    return faults
