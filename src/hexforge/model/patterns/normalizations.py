# SPDX-License-Identifier: Apache-2.0
"""Normalizations that a model writes out: layer, group and L2 normalization."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.model.patterns.match import Match, clamp_bounds, is_closed, keeps_shape, kept_axes, reader_of
from hexforge.patterns.nodes import data, dims, is_op, number, operand, other, real, source


@dataclass(frozen=True, slots=True, eq=False)
class Normalization(Match):
    """x over its mean and deviation (layer) or its length (L2) along `axes`. Layer: inputs x, weight, bias."""

    axes: tuple[int, ...]
    epsilon: float


def layer_norm(mean: Node) -> Normalization | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) at the first ReduceMean, with weight and bias where given."""
    axes = kept_axes(mean) if is_op(mean, "ReduceMean") else None
    x, centered = operand(mean, 0), reader_of(mean, "Sub")
    if axes is None or x is None or centered is None or not _reads(centered, x, mean.outputs[0]):
        return None
    difference = centered.outputs[0]
    square = next((node for node in difference.consumers() if _is_square(node, difference)), None)
    if square is None:
        return None
    nodes = [mean, centered, square]
    for op in ("ReduceMean", "Add", "Sqrt", "Div"):
        following = reader_of(nodes[-1], op)
        if following is None:
            return None
        nodes.append(following)
    variance, plus, root, divide = nodes[3:]
    epsilon = number(other(plus, variance.outputs[0]))
    if epsilon is None or epsilon <= 0 or kept_axes(variance) != axes:
        return None
    if not _reads(divide, difference, root.outputs[0]):
        return None
    weight = _parameter(divide, "Mul", x, axes)
    bias = None if weight is None else _parameter(weight[0], "Add", x, axes)
    nodes += [parameter[0] for parameter in (weight, bias) if parameter is not None]
    if not is_closed(nodes) or not keeps_shape(x, nodes):
        return None
    inputs = (x, None if weight is None else weight[1], None if bias is None else bias[1])
    return Normalization(tuple(nodes), inputs, axes, epsilon)


def _reads(node: Node, first: Value, second: Value) -> bool:
    return len(node.inputs) == 2 and node.inputs[0] is first and node.inputs[1] is second


def _is_square(node: Node, of: Value) -> bool:
    if is_op(node, "Pow"):
        return node.inputs[0] is of and number(operand(node, 1)) == 2.0
    return is_op(node, "Mul") and _reads(node, of, of)


def _parameter(node: Node, op: str, x: Value, axes: tuple[int, ...]) -> tuple[Node, Value] | None:
    """The Mul or Add of a constant that runs along the (last) normalized axes of x, and that constant."""
    following = reader_of(node, op)
    constant = None if following is None else other(following, node.outputs[0])
    size = dims(x)
    if following is None or constant is None or size is None or constant.const_value is None:
        return None
    if axes != tuple(range(len(size) - len(axes), len(size))) or dims(constant) != tuple(size[a] for a in axes):
        return None
    return following, constant


def l2_norm(norm: Node) -> Normalization | None:
    """x / max(|x|, epsilon) at the ReduceL2; the sum |x| + epsilon is another number and stays as it is."""
    axes, x = kept_axes(norm) if is_op(norm, "ReduceL2") else None, operand(norm, 0)
    limit = reader_of(norm, "Max", "Clip")
    if axes is None or x is None or limit is None:
        return None
    if is_op(limit, "Max"):
        epsilon = number(other(limit, norm.outputs[0]))
    else:
        low, high = clamp_bounds(limit) or (None, math.inf)
        epsilon = low if high == math.inf else None
    if epsilon is None or epsilon <= 0:
        return None
    nodes = [norm, limit]
    expand = reader_of(limit, "Expand")
    if expand is not None:
        nodes.append(expand)
    divide = reader_of(nodes[-1], "Div")
    if divide is None or not _reads(divide, x, nodes[-1].outputs[0]):
        return None
    nodes.append(divide)
    return Normalization(tuple(nodes), (x,), axes, epsilon) if is_closed(nodes) and keeps_shape(x, nodes) else None


@dataclass(frozen=True, slots=True, eq=False)
class GroupNormalization(Match):
    """Normalization over groups of channels, then a weight and a bias for each channel."""

    groups: int
    epsilon: float
    weight: Array
    bias: Array


def group_norm(norm: Node) -> GroupNormalization | None:
    """Channels reshaped into groups, normalized as if a group were one channel, reshaped back; weight and bias."""
    into = source(norm) if is_op(norm, "InstanceNormalization") else None
    back = reader_of(norm, "Reshape")
    x = None if into is None or not is_op(into, "Reshape") else operand(into, 0)
    if into is None or back is None or x is None:
        return None
    size, grouped = dims(x), dims(into.outputs[0])
    scale, shift = data(operand(norm, 1)), data(operand(norm, 2))
    if size is None or grouped is None or scale is None or shift is None:
        return None
    if len(size) < 3 or len(grouped) < 3 or dims(back.outputs[0]) != size or grouped[0] != size[0]:
        return None
    if grouped[1] < 1 or size[1] % grouped[1]:
        return None
    weight, bias = (np.repeat(v, size[1] // grouped[1]) for v in (scale, shift))
    nodes = [into, norm, back]
    scaled = _per_channel(back, "Mul", size)
    if scaled is not None:
        nodes.append(scaled[0])
        weight, bias = weight * scaled[1], bias * scaled[1]
    shifted = _per_channel(nodes[-1], "Add", size)
    if shifted is not None:
        nodes.append(shifted[0])
        bias = bias + shifted[1]
    if not is_closed(nodes):
        return None
    return GroupNormalization(tuple(nodes), (x,), grouped[1], real(norm, "epsilon", 1e-5), weight, bias)


def _per_channel(node: Node, op: str, size: tuple[int, ...]) -> tuple[Node, Array] | None:
    """The Mul or Add of a constant for each channel of a channel-first tensor, and that constant."""
    following = reader_of(node, op)
    array = None if following is None else data(other(following, node.outputs[0]))
    if following is None or array is None or dims(following.outputs[0]) != size:
        return None
    full_shape = (1,) * (len(size) - array.ndim) + array.shape
    if full_shape[1] not in (1, size[1]) or math.prod(full_shape) != full_shape[1]:
        return None
    return following, np.broadcast_to(array.ravel(), (size[1],))
