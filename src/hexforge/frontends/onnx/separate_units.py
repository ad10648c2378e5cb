# SPDX-License-Identifier: Apache-2.0
"""Separate units: a model that shows every tensor between its units, one whose units each read inputs, and few units.

With the first a run of somebody else's gives every tensor, with the second each unit is computed from those tensors, so
that a difference is the unit's own. The third is what is written down where units differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir

from hexforge.frontends.onnx.placing import PlacedUnits, Placement, node_label, reads_of, writes_of
from hexforge.model.extraction import extract
from hexforge.model.save import to_bytes

MADE = "__made"
"""What follows the name of a tensor where a unit writes it and others read an input of that name."""
CONVERTS = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class UnitTensors:
    """A unit by its names: its nodes, what it reads and what it writes."""

    name: str
    op: str
    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    taken: bool
    """True where the backend takes it."""


def unit_tensors(placed: PlacedUnits) -> tuple[UnitTensors, ...]:
    """Every unit of a model, in its order."""
    return tuple(_by_names(placement) for placement in placed.placements)


def _by_names(placement: Placement) -> UnitTensors:
    unit = placement.unit
    return UnitTensors(
        node_label(unit.target), unit.op, tuple(node_label(n) for n in unit.nodes), tuple(reads_of(placement)),
        tuple(writes_of(placement)), placement.taken,
    )  # fmt: skip


def shown_model(placed: PlacedUnits, hidden: Collection[str] = ()) -> bytes:
    """The model with every tensor between its units an output, too, but for those that are to stay hidden."""
    copy = placed.model.copied()
    have = {value.name for value in copy.ir.graph.outputs}
    wanted = {name for p in placed.placements if p.taken for name in (*writes_of(p), *reads_of(p))}
    wanted -= {*have, *hidden}
    for node in copy.ir.graph:
        copy.ir.graph.outputs.extend(value for value in node.outputs if value.name in wanted)
    return to_bytes(copy.ir)


def separated_model(placed: PlacedUnits) -> bytes:
    """A model of the taken units, each reading inputs; what it writes has MADE behind its name."""
    taken = [[i] for i, placement in enumerate(placed.placements) if placement.taken]
    return _grouped(placed, taken, [MADE] * len(taken))


def grouped_model(placed: PlacedUnits, groups: Sequence[Sequence[int]]) -> bytes:
    """A model of groups of units, each group for itself: it reads inputs, and its last unit alone can be seen.

    A group is numbers of placements. What its last unit writes has MADE and the group's number behind its name. One
    unit may be in several groups.
    """
    return _grouped(placed, groups, [f"{MADE}{number}" for number in range(len(groups))])


def _grouped(placed: PlacedUnits, groups: Sequence[Sequence[int]], suffixes: Sequence[str]) -> bytes:
    every = sorted({number for group in groups for number in group})
    nodes = [node for number in every for node in placed.placements[number].unit.nodes]
    written = dict.fromkeys(name for number in every for name in writes_of(placed.placements[number]))
    whole = _extracted(placed, nodes, written)
    infos = {value.name: value for value in (*whole.graph.input, *whole.graph.value_info, *whole.graph.output)}
    protos = {output: node for node in whole.graph.node for output in node.output}
    made = onnx.ModelProto()
    made.CopyFrom(whole)
    for repeated in (made.graph.node, made.graph.input, made.graph.output, made.graph.value_info):
        del repeated[:]
    reads: dict[str, None] = {}
    for group, suffix in zip(groups, suffixes, strict=True):
        own = {protos[v.name or ""].name: protos[v.name or ""] for number in group
               for node in placed.placements[number].unit.nodes for v in node.outputs if v.name}  # fmt: skip
        inside = {name for node in own.values() for name in node.output if name}
        for node in own.values():
            copy = made.graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{node.name}{suffix}"
            for field in (copy.input, copy.output):
                for i, name in enumerate(field):
                    field[i] = f"{name}{suffix}" if name in inside else name
        reads.update(dict.fromkeys(name for number in group for name in reads_of(placed.placements[number])
                                   if name not in inside))  # fmt: skip
        for name in writes_of(placed.placements[group[-1]]):
            made.graph.output.append(_renamed(infos[name], f"{name}{suffix}"))
        made.graph.value_info.extend(_renamed(infos[n], f"{n}{suffix}") for n in sorted(inside) if n in infos)
    made.graph.input.extend(infos[name] for name in reads)
    seen = {value.name for value in made.graph.output}
    kept = [value for value in made.graph.value_info if value.name not in seen]
    del made.graph.value_info[:]
    made.graph.value_info.extend(kept)
    data: bytes = made.SerializeToString()
    return data


def units_alone(placed: PlacedUnits, chosen: Iterable[int], outputs: Sequence[str] = ()) -> bytes:
    """A model of some units: it reads what they do not write, and writes what others read, or `outputs`."""
    numbers = sorted(set(chosen))
    nodes = [node for i in numbers for node in placed.placements[i].unit.nodes]
    data: bytes = _extracted(placed, nodes, outputs or _read_outside(placed, numbers)).SerializeToString()
    return data


def _read_outside(placed: PlacedUnits, numbers: Collection[int]) -> list[str]:
    """What units write and others, or nobody, read; what the model gives."""
    read_inside = {name for i in numbers for name in reads_of(placed.placements[i])}
    others = (p for i, p in enumerate(placed.placements) if i not in numbers)
    outside = {*placed.outputs, *(name for p in others for name in reads_of(p))}
    written = [name for i in numbers for name in writes_of(placed.placements[i])]
    return [name for name in written if name in outside or name not in read_inside]


def _extracted(placed: PlacedUnits, nodes: Sequence[onnx_ir.Node], outputs: Iterable[str]) -> onnx.ModelProto:
    written = {value.name for node in nodes for value in node.outputs}
    reads: Mapping[str, None] = dict.fromkeys(
        str(value.name)
        for node in nodes
        for value in node.inputs
        if value is not None and value.name not in written and value.const_value is None
    )
    return extract(placed.model, list(dict.fromkeys(nodes)), list(reads), list(dict.fromkeys(outputs)))


def _renamed(info: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(info)
    copy.name = name
    return copy
