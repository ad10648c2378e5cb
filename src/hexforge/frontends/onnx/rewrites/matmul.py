# SPDX-License-Identifier: Apache-2.0
"""Matrix products: as convolutions of one pixel, and side by side."""

from __future__ import annotations

import math

import numpy as np
from onnx_ir import Node

from hexforge.frontends.onnx.rewrites.arithmetic import affine
from hexforge.frontends.onnx.rewrites.rule import PREDICTED, Rewrite, RewriteRule, rewrite_of
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import data, is_float, is_op, operand, reader, shape


def _matmul_to_conv(editor: Editor, node: Node) -> Rewrite | None:
    weight = data(operand(node, 1)) if is_op(node, "MatMul") and is_float(node.outputs[0]) else None
    x = operand(node, 0)
    if weight is None or weight.ndim != 2 or x is None or x.const_value is not None:
        return None
    sizes = shape(x)
    rows = math.prod(sizes[:-1])
    if rows < 8 or sizes == (-1,):
        return None
    last, bias = node, None
    after = reader(node.outputs[0])
    if after is not None and is_op(after, "Add"):
        added = affine(after, -1)
        if added is not None and added[0] is node.outputs[0]:
            last, bias = after, np.broadcast_to(added[2], weight.shape[1:])

    def make() -> None:
        image = editor.reshape(x, (1, 1, rows, sizes[-1]), last)
        (first,) = editor.add("Transpose", [image], last, perm=(0, 3, 1, 2))
        kernel = np.ascontiguousarray(weight.T[:, :, None, None])
        inputs = [first, editor.constant(kernel, f"{node.name}_weight")]
        if bias is not None:
            inputs.append(editor.constant(bias.astype(weight.dtype), f"{node.name}_bias"))
        (value,) = editor.add("Conv", inputs, last, kernel_shape=(1, 1))
        (back,) = editor.add("Transpose", [value], last, perm=(0, 2, 3, 1))
        editor.replace(last.outputs[0], editor.reshape(back, shape(last.outputs[0]), last))

    return rewrite_of(f"{rows} rows by {'x'.join(map(str, weight.shape))}", [node], make)


def _siblings(editor: Editor, node: Node) -> Rewrite | None:
    """Products of one tensor with constant matrices, and their biases; found at the first of them."""
    x = operand(node, 0) if is_op(node, "MatMul") and editor.opset >= 13 else None
    if x is None or x.const_value is not None or not is_float(x):
        return None
    parts: list[tuple[Node, Node, np.ndarray, np.ndarray]] = []
    for user, index in x.uses():
        weight = data(operand(user, 1)) if index == 0 and is_op(user, "MatMul") else None
        if weight is None or weight.ndim != 2:
            continue
        last, bias = user, np.zeros(weight.shape[1], weight.dtype)
        after = reader(user.outputs[0])
        added = affine(after, -1) if after is not None and is_op(after, "Add") else None
        if added is not None and after is not None and added[0] is user.outputs[0]:
            last, bias = after, np.broadcast_to(added[2], bias.shape).astype(weight.dtype)
        if not last.outputs[0].is_graph_output():
            parts.append((user, last, weight, bias))
    if len(parts) < 2 or parts[0][0] is not node:
        return None

    def make() -> None:
        weight = editor.constant(np.concatenate([p[2] for p in parts], 1), f"{node.name}_weight")
        (value,) = editor.add("MatMul", [x, weight], node)
        bias = np.concatenate([p[3] for p in parts])
        if np.any(bias):
            (value,) = editor.add("Add", [value, editor.constant(bias, f"{node.name}_bias")], node)
        sizes = editor.constant(np.array([p[2].shape[1] for p in parts], np.int64), f"{node.name}_sizes")
        pieces = editor.add("Split", [value, sizes], node, len(parts), axis=-1)
        for part, result in zip(parts, pieces, strict=True):
            editor.replace(part[1].outputs[0], result)

    return rewrite_of(f"{len(parts)} products of {x.name}", [p[0] for p in parts], make)


RULES = (
    RewriteRule(
        "matmul-to-conv", "Products with constant matrices become convolutions of one pixel",
        "A product whose rows are no multiple of 8 (197 tokens) leaves rows of its tiles empty one by one; a "
        "convolution packs them into whole tiles.",
        PREDICTED, "Reshape to an image of one row and use Conv with a 1x1 kernel.", True, _matmul_to_conv,
    ),
    RewriteRule(
        "sibling-matmuls", "Products of one tensor become one",
        "Query, key and value read the same tensor: one product reads it once.", PREDICTED,
        "Concatenate the matrices and split the result.", True, _siblings,
    ),
)  # fmt: skip
