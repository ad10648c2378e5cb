# SPDX-License-Identifier: Apache-2.0
"""Assign: what tensors hold, and a recipe, to the encoding of every tensor.

Tensors that must share an encoding (data movement, and what only one Concat reads) form a class; a class has the range
of the tensors it starts with. Where a node computes with other bits than a tensor has, the tensor is converted for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import onnx_ir

from hexforge.errors import CallError, ModelError
from hexforge.ir import Array, AxisScaleOffset, BlockwiseExpansion, DType, Encoding, ScaleOffset, TensorType
from hexforge.ir.fixed_point import encoding_fault, quantized_range
from hexforge.model.op_table import OPS
from hexforge.options import did_you_mean
from hexforge.patterns.nodes import dims, float_constant, text
from hexforge.quant.data.observe import Statistics
from hexforge.quant.decide.encoding_plan import ChipArithmetic, EncodingPlan, Fixed
from hexforge.quant.decide.mixed_heads import MixedHead, head_units, mixed_heads
from hexforge.quant.decide.quant_units import QuantUnit, is_float, is_three_dimensional, quant_units, weight_axis
from hexforge.quant.decide.ranges import encoding as encoding_of_range
from hexforge.quant.decide.ranges import range_of, weight_encoding
from hexforge.quant.decide.recipe import Recipe
from hexforge.quant.decide.relative_exactness import relative_units
from hexforge.quant.decide.slot_classes import Slot, SlotClass, SlotClasses

_INT32_MOST = 2**31 - 1


def assign(
    model: onnx_ir.Model,
    statistics: Statistics,
    recipe: Recipe,
    *,
    given: Mapping[str, Fixed | None] | None = None,
    arithmetic: ChipArithmetic = ChipArithmetic(),  # noqa: B008 - it is frozen
) -> EncodingPlan:
    """The plan of a float model. `given` are encodings that stand as they are (None: leave the tensor float)."""
    if recipe.activation is None and not any(rule.activation is not None for rule in recipe.rules):
        return EncodingPlan(
            floats={u.name: f"the recipe {recipe.name} leaves it in float" for u in quant_units(model.graph)}
        )
    return _Assignment(model.graph, statistics, recipe, dict(given or {}), arithmetic).plan()


def quantized_nodes(graph: onnx_ir.Graph, plan: EncodingPlan) -> int:
    """How many nodes compute in fixed point; one that only moves floats does not."""
    return sum(
        len(unit.nodes)
        for unit in quant_units(graph)
        if unit.name not in plan.floats and all(v.name in plan.tensors for v in unit.writes)
    )


class _Assignment:
    def __init__(
        self,
        graph: onnx_ir.Graph,
        statistics: Statistics,
        recipe: Recipe,
        given: dict[str, Fixed | None],
        arithmetic: ChipArithmetic,
    ) -> None:
        self.graph, self.statistics, self.recipe, self.given = graph, statistics, recipe, given
        self.arithmetic = arithmetic
        self.units = quant_units(graph)
        self.values = _values(graph)
        self.made_by = {v.name or "": u for u in self.units for v in u.writes}
        self.result = EncodingPlan()
        self.precision: dict[QuantUnit, DType] = {}
        self.own: dict[str, DType] = {}
        self.classes = SlotClasses()
        self.symmetric: set[Slot] = set()
        self._encodings: dict[int, Encoding] = {}
        self._missing: list[str] = []

    def plan(self) -> EncodingPlan:
        """All steps, in order."""
        _check_rules(self.recipe, self.units, self.values)
        self._choose_precisions()
        self._choose_types()
        self._join_classes()
        self._encode_tensors()
        self._encode_weights()
        if self._missing:
            shown = ", ".join(map(repr, sorted(set(self._missing))[:5]))
            raise CallError(f"the statistics have no range of {shown}; calibrate this very model")
        return self.result

    # -- precision of nodes -------------------------------------------------------------------------------------

    def _choose_precisions(self) -> None:
        by_tensors = self._precisions_from_tensors()
        explicit: dict[QuantUnit, DType | None] = {}
        on_cpu = dict(self.arithmetic.on_cpu)
        for unit in self.units:
            why = next((on_cpu[n.name] for n in unit.nodes if n.name in on_cpu), None)
            if why is not None:
                self.result.on_cpu.update((n.name or "", why) for n in unit.nodes)
                self.result.floats[unit.name] = f"it stays with the CPU: {why}"
                explicit[unit] = None
            elif unit.reason is not None:
                self.result.floats[unit.name] = unit.reason
            if why is not None or unit.reason is not None:
                continue
            ruled = any(self.recipe.explicit(n.op_type, n.name or "") for n in unit.nodes)
            by_rule = self._recipe_at(unit).activation if ruled else None
            if (
                ruled and by_rule is None
            ):  # float though its tensors may have encodings, for what is before and behind it
                explicit[unit] = None
            elif unit in by_tensors:
                explicit[unit] = by_tensors[unit]
            elif ruled:
                explicit[unit] = by_rule
        default = self.recipe.activation
        if default is DType.UINT8:  # coordinates of 8 bits would be worth little
            explicit.update(
                (u, DType.UINT16) for u in self.units if u.target.op_type == "GridSample" and u not in explicit
            )
        reasons = self._part_mixed_heads(explicit) | self._keep_small_numbers(explicit)
        readers = self._readers
        behind: dict[QuantUnit, set[DType | None]] = {}  # what is computed in behind a unit that only moves data
        for unit in reversed(self.units):
            for value in unit.writes:
                for reader in readers.get(value.name or "", ()):
                    moved = reader.moves and reader not in explicit
                    behind.setdefault(unit, set()).update(
                        behind.get(reader, ()) if moved else {explicit.get(reader, default)}
                    )
        for unit in self.units:
            if unit.reason is not None:
                continue
            chosen = explicit.get(unit, default)
            if unit.moves and unit not in explicit:
                maker = self.made_by.get(unit.reads[0][2].name or "")
                before = None if maker is None else self.precision.get(maker)
                chosen = before if before is not None and before in behind.get(unit, ()) else default
            if chosen is None:
                self.result.floats.setdefault(unit.name, reasons.get(unit, "the recipe leaves it in float"))
            else:
                self.precision[unit] = chosen

    def _part_mixed_heads(self, explicit: dict[QuantUnit, DType | None]) -> dict[QuantUnit, str]:
        """Keep the parts of mixed heads apart where nothing else is said of them, and say why nodes are float there."""
        joined = None if self.arithmetic.floats else DType.UINT16
        reasons: dict[QuantUnit, str] = {}
        chosen: dict[QuantUnit, DType | None] = {}
        heads = [] if self.recipe.activation is None else mixed_heads(self.units, self._span)
        heads = [head for head in heads if explicit.get(head.join, DType.UINT16) is DType.UINT16]
        for head in heads:
            chosen.update((unit, DType.UINT16) for unit in head.decoding)
        for head in heads:
            chosen.update((unit, joined) for unit in head.behind)
            how = _how_parted(head, explicit.get(head.join, joined))
            self.result.mixed_heads[head.output] = how
            self.result.mixed_parts[head.output] = (*self.result.mixed_parts.get(head.output, ()), *head.parts)
            reasons.update((unit, how) for unit in head.behind)
        for unit, dtype in chosen.items():
            explicit.setdefault(unit, dtype)
        return reasons

    def _keep_small_numbers(self, explicit: dict[QuantUnit, DType | None]) -> dict[QuantUnit, str]:
        """Give logarithms and roots what they need where nothing else is said, and say why nodes are float there."""
        reasons: dict[QuantUnit, str] = {}
        if self.recipe.activation is not None:
            for unit, (dtype, why) in relative_units(self.units, floats=self.arithmetic.floats).items():
                if explicit.setdefault(unit, dtype) is None and dtype is None:
                    reasons[unit] = why
        return reasons

    def _span(self, name: str) -> float | None:
        """How far the numbers of a tensor reach, zero among them; None where it is not known."""
        array = float_constant(self.values[name])
        if array is not None:
            return float(max(array.max(initial=0.0), 0.0) - min(array.min(initial=0.0), 0.0))
        seen = self.statistics.get(name)
        return None if seen is None or not seen.count else max(seen.maximum, 0.0) - min(seen.minimum, 0.0)

    def _recipe_at(self, unit: QuantUnit) -> Recipe:
        named = [n for n in unit.nodes if self.recipe.explicit(n.op_type, n.name or "")]
        node = named[-1] if named else unit.target
        return self.recipe.at_node(node.op_type, node.name or "")

    def _precisions_from_tensors(self) -> dict[QuantUnit, DType | None]:
        """Units whose outputs, or else inputs, are said to have a type: who makes and who reads them computes in it."""
        precisions: dict[QuantUnit, DType | None] = {}
        for unit in self.units:
            inner = [v for n in unit.nodes[:-1] for v in n.outputs]
            written = [type for v in (*unit.writes, *inner) if (type := self._type_given(v)) is not None]
            read = [
                type for _, _, v in unit.reads if v.const_value is None and (type := self._type_given(v)) is not None
            ]
            chosen = written or read
            if chosen and unit.reason is None:
                floats = [c for c in (*written, *read) if isinstance(c, str)]
                types = [c for c in chosen if isinstance(c, DType)]
                precisions[unit] = None if floats else max(types, key=lambda t: t.bits)
        return precisions

    def _type_given(self, value: onnx_ir.Value) -> DType | str | None:
        """The type that the given encodings or the recipe say a tensor has, "float", or None."""
        name = value.name or ""
        if name in self.given:
            fixed = self.given[name]
            return "float" if fixed is None else fixed.dtype
        rule = self.recipe.at_tensor(name)
        if rule is None:
            return None
        return "float" if rule.leave_float else rule.activation

    @cached_property
    def _head_units(self) -> set[QuantUnit]:
        return head_units(self.units)

    @cached_property
    def _readers(self) -> dict[str, list[QuantUnit]]:
        readers: dict[str, list[QuantUnit]] = {}
        for unit in self.units:
            for _, _, value in unit.reads:
                known = readers.setdefault(value.name or "", [])
                if unit not in known:
                    known.append(unit)
        return readers

    # -- types of tensors ---------------------------------------------------------------------------------------

    def _data_reads(self, unit: QuantUnit) -> Iterable[tuple[onnx_ir.Node, int, str, DType]]:
        """Tensors a quantized unit reads as data, and the type it needs them in."""
        precision = self.precision[unit]
        for node, index, value in unit.reads:
            if value.const_value is not None and index == unit.rule.weight:
                continue
            narrow = index == unit.rule.weight and precision.bits == 16 and not self.arithmetic.wide_products
            yield node, index, value.name or "", DType.UINT8 if narrow else precision

    def _choose_types(self) -> None:
        needed: dict[str, list[DType]] = {}
        for unit, precision in self.precision.items():
            self.own.update((v.name or "", precision) for v in unit.writes)
            for _, _, name, dtype in self._data_reads(unit):
                needed.setdefault(name, []).append(dtype)
        for name, types in needed.items():
            if name not in self.own:
                by_rule = self._type_given(self.values[name])
                self.own[name] = by_rule if isinstance(by_rule, DType) else max(types, key=lambda t: t.bits)

    # -- classes of one encoding --------------------------------------------------------------------------------

    def _join_classes(self) -> None:
        for unit, precision in self.precision.items():
            for node, index, name, dtype in self._data_reads(unit):
                self.classes.of((name, dtype))
                wide = node.op_type in ("MatMul", "Conv", "ConvTranspose") and index == 1 and dtype.bits == 16
                if wide:  # guide: the second of two 16-bit operands is symmetric
                    self.symmetric.add((name, dtype))
            for value in unit.writes:
                out = (value.name or "", precision)
                self.classes.of(out)
                if unit.moves:
                    overshoots = unit.target.op_type == "Resize" and text(unit.target, "mode", "nearest") == "cubic"
                    self.classes.join((unit.reads[0][2].name or "", precision), out, follows=not overshoots)
        for unit, precision in self.precision.items():
            if unit.target.op_type == "Concat":
                self._join_concat(unit, precision)

    def _join_concat(self, unit: QuantUnit, precision: DType) -> None:
        """What only a Concat reads is made in the Concat's encoding: joining it then moves integers.

        Parts of one tensor (Focus: four slices of a picture) have one encoding already, and the Concat keeps it.
        """
        out = (unit.writes[0].name or "", precision)
        read = [(name, dtype) for _, _, name, dtype in self._data_reads(unit)]
        free = out[0] not in self.given and self.recipe.at_tensor(out[0]) is None
        if free and len({id(self.classes.of(slot)) for slot in read}) == 1:
            self.classes.join(read[0], out, follows=True)
            return
        shared = [slot for slot in read if self._feeds_only(slot, unit)]
        everything = len(shared) == len(unit.reads)
        for slot in shared:
            self.classes.join(slot, out, follows=everything)

    def _feeds_only(self, slot: Slot, concat: QuantUnit) -> bool:
        """True where a class goes into one Concat and nowhere else, and its encoding is free."""
        members = {name for name, dtype in self.classes.of(slot).slots if dtype is slot[1]}
        for name, dtype in self.classes.of(slot).slots:
            value, maker = self.values[name], self.made_by.get(name)
            if value.is_graph_output() or value.is_graph_input() or name in self.given or value.const_value is not None:
                return False
            if maker is not None and maker.rule.fixed.get(dtype) is not None:
                return False
            for unit in self._readers.get(name, []):
                into = {v.name for v in unit.writes}
                if unit is not concat and not (unit in self.precision and unit.moves and into <= members):
                    return False
        return True

    # -- encodings ----------------------------------------------------------------------------------------------

    def _encode_tensors(self) -> None:
        for name, dtype in self.own.items():
            self.result.tensors[name] = Fixed(dtype, self._encoding((name, dtype)))
        for unit in self.precision:
            for node, _, name, dtype in self._data_reads(unit):
                if dtype is not self.own[name]:
                    self.result.converts[name, node.name or ""] = Fixed(dtype, self._encoding((name, dtype)))

    def _encoding(self, slot: Slot) -> Encoding:
        group = self.classes.of(slot)
        if id(group) not in self._encodings:
            self._encodings[id(group)] = self._encode(group, slot[1])
        return self._encodings[id(group)]

    def _encode(self, of: SlotClass, dtype: DType) -> Encoding:
        for name, _ in of.slots:
            fixed = self.given.get(name)
            if fixed is not None and fixed.dtype is dtype:
                return _checked(name, self.values[name], fixed).encoding
        heads = of.heads or of.slots[:1]
        for slot in heads:
            maker = self.made_by.get(slot[0])
            fixed_by_op = None if maker is None or self.own.get(slot[0]) is not dtype else maker.rule.fixed.get(dtype)
            if fixed_by_op is not None:
                return fixed_by_op
        rules = [rule for name, _ in of.slots if (rule := self.recipe.at_tensor(name)) is not None]
        symmetric = any(slot in self.symmetric for slot in of.slots) or any(rule.symmetric for rule in rules)
        ranges = [self._range(slot, dtype, symmetric) for slot in heads]
        low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
        return encoding_of_range(low, high, dtype, symmetric)

    def _range(self, slot: Slot, dtype: DType, symmetric: bool) -> tuple[float, float]:
        """What a tensor's encoding should span."""
        name, _ = slot
        own = self.own.get(name)
        if own is not None and own is not dtype:  # converted from another type: the same real numbers
            source = self._encoding((name, own))
            assert isinstance(source, ScaleOffset)
            return _span(source, own)
        rule = self.recipe.at_tensor(name)
        if rule is not None and rule.low is not None and rule.high is not None:
            return rule.low, rule.high
        array = float_constant(self.values[name])
        if array is not None:
            return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        seen = self.statistics.get(name)
        if seen is None:
            self._missing.append(name)
            return 0.0, 1.0
        maker = self.made_by.get(name)
        method = self.recipe.method if maker is None else self._recipe_at(maker).method
        method = rule.method if rule is not None and rule.method is not None else method
        low, high = range_of(seen, method, dtype, symmetric)
        row = None if maker is None else OPS.get(maker.nodes[-1].op_type)
        bounds = None if row is None else row.bounds
        if bounds is None:
            return low, high
        if maker in self._head_units:  # scores are mostly near zero: a method that cuts extremes off would cut them off
            low, high = seen.minimum, seen.maximum
        # All of the range there can be, except where the data never comes near it. Not so for Softmax: onnxruntime's
        # 8-bit kernel wraps around where a sum to 1 goes beyond its range.
        softmax = maker is not None and maker.nodes[-1].op_type == "Softmax"
        whole = softmax or high - low > 0.5 * (bounds[1] - bounds[0])
        return bounds if whole else (max(low, bounds[0]), min(high, bounds[1]))

    # -- weights ------------------------------------------------------------------------------------------------

    def _encode_weights(self) -> None:
        for unit, precision in self.precision.items():
            weight = unit.weight
            if weight is None:
                continue
            name, array = weight.name or "", float_constant(weight)
            assert array is not None
            fixed = self.given.get(name) or self._weight(unit, array, precision)
            fixed = self._widen_for_bias(unit, _checked(name, weight, fixed), array.shape)
            if self.result.tensors.setdefault(name, fixed) != fixed:
                self.result.converts[name, unit.name] = fixed

    def _weight(self, unit: QuantUnit, array: Array, precision: DType) -> Fixed:
        chosen, node = self._recipe_at(unit), unit.target
        rule = self.recipe.at_tensor((unit.weight.name if unit.weight is not None else None) or "")
        if rule is not None:
            chosen = replace(
                chosen,
                weight=rule.weight or chosen.weight,
                per_channel=chosen.per_channel if rule.per_channel is None else rule.per_channel,
                block=chosen.block if rule.block is None else rule.block,
            )
        dtype = chosen.weight
        if dtype is DType.INT16 and (precision.bits == 8 or is_three_dimensional(node)):
            dtype = DType.INT8  # HTP multiplies 16-bit weights by 16-bit data only, and not in three dimensions
        if not unit.rule.bilinear:  # a normalization: one scale, 8 or 16 bits
            dtype = DType.INT16 if dtype is DType.INT16 else DType.UINT8
            steps = chosen.weight_steps if dtype is chosen.weight is DType.INT16 else None
            return Fixed(dtype, weight_encoding(array, dtype, symmetric=dtype is DType.INT16, steps=steps))
        axis = weight_axis(node) if chosen.per_channel and dtype is not DType.INT16 else None
        block = chosen.block if node.op_type in ("Gemm", "MatMul") and axis is not None else 0
        if block and (array.ndim != 2 or array.shape[1 - (axis or 0)] % block):
            block = 0  # a scale for each channel where blocks do not fit
        steps = chosen.weight_steps if dtype is self.recipe.weight else None
        encoding = weight_encoding(
            array, dtype, axis=axis, method=chosen.weight_method, block=block or None, steps=steps
        )
        return Fixed(dtype, encoding)

    def _widen_for_bias(self, unit: QuantUnit, fixed: Fixed, shape: tuple[int, ...]) -> Fixed:
        """The weight's scales made larger where the bias, in steps of data times weight, would not fit int32."""
        bias = None if unit.bias is None or not unit.bias.row else float_constant(unit.bias.value)
        data = unit.reads[0][2].name or ""
        source = self.result.converts.get((data, unit.name)) or self.result.tensors.get(data)
        encoding = fixed.encoding
        if bias is None or source is None or not isinstance(source.encoding, ScaleOffset) or data in self.given:
            return fixed
        least = np.abs(bias.astype(np.float64)).ravel() / (source.encoding.scale * _INT32_MOST)
        if isinstance(encoding, ScaleOffset):
            return Fixed(fixed.dtype, replace(encoding, scale=max(encoding.scale, float(least.max(initial=0.0)))))
        if isinstance(encoding, (AxisScaleOffset, BlockwiseExpansion)):
            least = np.broadcast_to(least, len(encoding.scales)) if least.size == 1 else least
            scales = tuple(max(s, float(n)) for s, n in zip(encoding.scales, least, strict=True))
            return Fixed(fixed.dtype, replace(encoding, scales=scales))
        return fixed


def _how_parted(head: MixedHead, joined: DType | None) -> str:
    """What became of a mixed head, in words."""
    joins = f"{head.join.name} joins parts that no one scale suits ({head.words})"
    kept = "they keep their own encodings and are joined in float" if joined is None else "it has 16 bits"
    return f"{joins}: {kept}"


def _values(graph: onnx_ir.Graph) -> dict[str, onnx_ir.Value]:
    values = {v.name or "": v for v in (*graph.inputs, *graph.initializers.values())}
    values.update((v.name or "", v) for node in graph for v in node.outputs)
    return values


def _span(encoding: ScaleOffset, dtype: DType) -> tuple[float, float]:
    low, high = quantized_range(dtype, encoding)
    return encoding.scale * (low + encoding.offset), encoding.scale * (high + encoding.offset)


def _checked(name: str, value: onnx_ir.Value, fixed: Fixed) -> Fixed:
    shape = dims(value)
    problem = None if shape is None else encoding_fault(TensorType(fixed.dtype, shape, fixed.encoding))
    if problem is not None:
        raise ModelError(f"the encoding of {name!r} does not fit it: {problem}")
    return fixed


def _check_rules(recipe: Recipe, all_units: Iterable[QuantUnit], values: Mapping[str, onnx_ir.Value]) -> None:
    """CallError naming every rule that speaks of nothing in the model."""
    nodes = [node for unit in all_units for node in unit.nodes]
    words = {
        "op": {n.op_type for n in nodes},
        "node": {n.name or "" for n in nodes},
        "tensor": {name for name, value in values.items() if is_float(value)},
    }
    idle = [
        f"{rule} fits nothing in the model{did_you_mean(rule.pattern, words[rule.kind] | words['op'])}"
        for rule in recipe.rules
        if not any(rule.fits(word) for word in words[rule.kind])
    ]
    if idle:
        raise CallError(f"recipe {recipe.name!r}: " + "; ".join(idle))
