# SPDX-License-Identifier: Apache-2.0
"""Mixed heads: where an output joins parts of very different ranges, such as boxes of 0 to 640 and scores of 0 to 1.

One 8-bit scale for all parts would leave the small ones no steps, so the parts keep encodings of their own up to the
node that joins them. That node and what is behind it compute in float, or in 16 bits on a chip without float; the
arithmetic that makes a large part (boxes out of distances and anchors) has 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir

from hexforge.model.op_table import ACTIVATIONS, OPS
from hexforge.patterns.nodes import float_constant
from hexforge.quant.decide.quant_units import QuantUnit

STEPS, LEAST_STEPS, LEAST_SCORE_STEPS = 255, 16, 64
"""Steps of an 8-bit encoding, and how many of them a part must span: more where it has bounds, as scores have. 16 bits
would leave scores beside boxes of 640 but a hundred steps, and are no faster (docs/figures.md)."""

_POINTWISE = ACTIVATIONS | frozenset(
    "Add Sub Mul Div Pow Max Min Where Exp Log Sqrt Abs Neg Reciprocal ReduceMax ReduceMin".split()
)
_UNBOUNDED_SPAN = 8.0
"""What a convolution at a head is taken to span where no data says so."""
_MOST_SPAN = 1e4

SpanOf = Callable[[str], float | None]
"""How far a tensor's encoding reaches from its lowest to its highest number; None where that is not known."""


@dataclass(frozen=True, slots=True)
class MixedHead:
    """An output that a node mixes of parts which one scale does not suit."""

    output: str
    join: QuantUnit
    """The Concat, or the multiplication by constants of very different sizes."""
    behind: tuple[QuantUnit, ...]
    """Units from the join to the output."""
    decoding: tuple[QuantUnit, ...]
    """Units that compute the large parts."""
    parts: tuple[str, ...]
    """The tensors that are joined, constants not among them."""
    words: str
    """What is joined, in words."""


def mixed_heads(units: Sequence[QuantUnit], span_of: SpanOf) -> list[MixedHead]:
    """The mixed heads of a graph, in its order."""
    return _Heads(units).mixed(span_of)


def head_units(units: Sequence[QuantUnit]) -> set[QuantUnit]:
    """The units at the end of a graph that only combine and move numbers on their way to outputs."""
    return set(_Heads(units).leads_to)


def likely_spans(units: Sequence[QuantUnit]) -> dict[str, float]:
    """What the tensors at the heads of a model are likely to span, by its constants and bounds alone."""
    heads = _Heads(units)
    spans: dict[str, float] = {}

    def span(value: onnx_ir.Value) -> float:
        array = float_constant(value)
        if array is not None:
            return float(np.abs(array).max(initial=0.0))
        name = value.name or ""
        return spans.get(name, 1.0 if heads.is_bounded(value) else _UNBOUNDED_SPAN)

    for unit in units:
        if unit in heads.leads_to:
            read = [span(value) for _, _, value in unit.reads]
            made = 1.0 if heads.is_bounded(unit.writes[0]) else _pointwise_span(unit.target.op_type, read)
            spans.update((value.name or "", min(made, _MOST_SPAN)) for value in unit.writes)
    return spans


def _pointwise_span(op: str, read: Sequence[float]) -> float:
    match op:
        case "Add" | "Sub":
            return sum(read)
        case "Mul":
            return float(np.prod(read))
        case "Div" | "Reciprocal":
            return read[0] / max(read[-1], 1e-6) if len(read) > 1 else read[0]
        case "Exp":
            return float(np.exp(min(read[0], np.log(_MOST_SPAN))))
        case "Pow":
            return read[0] ** 2
        case _:
            return max(read, default=_UNBOUNDED_SPAN)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of what a unit joins."""

    value: onnx_ir.Value
    name: str
    span: float
    least_steps: int


class _Heads:
    """The units at the end of a graph that only combine and move numbers on their way to outputs."""

    def __init__(self, units: Sequence[QuantUnit]) -> None:
        self.units = units
        self.made_by = {v.name or "": unit for unit in units for v in unit.writes}
        self.read_by: dict[str, list[QuantUnit]] = {}
        for unit in units:
            for _, _, value in unit.reads:
                self.read_by.setdefault(value.name or "", []).append(unit)
        self.leads_to: dict[QuantUnit, str] = {}
        """Unit -> the output, or tensor that stays float, to which it leads."""
        for unit in reversed(units):
            if unit.reason is None and unit.writes and _combines(unit) and (end := self._end(unit)) is not None:
                self.leads_to[unit] = end

    def _end(self, unit: QuantUnit) -> str | None:
        """Where all that a unit makes goes to, None where something else than a head reads it."""
        ends: list[str] = []
        for value in unit.writes:
            if value.is_graph_output():
                ends.append(value.name or "")
            for use in value.uses():
                readers = [u for u in self.read_by.get(value.name or "", ()) if use.node in u.nodes]
                reader = readers[0] if readers else None
                if reader is None or reader.reason is not None or not reader.writes:  # no encoding is behind it
                    ends.append(value.name or "")
                elif reader in self.leads_to:
                    ends.append(self.leads_to[reader])
                else:
                    return None
        return ends[0] if ends else None

    def is_bounded(self, value: onnx_ir.Value) -> bool:
        """True for what a Sigmoid, Softmax or the like made, moved or not."""
        unit = self.made_by.get(value.name or "")
        while unit is not None and unit.moves:
            value = unit.reads[0][2]
            unit = self.made_by.get(value.name or "")
        row = None if unit is None else OPS.get(unit.nodes[-1].op_type)
        return row is not None and row.bounds is not None

    def mixed(self, span_of: SpanOf) -> list[MixedHead]:
        """What `mixed_heads` gives."""
        heads = []
        for unit in self.units:
            parts = self._parts(unit, span_of) if unit in self.leads_to else []
            step = max((part.span for part in parts), default=0.0) / STEPS
            large = [part.value for part in parts if part.span >= step * part.least_steps]
            if len(large) == len(parts):
                continue
            words = ", ".join(f"{part.name} spans {part.span:.3g}" for part in sorted(parts, key=lambda p: -p.span))
            decoding = tuple(self._decoding(unit, large))
            joined = tuple(dict.fromkeys(p.value.name or "" for p in parts if p.value.producer() is not None))
            heads.append(MixedHead(self.leads_to[unit], unit, tuple(self._behind(unit)), decoding, joined, words))
        return heads

    def _parts(self, unit: QuantUnit, span_of: SpanOf) -> list[_Part]:
        """What a unit joins, and what each part spans; nothing where that is not known."""
        if unit.target.op_type == "Concat":
            spans = {value: span_of(value.name or "") for _, _, value in unit.reads}
            return [
                _Part(value, value.name or "", span, LEAST_SCORE_STEPS if self.is_bounded(value) else LEAST_STEPS)
                for value, span in spans.items()
                if span
            ]
        if unit.target.op_type == "Mul":  # as of normalized boxes beside scores by (640, 640, 640, 640, 1, 1, ...)
            factors = next((array for _, _, v in unit.reads if (array := float_constant(v)) is not None), None)
            value = next((v for _, _, v in unit.reads if float_constant(v) is None), None)
            span = None if value is None else span_of(value.name or "")
            if factors is None or value is None or not span or not factors.any():
                return []
            sizes = np.abs(factors[factors != 0])
            return [
                _Part(value, f"{value.name} times {size:.3g}", span * float(size), LEAST_STEPS)
                for size in (sizes.max(), sizes.min())
            ]
        return []

    def _behind(self, join: QuantUnit) -> list[QuantUnit]:
        """The join, and what is between it and the output."""
        behind, names = [join], {v.name for v in join.writes}
        for unit in self.units:
            if unit in self.leads_to and unit is not join and any(v.name in names for _, _, v in unit.reads):
                behind.append(unit)
                names.update(v.name for v in unit.writes)
        return behind

    def _decoding(self, join: QuantUnit, large: Iterable[onnx_ir.Value]) -> Iterable[QuantUnit]:
        """The arithmetic that makes the large parts, back to what a product or a bounded function made."""
        names = {value.name for value in large}
        for unit in reversed(self.units):
            if unit not in self.leads_to or unit is join or not any(v.name in names for v in unit.writes):
                continue
            if self.is_bounded(unit.writes[0]):
                continue
            names.update(value.name for _, _, value in unit.reads)
            if not unit.moves:
                yield unit


def _combines(unit: QuantUnit) -> bool:
    """True where a unit moves, joins or combines numbers, each by itself."""
    return unit.moves or unit.target.op_type == "Concat" or unit.target.op_type in _POINTWISE
