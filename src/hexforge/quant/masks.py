# SPDX-License-Identifier: Apache-2.0
"""Masks: what is added before a Softmax to take places out, limited to what the Softmax cannot tell apart from it.

Exporters write -3.4e38 or minus infinity there, and samples without padding never show it. One scale over such a number
leaves nothing of the scores, and a scale that never saw it adds no mask. After a number that lies below all scores by
their span and UNTOLD, the Softmax gives less than float32 has digits for, so that is what a mask becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.patterns.nodes import float_constant
from hexforge.quant.constants import set_constant
from hexforge.quant.data.observe import Statistics, TensorStatistics
from hexforge.results import Column, Result

UNTOLD = 17.0
"""exp(-17) is 4e-8 of a probability: below half of what float32 tells apart at 1, and of any step of 16 bits."""
LARGE, SWITCHED_BY = -1e3, -15.0
"""No score comes near the first: what is added and reaches below is a mask. A single number that a switch chooses or is
multiplied with takes places out from the second on."""
LEAST_SPAN, MOST_SPAN = 1.0, 1e3
"""Between these a span of scores is believed."""
_MOVED = frozenset(
    ("Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Identity", "Cast", "Slice", "Gather", "Tile", "Flatten")
)
_SWITCHED = _MOVED | {"Sub", "Mul", "Min", "Max", "Add", "Clip"}
_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class LimitedMask(Result):
    """A mask, the Softmax nodes that it is for, and what it was limited to."""

    tensor: str
    softmax: tuple[str, ...]
    written: float
    """What the model has it take places out with."""
    limited: float
    seen: bool
    """True where a sample has a place that is taken out."""

    described = (Column("mask", key="tensor"), "softmax", Column("written"), Column("limited"), "seen")

    def text(self) -> str:
        """What was done, as a sentence."""
        return (
            f"mask {self.tensor!r} takes places out with {self.limited:.4g} in place of {self.written:.4g}, which "
            f"Softmax ({len(self.softmax)} of them) cannot tell apart"
        )

    def warning(self) -> str:
        """What samples without padding leave open; empty where they have some."""
        if self.seen:
            return ""
        return (
            f"no sample has padding: mask {self.tensor!r} never takes a place out, so what padded inputs lose is not "
            "measured; give some that are shorter than the model's length"
        )


@dataclass(slots=True)
class _Mask:
    """A mask as it stands in a graph."""

    value: onnx_ir.Value
    softmax: list[onnx_ir.Node] = field(default_factory=list)
    sums: list[tuple[onnx_ir.Value, onnx_ir.Value]] = field(default_factory=list)
    """What comes out where it is added, and the scores it is added to."""
    carried: list[onnx_ir.Value] = field(default_factory=list)
    """Tensors that hold it, from where it is made."""
    switches: list[onnx_ir.Value] = field(default_factory=list)
    """Tensors of 0 and 1 that it is made of."""
    constants: list[tuple[onnx_ir.Node, int]] = field(default_factory=list)
    """Inputs of nodes that hold the large number."""


def limit_masks(model: onnx_ir.Model, statistics: Statistics) -> tuple[LimitedMask, ...]:
    """Limit the masks of a folded model, in its constants and in what was seen of its tensors; both are edited.

    Doing it again changes nothing: the limit follows from the scores.
    """
    limited = []
    for mask in find_masks(model, statistics):
        spans = [_span(statistics.get(scores.name or "")) for _, scores in mask.sums]
        limit = -float(np.ceil(max(spans) + UNTOLD))
        large = [(node, index, float_constant(node.inputs[index])) for node, index in mask.constants]
        least = [float(array.min()) for _, _, array in large if array is not None]
        written = min(least, default=_least(statistics, mask.value.name))
        seen = bool(mask.value.const_value is not None or _least(statistics, mask.value.name) <= limit)
        for node, index, array in large:
            if array is not None and float(array.min()) < limit:
                narrow = np.maximum(array, np.float32(limit)).astype(np.float32)
                set_constant(node, index, narrow, f"{node.name}.limited")  # others may read the same constant
        for value in mask.carried:
            _see(statistics, value, [limit, 0.0])
        for value in mask.switches:
            _see(statistics, value, [0.0, 1.0])
        for value, scores in mask.sums:
            of_scores = statistics.get(scores.name or "")
            if of_scores is not None and of_scores.count:
                _see(statistics, value, [of_scores.minimum + limit, of_scores.maximum], of_scores)
        names = tuple(node.name or "" for node in mask.softmax)
        limited.append(LimitedMask(mask.value.name or "", names, written, limit, seen))
    return tuple(limited)


def masked_tensors(model: onnx_ir.Model) -> set[str]:
    """Tensors that hold a mask, or scores with one: their large numbers say nothing of how near another model is."""
    masks = find_masks(model, None)
    return {str(value.name) for mask in masks for value in (*mask.carried, *(total for total, _ in mask.sums))}


def find_masks(model: onnx_ir.Model, statistics: Statistics | None) -> list[_Mask]:
    """Every mask that is added before a Softmax; of masks that are inputs only the samples tell that they are any."""
    masks: dict[onnx_ir.Value, _Mask] = {}
    for softmax in model.graph:
        if softmax.op_type != "Softmax":
            continue
        added = _sum_before(softmax)
        if added is None:
            continue
        for index in (1, 0):
            value, scores = added.inputs[index], added.inputs[1 - index]
            if value is None or scores is None:
                continue
            mask = masks.get(value) or _mask(value, statistics)
            if mask is not None:
                if value.const_value is not None:
                    mask.constants.append((added, index))
                masks[value] = mask
                mask.softmax.append(softmax)
                mask.sums.append((added.outputs[0], scores))
                break
    return list(masks.values())


def _sum_before(softmax: onnx_ir.Node) -> onnx_ir.Node | None:
    """The Add that a Softmax reads, with what only moves numbers in between."""
    node = softmax
    for _ in range(_MOST_STEPS):
        maker = None if node.inputs[0] is None else node.inputs[0].producer()
        if maker is None or maker.op_type == "Add":
            return maker
        if maker.op_type not in _MOVED:
            return None
        node = maker
    return None


def _mask(value: onnx_ir.Value, statistics: Statistics | None) -> _Mask | None:
    """What a value is as a mask; None where nothing says that it is one."""
    mask = _Mask(value)
    if value.const_value is not None:
        return mask if _is_large(value) else None
    at: onnx_ir.Value | None = value
    for _ in range(_MOST_STEPS):
        if at is None:
            return None
        node = at.producer()
        if node is None:
            mask.carried.append(at)
            return mask if statistics is not None and _least(statistics, at.name) <= LARGE else None
        mask.carried.append(at)
        large = [(node, i) for i, v in enumerate(node.inputs) if _is_large(v)]
        if large and node.op_type in ("Mul", "Where", "Min", "Max", *_MOVED):
            mask.constants = large
            for i, other in enumerate(node.inputs):
                if (node, i) not in large:
                    mask.switches += _switches(other)
            return mask
        if node.op_type not in _MOVED:
            return None
        at = node.inputs[0]
    return None


def _switches(value: onnx_ir.Value | None) -> list[onnx_ir.Value]:
    """The float tensors of 0 and 1 that a value is made of, itself among them."""
    found: list[onnx_ir.Value] = []
    waiting = [value]
    while waiting and len(found) < _MOST_STEPS:
        at = waiting.pop()
        if at is None or at in found or at.const_value is not None or at.dtype is not onnx_ir.DataType.FLOAT:
            continue
        found.append(at)
        node = at.producer()
        if node is not None and node.op_type in _SWITCHED:
            waiting += node.inputs
    return found


def _is_large(value: onnx_ir.Value | None) -> bool:
    array = None if value is None else float_constant(value)
    if array is None or not array.size:
        return False
    return bool(array.min() <= (SWITCHED_BY if array.size == 1 else LARGE) and array.max() <= 1)


def _span(seen: TensorStatistics | None) -> float:
    """How far scores lie apart at most."""
    if seen is None or not seen.count:
        return MOST_SPAN
    return min(max(seen.maximum - seen.minimum, LEAST_SPAN), MOST_SPAN)


def _least(statistics: Statistics, name: str | None) -> float:
    seen = statistics.get(name or "")
    if seen is None:
        return 0.0
    return -np.inf if seen.nonfinite else seen.minimum


def _see(
    statistics: Statistics, value: onnx_ir.Value, numbers: Sequence[float], like: TensorStatistics | None = None
) -> None:
    """What a tensor will hold, in place of what samples showed: these numbers as often as all that it is like."""
    before = statistics.get(value.name or "")
    if before is None:
        return
    seen = TensorStatistics(before.counts is not None, None)
    if like is not None and like.counts is not None and before.counts is not None and like.channel_axis is None:
        seen.merge(like)
    often = 1 if like is None else max(1, min(like.count, 1 << 16))
    array: Array = np.repeat(np.asarray(numbers, np.float32), often)
    seen.update(array)
    statistics.tensors[value.name or ""] = seen
