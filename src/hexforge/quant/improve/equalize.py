# SPDX-License-Identifier: Apache-2.0
"""Cross-layer equalization: channels of the same size, so that one scale fits them all.

A value between layers may be scaled channel by channel if what writes it (weights, biases) is multiplied and what
reads it is divided. Values that must be scaled alike (around activations, pools, residual sums, gates) form a group;
a group is scaled where everything that touches it allows that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.patterns.layers import Layer, layer
from hexforge.patterns.nodes import captured, dims, float_constant
from hexforge.quant.constants import set_constant

_ROUNDS = 8
_LIMIT = 64.0
"""Channels are scaled by no more than this either way: a dead channel must not blow up."""

_KEEPS = frozenset(
    (
        "Relu",
        "LeakyRelu",
        "PRelu",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "Identity",
        "Dropout",
    )
)
"""Ops that commute with a positive factor per channel (axis 1)."""


@dataclass(slots=True, eq=False)
class EqualizedGroup:
    """Values scaled alike: the layers that write and read them, and constants added to them."""

    channels: int
    axis: int
    spread: int = 1
    """How many neighbours of the readers' inputs one channel became (by flattening)."""
    writers: list[Layer] = field(default_factory=list)
    readers: list[tuple[Layer, int]] = field(default_factory=list)
    shifts: list[tuple[onnx_ir.Node, int]] = field(default_factory=list)


def equalize(model: onnx_ir.Model) -> int:
    """Equalize a model in place; how many groups of values were scaled. Its function stays, up to rounding."""
    equalized = groups(model)
    for _ in range(_ROUNDS):
        if max((_scale(group) for group in equalized), default=0.0) < 0.01:
            break
    return len(equalized)


class _Sets:
    """Values that are scaled alike, and those that must not be."""

    def __init__(self) -> None:
        self.parent: dict[onnx_ir.Value, onnx_ir.Value] = {}
        self.blocked: set[onnx_ir.Value] = set()

    def root(self, value: onnx_ir.Value) -> onnx_ir.Value:
        while self.parent.get(value, value) is not value:
            value = self.parent[value]
        return value

    def join(self, a: onnx_ir.Value, b: onnx_ir.Value) -> None:
        self.parent[self.root(a)] = self.root(b)

    def block(self, *values: onnx_ir.Value | None) -> None:
        self.blocked.update(v for v in values if v is not None)


def groups(model: onnx_ir.Model) -> list[EqualizedGroup]:
    """Groups of values that may be scaled, in the order of the model."""
    sets, flattened = _Sets(), dict[onnx_ir.Value, int]()
    sets.block(*model.graph.inputs, *model.graph.outputs)
    shifts: list[tuple[onnx_ir.Value, onnx_ir.Node, int]] = []
    for node in model.graph:
        sets.block(*captured(node))
        if layer(node) is None:
            _pass(node, sets, flattened, shifts)
    by_root: dict[onnx_ir.Value, EqualizedGroup] = {}
    blocked = {sets.root(v) for v in sets.blocked}
    layers = [product for product in map(layer, model.graph) if product is not None]
    for writer in layers:
        root = sets.root(writer.out)
        if root in blocked:
            continue
        group = by_root.setdefault(root, EqualizedGroup(writer.outputs, writer.channel_axis))
        if (group.channels, group.axis) != (writer.outputs, writer.channel_axis) or len(writer.weight.uses()) > 1:
            blocked.add(root)
        group.writers.append(writer)
    for reader in layers:
        root = sets.root(reader.data)
        read = by_root.get(root)
        if read is None:
            continue
        spread = flattened.get(reader.data, 1)
        if reader.inputs != read.channels * spread or len(reader.weight.uses()) > 1 or _reads_other_axis(reader, read):
            blocked.add(root)
        read.readers.append((reader, spread))
    for value, node, index in shifts:
        shifted = by_root.get(sets.root(value))
        if shifted is not None:
            shifted.shifts.append((node, index))
    return [g for root, g in by_root.items() if root not in blocked and g.writers and g.readers]


def _reads_other_axis(reader: Layer, group: EqualizedGroup) -> bool:
    shape = dims(reader.data)
    assert shape is not None
    axis = len(shape) - 1 if reader.node.op_type in ("Gemm", "MatMul") else 1
    return axis != group.axis and not (len(shape) == 2 and group.axis == 1)


def _pass(
    node: onnx_ir.Node,
    sets: _Sets,
    flattened: dict[onnx_ir.Value, int],
    shifts: list[tuple[onnx_ir.Value, onnx_ir.Node, int]],
) -> None:
    """Record how a node that is not a layer constrains the scaling of the values around it."""
    out, data = node.outputs[0], [v for v in node.inputs if v is not None and v.const_value is None]
    source, size = (data[0] if data else None), dims(out)
    source_size = dims(source)
    plain = (
        source is not None
        and source_size is not None
        and size is not None
        and len(data) == 1
        and len(node.outputs) == 1
    )
    if source is None or source_size is None or size is None or any(v in flattened for v in data):
        return sets.block(*node.inputs, *node.outputs)
    if plain and node.op_type in _KEEPS:
        return sets.join(out, source)
    if plain and node.op_type == "Clip" and _is_relu(node):
        return sets.join(out, source)
    if plain and node.op_type in ("Flatten", "Reshape", "Squeeze") and _flattens(source_size, size):
        flattened[out] = size[1] // source_size[1]
        return sets.join(out, source)
    if node.op_type == "Add" and len(data) == 2 and all(dims(v) == size for v in data):
        sets.join(out, data[0])
        return sets.join(out, data[1])
    if node.op_type == "Mul" and len(data) == 2 and dims(data[0]) != dims(data[1]) and size in map(dims, data):
        carrier, gate = data if dims(data[0]) == size else data[::-1]
        sets.block(gate)
        return sets.join(out, carrier)
    if (
        node.op_type == "Add" and plain and size == source_size
    ):  # of a constant: scaled with the rest, if it runs by channel
        index = 0 if node.inputs[1] is source else 1
        if float_constant(node.inputs[index]) is not None:
            shifts.append((out, node, index))
            return sets.join(out, source)
    return sets.block(*node.inputs, *node.outputs)


def _flattens(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """True where all axes behind the batch become one: a channel becomes neighbours."""
    return len(before) > 2 and before[1] > 0 and after == (before[0], math.prod(before[1:]))


def _is_relu(node: onnx_ir.Node) -> bool:
    """Clip from zero to infinity. A finite bound does not scale."""
    if "max" in node.attributes or "min" in node.attributes:
        return False
    low = float_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    high = node.inputs[2] if len(node.inputs) > 2 else None
    return low is not None and float(low.reshape(-1)[0]) == 0.0 and high is None


def _scale(group: EqualizedGroup) -> float:
    """Scale a group so that what writes a channel is as wide as what reads it; the largest change, as log2."""
    wrote = np.max([_width(_matrix(w), 0) for w in group.writers], axis=0)
    read = np.max([_read_width(r, s, group.channels) for r, s in group.readers], axis=0)
    used = (wrote > 0) & (read > 0)
    factor = np.ones(group.channels)
    factor[used] = np.sqrt(read[used] / wrote[used])  # each channel's product of widths is kept, and split evenly
    if used.any():
        # a factor common to all channels changes nothing but the numbers' magnitude: keep it where it was
        factor[used] /= np.exp(np.log(factor[used]).mean())
    factor = np.clip(factor, 1 / _LIMIT, _LIMIT)
    apply(group, factor)
    return float(np.abs(np.log2(factor)).max())


def apply(group: EqualizedGroup, factor: Array) -> None:
    """Multiply the group's values by a positive factor per channel."""
    for writer in group.writers:
        matrix, bias = _matrix(writer), float_constant(writer.bias)
        set_constant(writer.node, 1, writer.stored(matrix * factor.reshape(-1, *[1] * (matrix.ndim - 1))), "weight")
        if bias is not None:
            set_constant(writer.node, 2, (bias.reshape(-1) * factor).reshape(bias.shape), f"{writer.node.name}.bias")
    for reader, spread in group.readers:
        set_constant(
            reader.node, 1, reader.stored(_matrix(reader) / reader.by_input(np.repeat(factor, spread))), "weight"
        )
    for node, index in group.shifts:
        shift, shape = float_constant(node.inputs[index]), dims(node.outputs[0])
        assert shift is not None
        assert shape is not None
        by_channel = factor.reshape([-1 if i == group.axis else 1 for i in range(len(shape))])
        set_constant(node, index, shift * by_channel, f"{node.name}.shift")


def _matrix(of: Layer) -> Array:
    weight = float_constant(of.node.inputs[1])
    assert weight is not None
    return of.matrix(weight).astype(np.float64)


def _width(matrix: Array, axis: int) -> Array:
    return np.asarray(np.abs(matrix).max(axis=tuple(i for i in range(matrix.ndim) if i != axis)))


def _read_width(of: Layer, spread: int, channels: int) -> Array:
    """The largest weight that reads each channel."""
    matrix = np.abs(_matrix(of))
    matrix = matrix.reshape(*matrix.shape[:2], -1).max(-1).reshape(of.group, of.outputs // of.group, -1).max(1)
    return np.asarray(matrix.reshape(channels, spread).max(1))
