# SPDX-License-Identifier: Apache-2.0
"""Single layers and pairs of layers as models: drawn from graphs, and of random shapes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx import TensorProto, helper, numpy_helper

from hexforge.errors import HexforgeError
from hexforge.model.reader import read

Array = np.ndarray[Any, Any]

_OPSET = 17
_MOST_ELEMENTS = 1 << 22
_LEAST_ELEMENTS = 1 << 14
"""Of what a layer reads, writes and multiplies with: smaller ones measure the call, larger ones the memory."""
_LEFT_OUT = {
    "Cast", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Gather", "Shape", "If", "Loop", "Constant",
    "ConstantOfShape", "Range", "Expand", "Where", "Equal", "ScatterND", "Not", "And", "Or", "Xor", "Greater", "Less",
    "GreaterOrEqual", "ArgMax", "TopK", "Mod", "Size", "RoiAlign", "Sin", "Cos", "Einsum",
}  # fmt: skip
"""Nodes that move nothing or handle integers: where they stand alone there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A model of one or two layers, or of a few where they are one layer to whoever writes it."""

    name: str
    model: onnx.ModelProto


class LayerWriter:
    """Nodes one after the other, with random weights."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(seed)

    def input(self, *shape: int) -> str:
        """A graph input."""
        self.inputs.append(helper.make_tensor_value_info(f"x{len(self.inputs)}", TensorProto.FLOAT, shape))
        return f"x{len(self.inputs) - 1}"

    def constant(self, array: Array) -> str:
        """A constant of these values."""
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """A random constant; of an ordinary size for its number of inputs."""
        if scale is None:
            scale = float(np.prod(shape[1:]) or 1) ** -0.5
        return self.constant(self.random.standard_normal(shape, np.float32) * np.float32(scale))

    def integers(self, *values: int) -> str:
        """A constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, channels: int, outputs: int, kernel: Sequence[int], stride: int = 1, group: int = 1) -> str:
        """A convolution with bias that keeps the size."""
        weight, bias = self.weight(outputs, channels // group, *kernel), self.weight(outputs, scale=0.1)
        pads = [k // 2 for k in kernel] * 2
        return self.node("Conv", x, weight, bias, strides=[stride] * len(kernel), pads=pads, group=group)

    def linear(self, x: str, features: int, outputs: int) -> str:
        """A product with weights, and a bias."""
        product = self.node("MatMul", x, self.weight(features, outputs, scale=features**-0.5))
        return self.node("Add", product, self.weight(outputs, scale=0.1))

    def silu(self, x: str) -> str:
        """x times its sigmoid."""
        return self.node("Mul", x, self.node("Sigmoid", x))

    def layer_norm(self, x: str, features: int) -> str:
        """Over the last axis."""
        return self.node("LayerNormalization", x, self.weight(features, scale=1), self.weight(features, scale=0.1))

    def group_norm(self, x: str, channels: int, groups: int) -> str:
        """As PyTorch exports it."""
        flat = self.node("Reshape", x, self.integers(0, groups, -1))
        one, zero = self.constant(np.ones(groups, np.float32)), self.constant(np.zeros(groups, np.float32))
        normal = self.node("InstanceNormalization", flat, one, zero)
        whole = self.node("Reshape", normal, self.node("Shape", x))
        scaled = self.node("Mul", whole, self.weight(channels, 1, 1, scale=1))
        return self.node("Add", scaled, self.weight(channels, 1, 1, scale=0.1))

    def attention(self, x: str, tokens: int, width: int, heads: int) -> str:
        """Self-attention of [1, tokens, width]."""
        size = width // heads

        def split(perm: list[int]) -> str:
            shaped = self.node("Reshape", self.linear(x, width, width), self.integers(1, tokens, heads, size))
            return self.node("Transpose", shaped, perm=perm)

        query, key, value = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
        scores = self.node("Mul", self.node("MatMul", query, key), self.constant(np.array(size**-0.5, np.float32)))
        read_out = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        joined = self.node("Transpose", read_out, perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", joined, self.integers(1, tokens, width)), width, width)

    def recurrent(self, kind: str, x: str, features: int, units: int, directions: int = 1) -> str:
        """LSTM or GRU over [time, batch, features]; all states, the directions side by side."""
        gates = {"LSTM": 4, "GRU": 3}[kind]
        scale = units**-0.5
        wx = self.weight(directions, gates * units, features, scale=scale)
        wh = self.weight(directions, gates * units, units, scale=scale)
        bias = self.weight(directions, 2 * gates * units, scale=0.1)
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        direction = "bidirectional" if directions == 2 else "forward"
        y = self.node(kind, x, wx, wh, bias, hidden_size=units, direction=direction, **more)
        turned = self.node("Transpose", y, perm=[0, 2, 1, 3])
        return self.node("Reshape", turned, self.integers(0, 0, directions * units))

    def finish(self, *outputs: str, name: str = "layer") -> onnx.ModelProto:
        """The model."""
        results = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph(self.nodes, name, self.inputs, results, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


def drawn(folder: Path, count: int, seed: int) -> list[Layer]:
    """Layers and pairs from the graphs of a folder, as many of each kind of node as of any other where there are."""
    chance = random.Random(seed)
    paths = sorted(folder.glob("*.onnx"))
    by_kind: dict[str, dict[str, Layer]] = defaultdict(dict)
    for path in chance.sample(paths, min(len(paths), 60)):
        try:
            model = read(path).ir
        except HexforgeError:
            continue
        for layer in _layers_of(model, path.stem, chance):
            kind, _, shape = layer.name.partition(" ")
            by_kind[kind].setdefault(shape, layer)
    chosen: list[Layer] = []
    kinds = sorted(by_kind)
    pools = {kind: chance.sample(sorted(by_kind[kind]), len(by_kind[kind])) for kind in kinds}
    while len(chosen) < count and any(pools.values()):
        for kind in chance.sample(kinds, len(kinds)):
            # convolutions and products are most of every model's work, and come in the most shapes
            for _ in range(3 if kind.split("+")[0] in ("Conv", "MatMul", "Gemm") else 1):
                if pools[kind] and len(chosen) < count:
                    chosen.append(by_kind[kind][pools[kind].pop()])
    return chosen


def _layers_of(model: onnx_ir.Model, source: str, chance: random.Random) -> Iterator[Layer]:
    nodes = [node for node in model.graph if node.op_type not in _LEFT_OUT and not node.domain]
    for node in chance.sample(nodes, min(len(nodes), 40)):
        group = [node]
        users = list(node.outputs[0].uses()) if len(node.outputs) == 1 else []
        if chance.random() < 0.5 and len(users) == 1 and users[0].node.op_type not in _LEFT_OUT:
            group.append(users[0].node)
        layer = _cut(group, source)
        if layer is not None:
            yield layer


def _cut(group: Sequence[onnx_ir.Node], source: str) -> Layer | None:
    """Some nodes as a model; None where a shape is not known, or it is too small or too large."""
    inside = {value for node in group for value in node.outputs}
    writer = LayerWriter(1)
    names: dict[onnx_ir.Value, str] = {}
    elements, sizes = 0, []
    for node in group:
        for value in node.inputs:
            if value is None or value in inside or value in names:
                continue
            if value.const_value is not None:
                array = _weights(value.const_value.numpy(), writer)
                positive = node.op_type == "BatchNormalization" and value is node.inputs[-1]
                names[value] = writer.constant(np.abs(array) if positive else array)
                elements += value.const_value.size
                continue
            shape = _shape(value)
            if shape is None or value.dtype != onnx_ir.DataType.FLOAT:
                return None
            elements += int(np.prod(shape))
            names[value] = writer.input(*shape)
            sizes.append("x".join(map(str, shape)))
    for value in inside:
        shape = _shape(value)
        if shape is None:
            return None
        elements += int(np.prod(shape))
    if not writer.inputs or not _LEAST_ELEMENTS <= elements <= _MOST_ELEMENTS or _work(group) > 1 << 30:
        return None
    for i, node in enumerate(group):
        given = [] if i or node.op_type != "Conv" else ["k" + "x".join(map(str, node.inputs[1].shape or ()))]
        sizes += given
        made = onnx_ir.to_proto(node)
        proto = onnx.NodeProto()
        proto.CopyFrom(made)
        for at, value in enumerate(node.inputs):
            proto.input[at] = "" if value is None else names.get(value, f"v{id(value)}")
        for at, value in enumerate(node.outputs):
            proto.output[at] = f"v{id(value)}"
        writer.nodes.append(proto)
    kinds = "+".join(node.op_type for node in group)
    last = [f"v{id(value)}" for value in group[-1].outputs]
    return Layer(f"{kinds} {'_'.join(sizes)} ({source})", writer.finish(*last))


def _weights(array: Array, writer: LayerWriter) -> Array:
    """Random numbers for weights that are all the same, as those of graphs without weights."""
    if array.dtype != np.float32 or array.size < 16 or np.ptp(array) > 0:
        return array
    scale = np.prod(array.shape[1:]) ** -0.5 if array.ndim > 1 else 1.0
    return np.asarray(writer.random.standard_normal(array.shape, np.float32) * np.float32(scale))


def _shape(value: onnx_ir.Value) -> tuple[int, ...] | None:
    dims = [None] if value.shape is None else list(value.shape)
    known = tuple(d for d in dims if isinstance(d, int))
    return known if len(known) == len(dims) else None


def _work(group: Sequence[onnx_ir.Node]) -> int:
    """About the multiply-accumulates of convolutions and products."""
    total = 0
    for node in group:
        out = _shape(node.outputs[0]) or ()
        second = node.inputs[1] if len(node.inputs) > 1 else None
        if node.op_type == "Conv" and second is not None:
            total += int(np.prod(out)) * int(np.prod((_shape(second) or ())[1:]))
        elif node.op_type in ("MatMul", "Gemm") and node.inputs[0] is not None:
            total += int(np.prod(out)) * (_shape(node.inputs[0]) or (1,))[-1]
    return total


def of_random_shapes(count: int, seed: int) -> list[Layer]:
    """Layers of the kinds that networks have, of sizes that nobody chose."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        kind, make = _KINDS[number % len(_KINDS)]
        writer = LayerWriter(seed + number)
        sizes, outputs = make(writer, chance)
        made.append(Layer(f"{kind} {sizes} (random)", writer.finish(*outputs)))
    return made


def _channels(chance: random.Random, most: int) -> int:
    """Multiples of 8 mostly, odd numbers sometimes."""
    return max(1, chance.randrange(1, most)) if chance.random() < 0.2 else 8 * chance.randrange(1, most // 8 + 1)


Made = tuple[str, list[str]]


def _conv2d(w: LayerWriter, chance: random.Random) -> Made:
    side, kernel, stride = (
        chance.choice((7, 14, 20, 28, 40, 56, 64, 96, 128)),
        chance.choice((1, 3, 3, 5)),
        chance.choice((1, 1, 2)),
    )
    most = max(16, min(512, 6000 // side))
    c, o = chance.choice((3, _channels(chance, most))), _channels(chance, most)
    y = w.conv(w.input(1, c, side, side), c, o, (kernel, kernel), stride)
    y = chance.choice((lambda v: v, lambda v: w.node("Relu", v), w.silu))(y)
    return f"{c}to{o}x{side}k{kernel}s{stride}", [y]


def _depthwise(w: LayerWriter, chance: random.Random) -> Made:
    side, kernel, stride = (
        chance.choice((7, 14, 28, 56, 64, 128)),
        chance.choice((3, 3, 5, 7)),
        chance.choice((1, 1, 2)),
    )
    c = _channels(chance, max(16, min(640, 6000 // side)))
    y = w.conv(w.input(1, c, side, side), c, c, (kernel, kernel), stride, c)
    if chance.random() < 0.4:
        y = w.node("PRelu", y, w.weight(c, 1, 1, scale=0.2))
    elif chance.random() < 0.5:
        y = w.node("Clip", y, w.constant(np.array(0, np.float32)), w.constant(np.array(6, np.float32)))
    return f"{c}x{side}k{kernel}s{stride}", [y]


def _conv1d(w: LayerWriter, chance: random.Random) -> Made:
    length, kernel = chance.choice((64, 100, 250, 512, 1000, 2000)), chance.choice((1, 3, 5, 9, 15))
    c, o = _channels(chance, 256), _channels(chance, 256)
    group = c if chance.random() < 0.3 else 1
    o = c if group > 1 else o
    y = w.conv(w.input(1, c, length), c, o, (kernel,), chance.choice((1, 1, 2)), group)
    return f"{c}to{o}x{length}k{kernel}g{group}", [w.node("Relu", y)]


def _transposed(w: LayerWriter, chance: random.Random) -> Made:
    side, c, o = chance.choice((8, 14, 28, 40)), _channels(chance, 128), _channels(chance, 96)
    kernel = chance.choice((2, 3, 4))
    y = w.node("ConvTranspose", w.input(1, c, side, side), w.weight(c, o, kernel, kernel), strides=[2, 2])
    return f"{c}to{o}x{side}k{kernel}", [y]


def _product(w: LayerWriter, chance: random.Random) -> Made:
    rows, k, n = chance.choice((1, 8, 49, 64, 128, 197, 384)), _channels(chance, 1024), _channels(chance, 1024)
    return f"{rows}x{k}x{n}", [w.linear(w.input(1, rows, k), k, n)]


def _two_activations(w: LayerWriter, chance: random.Random) -> Made:
    heads, m, k, n = (
        chance.choice(c) for c in ((1, 4, 8, 12), (16, 49, 77, 197, 256), (16, 32, 64, 80), (16, 49, 77, 197, 256))
    )
    return f"{heads}x{m}x{k}x{n}", [w.node("MatMul", w.input(1, heads, m, k), w.input(1, heads, k, n))]


def _attention(w: LayerWriter, chance: random.Random) -> Made:
    tokens, heads, size = (
        chance.choice((16, 49, 64, 100, 197, 256)),
        chance.choice((1, 2, 4, 8)),
        chance.choice((16, 32, 64)),
    )
    return f"{tokens}x{heads}x{size}", [w.attention(w.input(1, tokens, heads * size), tokens, heads * size, heads)]


def _recurrent(w: LayerWriter, chance: random.Random) -> Made:
    kind, time, batch = (
        chance.choice(("LSTM", "GRU")),
        chance.choice((1, 10, 40, 100, 160)),
        chance.choice((1, 1, 1, 4)),
    )
    features, units, directions = _channels(chance, 256), _channels(chance, 256), chance.choice((1, 1, 2))
    y = w.recurrent(kind, w.input(time, batch, features), features, units, directions)
    return f"{kind}{time}x{batch}x{features}to{units}d{directions}", [y]


def _norm(w: LayerWriter, chance: random.Random) -> Made:
    kind = chance.choice(("layer", "group", "instance"))
    if kind == "layer":
        rows, c = chance.choice((49, 128, 197, 512)), _channels(chance, 768)
        return f"layer{rows}x{c}", [w.layer_norm(w.input(1, rows, c), c)]
    side, groups = chance.choice((8, 16, 32, 64)), chance.choice((4, 8, 32))
    c = groups * chance.randrange(1, 9)
    x = w.input(1, c, side, side)
    if kind == "group":
        return f"group{c}x{side}g{groups}", [w.silu(w.group_norm(x, c, groups))]
    y = w.node("InstanceNormalization", x, w.weight(c, scale=1), w.weight(c, scale=0.1))
    return f"instance{c}x{side}", [y]


def _pool(w: LayerWriter, chance: random.Random) -> Made:
    side, c, kernel = chance.choice((14, 28, 56, 112)), _channels(chance, 96), chance.choice((2, 3, 5))
    kind = chance.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    x = w.input(1, c, side, side)
    if kind == "GlobalAveragePool":
        return f"{kind}{c}x{side}", [w.node(kind, x)]
    return f"{kind}{c}x{side}k{kernel}", [w.node(kind, x, kernel_shape=[kernel] * 2, strides=[2, 2])]


def _resize(w: LayerWriter, chance: random.Random) -> Made:
    side, c, mode = chance.choice((7, 14, 28, 56)), _channels(chance, 96), chance.choice(("nearest", "linear"))
    scales = w.constant(np.array([1, 1, 2, 2], np.float32))
    place = "asymmetric" if mode == "nearest" else "half_pixel"
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}
    y = w.node("Resize", w.input(1, c, side, side), "", scales, mode=mode, coordinate_transformation_mode=place, **more)
    return f"{mode}{c}x{side}", [w.node("Concat", y, w.input(1, c, 2 * side, 2 * side), axis=1)]


def _block(w: LayerWriter, chance: random.Random) -> Made:
    """As BlazeFace has it: a sum of two ways, one of them padded."""
    side, c, stride = chance.choice((16, 32, 64)), _channels(chance, 96), chance.choice((1, 2))
    more = chance.choice((0, 4, 8, 16))
    x = w.input(1, c, side, side)
    y = w.conv(w.conv(x, c, c, (5, 5), stride, c), c, c + more, (1, 1))
    beside = x if stride == 1 else w.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    if more:
        beside = w.node("Pad", beside, w.integers(0, 0, 0, 0, 0, more, 0, 0))
    return f"{c}to{c + more}x{side}s{stride}", [w.node("Relu", w.node("Add", y, beside))]


_KINDS: tuple[tuple[str, Callable[[LayerWriter, random.Random], Made]], ...] = (
    ("conv2d", _conv2d), ("depthwise", _depthwise), ("conv1d", _conv1d), ("product", _product), ("block", _block),
    ("recurrent", _recurrent), ("attention", _attention), ("norm", _norm), ("two", _two_activations),
    ("transposed", _transposed), ("pool", _pool), ("resize", _resize),
)  # fmt: skip
