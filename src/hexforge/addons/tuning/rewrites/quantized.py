# SPDX-License-Identifier: Apache-2.0
"""Quantized models: weights around zero."""

from __future__ import annotations

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.rule import Place, Rewrite, RewriteRule
from hexforge.chips.graph_config import SHORT_DEPTH_OFF
from hexforge.ir import Array
from hexforge.model.op_table import PRODUCTS
from hexforge.patterns.language import op
from hexforge.patterns.nodes import data, integer, is_op, operand, shape

GUIDE = (
    "QNN HTP recommendations for network design: always quantize weights symmetrically; graph option "
    f"{SHORT_DEPTH_OFF}: convolutions of short depth whose weights are not may be inexact on HMX"
)


def _weights(node: Node) -> tuple[Array, Array, Array] | None:
    """Codes, scale and zero point of uint8 weights."""
    if not node.outputs[0].uses():
        return None
    codes, scale, zero = (data(operand(node, i)) for i in range(3))
    if codes is None or scale is None or codes.dtype != np.uint8 or codes.ndim < 2 or scale.ndim > 1:
        return None
    if not all(is_op(user, *PRODUCTS) and i == 1 for user, i in node.outputs[0].uses()):
        return None
    return codes, scale, np.zeros((), np.uint8) if zero is None else zero


def _exact(place: Place) -> Rewrite | None:
    weights = _weights(place.node)
    if weights is None or np.any(weights[2] != 128):
        return None
    codes, scale, _ = weights
    what = f"uint8 weights {'x'.join(map(str, shape(place.out)))} with zero point 128"
    return place.instead(what, lambda: _signed(place, (codes.astype(np.int16) - 128).astype(np.int8), scale))


def _requantized(place: Place) -> Rewrite | None:
    weights = _weights(place.node)
    if weights is None or np.all(weights[2] == 128):
        return None
    codes, scale, zero = weights

    def write() -> Value:
        axis = integer(place.node, "axis", 1) % codes.ndim
        sizes = [1] * codes.ndim
        if scale.ndim:
            sizes[axis] = -1
        spread = sizes if scale.ndim else ()
        real = (codes.astype(np.float64) - zero.reshape(sizes if zero.ndim else ())) * scale.reshape(spread)
        others = tuple(i for i in range(codes.ndim) if not scale.ndim or i != axis)
        largest = np.abs(real).max(others)
        step = np.where(largest == 0, 1, largest / 127)
        signed = np.clip(np.rint(real / step.reshape(spread)), -127, 127).astype(np.int8)
        return _signed(place, signed, step.astype(scale.dtype))

    points = np.unique(zero)
    shown = str(points[0]) if points.size == 1 else f"{points[0]} to {points[-1]}"
    return place.instead(f"uint8 weights {'x'.join(map(str, shape(place.out)))} with zero point {shown}", write)


def _signed(place: Place, codes: Array, scale: Array) -> Value:
    """Weights around zero."""
    inputs = [
        place.constant(codes, "weight"),
        place.constant(scale, "scale"),
        place.constant(np.zeros(scale.shape, np.int8), "zero_point"),
    ]
    return place.editor.like(place.node, inputs)


DEQUANTIZED = op("DequantizeLinear com.microsoft:DequantizeLinear")
WHY = "Weights around zero need no correction by the sum of the inputs, and are what HTP is built for."
RULES = (
    RewriteRule(
        "symmetric-weights", "uint8 weights with zero point 128 become int8", WHY, GUIDE,
        "Subtract 128 from codes and zero point: the same numbers.", True,
        DEQUANTIZED, _exact, accuracy=True,
    ),
    RewriteRule(
        "asymmetric-weights", "Asymmetric uint8 weights become symmetric int8", WHY, GUIDE,
        "Quantize again with symmetric weights (in onnxruntime: weight_type=QInt8, WeightSymmetric=True).", False,
        DEQUANTIZED, _requantized, accuracy=True,
    ),
)  # fmt: skip
