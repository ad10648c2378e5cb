# SPDX-License-Identifier: Apache-2.0
"""Channels: counts that leave most of a block of 32 idle, and what the multiple below would give."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.conv import LANES, conv
from hexforge.addons.tuning.rewrites.rule import Place, Rewrite, RewriteRule
from hexforge.model.op_table import ACTIVATIONS
from hexforge.patterns.language import op
from hexforge.patterns.nodes import data, is_op, shape

MOST_LOST = 1 / 8
"""The largest part of the channels that may go: a network that loses more is another network."""
ALONG = ACTIVATIONS | {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Erf"}
"""Ops that keep channels apart and in their number."""
PAIRS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")


@dataclass(slots=True)
class _Group:
    """Values whose channels are the same ones, and the nodes whose constants run along them."""

    count: int
    values: list[Value] = field(default_factory=list)
    written: list[Node] = field(default_factory=list)
    """Convolutions that make the channels."""
    read: list[Node] = field(default_factory=list)
    """Convolutions that add over them."""
    kept: list[Node] = field(default_factory=list)
    """Nodes with a constant for each channel."""


def _group(node: Node) -> _Group | None:
    """All that must change with the channels a convolution makes; None where something else reads them."""
    convolution = conv(node)
    if convolution is None or convolution.group != 1:
        return None
    group = _Group(convolution.weight.shape[0])
    waiting = [node.outputs[0]]
    while waiting:
        value = waiting.pop()
        if value in group.values:
            continue
        sizes = shape(value)
        if len(sizes) != 4 or sizes[1] != group.count or value.is_graph_output() or value.is_graph_input():
            return None
        group.values.append(value)
        producer = value.producer()
        nodes = [(producer, -1)] if producer is not None else []
        for user, index in [*nodes, *value.uses()]:
            joined = _joined(group, user, index)
            if joined is None:
                return None
            waiting += joined
    return group


def _joined(group: _Group, node: Node, index: int) -> list[Value] | None:
    """Values that share the channels through a node, which reads them as input `index` (-1: writes them)."""
    convolution = conv(node)
    if convolution is not None:
        if convolution.group == 1:
            side = group.written if index < 0 else group.read
            if node not in side:
                side.append(node)
            return []
        if convolution.group != group.count or convolution.weight.shape[:2] != (group.count, 1):
            return None
        if node not in group.kept:
            group.kept.append(node)
        return [convolution.x, node.outputs[0]]
    if is_op(node, *ALONG):
        return [v for v in (node.inputs[0], node.outputs[0]) if v is not None]
    if is_op(node, *PAIRS):
        constants = [v for v in node.inputs if v is not None and v.const_value is not None]
        if any(_axis(v, group.count) is None for v in constants):
            return None
        if constants and node not in group.kept:
            group.kept.append(node)
        return [v for v in (*node.inputs, *node.outputs) if v is not None and v.const_value is None]
    return None


def _axis(value: Value, count: int) -> int | None:
    """The axis of a constant that runs along the channels, -1 for one that does not; None for another shape."""
    sizes = shape(value)
    if all(d == 1 for d in sizes):
        return -1
    at = len(sizes) - 3
    return at if at >= 0 and sizes[at] == count and all(d == 1 for i, d in enumerate(sizes) if i != at) else None


def _shrunk(place: Place) -> Rewrite | None:
    convolution = conv(place.node)
    if convolution is None or convolution.group != 1:
        return None
    count = convolution.weight.shape[0]
    less = count // LANES * LANES
    if less in (0, count) or (count - less) / count > MOST_LOST:
        return None
    group = _group(place.node)
    if group is None or group.written[0] is not place.node:
        return None

    def cut(at: Node, index: int, axis: int) -> None:
        array = data(at.inputs[index])
        assert array is not None
        shorter = np.ascontiguousarray(np.take(array, range(less), axis))
        at.replace_input_with(index, place.editor.constant(shorter, f"{at.name}_less"))

    def make() -> None:
        for at in group.written:
            for index in range(1, len(at.inputs)):
                cut(at, index, 0)
        for at in group.read:
            cut(at, 1, 1)
        for at in group.kept:
            for index, value in enumerate(at.inputs):
                if value is not None and value.const_value is not None:
                    axis = 0 if is_op(at, "Conv") else _axis(value, count)
                    if axis is not None and axis >= 0:
                        cut(at, index, axis)
            if is_op(at, "Conv"):
                at.attributes["group"] = onnx_ir.AttrInt64("group", less)
        for value in group.values:
            sizes = shape(value)
            value.shape = onnx_ir.Shape((sizes[0], less, *sizes[2:]))

    what = f"{count} channels take the time of {less + LANES}; {less} would be whole blocks"
    return place.change(what, make, count, nodes=group.written)


RULES = (
    RewriteRule(
        "channels-of-32", "Channels become a multiple of 32",
        "The matrix unit and VTCM hold channels in blocks of 32; those a count leaves idle are computed and moved all "
        "the same.",
        "HMX tile of 32 x 32 channels; QNN LLM guidelines ask for multiples of 32",
        "Use the multiple of 32 below, or as many as the one above has: they cost no more.", False,
        op("Conv"), _shrunk,
    ),
)  # fmt: skip
