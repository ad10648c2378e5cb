# SPDX-License-Identifier: Apache-2.0
"""Normalizations that a model writes out: layer, group and L2 normalization."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.patterns.language import Match, Term, anything, constant, find_at, number, one_of, op
from hexforge.patterns.nodes import ONNX, clamp_bounds, dims, integer, real, reduced_axes
from hexforge.patterns.written_out import WrittenOut, keeps_shape


def _keeps_axes(reduction: Node) -> bool:
    return integer(reduction, "keepdims", 1) == 1 and bool(reduced_axes(reduction))


def _is_lower_bound(clip: Node) -> bool:
    low, high = clamp_bounds(clip) or (0.0, 0.0)
    return low > 0 and high == math.inf


X, WEIGHT, BIAS = anything(), constant(), constant()
EPSILON = constant(lambda array: array.size == 1 and array.item() > 0)

MEAN = op("ReduceMean", X, where=_keeps_axes)
CENTERED = op("Sub", X, MEAN)
SQUARE = one_of(op("Pow", CENTERED, number(2.0)), op("Mul", CENTERED, CENTERED))
VARIANCE = op("ReduceMean", SQUARE, where=_keeps_axes)
NORMALIZED = op("Div", CENTERED, op("Sqrt", op("Add", VARIANCE, EPSILON)))
WEIGHTED = op("Mul", NORMALIZED, WEIGHT)
LAYER_NORM = one_of(op("Add", WEIGHTED, BIAS), WEIGHTED, NORMALIZED)

LENGTH = op("ReduceL2", X, where=_keeps_axes)
CLIPPED = op("Clip", LENGTH, where=_is_lower_bound)
DIVISOR = one_of(op("Max", LENGTH, EPSILON), CLIPPED)
L2_NORM = op("Div", X, one_of(DIVISOR, op("Expand", DIVISOR)))

SCALE, SHIFT = constant(), constant()
IN_GROUPS = op("InstanceNormalization", op("Reshape", X), SCALE, SHIFT)
GROUPED = op("Reshape", IN_GROUPS)
WEIGHTED_GROUPS = op("Mul", GROUPED, WEIGHT)
GROUP_NORM = one_of(op("Add", WEIGHTED_GROUPS, BIAS), WEIGHTED_GROUPS, op("Add", GROUPED, BIAS), GROUPED)


@dataclass(frozen=True, slots=True, eq=False)
class Normalization(WrittenOut):
    """x over its mean and deviation (layer) or its length (L2) along `axes`. Layer: inputs x, weight, bias."""

    axes: tuple[int, ...]
    epsilon: float


def layer_norm(mean: Node) -> Normalization | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) at the first ReduceMean, with weight and bias where given."""

    def fits(match: Match[Value, Node]) -> bool:
        axes, size = reduced_axes(mean), dims(match[X])
        parameters = [dims(match[term]) for term in (WEIGHT, BIAS) if term in match]
        if size is None or axes is None or axes != reduced_axes(match.node(VARIANCE)):
            return False
        last = axes == tuple(range(len(size) - len(axes), len(size))) or not parameters
        return last and all(p == size[-len(axes) :] for p in parameters) and keeps_shape(match[X], match.nodes)

    match = find_at(LAYER_NORM, (MEAN,), ONNX, mean, fits)
    if match is None:
        return None
    inputs = (match[X], match.get(WEIGHT), match.get(BIAS))
    return Normalization(match.nodes, inputs, reduced_axes(mean) or (), match.array(EPSILON).item())


def l2_norm(norm: Node) -> Normalization | None:
    """x / max(|x|, epsilon) at the ReduceL2; the sum |x| + epsilon is another number and stays as it is."""
    match = find_at(L2_NORM, (LENGTH,), ONNX, norm, lambda match: keeps_shape(match[X], match.nodes))
    if match is None:
        return None
    bounds = clamp_bounds(match.node(CLIPPED)) if CLIPPED in match else None
    epsilon = match.array(EPSILON).item() if bounds is None else bounds[0]
    return Normalization(match.nodes, (match[X],), reduced_axes(norm) or (), epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class GroupNormalization(WrittenOut):
    """Normalization over groups of channels, then a weight and a bias for each channel."""

    groups: int
    epsilon: float
    weight: Array
    bias: Array


def group_norm(norm: Node) -> GroupNormalization | None:
    """Channels reshaped into groups, normalized as if a group were one channel, reshaped back; weight and bias."""
    match = find_at(GROUP_NORM, (IN_GROUPS,), ONNX, norm, _is_grouped)
    if match is None:
        return None
    channels, groups = (dims(match[X]) or ())[1], (dims(norm.inputs[0]) or ())[1]
    weight, bias = (np.repeat(match.array(term), channels // groups) for term in (SCALE, SHIFT))
    if WEIGHT in match:
        factor = _by_channel(match, WEIGHT)
        weight, bias = weight * factor, bias * factor
    if BIAS in match:
        bias = bias + _by_channel(match, BIAS)
    return GroupNormalization(match.nodes, (match[X],), groups, real(norm, "epsilon", 1e-5), weight, bias)


def _is_grouped(match: Match[Value, Node]) -> bool:
    """True where channels are split into groups and come back, and constants run along the channels."""
    size, grouped = dims(match[X]), dims(match.node(IN_GROUPS).inputs[0])
    if size is None or grouped is None or len(size) < 3 or len(grouped) < 3 or dims(match[GROUPED]) != size:
        return False
    constants = [match.array(term) for term in (WEIGHT, BIAS) if term in match]
    shapes = [(1,) * (len(size) - array.ndim) + array.shape for array in constants]
    runs = all(full[1] in (1, size[1]) and math.prod(full) == full[1] for full in shapes)
    whole = grouped[0] == size[0] and grouped[1] >= 1 and size[1] % grouped[1] == 0
    return whole and runs and keeps_shape(match[X], match.nodes)


def _by_channel(match: Match[Value, Node], term: Term) -> Array:
    channels = (dims(match[X]) or ())[1]
    return np.broadcast_to(match.array(term).ravel(), (channels,))
