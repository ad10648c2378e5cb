# SPDX-License-Identifier: Apache-2.0
"""Masks: what takes places out before a Softmax, added or put in place of scores, limited to what it can tell apart.

Exporters write -3.4e38 or minus infinity there, and samples without padding never show it. One scale over such a number
leaves nothing of the scores, and a scale that never saw it adds no mask. After a number that lies below all scores by
their span and UNTOLD, the Softmax gives less than float32 has digits for, so that is what a mask becomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_JOINED = ("Add", "Min", "Max")
"""Masks are put together by these."""
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
    """What comes out where it is added or fills in, and the scores it does that to."""
    fills: bool = False
    """True where scores are replaced: the value is the condition then."""
    carried: list[onnx_ir.Value] = field(default_factory=list)
    """Tensors that hold it, from where it is made."""
    switches: list[onnx_ir.Value] = field(default_factory=list)
    """Tensors of 0 and 1 that it is made of."""
    constants: list[tuple[onnx_ir.Node, int]] = field(default_factory=list)
    """Inputs of nodes that hold the large number."""

    def absorb(self, part: _Mask) -> None:
        """Take up a mask that this one is made of."""
        self.carried += part.carried
        self.switches += part.switches
        self.constants += part.constants

    def limit(self, statistics: Statistics) -> float:
        """What it takes places out with from now on."""
        seen = [statistics.get(scores.name or "") for _, scores in self.sums]
        below = max(map(_span, seen))
        if self.fills:
            below = max([below, *(-one.minimum for one in seen if one is not None and one.count)])
        return -float(np.ceil(below + UNTOLD))

    def seen(self, statistics: Statistics, limit: float) -> bool:
        """Whether a sample has a place that is taken out."""
        if self.fills:
            return any(_least(statistics, total.name) <= limit for total, _ in self.sums)
        return all(_least(statistics, value.name) <= limit for value in self.carried)


def limit_masks(model: onnx_ir.Model, statistics: Statistics) -> tuple[LimitedMask, ...]:
    """Limit the masks of a folded model, in its constants and in what was seen of its tensors; both are edited.

    Doing it again changes nothing: the limit follows from the scores.
    """
    limited = []
    for mask in find_masks(model, statistics):
        limit = mask.limit(statistics)
        large = [(node, index, float_constant(node.inputs[index])) for node, index in mask.constants]
        least = [float(array.min()) for _, _, array in large if array is not None]
        written = min(least, default=_least(statistics, mask.value.name))
        seen = mask.seen(statistics, limit)
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
                lowest = limit if mask.fills else of_scores.minimum + limit
                _see(statistics, value, [lowest, of_scores.maximum], of_scores)
        names = tuple(node.name or "" for node in mask.softmax)
        limited.append(LimitedMask(mask.value.name or "", names, written, limit, seen))
    return tuple(limited)


def masked_tensors(model: onnx_ir.Model) -> set[str]:
    """Tensors that hold a mask, or scores with one: their large numbers say nothing of how near another model is."""
    masks = find_masks(model, None)
    return {str(value.name) for mask in masks for value in (*mask.carried, *(total for total, _ in mask.sums))}


def find_masks(model: onnx_ir.Model, statistics: Statistics | None) -> list[_Mask]:
    """Every mask before a Softmax; of masks that are inputs only the samples tell that they are any."""
    masks: dict[onnx_ir.Value, _Mask] = {}
    for softmax in model.graph:
        masking = _masking_before(softmax) if softmax.op_type == "Softmax" else None
        found = (
            None if masking is None else (_filled if masking.op_type == "Where" else _added)(masking, masks, statistics)
        )
        if masking is not None and found is not None:
            mask, scores = found
            masks[mask.value] = mask
            mask.softmax.append(softmax)
            mask.sums.append((masking.outputs[0], scores))
    return list(masks.values())


def _masking_before(softmax: onnx_ir.Node) -> onnx_ir.Node | None:
    """The Add or Where that a Softmax reads, with what only moves numbers in between."""
    node = softmax
    for _ in range(_MOST_STEPS):
        maker = None if node.inputs[0] is None else node.inputs[0].producer()
        if maker is None or maker.op_type in ("Add", "Where"):
            return maker
        if maker.op_type not in _MOVED:
            return None
        node = maker
    return None


def _added(
    node: onnx_ir.Node, masks: Mapping[onnx_ir.Value, _Mask], statistics: Statistics | None
) -> tuple[_Mask, onnx_ir.Value] | None:
    """The mask that an Add adds, and the scores that it adds it to."""
    for index in (1, 0):
        value, scores = node.inputs[index], node.inputs[1 - index]
        if value is None or scores is None:
            continue
        mask = masks.get(value) or _mask(value, statistics)
        if mask is not None:
            if value.const_value is not None:
                mask.constants.append((node, index))
            return mask, scores
    return None


def _filled(
    node: onnx_ir.Node, masks: Mapping[onnx_ir.Value, _Mask], statistics: Statistics | None
) -> tuple[_Mask, onnx_ir.Value] | None:
    """The mask by which a Where puts a large number in place of scores, and the scores."""
    condition = node.inputs[0]
    for index in (1, 2):
        scores = node.inputs[3 - index]
        if condition is not None and scores is not None and _is_large(node.inputs[index]):
            mask = masks.get(condition) or _Mask(condition, fills=True)
            mask.constants.append((node, index))
            return mask, scores
    return None


def _mask(value: onnx_ir.Value | None, statistics: Statistics | None, steps: int = _MOST_STEPS) -> _Mask | None:
    """What a value is as a mask; None where nothing says that it is one."""
    if value is None or not steps:
        return None
    mask = _Mask(value)
    if value.const_value is not None:
        return mask if _is_large(value) else None
    mask.carried.append(value)
    node = value.producer()
    if node is None:
        return mask if statistics is not None and _least(statistics, value.name) <= LARGE else None
    mask.constants = [(node, i) for i, v in enumerate(node.inputs) if _is_large(v)]
    if not mask.constants and node.op_type in _MOVED:
        parts = [_mask(node.inputs[0], statistics, steps - 1)]
    elif mask.constants and node.op_type in ("Mul", "Where", *_MOVED):
        parts = [None if node.op_type == "Mul" else _mask(v, statistics, steps - 1) for v in node.inputs]
    elif node.op_type in _JOINED:
        parts = [_mask(v, statistics, steps - 1) for v in node.inputs]
        if node.op_type == "Add" and None in parts:
            return None
    else:
        return None
    if not mask.constants and not any(parts):
        return None
    for part, other in zip(parts, node.inputs, strict=False):
        if part is not None:
            mask.absorb(part)
        elif not _is_large(other):
            mask.switches += _switches(other)
    return mask


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
