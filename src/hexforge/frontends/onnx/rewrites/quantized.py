# SPDX-License-Identifier: Apache-2.0
"""Quantized models: weights around zero."""

from __future__ import annotations

import numpy as np
from onnx_ir import Node

from hexforge.chips.graph_config import SHORT_DEPTH_OFF
from hexforge.frontends.onnx.rewrites.rule import Rewrite, RewriteRule, rewrite_of
from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.model.op_table import PRODUCTS
from hexforge.patterns.nodes import data, dequantizes, integer, is_op, operand, shape

GUIDE = (
    "QNN HTP recommendations for network design: always quantize weights symmetrically; graph option "
    f"{SHORT_DEPTH_OFF}: convolutions of short depth whose weights are not may be inexact on HMX"
)


def _weights(node: Node) -> tuple[Array, Array, Array] | None:
    """Codes, scale and zero point of uint8 weights."""
    if not dequantizes(node) or not node.outputs[0].uses():
        return None
    codes, scale, zero = (data(operand(node, i)) for i in range(3))
    if codes is None or scale is None or codes.dtype != np.uint8 or codes.ndim < 2 or scale.ndim > 1:
        return None
    if not all(is_op(user, *PRODUCTS) and i == 1 for user, i in node.outputs[0].uses()):
        return None
    return codes, scale, np.zeros((), np.uint8) if zero is None else zero


def _exact(editor: Editor, node: Node) -> Rewrite | None:
    weights = _weights(node)
    if weights is None or np.any(weights[2] != 128):
        return None
    codes = weights[0]

    def make() -> None:
        signed = (codes.astype(np.int16) - 128).astype(np.int8)
        _write(editor, node, signed, weights[1])

    return rewrite_of(f"uint8 weights {'x'.join(map(str, shape(node.outputs[0])))} with zero point 128", [node], make)


def _requantized(editor: Editor, node: Node) -> Rewrite | None:
    weights = _weights(node)
    if weights is None or np.all(weights[2] == 128):
        return None
    codes, scale, zero = weights

    def make() -> None:
        axis = integer(node, "axis", 1) % codes.ndim
        sizes = [1] * codes.ndim
        if scale.ndim:
            sizes[axis] = -1
        real = (codes.astype(np.float64) - zero.reshape(sizes if zero.ndim else ())) * scale.reshape(
            sizes if scale.ndim else ()
        )
        others = tuple(i for i in range(codes.ndim) if not scale.ndim or i != axis)
        largest = np.abs(real).max(others)
        step = np.where(largest == 0, 1, largest / 127)
        signed = np.clip(np.rint(real / step.reshape(sizes if scale.ndim else ())), -127, 127).astype(np.int8)
        _write(editor, node, signed, step.astype(scale.dtype))

    points = np.unique(zero)
    shown = str(points[0]) if points.size == 1 else f"{points[0]} to {points[-1]}"
    return rewrite_of(
        f"uint8 weights {'x'.join(map(str, shape(node.outputs[0])))} with zero point {shown}", [node], make
    )


def _write(editor: Editor, node: Node, codes: Array, scale: Array) -> None:
    inputs = [
        editor.constant(codes, f"{node.name}_weight"),
        editor.constant(scale, f"{node.name}_scale"),
        editor.constant(np.zeros(scale.shape, np.int8), f"{node.name}_zero_point"),
    ]
    editor.replace(node.outputs[0], editor.like(node, inputs))


WHY = "Weights around zero need no correction by the sum of the inputs, and are what HTP is built for."
RULES = (
    RewriteRule(
        "symmetric-weights", "uint8 weights with zero point 128 become int8", WHY, GUIDE,
        "Subtract 128 from codes and zero point: the same numbers.", True, _exact, accuracy=True,
    ),
    RewriteRule(
        "asymmetric-weights", "Asymmetric uint8 weights become symmetric int8", WHY, GUIDE,
        "Quantize again with symmetric weights (in onnxruntime: weight_type=QInt8, WeightSymmetric=True).", False,
        _requantized, accuracy=True,
    ),
)  # fmt: skip
