# SPDX-License-Identifier: Apache-2.0
"""As if quantized: the model that quantizing would give, made without samples to time it; its numbers mean nothing.

It is folded, assigned and written by the rules that quantize a model, so that what is timed is what is built. Only
ranges and weights are made up: no two tensors have the same range, since equal encodings would spare conversions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir

from hexforge.ir import DType
from hexforge.model.op_table import OPS
from hexforge.model.reader import Model
from hexforge.patterns.nodes import float_constant, real
from hexforge.quant.data.calibrate import tensors_to_observe
from hexforge.quant.data.observe import Statistics, TensorStatistics
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import ChipArithmetic, EncodingPlan
from hexforge.quant.decide.mixed_heads import likely_spans
from hexforge.quant.decide.quant_units import quant_units
from hexforge.quant.decide.recipe import Recipe
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.quant.fold import fold
from hexforge.quant.write import write

_KEEP_SIGN = frozenset(
    "MaxPool AveragePool GlobalAveragePool GlobalMaxPool ReduceMean ReduceMax ReduceMin ReduceSum Concat Add Mul "
    "Resize Reshape Flatten Transpose Squeeze Unsqueeze Slice Split Pad Gather Tile Expand Max Min".split()
)
"""Ops that give nothing below zero where they read nothing below zero."""
_SPANS = frozenset(("Concat", "Relu", "GlobalMaxPool"))
"""Ops that give the largest number that they read."""
_NEVER_NEGATIVE = frozenset("Relu Abs Exp Sqrt Softplus ReduceL2 ReduceL1 ReduceSumSquare".split())


class AsIfQuantized:
    """The models that quantizing one float model would give: what precisions and chips share of them is made once."""

    def __init__(self, floating: Model) -> None:
        self.floating = replace(floating, ir=fold(floating.ir))
        """The float model that gets encodings; it is left as it is."""
        self._ranges = _made_up_ranges(self.floating.ir)
        self._written: list[tuple[EncodingPlan, Model]] = []
        self._models: dict[tuple[str, ChipArithmetic], Model] = {}

    def model(self, precision: str, arithmetic: ChipArithmetic) -> Model:
        """What `hexforge quantize` makes of it by default at a precision for a chip: a scale for each output channel.

        The same model again where another chip changes nothing of it.
        """
        # why nodes stay with the CPU names the chip, and changes nothing
        arithmetic = replace(arithmetic, on_cpu=tuple((node, "") for node, _ in arithmetic.on_cpu))
        if (precision, arithmetic) not in self._models:
            self._models[precision, arithmetic] = self._quantized(recipe(f"{precision}_channel"), arithmetic)
        return self._models[precision, arithmetic]

    def _quantized(self, chosen: Recipe, arithmetic: ChipArithmetic) -> Model:
        folded = self.floating.ir
        plan = assign(folded, self._ranges, chosen, arithmetic=arithmetic)
        for known, written in self._written:
            if _writes_the_same(known, plan):
                return written
        for name, fixed in plan.tensors.items():
            value = folded.graph.initializers.get(name)
            if value is not None and value.shape is not None and fixed.dtype is not DType.INT32:
                sizes = tuple(int(size) for size in value.shape.numpy())
                # the largest number, so that nothing is taken for packed or empty
                plan.integers[name] = np.broadcast_to(np.asarray(fixed.dtype.range[1], fixed.dtype.numpy), sizes)
        self._written.append((plan, replace(self.floating, ir=write(folded, plan))))
        return self._written[-1][1]


def _writes_the_same(one: EncodingPlan, other: EncodingPlan) -> bool:
    """True where two plans of one model, whose integers are made up, write the same; why they do is not compared."""
    return (
        list(one.tensors.items()) == list(other.tensors.items())  # in this order, too
        and list(one.converts.items()) == list(other.converts.items())
        and one.floats.keys() == other.floats.keys()
        and one.on_cpu.keys() == other.on_cpu.keys()
        and not (one.constants or other.constants)
    )


def _made_up_ranges(model: onnx_ir.Model) -> Statistics:
    """A made-up range for each tensor; ranges relate to each other as in real data: a Concat's spans those it reads."""
    sources = tensors_to_observe(model)
    positive: set[str] = set()
    highs: dict[str, float] = {}
    made_by = {v.name or "": node for node in model.graph for v in node.outputs}
    for node in model.graph:
        if _is_positive(node, positive):
            positive.update(v.name or "" for v in node.outputs)
    tensors: dict[str, TensorStatistics] = {}
    for name, source in sources.items():
        if source not in tensors:
            maker = made_by.get(source)
            read = () if maker is None else _spanned(maker)
            spanned = [high for v in read if (high := highs.get(_name(v))) is not None]
            highs[source] = max(spanned, default=_high(len(tensors)))
            lows = [tensors[_name(v)].minimum for v in read if _name(v) in tensors]
            low = 0.0 if source in positive else min(lows, default=-highs[source])
            low, highs[source] = _clipped(maker, low, highs[source])
            tensors[source] = _between(low, highs[source])
        highs[name], tensors[name] = highs[source], tensors[source]
    for number, (name, span) in enumerate(likely_spans(quant_units(model.graph)).items()):
        high = span * (1 + number / 4096)
        tensors[name] = _between(*_clipped(made_by.get(name), 0.0 if name in positive else -high, high))
    return Statistics(tensors, samples=1)


def _spanned(maker: onnx_ir.Node) -> Sequence[onnx_ir.Value | None]:
    """What a node's results reach as far as: all that it joins, or the one tensor whose elements it takes some of."""
    row = OPS.get(maker.op_type)
    if row is not None and row.rule.output == "input":
        return maker.inputs[:1]
    return maker.inputs if maker.op_type in _SPANS else ()


def _clipped(maker: onnx_ir.Node | None, low: float, high: float) -> tuple[float, float]:
    """A range within the bounds of the Clip that makes it, as all that calibration sees is."""
    if maker is None or maker.op_type != "Clip":
        return low, high
    low = max(low, _clip_bound(maker, 1, "min", low))
    return low, max(low, min(high, _clip_bound(maker, 2, "max", high)))


def _clip_bound(node: onnx_ir.Node, index: int, attribute: str, default: float) -> float:
    """A constant bound of a Clip, an input or (before opset 11) an attribute."""
    bound = float_constant(node.inputs[index]) if len(node.inputs) > index else None
    return real(node, attribute, default) if bound is None or not bound.size else float(bound.ravel()[0])


def _high(number: int) -> float:
    """The upper end of a tensor's range by its number: deeper tensors mostly reach further, one of ten less far."""
    return 1.0 + number / 32 if number % 10 else 0.5 + number / 4096


def _name(value: onnx_ir.Value | None) -> str:
    return (None if value is None else value.name) or ""


def _is_positive(node: onnx_ir.Node, positive: set[str]) -> bool:
    op, row = node.op_type, OPS.get(node.op_type)
    if op in _NEVER_NEGATIVE or (row is not None and row.bounds is not None and row.bounds[0] >= 0):
        return True
    if op == "Clip":
        return _clip_bound(node, 1, "min", -1.0) >= 0
    if op not in _KEEP_SIGN:
        return False
    read = node.inputs if row is None or row.rule.data is None else [node.inputs[i] for i in row.rule.data]
    for value in read:
        if value is None or value.name in positive:
            continue
        array = float_constant(value)
        if array is None or (array < 0).any():
            return False
    return True


def _between(low: float, high: float) -> TensorStatistics:
    statistics = TensorStatistics(histogram=False)
    statistics.minimum = statistics.minimum_sum = low
    statistics.maximum = statistics.maximum_sum = high
    statistics.count, statistics.samples = 2, 1
    return statistics
