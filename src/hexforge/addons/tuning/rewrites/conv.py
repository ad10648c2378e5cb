# SPDX-License-Identifier: Apache-2.0
"""Convolutions: what stands before, after or beside one and can be part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.rule import PREDICTED, Place, Rewrite, RewriteRule
from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.patterns.affine import affine, affine_of, is_taken_into_conv
from hexforge.patterns.language import anything, computed, constant, one_of, op
from hexforge.patterns.layers import layer
from hexforge.patterns.nodes import data, ints, is_float, is_op, number, operand, shape, text

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
        how: dict[str, Any] = {"strides": self.stride, "dilations": self.dilation, "pads": self.pads, **changed}
        return editor.add("Conv", inputs, node, kernel_shape=weight.shape[2:], group=group, **how)[0]


def conv(node: Node | None) -> Conv | None:
    """A node as a convolution rewrites can change; None for another."""
    product = layer(node, data) if node is not None and is_op(node, "Conv") and is_float(node.outputs[0]) else None
    mode = "" if node is None else text(node, "auto_pad", "NOTSET")
    if node is None or product is None or mode not in ("NOTSET", "VALID", ""):
        return None
    weight, bias = product.numbers
    pads = (0, 0, 0, 0) if mode == "VALID" else ints(node, "pads", (0, 0, 0, 0))
    stride, dilation = (ints(node, name, (1, 1)) for name in ("strides", "dilations"))
    return Conv(node, weight, bias, product.group, stride, dilation, pads) if weight.ndim == 4 else None


X, CONV = anything(), op("Conv")


def _after_conv(place: Place) -> Rewrite | None:
    convolution, scaled = conv(place.match.nodes[0]), affine(place.node)
    if convolution is None or scaled is None:
        return None

    def write() -> Value:
        weight, bias = scaled.after(convolution.weight, convolution.bias)
        return convolution.write(place.editor, convolution.x, weight, bias, convolution.group)

    return place.instead(f"{place.node.op_type} by constants after {convolution.node.name}", write)


def _before_conv(place: Place) -> Rewrite | None:
    above = place.match.nodes[0]
    scaled, convolution = affine(above), conv(place.node)
    if convolution is None or scaled is None:
        return None
    if np.any(scaled.shift) and any(convolution.pads):  # zeros around the image are not shifted
        return None

    def write() -> Value:
        weight, bias = scaled.before(convolution.weight, convolution.bias, convolution.group)
        return convolution.write(place.editor, scaled.x, weight, bias, convolution.group)

    return place.instead(f"{above.op_type} by constants before {place.node.name}", write)


MATRIX = constant(lambda array: array.ndim == 2)
PRODUCT = op("MatMul", computed(), MATRIX)
BIASED = op("Add", PRODUCT, constant())


def _after_matmul(place: Place) -> Rewrite | None:
    """Scale of a product with a constant matrix; the sum stays where it is, as it is the bias."""
    product, weight, scaled = place.match.node(PRODUCT), place.array(MATRIX), affine(place.node, -1)
    biased = affine(place.match.node(BIASED), -1) if BIASED in place.match else None
    if scaled is None or np.any(scaled.shift) or (biased is None and BIASED in place.match):
        return None

    def write() -> Value:
        matrix = (weight.astype(np.float64) * scaled.factor).astype(weight.dtype)
        inputs = [product.inputs[0], place.editor.constant(matrix, f"{product.name}_weight")]
        value = place.editor.like(product, inputs)
        if biased is None:
            return value
        moved = np.broadcast_to(biased.shift * scaled.factor, weight.shape[1:]).astype(weight.dtype)
        return place.add("Add", value, place.editor.constant(moved, f"{product.name}_bias"))

    what = f"{place.node.op_type} by a constant after {product.name}"
    return place.instead(what, write, nodes=[product, place.node])


def _conv_after_conv(place: Place) -> Rewrite | None:
    first, second = conv(place.match.nodes[0]), conv(place.node)
    if second is None or first is None or first.group != 1 or second.group != 1:
        return None
    if second.is_pointwise:
        shaped = first
    elif first.is_pointwise and (not any(second.pads) or not np.any(first.bias)):
        shaped = second
    else:
        return None
    a, b = first.weight.astype(np.float64), second.weight.astype(np.float64)

    def write() -> Value:
        if shaped is first:
            weight = np.einsum("om,mihw->oihw", b[:, :, 0, 0], a)
            bias = b[:, :, 0, 0] @ first.bias + second.bias
        else:
            weight = np.einsum("omhw,mi->oihw", b, a[:, :, 0, 0])
            bias = np.einsum("omhw,m->o", b, first.bias.astype(np.float64)) + second.bias
        return shaped.write(place.editor, first.x, weight, bias, 1)

    return place.instead(f"{first.node.name} and {place.node.name} without an activation between", write)


def _pads_with_zeros(pad: Node) -> bool:
    filled = operand(pad, 2) is None or number(operand(pad, 2)) == 0
    return filled and text(pad, "mode", "constant") == "constant" and operand(pad, 3) is None


AMOUNTS = constant(lambda array: array.size == 8 and array.min() >= 0 and not array[[0, 1, 4, 5]].any())
"""How much the rows and columns of an image are padded, and neither images nor channels."""
PAD = op("Pad", X, AMOUNTS, where=_pads_with_zeros)


def _pad_before_conv(place: Place) -> Rewrite | None:
    convolution = conv(place.node)
    if convolution is None:
        return None
    extra = place.array(AMOUNTS)[[2, 3, 6, 7]].tolist()

    def write() -> Value:
        pads = tuple(a + b for a, b in zip(convolution.pads, extra, strict=True))
        c = convolution
        return c.write(place.editor, place[X], c.weight, c.bias, c.group, pads=pads)

    return place.instead(f"Pad of zeros before {place.node.name}", write)


def dense_weights(weight: Array, group: int) -> Array:
    """The weights of a grouped convolution as weights of a dense one, with zeros between the groups."""
    out, per_group = weight.shape[:2]
    dense = np.zeros((out, per_group * group, *weight.shape[2:]), weight.dtype)
    rows = out // group
    for g in range(group):
        dense[g * rows : (g + 1) * rows, g * per_group : (g + 1) * per_group] = weight[g * rows : (g + 1) * rows]
    return dense


def _grouped(place: Place) -> Rewrite | None:
    convolution = conv(place.node)
    if convolution is None or convolution.group == 1:
        return None
    group, (out, per_group) = convolution.group, convolution.weight.shape[:2]
    if per_group % LANES == 0 or per_group * group > 8 * LANES or per_group == out // group == 1:
        return None

    def write() -> Value:
        weight = dense_weights(convolution.weight, group)
        return convolution.write(place.editor, convolution.x, weight, convolution.bias, 1)

    return place.instead(f"{group} groups of {per_group} channels", write, group)


def _dilated(place: Place) -> Rewrite | None:
    convolution = conv(place.node)
    if convolution is None or set(convolution.dilation) == {1} or convolution.weight.shape[2:] == (1, 1):
        return None
    window = zip(convolution.weight.shape[2:], convolution.dilation, strict=True)
    rows, columns = ((kernel - 1) * (dilation - 1) for kernel, dilation in window)
    less = (rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)
    pads = tuple(pad - fewer for pad, fewer in zip(convolution.pads, less, strict=True))
    if min(pads) < 0:
        return None

    def write() -> Value:
        c = convolution
        return c.write(place.editor, c.x, c.weight, c.bias, c.group, dilations=(1, 1), pads=pads)

    sizes = "x".join(map(str, shape(place.out)))
    what = f"dilation {'x'.join(map(str, convolution.dilation))} at {sizes}"
    return place.instead(what, write, convolution.dilation)


NORMALIZATIONS = RewriteRule(
    "fold-normalization", "What scales a convolution's channels is part of it", "Every path to the device does it.",
    "QNN converters, and onnxruntime's fusions of Conv with BatchNormalization, Mul and Add",
    "Multiply the weights and add to the bias.", True, affine_of(CONV),
    lambda place: _after_conv(place) if is_taken_into_conv(place.node) else None,
)  # fmt: skip
"""What is done to a model on its way to the backend whether anybody asks or not; so it is nobody's advice."""

RULES = (
    RewriteRule(
        "fold-after-conv", "Constants after a convolution become part of it",
        "The matrix unit scales and shifts its results for nothing; an op of its own passes over the tensor again.",
        "QNN converters do the same for BatchNormalization", "Multiply the weights and add to the bias.", True,
        affine_of(CONV), _after_conv,
    ),
    RewriteRule(
        "fold-before-conv", "Constants before a convolution become part of it",
        "The same product in the weights costs nothing at run time. A shift before a padded convolution stays: the "
        "zeros around the image are not shifted.",
        "measured latencies (qai-hub-models): in-graph normalisation costs time",
        "Multiply the weights; move the shift into the bias where the convolution is not padded.", True,
        op("Conv", affine_of(X)), _before_conv,
    ),
    RewriteRule(
        "fold-after-matmul", "A factor after a product with constant weights becomes part of them",
        "The same product in the weights costs nothing at run time.", PREDICTED, "Multiply weights and bias.", True,
        affine_of(one_of(BIASED, PRODUCT)), _after_matmul,
    ),
    RewriteRule(
        "conv-after-conv", "Convolutions without an activation between become one",
        "The product of the weights computes both at once, and the tensor between is not written.", PREDICTED,
        "Multiply the weights where one of the two has a window of one pixel.", True,
        op("Conv", CONV), _conv_after_conv,
    ),
    RewriteRule(
        "pad-before-conv", "Pad of zeros becomes the convolution's own padding",
        "A convolution pads while it reads; Pad copies the tensor.", PREDICTED, "Add the amounts to the pads.", True,
        op("Conv", PAD), _pad_before_conv,
    ),
    RewriteRule(
        "grouped-to-dense", "Groups of few channels become a dense convolution",
        "The matrix unit takes channels in blocks of 32: a group of fewer leaves the others of its block idle.",
        "HMX tile of 32 x 32 channels", "Fill the weights with zeros between the groups.", True,
        CONV, _grouped,
    ),
    RewriteRule(
        "dilation", "Dilated convolutions without dilation",
        "A window with holes reads rows that lie apart, and is computed in more than one piece.",
        "measured latencies (qai-hub-models): DeepLab and FCN",
        "Train with dilation 1, or with a smaller stride before.", False,
        CONV, _dilated,
    ),
)  # fmt: skip
