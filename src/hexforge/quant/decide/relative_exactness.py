# SPDX-License-Identifier: Apache-2.0
"""Relative exactness: functions that need the digits of small numbers, which one fixed step for all numbers has not.

A logarithm of powers between 1e-8 and 100 reads 0 for nearly all of them at 8 bits, and at 16 bits still for half. So a
logarithm, and what makes its input back to the product that it starts with, computes in float. The root of squares (the
length of a complex number in a spectrum, a deviation) has 16 bits, as has what divides by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hexforge.ir import DType
from hexforge.model.op_table import ACTIVATIONS, PRODUCTS
from hexforge.patterns.nodes import number
from hexforge.quant.decide.quant_units import QuantUnit

LOGARITHM = "of the logarithm {name}: it needs the digits of small numbers, which no fixed step has; computed in float"
_POINTWISE = ACTIVATIONS | frozenset("Add Sub Mul Div Pow Max Min Where Exp Log Sqrt Abs Neg Reciprocal".split())


def relative_units(units: Sequence[QuantUnit], *, floats: bool) -> dict[QuantUnit, tuple[DType | None, str]]:
    """The units that need more than 8 bits for a logarithm or a root: None for float, and why."""
    chains = _Chains(units)
    chosen: dict[QuantUnit, tuple[DType | None, str]] = {}
    for unit in units:
        if unit.reason is None and unit.target.op_type == "Sqrt" and chains.has_squares(chains.makers(unit)):
            for wide in (*chains.back_from(unit), *chains.dividing_by(unit)):
                chosen.setdefault(wide, (DType.UINT16, ""))
    for unit in units:
        if unit.reason is None and unit.target.op_type == "Log":
            why = LOGARITHM.format(name=unit.name)
            chosen.update((maker, (None if floats else DType.UINT16, why)) for maker in chains.back_from(unit))
    return chosen


class _Chains:
    """What makes the input of a unit, back to products, sums over axes and the model's inputs."""

    def __init__(self, units: Sequence[QuantUnit]) -> None:
        self._made_by = {v.name or "": unit for unit in units for v in unit.writes if unit.reason is None}
        self._divided_by: dict[str, list[QuantUnit]] = {}
        for unit in units:
            if unit.reason is None and unit.target.op_type in ("Reciprocal", "Div"):
                self._divided_by.setdefault(unit.reads[-1][2].name or "", []).append(unit)

    def makers(self, unit: QuantUnit) -> list[QuantUnit]:
        """The units that make what a unit reads."""
        return [self._made_by[name] for _, _, v in unit.reads if (name := v.name or "") in self._made_by]

    def dividing_by(self, unit: QuantUnit) -> list[QuantUnit]:
        """The units that divide by what a unit makes."""
        return [reader for value in unit.writes for reader in self._divided_by.get(value.name or "", ())]

    def back_from(self, unit: QuantUnit) -> list[QuantUnit]:
        """A unit and all that makes its input; the first that is more than pointwise is the last of them."""
        marked: dict[QuantUnit, None] = {}
        waiting = [unit]
        while waiting:
            unit = waiting.pop()
            if unit in marked:
                continue
            marked[unit] = None
            before = self.makers(unit)
            if not _is_passed(unit):  # the model's inputs are as exact as what reads them, and so are powers
                before = [maker for maker in before if self._is_input(maker) or self.has_squares([maker])]
            waiting += before
        return list(marked)

    def has_squares(self, waiting: Iterable[QuantUnit]) -> bool:
        """Whether there is a square on the way back from some units, before a product or sum."""
        left, seen = list(waiting), set[QuantUnit]()
        while left:
            unit = left.pop()
            if unit in seen:
                continue
            seen.add(unit)
            if _is_square(unit):
                return True
            reduces = unit.target.op_type.startswith("Reduce")
            left += self.makers(unit) if _is_passed(unit) or reduces else []
        return False

    def _is_input(self, unit: QuantUnit) -> bool:
        """Whether a unit only moves or joins what goes into the model."""
        if not (unit.moves or unit.target.op_type == "Concat"):
            return False
        makers = self.makers(unit)
        inputs = all(v.is_graph_input() for _, _, v in unit.reads if v.producer() is None and v.const_value is None)
        return inputs and all(self._is_input(maker) for maker in makers)


def _is_passed(unit: QuantUnit) -> bool:
    """Whether each number that a unit writes is made of one, or a few, of those that it reads."""
    op = unit.target.op_type
    return op not in PRODUCTS and (unit.moves or op == "Concat" or op in _POINTWISE)


def _is_square(unit: QuantUnit) -> bool:
    node = unit.target
    if node.op_type in ("ReduceSumSquare", "ReduceL2"):
        return True
    if node.op_type == "Pow":
        return number(node.inputs[1]) == 2.0
    return node.op_type == "Mul" and node.inputs[0] is node.inputs[1]
