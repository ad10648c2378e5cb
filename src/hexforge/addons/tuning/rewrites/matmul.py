# SPDX-License-Identifier: Apache-2.0
"""Matrix products: as convolutions of one pixel, and side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx_ir import Node

from hexforge.addons.tuning.rewrites.rule import PREDICTED, Place, Rewrite, RewriteRule
from hexforge.ir import Array
from hexforge.patterns.affine import affine
from hexforge.patterns.language import computed, constant, op
from hexforge.patterns.nodes import data, is_float, is_op, operand, reader, shape

X, MATRIX = computed(), constant(lambda array: array.ndim == 2)
PRODUCT = op("MatMul", X, MATRIX, where=lambda node: is_float(node.outputs[0]))


@dataclass(frozen=True, slots=True)
class _Product:
    """A product with a constant matrix, and the sum with a constant behind it where there is one."""

    node: Node
    last: Node
    weight: Array
    bias: Array | None


def _product(node: Node) -> _Product | None:
    weight = data(operand(node, 1)) if is_op(node, "MatMul") else None
    if weight is None or weight.ndim != 2:
        return None
    after = reader(node.outputs[0])
    added = affine(after, -1) if after is not None and is_op(after, "Add") else None
    if after is None or added is None or added.x is not node.outputs[0]:
        return _Product(node, node, weight, None)
    return _Product(node, after, weight, np.broadcast_to(added.shift, weight.shape[1:]).astype(weight.dtype))


def _matmul_to_conv(place: Place) -> Rewrite | None:
    product, sizes = _product(place.node), shape(place[X])
    rows = math.prod(sizes[:-1])
    if product is None or rows < 8 or sizes == (-1,):
        return None
    editor, last = place.editor, product.last

    def make() -> None:
        image = editor.reshape(place[X], (1, 1, rows, sizes[-1]), last)
        (first,) = editor.add("Transpose", [image], last, perm=(0, 3, 1, 2))
        inputs = [first, place.constant(np.ascontiguousarray(product.weight.T[:, :, None, None]), "weight")]
        if product.bias is not None:
            inputs.append(place.constant(product.bias, "bias"))
        (value,) = editor.add("Conv", inputs, last, kernel_shape=(1, 1))
        (back,) = editor.add("Transpose", [value], last, perm=(0, 2, 3, 1))
        editor.replace(last.outputs[0], editor.reshape(back, shape(last.outputs[0]), last))

    return place.change(f"{rows} rows by {'x'.join(map(str, product.weight.shape))}", make)


def _siblings(place: Place) -> Rewrite | None:
    """Products of one tensor with constant matrices, and their biases; found at the first of them."""
    x = place[X]
    readers = (_product(user) for user, index in x.uses() if index == 0)
    parts = [part for part in readers if part is not None and not part.last.outputs[0].is_graph_output()]
    if place.editor.opset < 13 or len(parts) < 2 or parts[0].node is not place.node:
        return None

    def make() -> None:
        value = place.add("MatMul", x, place.constant(np.concatenate([part.weight for part in parts], 1), "weight"))
        zeros = (np.zeros(part.weight.shape[1], part.weight.dtype) for part in parts)
        bias = np.concatenate([none if p.bias is None else p.bias for p, none in zip(parts, zeros, strict=True)])
        if np.any(bias):
            value = place.add("Add", value, place.constant(bias, "bias"))
        pieces = place.split(value, [part.weight.shape[1] for part in parts], axis=-1)
        for part, piece in zip(parts, pieces, strict=True):
            place.editor.replace(part.last.outputs[0], piece)

    return place.change(f"{len(parts)} products of {x.name}", make, nodes=[part.node for part in parts])


RULES = (
    RewriteRule(
        "matmul-to-conv", "Products with constant matrices become convolutions of one pixel",
        "A product whose rows are no multiple of 8 (197 tokens) leaves rows of its tiles empty one by one; a "
        "convolution packs them into whole tiles.",
        PREDICTED, "Reshape to an image of one row and use Conv with a 1x1 kernel.", True, PRODUCT, _matmul_to_conv,
    ),
    RewriteRule(
        "sibling-matmuls", "Products of one tensor become one",
        "Query, key and value read the same tensor: one product reads it once.", PREDICTED,
        "Concatenate the matrices and split the result.", True, PRODUCT, _siblings,
    ),
)  # fmt: skip
