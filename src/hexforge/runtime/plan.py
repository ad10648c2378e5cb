"""Plan: a model read, placed, partitioned and compiled, ready to run part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backend import Backend, EpLimited, Program, SaysHow
from hexforge.errors import CallError, ModelError, UnsupportedError
from hexforge.frontends.onnx.ep_limits import ep_refuses
from hexforge.frontends.onnx.pipeline import EpLimits, Placement, build, place, units
from hexforge.frontends.onnx.units.unit import Refusal, Unit
from hexforge.ir import Array
from hexforge.model.extraction import extract_parts
from hexforge.model.reader import Model
from hexforge.model.standalone import Extract
from hexforge.passes import NEUTRAL, run
from hexforge.runtime.cpu_part import CPU, QNN, CpuPart
from hexforge.runtime.partition import Step, partition
from hexforge.runtime.stages import Row, Stage, Stages

_CONVERTS = ("QuantizeLinear", "DequantizeLinear")
_ALONE = "a graph of one single {} is not worth making; it runs on the CPU"


class Plan(Stages):
    """What a session does with a model on a backend."""

    def __init__(
        self,
        model: Model,
        backend: Backend,
        *,
        strict: bool = False,
        offload_io: bool = True,
        obey_ep: bool = False,
        make_cpu_part: Callable[[Extract, Sequence[str]], CpuPart] = CpuPart,
    ) -> None:
        self.outputs = tuple(value.name for value in model.outputs)
        _check(model)
        found = units(model.ir, offload_io_quantization=offload_io and not strict)
        limited = isinstance(backend, EpLimited) and backend.ep_limited
        self.ep_limited = limited
        """True where rows say what the QNN EP refuses."""
        limits = EpLimits(lambda unit: ep_refuses(unit, model.declared_opset), obey_ep) if limited else None
        placements = _unread(place(found, backend.unsupported, limits), self.outputs)
        steps = [_step(p) for p in placements]
        parts = partition(steps, self.outputs, keep_converts=strict and not (limited and obey_ep))
        for part in parts:
            for i in part.steps:
                if limited and part.taken and len(part.steps) == 1 and steps[i].convert:
                    said = _ALONE.format(placements[i].unit.target.op_type)
                    placements[i] = replace(placements[i], ep_refuses=said)
                if placements[i].taken and not part.taken:
                    reason = _ALONE.format(placements[i].unit.target.op_type)
                    placements[i] = replace(placements[i], reason=reason)
        if limited:  # what the backend refuses, the EP refuses as well
            placements = [replace(p, ep_refuses=p.ep_refuses or p.reason or "") for p in placements]
        by_unit = [_rows(i, p) for i, p in enumerate(placements)]
        rows_in_order = [row for rows in by_unit for row in rows]
        if strict:
            _refuse(rows_in_order, backend.name)
        stages: list[Stage] = []
        stem = _stem(model)
        for number, part in enumerate(parts):
            chosen = [placements[i] for i in part.steps]
            rows = tuple(row for i in part.steps for row in by_unit[i])
            name = f"{stem}_{sum(s.part.taken for s in stages)}_0" if part.taken else f"cpu_{number}"
            runner: Program | CpuPart
            reads = tuple(part.inputs)
            if part.taken:
                runner = _compile(backend, [p.unit for p in chosen], name, part.outputs)
                reads = tuple(v.name for v in runner.graph.inputs)
            else:
                nodes = [node for p in chosen for node in p.unit.nodes]
                cut = extract_parts(model, nodes, part.inputs, part.outputs)
                runner = make_cpu_part(cut, [str(row) for row in rows])
            stages.append(Stage(name, part, _with_slow(rows, runner), runner, reads))
        slow = {(row.node, row.unit): row.slow for stage in stages for row in stage.rows}
        self._rows = tuple(replace(row, slow=slow.get((row.node, row.unit), ())) for row in rows_in_order)
        super().__init__(stages, _constant_outputs(model, steps))

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every node of the model, in the model's order."""
        return self._rows


def _compile(backend: Backend, chosen: list[Unit], name: str, outputs: Sequence[str]) -> Program:
    try:
        graph = build(chosen, name, outputs)
    except Refusal as refusal:  # each unit was tried by itself, so only units together can bring this about
        raise ModelError(f"graph {name}: {refusal}") from None
    run(graph, NEUTRAL)
    return backend.compile(graph)


def _stem(model: Model) -> str:
    """A name for the model's graphs that other models' graphs do not have: they may end up in one context."""
    names = [f"{n.op_type} {n.name} {[v.name for v in n.outputs]}" for n in model.ir.graph]
    names += [f"{v.name} {v.shape}" for v in model.ir.graph.inputs]
    names.append(model.path.name if model.path is not None else "")
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=8).digest()
    return f"{QNN}_{QNN}_{int.from_bytes(digest)}"


def label(node: Any) -> str:
    """A node's name, or what it writes where it has none."""
    return str(node.name or next((v.name for v in node.outputs if v.name), "") or node.op_type)


def _rows(index: int, placement: Placement) -> list[Row]:
    where = QNN if placement.taken else CPU
    return [
        Row(label(n), n.op_type, n.domain, where, placement.reason, placement.ops, index, (), placement.ep_refuses)
        for n in placement.unit.nodes
    ]


def _with_slow(rows: tuple[Row, ...], runner: Program | CpuPart) -> tuple[Row, ...]:
    """The rows of a part, with what its program says of their QNN ops."""
    if not isinstance(runner, SaysHow) or not runner.references:
        return rows
    slow: dict[str, list[str]] = {}
    for node in runner.references:
        for name in node.source:
            slow.setdefault(name, []).append(node.op.name)
    return tuple(replace(row, slow=tuple(slow.get(row.node, ()))) for row in rows)


def _refuse(rows: Sequence[Row], backend: str) -> None:
    """UnsupportedError naming every node that is not taken."""
    refused: dict[int, list[Row]] = {}
    for row in rows:
        if row.reason is not None:
            refused.setdefault(row.unit, []).append(row)
    if not refused:
        return
    lines = [f"  {', '.join(map(str, group))}: {group[0].reason}" for group in refused.values()]
    count = sum(map(len, refused.values()))
    raise UnsupportedError(
        f"session.disable_cpu_ep_fallback=1, and the {backend} backend refuses {count} of {len(rows)} nodes:\n"
        + "\n".join(lines)
        + "\nset session.disable_cpu_ep_fallback=0 to run them on the CPU, or change the model as said"
    )


# -- what a unit reads and writes ---------------------------------------------------------------------------------


def _is_constant(value: Any) -> bool:
    return value.const_value is not None and value.producer() is None


def _captured(node: Any) -> Iterable[Any]:
    """Values that the subgraphs of a node read from the graph around them."""
    for attribute in node.attributes.values():
        kind = attribute.type.name
        for body in [attribute.value] if kind == "GRAPH" else attribute.value if kind == "GRAPHS" else ():
            own = {*body.inputs, *body.initializers.values(), *(v for n in body for v in n.outputs)}
            read = [v for n in body for v in (*n.inputs, *_captured(n)) if v is not None]
            yield from (v for v in (*read, *body.outputs) if v not in own)


def _step(placement: Placement) -> Step:
    unit = placement.unit
    convert = len(unit.nodes) == 1 and unit.target.op_type in _CONVERTS
    if placement.taken:
        reads = [o.value for o in unit.inputs if o is not None]
        writes = [o.value for o in unit.outputs if o is not None]
    else:
        reads = [v for node in unit.nodes for v in node.inputs if v is not None]
        writes = [v for node in unit.nodes for v in node.outputs if v.name]
    reads += [v for node in unit.nodes for v in _captured(node)]
    names = dict.fromkeys(str(v.name) for v in reads if v not in writes and not _is_constant(v))
    return Step(tuple(names), tuple(str(v.name) for v in writes), placement.taken, convert)


def _unread(placements: list[Placement], outputs: Iterable[str]) -> list[Placement]:
    """Refuse units whose inner tensors someone else reads: only what a unit writes at its border leaves a graph."""
    while True:
        wanted = set(outputs).union(*(_step(p).reads for p in placements))
        changed = False
        for i, p in enumerate(placements):
            if not p.taken:
                continue
            border = {o.value.name for o in p.unit.outputs if o is not None}
            inner = {v.name for node in p.unit.nodes for v in node.outputs if v.name} - border
            if lost := sorted(inner & wanted):
                reason = f"tensor {lost[0]!r} inside the group is read by another node; let only the group read it"
                placements[i] = replace(p, reason=reason)
                changed = True
        if not changed:
            return placements


def _constant_outputs(model: Model, steps: Sequence[Step]) -> dict[str, Array]:
    """Outputs of the model that are constants, which no part writes."""
    written = {name for step in steps for name in step.writes}
    return {
        str(value.name): np.asarray(value.const_value.numpy())
        for value in model.ir.graph.outputs
        if value.name not in written and value.const_value is not None
    }


# -- faults no provider could run ----------------------------------------------------------------------------------


def _check(model: Model) -> None:
    """ModelError for quantization parameters that are no numbers; CallError for context models."""
    faults = []
    for node in model.ir.graph:
        if node.op_type == "EPContext":
            raise CallError(f"{model.name}: node {label(node)!r} is an EPContext: the model is compiled already; "
                            "`hexforge info` says what it is, `hexforge run` runs it")  # fmt: skip
        if node.op_type in _CONVERTS:
            faults.extend(_bad_encoding(node))
    if faults:
        raise ModelError("\n".join(f"{model.name}: {fault}" for fault in faults))


def _bad_encoding(node: Any) -> list[str]:
    where = f"node {label(node)!r} ({node.op_type})"
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    faults = []
    if scale is not None and scale.const_value is not None:
        numbers = np.asarray(scale.const_value.numpy()).astype(np.float64)
        if not np.all(np.isfinite(numbers)) or np.any(numbers == 0):
            found = numbers[~np.isfinite(numbers) | (numbers == 0)].ravel()[0]
            faults.append(f"{where}: scale {scale.name!r} is {found}; a scale is a finite number other than 0")
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
