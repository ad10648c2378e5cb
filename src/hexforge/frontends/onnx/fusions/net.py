# SPDX-License-Identifier: Apache-2.0
"""The units of a model as a graph that patterns are found in, and how units become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir
from onnx_ir import Value

from hexforge.frontends.onnx.translate.builder import Translator
from hexforge.frontends.onnx.unit import Operand, Refusal, Unit, UnitKind, constant, onnx_shape
from hexforge.ir import Array, ScaleOffset
from hexforge.patterns.language import Match, Term, find_at
from hexforge.patterns.nodes import data
from hexforge.patterns.written_out import WrittenOut


class Net:
    """Who writes and reads each value, in units that are not part of a fusion yet."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units: dict[Unit, None] = dict.fromkeys(units)
        self.order = {unit: i for i, unit in enumerate(units)}
        self._writer: dict[Value, Unit] = {}
        self._unit: dict[onnx_ir.Node, Unit] = {}
        for unit in units:
            self._register(unit)

    def _register(self, unit: Unit) -> None:
        for operand in unit.outputs:
            if operand is not None:
                self._writer[operand.value] = unit
        for node in unit.nodes:
            self._unit[node] = unit

    def unit_of(self, node: onnx_ir.Node) -> Unit | None:
        """The unit that a node is in."""
        return self._unit.get(node)

    def readers_anywhere(self, value: Value) -> list[Unit | None]:
        """The units that read a value, each once; None stands for the graph's outputs and inner graphs."""
        readers = dict.fromkeys(self._unit.get(node) for node in value.consumers())
        return [*readers, *([None] if value.is_graph_output() else [])]

    # -- what patterns ask of a graph ------------------------------------------------------------------------------

    def writer(self, value: Value) -> Unit | None:
        """The unit that writes a value, None for inputs and constants of the graph."""
        return self._writer.get(value)

    def readers(self, value: Value) -> list[Unit]:
        """The units that read a value."""
        return [unit for unit in self.readers_anywhere(value) if unit is not None]

    def op(self, unit: Unit) -> str:
        """The op of a unit; a fusion has none."""
        return "" if unit.kind.is_fusion else unit.op

    def inputs(self, unit: Unit) -> list[Value | None]:
        """What a unit reads."""
        return [None if operand is None else operand.value for operand in unit.inputs]

    def outputs(self, unit: Unit) -> list[Value | None]:
        """What a unit writes."""
        return [None if operand is None else operand.value for operand in unit.outputs]

    def is_constant(self, value: Value) -> bool:
        """True where the numbers of a value are known."""
        return value.const_value is not None

    def constant(self, value: Value) -> Array | None:
        """The numbers of a constant."""
        return data(value)

    def closed(self, units: Sequence[Unit]) -> bool:
        """True where only the last of some units is read by others."""
        return self._closed(units, self.outputs(units[-1]))

    def _closed(self, units: Sequence[Unit], kept: Sequence[Value | None]) -> bool:
        inside = {node for unit in units for node in unit.nodes}
        written = [v for unit in units for v in self.outputs(unit) if v is not None and v not in kept]
        return not any(v.is_graph_output() or not inside.issuperset(v.consumers()) for v in written)

    # -- joining units ---------------------------------------------------------------------------------------------

    def before(self, operand: Operand | None, *ops: str) -> Unit | None:
        """The unit that writes an operand, if it is of one of `ops`."""
        unit = None if operand is None else self.writer(operand.value)
        return unit if unit is not None and self.op(unit) in ops else None

    def join(
        self,
        kind: UnitKind,
        parts: Iterable[Unit],
        inputs: Sequence[Operand | None],
        outputs: Sequence[Operand | None],
        detail: object = None,
        *,
        refused: bool = False,
    ) -> Unit | None:
        """A unit of `parts`; None where a value would be swallowed that something else reads.

        `detail` is what the fusion's translator needs to know (`detail_of`). A part that would be refused alone is
        taken only where `refused` says that it is not alone here.
        """
        members = sorted(dict.fromkeys(parts), key=self.order.__getitem__)
        if not refused and any(part.refusal is not None for part in members):
            return None
        if not self._closed(members, [None if o is None else o.value for o in outputs]):
            return None
        nodes = [node for part in members for node in part.nodes]
        target = members[-1].target
        return Unit(kind, target, tuple(inputs), tuple(outputs), tuple(nodes), parts=tuple(members), detail=detail)

    def fuse(self, kind: UnitKind, match: WrittenOut | None) -> Unit | None:
        """The units of a matched pattern's nodes as one, with Q and DQ around it; None where one is no plain node."""
        if match is None:
            return None
        parts = [unit for node in match.nodes if (unit := self._unit.get(node)) is not None and is_plain(unit)]
        if len(parts) != len(match.nodes):
            return None
        inputs = [None if value is None else Operand(value) for value in match.inputs]
        return self.quantized(self.join(kind, parts, inputs, parts[-1].outputs, match))

    def replace_parts(self, unit: Unit) -> None:
        """Replace the parts of a joined unit by the unit."""
        self.order[unit] = max(self.order[part] for part in unit.parts)
        for part in unit.parts:
            del self.units[part]
        self.units[unit] = None
        self._register(unit)

    def quantized(self, unit: Unit | None) -> Unit | None:
        """`unit` with the DQ units before and the Q unit after it (and a Relu or Clip between) taken in.

        Only where each run-time input comes from a DQ nothing else reads; otherwise `unit` stays as it is.
        """
        if unit is None:
            return None
        inputs: list[Operand | None] = []
        parts = list(unit.parts)
        for operand in unit.inputs:
            dq = self.before(operand, "DequantizeLinear", "com.microsoft:DequantizeLinear")
            if operand is None or operand.value.const_value is not None:
                inputs.append(operand)
            elif dq is None or dq.refusal is not None or dq.inputs[0] is None:
                return unit
            else:
                inputs.append(dq.inputs[0])
                parts.append(dq)
        clip = self._sole(unit.outputs[0], "Relu", "Clip")
        if clip is not None and any(o is not None and o.value.const_value is None for o in clip.inputs[1:]):
            return unit
        last = unit.outputs[0] if clip is None else clip.outputs[0]
        q = self._sole(last, "QuantizeLinear", "com.microsoft:QuantizeLinear")
        if q is None or last is None or q.refusal is not None or q.target.inputs[0] is not last.value:
            return unit
        whole = self.join(unit.kind, [*parts, *([clip] if clip else []), q], inputs, q.outputs, unit.detail)
        if whole is None:
            return unit
        return replace(whole, target=unit.target, clip=None if clip is None else clip.target)

    def _sole(self, operand: Operand | None, *ops: str) -> Unit | None:
        readers = [] if operand is None else self.readers_anywhere(operand.value)
        sole = readers[0] if len(readers) == 1 else None
        return sole if sole is not None and sole.op in ops and sole.kind is UnitKind.NODE else None


def is_plain(unit: Unit | None) -> bool:
    """True for a single node on real numbers."""
    return unit is not None and unit.kind is UnitKind.NODE and not unit.quantized


def operand_shape(operand: Operand | None) -> tuple[int, ...] | None:
    """Static shape of an operand, None where it has none."""
    if operand is None:
        return None
    try:
        return onnx_shape(operand.value)
    except Refusal:
        return None


def constant_input(unit: Unit, index: int) -> Array | None:
    """Data of a constant input that is not fixed point, else None."""
    operand = unit.inputs[index] if index < len(unit.inputs) else None
    return None if operand is None or operand.encoding is not None else constant(operand.value)


def attribute(unit: Unit, name: str, default: Any = None) -> Any:
    """An attribute of the target as a Python value."""
    given = unit.target.attributes.get(name)
    return default if given is None else given.value


def moves(net: Net, shape: Term, start: Term, unit: Unit) -> Match[Value, Unit] | None:
    """Units that move data one after the other, all with one encoding, of which one writes what `start` stands for."""
    match = find_at(shape, (start,), net, unit)
    units = () if match is None else match.nodes
    encodings = {None if o is None else o.encoding for u in units for o in (u.inputs[0], u.outputs[0])}
    if len(encodings) != 1 or any(u.clip is not None for u in units):
        return None
    return match if isinstance(encodings.pop(), ScaleOffset | None) else None


Matcher = Callable[[Net, Unit], Unit | None]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A fusion: the op types it may start at, how it is matched, and how it is written as QNN ops."""

    kind: UnitKind
    starts: tuple[str, ...]
    match: Matcher
    write: Translator
    writes: tuple[str, ...]
    """QNN ops that it may write, besides those that may stand around any."""
