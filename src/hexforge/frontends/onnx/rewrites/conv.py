# SPDX-License-Identifier: Apache-2.0
"""Convolutions: what stands before, after or beside one and can be part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_ir import Node, Value

from hexforge.frontends.onnx.rewrites.arithmetic import affine
from hexforge.frontends.onnx.rewrites.rule import PREDICTED, Rewrite, RewriteRule, rewrite_of
from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import data, integer, ints, is_float, is_op, number, operand, reader, shape, source, text

LANES = 32


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution over two spatial axes with constant weights."""

    node: Node
    weight: Array
    bias: Array
    group: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]

    @property
    def x(self) -> Value:
        """What it reads."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    @property
    def is_pointwise(self) -> bool:
        """True for a window of one pixel that skips none."""
        return self.weight.shape[2:] == (1, 1) and set(self.stride) == {1} and not any(self.pads)

    @property
    def geometry(self) -> tuple[object, ...]:
        """What two convolutions must have in common to run as one."""
        return self.weight.shape[2:], self.stride, self.dilation, self.pads

    def write(self, editor: Editor, x: Value, weight: Array, bias: Array, group: int, **changed: object) -> Value:
        """The convolution of something else, with other weights."""
        node, dtype = self.node, self.weight.dtype
        inputs = [x, editor.constant(np.ascontiguousarray(weight, dtype), f"{node.name}_weight")]
        if np.any(bias):
            inputs.append(editor.constant(bias.astype(dtype), f"{node.name}_bias"))
        how: dict[str, Any] = {
            "group": group,
            "strides": self.stride,
            "dilations": self.dilation,
            "pads": self.pads,
            **changed,
        }
        return editor.add("Conv", inputs, node, kernel_shape=weight.shape[2:], **how)[0]


def conv(node: Node | None) -> Conv | None:
    """A node as a convolution rewrites can change; None for another."""
    if not is_op(node, "Conv") or node is None or not is_float(node.outputs[0]):
        return None
    weight, bias = data(operand(node, 1)), data(operand(node, 2))
    if weight is None or weight.ndim != 4 or (operand(node, 2) is not None and bias is None):
        return None
    mode = text(node, "auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", ""):
        return None
    pads = (0, 0, 0, 0) if mode == "VALID" else ints(node, "pads", (0, 0, 0, 0))
    bias = np.zeros(weight.shape[0], weight.dtype) if bias is None else bias
    ones = (1, 1)
    return Conv(
        node, weight, bias, integer(node, "group", 1), ints(node, "strides", ones), ints(node, "dilations", ones), pads
    )


def _channels(scale: Array, count: int) -> Array:
    return np.broadcast_to(scale, (count,))


def _after_conv(editor: Editor, node: Node) -> Rewrite | None:
    scaled = affine(node)
    convolution = conv(scaled[0].producer()) if scaled is not None else None
    if scaled is None or convolution is None or reader(scaled[0]) is not node:
        return None
    _, scale, shift = scaled

    def make() -> None:
        count = convolution.weight.shape[0]
        factor = _channels(scale, count)
        weight = convolution.weight.astype(np.float64) * factor[:, None, None, None]
        bias = convolution.bias * factor + _channels(shift, count)
        editor.replace(node.outputs[0], convolution.write(editor, convolution.x, weight, bias, convolution.group))

    return rewrite_of(f"{node.op_type} by constants after {convolution.node.name}", [convolution.node, node], make)


def _before_conv(editor: Editor, node: Node) -> Rewrite | None:
    convolution = conv(node)
    above = source(node) if convolution is not None else None
    scaled = affine(above) if above is not None else None
    if convolution is None or above is None or scaled is None or reader(above.outputs[0]) is not node:
        return None
    x, scale, shift = scaled
    if np.any(shift) and any(convolution.pads):  # zeros around the image are not shifted
        return None

    def make() -> None:
        out, per_group = convolution.weight.shape[:2]
        factor, offset = (
            _channels(v, per_group * convolution.group).reshape(convolution.group, per_group) for v in (scale, shift)
        )
        grouped = convolution.weight.astype(np.float64).reshape(
            convolution.group, out // convolution.group, *convolution.weight.shape[1:]
        )
        weight = (grouped * factor[:, None, :, None, None]).reshape(convolution.weight.shape)
        moved = (grouped * offset[:, None, :, None, None]).sum((2, 3, 4)).reshape(-1)
        editor.replace(
            node.outputs[0], convolution.write(editor, x, weight, convolution.bias + moved, convolution.group)
        )

    return rewrite_of(f"{above.op_type} by constants before {node.name}", [above, node], make)


def _after_matmul(editor: Editor, node: Node) -> Rewrite | None:
    """Scale of a product with a constant matrix; the sum stays where it is, as it is the bias."""
    scaled = affine(node, -1)
    if scaled is None or np.any(scaled[2]):
        return None
    x, scale, _ = scaled
    above, bias = x.producer(), None
    if above is not None and is_op(above, "Add") and reader(x) is node:
        bias = affine(above, -1)
        x = above.inputs[0] if bias is not None and bias[0] is above.inputs[0] else above.inputs[1]  # type: ignore[assignment]
        if bias is None:
            return None
    product = x.producer()
    weight = data(operand(product, 1)) if product is not None and is_op(product, "MatMul") else None
    if weight is None or weight.ndim != 2 or reader(x) is not (node if bias is None else above):
        return None
    assert product is not None

    def make() -> None:
        scaled = (weight.astype(np.float64) * scale).astype(weight.dtype)
        value = editor.like(product, [product.inputs[0], editor.constant(scaled, f"{product.name}_weight")])
        if bias is not None:
            moved = np.broadcast_to(bias[2] * scale, weight.shape[1:]).astype(weight.dtype)
            (value,) = editor.add("Add", [value, editor.constant(moved, f"{product.name}_bias")], node)
        editor.replace(node.outputs[0], value)

    return rewrite_of(f"{node.op_type} by a constant after {product.name}", [product, node], make)


def _conv_after_conv(editor: Editor, node: Node) -> Rewrite | None:
    second = conv(node)
    first = conv(source(node)) if second is not None else None
    if second is None or first is None or reader(second.x) is not node or first.group != 1 or second.group != 1:
        return None
    if second.is_pointwise:
        shaped = first
    elif first.is_pointwise and (not any(second.pads) or not np.any(first.bias)):
        shaped = second
    else:
        return None
    a, b = first.weight.astype(np.float64), second.weight.astype(np.float64)

    def make() -> None:
        if shaped is first:
            weight = np.einsum("om,mihw->oihw", b[:, :, 0, 0], a)
            bias = b[:, :, 0, 0] @ first.bias + second.bias
        else:
            weight = np.einsum("omhw,mi->oihw", b, a[:, :, 0, 0])
            bias = np.einsum("omhw,m->o", b, first.bias.astype(np.float64)) + second.bias
        editor.replace(node.outputs[0], shaped.write(editor, first.x, weight, bias, 1))

    return rewrite_of(f"{first.node.name} and {node.name} without an activation between", [first.node, node], make)


def _pad_before_conv(editor: Editor, node: Node) -> Rewrite | None:
    convolution = conv(node)
    above = source(node) if convolution is not None else None
    if convolution is None or above is None or not is_op(above, "Pad") or reader(above.outputs[0]) is not node:
        return None
    amounts, value = data(operand(above, 1)), operand(above, 2)
    zero = value is None or number(value) == 0
    mode = text(above, "mode", "constant")
    if amounts is None or amounts.size != 8 or not zero or mode != "constant" or operand(above, 3) is not None:
        return None
    sizes = [int(a) for a in amounts]
    if any(sizes[i] for i in (0, 1, 4, 5)) or min(sizes) < 0:
        return None
    x = above.inputs[0]
    assert x is not None

    def make() -> None:
        extra = (sizes[2], sizes[3], sizes[6], sizes[7])
        pads = tuple(a + b for a, b in zip(convolution.pads, extra, strict=True))
        editor.replace(
            node.outputs[0],
            convolution.write(editor, x, convolution.weight, convolution.bias, convolution.group, pads=pads),
        )

    return rewrite_of(f"Pad of zeros before {node.name}", [above, node], make)


def dense_weights(weight: Array, group: int) -> Array:
    """The weights of a grouped convolution as weights of a dense one, with zeros between the groups."""
    out, per_group = weight.shape[:2]
    dense = np.zeros((out, per_group * group, *weight.shape[2:]), weight.dtype)
    rows = out // group
    for g in range(group):
        dense[g * rows : (g + 1) * rows, g * per_group : (g + 1) * per_group] = weight[g * rows : (g + 1) * rows]
    return dense


def _grouped(editor: Editor, node: Node) -> Rewrite | None:
    convolution = conv(node)
    if convolution is None or convolution.group == 1:
        return None
    out, per_group = convolution.weight.shape[:2]
    if (
        per_group % LANES == 0
        or per_group * convolution.group > 8 * LANES
        or per_group == out // convolution.group == 1
    ):
        return None

    def make() -> None:
        weight = dense_weights(convolution.weight, convolution.group)
        editor.replace(node.outputs[0], convolution.write(editor, convolution.x, weight, convolution.bias, 1))

    return rewrite_of(f"{convolution.group} groups of {per_group} channels", [node], make, convolution.group)


def _dilated(editor: Editor, node: Node) -> Rewrite | None:
    convolution = conv(node)
    if convolution is None or set(convolution.dilation) == {1} or convolution.weight.shape[2:] == (1, 1):
        return None
    spans = [(k - 1) * d for k, d in zip(convolution.weight.shape[2:], convolution.dilation, strict=True)]
    less = [span - (k - 1) for span, k in zip(spans, convolution.weight.shape[2:], strict=True)]
    pads = [convolution.pads[i] - (less[i % 2] // 2 if i < 2 else less[i % 2] - less[i % 2] // 2) for i in range(4)]
    if min(pads) < 0:
        return None

    def make() -> None:
        value = convolution.write(
            editor,
            convolution.x,
            convolution.weight,
            convolution.bias,
            convolution.group,
            dilations=(1, 1),
            pads=tuple(pads),
        )
        editor.replace(node.outputs[0], value)

    description = f"dilation {'x'.join(map(str, convolution.dilation))} at {'x'.join(map(str, shape(node.outputs[0])))}"
    return rewrite_of(description, [node], make, convolution.dilation)


def _normalization_after_conv(editor: Editor, node: Node) -> Rewrite | None:
    return _after_conv(editor, node) if is_op(node, "BatchNormalization") or _is_of_channels(node) else None


def _is_of_channels(node: Node) -> bool:
    """True for a Mul or Add that onnxruntime takes into the convolution before it, as `fusions.linear` does."""
    constant, sizes = data(operand(node, 1)) if is_op(node, "Mul", "Add") else None, shape(node.outputs[0])
    if constant is None or len(sizes) < 3:
        return False
    each = (sizes[1], *[1] * (len(sizes) - 2))
    return constant.shape in (each, (1, *each)) or (not constant.ndim and is_op(node, "Mul"))


NORMALIZATIONS = RewriteRule(
    "fold-normalization", "What scales a convolution's channels is part of it", "Every path to the device does it.",
    "QNN converters, and onnxruntime's fusions of Conv with BatchNormalization, Mul and Add",
    "Multiply the weights and add to the bias.", True, _normalization_after_conv,
)  # fmt: skip
"""What is done to a model on its way to the backend whether anybody asks or not; so it is nobody's advice."""

RULES = (
    RewriteRule(
        "fold-after-conv", "Constants after a convolution become part of it",
        "The matrix unit scales and shifts its results for nothing; an op of its own passes over the tensor again.",
        "QNN converters do the same for BatchNormalization", "Multiply the weights and add to the bias.", True,
        _after_conv,
    ),
    RewriteRule(
        "fold-before-conv", "Constants before a convolution become part of it",
        "The same product in the weights costs nothing at run time. A shift before a padded convolution stays: the "
        "zeros around the image are not shifted.",
        "measured latencies (qai-hub-models): in-graph normalisation costs time",
        "Multiply the weights; move the shift into the bias where the convolution is not padded.", True, _before_conv,
    ),
    RewriteRule(
        "fold-after-matmul", "A factor after a product with constant weights becomes part of them",
        "The same product in the weights costs nothing at run time.", PREDICTED, "Multiply weights and bias.", True,
        _after_matmul,
    ),
    RewriteRule(
        "conv-after-conv", "Convolutions without an activation between become one",
        "The product of the weights computes both at once, and the tensor between is not written.", PREDICTED,
        "Multiply the weights where one of the two has a window of one pixel.", True, _conv_after_conv,
    ),
    RewriteRule(
        "pad-before-conv", "Pad of zeros becomes the convolution's own padding",
        "A convolution pads while it reads; Pad copies the tensor.", PREDICTED, "Add the amounts to the pads.", True,
        _pad_before_conv,
    ),
    RewriteRule(
        "grouped-to-dense", "Groups of few channels become a dense convolution",
        "The matrix unit takes channels in blocks of 32: a group of fewer leaves the others of its block idle.",
        "HMX tile of 32 x 32 channels", "Fill the weights with zeros between the groups.", True, _grouped,
    ),
    RewriteRule(
        "dilation", "Dilated convolutions without dilation",
        "A window with holes reads rows that lie apart, and is computed in more than one piece.",
        "measured latencies (qai-hub-models): DeepLab and FCN",
        "Train with dilation 1, or with a smaller stride before.", False, _dilated,
    ),
)  # fmt: skip
