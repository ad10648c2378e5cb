# SPDX-License-Identifier: Apache-2.0
"""Branches: convolutions side by side as one, and a difference of branches as a convolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.conv import LANES, Conv, conv, dense_weights
from hexforge.addons.tuning.rewrites.rule import PREDICTED, Place, Rewrite, RewriteRule
from hexforge.model.edit import Editor
from hexforge.model.op_table import ACTIVATIONS
from hexforge.patterns.language import computed, op
from hexforge.patterns.nodes import attributes, data, is_float, is_op, reader, shape

SHOWCASE = "QNN HTP linting profiling, showcase model 1: 4.3 M cycles with Sub, 1.4 M with a convolution in its place"
UNARY = (ACTIVATIONS - {"Clip"}) | {"Mish"}
"""Activations that read nothing but the image: a Clip reads its bounds, and a Mish is never in a QDQ group."""


def _up(size: int) -> int:
    return -(-size // LANES) * LANES


def merge_branches(editor: Editor, values: Sequence[Value], at: Node) -> Value:
    """The values along their channels as one: the branches that make them run as one as far up as they are alike."""
    nodes = [v.producer() for v in values]
    first = nodes[0]
    alone = all(n is not None and reader(v) is not None for n, v in zip(nodes, values, strict=True))
    if alone and first is not None and len(set(nodes)) == len(nodes):
        writers = [n for n in nodes if n is not None]
        convs = [c for n in writers if (c := conv(n)) is not None]
        if len(convs) == len(nodes) and all(c.geometry == convs[0].geometry for c in convs):
            return _merged_convs(editor, convs, at)
        if all(is_op(n, *UNARY) and n.op_type == first.op_type and attributes(n) == attributes(first) for n in writers):
            inputs = [n.inputs[0] for n in writers]
            return editor.add(
                first.op_type, [merge_branches(editor, [v for v in inputs if v], at)], at, 1, **attributes(first)
            )[0]
        if all(is_op(n, "PRelu") and data(n.inputs[1]) is not None for n in writers):
            slopes = [np.broadcast_to(data(n.inputs[1]), (shape(n.outputs[0])[1], 1, 1)) for n in writers]  # type: ignore[arg-type]
            x = merge_branches(editor, [v for n in writers if (v := n.inputs[0])], at)
            return editor.add("PRelu", [x, editor.constant(np.concatenate(slopes), f"{first.name}_slope")], at)[0]
    return editor.add("Concat", list(values), at, axis=1)[0]


def _merged_convs(editor: Editor, convs: Sequence[Conv], at: Node) -> Value:
    first = convs[0]
    bias = np.concatenate([c.bias for c in convs])
    shared = all(c.x is first.x and c.group == 1 for c in convs)
    if shared:
        weight = np.concatenate([c.weight for c in convs])
        return _before(editor, first, first.x, weight, bias, 1, at)
    x = merge_branches(editor, [c.x for c in convs], at)
    if len({(c.weight.shape, c.group) for c in convs}) == 1:
        weight, group = np.concatenate([c.weight for c in convs]), sum(c.group for c in convs)
        deep = weight.shape[1]
        if 1.2 * _up(deep) <= _up(deep * group) or group > 2 * LANES:  # groups fill their blocks: no zeros to multiply
            return _before(editor, first, x, weight, bias, group, at)
        return _before(editor, first, x, dense_weights(weight, group), bias, 1, at)
    out, deep = sum(c.weight.shape[0] for c in convs), sum(c.weight.shape[1] * c.group for c in convs)
    weight = np.zeros((out, deep, *first.weight.shape[2:]), first.weight.dtype)
    row = column = 0
    for c in convs:
        block = dense_weights(c.weight, c.group)
        weight[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return _before(editor, first, x, weight, bias, 1, at)


def _before(editor: Editor, like: Conv, x: Value, weight: np.ndarray, bias: np.ndarray, group: int, at: Node) -> Value:
    """As Conv.write, but placed before another node, so that what it reads stands above it."""
    inputs = [x, editor.constant(weight, f"{like.node.name}_merged_weight")]
    if np.any(bias):
        inputs.append(editor.constant(bias, f"{like.node.name}_merged_bias"))
    return editor.add(
        "Conv", inputs, at, group=group, strides=like.stride, dilations=like.dilation, pads=like.pads,
        kernel_shape=weight.shape[2:],
    )[0]  # fmt: skip


def _joins_images(node: Node) -> bool:
    """True for two computed images of one shape."""
    sizes = shape(node.outputs[0])
    a, b = node.inputs[:2]
    return len(sizes) == 4 and shape(a) == shape(b) == sizes and a is not b and is_float(node.outputs[0])


A, B = computed(), computed()


def _sub_to_conv(place: Place) -> Rewrite:
    a, b = place[A], place[B]

    def write() -> Value:
        both = merge_branches(place.editor, [a, b], place.node)
        identity = np.eye(shape(a)[1], dtype=a.dtype.numpy() if a.dtype is not None else np.float32)
        weight = np.concatenate([identity, -identity], 1)[:, :, None, None]
        return place.add("Conv", both, place.constant(weight, "weight"), kernel_shape=(1, 1))

    return place.instead(f"Sub of two branches of {'x'.join(map(str, shape(a)))}", write, _depth(a), _depth(b))


def _depth(value: Value) -> tuple[str, ...]:
    node = value.producer()
    above = node.inputs[0] if node is not None and node.inputs else None
    below = above.producer() if above is not None else None
    return tuple(n.op_type for n in (node, below) if n is not None)


LEFT, RIGHT = op("Conv"), op("Conv")


def _sum_of_convs(place: Place) -> Rewrite | None:
    a, b = conv(place.match.node(LEFT)), conv(place.match.node(RIGHT))
    if a is None or b is None or a.geometry != b.geometry or a.group != 1 or b.group != 1:
        return None
    sign = -1 if place.node.op_type == "Sub" else 1

    def write() -> Value:
        bias = a.bias + sign * b.bias
        if a.x is b.x:
            return _before(place.editor, a, a.x, a.weight + sign * b.weight, bias, 1, place.node)
        x = place.add("Concat", a.x, b.x, axis=1)
        return _before(place.editor, a, x, np.concatenate([a.weight, sign * b.weight], 1), bias, 1, place.node)

    what = f"{place.node.op_type} of {a.node.name} and {b.node.name}"
    return place.instead(what, write, a.x is b.x, nodes=[place.node, a.node, b.node])


def _siblings(place: Place) -> Rewrite | None:
    """Convolutions of one image with the same geometry; found at the first of them."""
    first = conv(place.node)
    if first is None or first.group != 1 or place.editor.opset < 13:
        return None
    siblings = [
        c
        for n, index in first.x.uses()
        if index == 0 and (c := conv(n)) is not None and c.group == 1 and c.geometry == first.geometry
    ]
    if len(siblings) < 2 or siblings[0].node is not place.node:
        return None
    if any(c.node.outputs[0].is_graph_output() for c in siblings):
        return None

    def make() -> None:
        weight, bias = (np.concatenate(parts) for parts in zip(*((c.weight, c.bias) for c in siblings), strict=True))
        whole = _before(place.editor, first, first.x, weight, bias, 1, place.node)
        parts = place.split(whole, [c.weight.shape[0] for c in siblings], axis=1)
        for c, part in zip(siblings, parts, strict=True):
            place.editor.replace(c.node.outputs[0], part)

    what = f"{len(siblings)} convolutions of {first.x.name}"
    return place.change(what, make, nodes=[c.node for c in siblings])


RULES = (
    RewriteRule(
        "sub-to-conv", "Sub of two branches becomes a convolution with weights +1 and -1",
        "A difference of two tensors runs on the vector units with nothing beside it; the matrix unit computes it as a "
        "convolution, and branches that are alike run as one.",
        SHOWCASE, "Concatenate the branches (or merge their convolutions) and convolve with [I, -I].", True,
        op("Sub", A, B, where=_joins_images), _sub_to_conv,
    ),
    RewriteRule(
        "sum-of-convs", "Sum or difference of two convolutions becomes one convolution",
        "A convolution adds over its input channels anyway: the sum of two is one over both inputs.",
        SHOWCASE, "Concatenate the inputs and the weights (negated for Sub), or add the weights of one input.", True,
        op("Sub Add", LEFT, RIGHT, where=_joins_images), _sum_of_convs,
    ),
    RewriteRule(
        "sibling-convs", "Convolutions of one image become one",
        "The image is read once, and channels that do not fill a block of 32 share one.", PREDICTED,
        "Concatenate the weights and split the result.", True, op("Conv"), _siblings,
    ),
)  # fmt: skip
