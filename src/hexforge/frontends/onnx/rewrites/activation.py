# SPDX-License-Identifier: Apache-2.0
"""Activations: PReLU, clamps that repeat, and functions written out that are one op."""

from __future__ import annotations

import math

import numpy as np
from onnx_ir import Node, Value

from hexforge.frontends.onnx.rewrites.rule import PREDICTED, Rewrite, RewriteRule, rewrite_of
from hexforge.model.edit import Editor
from hexforge.patterns.activations import SINCE, gelu, hard_swish
from hexforge.patterns.nodes import (
    clamp_bounds,
    data,
    dequantizes,
    is_float,
    is_op,
    is_quantized,
    operand,
    reader,
    real,
    shape,
    source,
)

_HALF = 5e-4
"""How far off float16 has a root, relatively; the execution provider takes a Gelu with it for no Gelu."""
SHOWCASE = "QNN HTP linting profiling, showcase model 3: 2.8 M cycles with PReLU, 1.4 M with ReLU"


def _slopes(node: Node) -> np.ndarray | None:
    """What an activation multiplies negative numbers by, also through a DequantizeLinear."""
    if is_op(node, "LeakyRelu"):
        return np.array([real(node, "alpha", 0.01)])
    if not is_op(node, "PRelu"):
        return None
    slopes = data(operand(node, 1))
    below = source(node, 1)
    if slopes is None and below is not None and dequantizes(below):
        codes, scale, zero = (data(operand(below, i)) for i in range(3))
        if codes is None or scale is None or scale.size != 1:
            return None
        shifted = codes.astype(np.float64) - (0 if zero is None else zero.astype(np.float64))
        return np.asarray(shifted * float(scale.reshape(())))
    return slopes


def _where(node: Node) -> str:
    return f"{node.op_type} of {'x'.join(map(str, shape(node.outputs[0])))}"


def _to_relu(editor: Editor, node: Node) -> None:
    editor.replace(node.outputs[0], editor.add("Relu", [node.inputs[0]], node)[0])


def _prelu(editor: Editor, node: Node) -> Rewrite | None:
    slopes = _slopes(node)
    if slopes is None or not np.any(slopes):
        return None
    return rewrite_of(_where(node), [node], lambda: _to_relu(editor, node))


def _zero_slopes(editor: Editor, node: Node) -> Rewrite | None:
    slopes = _slopes(node)
    if slopes is None or np.any(slopes):
        return None
    return rewrite_of(f"{_where(node)} with slopes of 0", [node], lambda: _to_relu(editor, node))


def _equal_slopes(editor: Editor, node: Node) -> Rewrite | None:
    slopes = data(operand(node, 1)) if is_op(node, "PRelu") and is_float(node.outputs[0]) else None
    if slopes is None or slopes.size < 2 or np.ptp(slopes) or not np.any(slopes):
        return None
    alpha = float(slopes.reshape(-1)[0])

    def make() -> None:
        editor.replace(node.outputs[0], editor.add("LeakyRelu", [node.inputs[0]], node, alpha=alpha)[0])

    return rewrite_of(f"{_where(node)} with one slope", [node], make)


def _as_maximum(editor: Editor, node: Node) -> Rewrite | None:
    slopes = _slopes(node) if is_float(node.outputs[0]) else None
    x = operand(node, 0)
    if slopes is None or x is None or slopes.min() < 0 or slopes.max() > 1 or not np.any(slopes):
        return None
    if is_op(node, "PRelu") and data(operand(node, 1)) is None:
        return None

    def make() -> None:
        dtype = x.dtype.numpy() if x.dtype is not None else np.float32
        factor = (
            operand(node, 1) if is_op(node, "PRelu") else editor.constant(slopes.astype(dtype)[0], f"{node.name}_slope")
        )
        (scaled,) = editor.add("Mul", [x, factor], node)
        editor.replace(node.outputs[0], editor.add("Max", [x, scaled], node)[0])

    return rewrite_of(f"{_where(node)} with slopes between 0 and 1", [node], make)


def _clamps_meet(editor: Editor, node: Node) -> Rewrite | None:
    outer = clamp_bounds(node)
    above = source(node) if outer is not None else None
    inner = clamp_bounds(above)
    if outer is None or above is None or inner is None or reader(above.outputs[0]) is not node:
        return None
    if editor.opset < 11 or not is_float(node.outputs[0]):
        return None
    low, high = (min(max(end, outer[0]), outer[1]) for end in inner)  # the second clamp applied to the first one's ends
    x = above.inputs[0]

    def make() -> None:
        dtype = node.outputs[0].dtype
        kind = dtype.numpy() if dtype is not None else np.float32
        if (low, high) == (0.0, math.inf):
            value = editor.add("Relu", [x], node)[0]
        else:
            ends: list[Value | None] = [
                None if math.isinf(end) else editor.constant(np.array(end, kind), f"{node.name}_bound")
                for end in (low, high)
            ]
            value = editor.add("Clip", [x, *ends], node)[0]
        editor.replace(node.outputs[0], value)

    return rewrite_of(f"{above.op_type} and {node.op_type}, one after the other", [above, node], make)


def _hard_swish(editor: Editor, node: Node) -> Rewrite | None:
    """x * clip(x + 3, 0, 6) / 6 with the division before or after the product."""
    match = hard_swish(node) if editor.opset >= SINCE["HardSwish"] and is_op(node, "Clip") else None
    if match is None or is_quantized(match.last) or not is_float(match.last.outputs[0]):
        return None

    def make() -> None:
        editor.replace(match.last.outputs[0], editor.add("HardSwish", match.inputs, match.last)[0])

    return rewrite_of("x * clip(x + 3, 0, 6) / 6 written out", list(match.nodes), make)


def _gelu(editor: Editor, node: Node) -> Rewrite | None:
    """x (1 + erf(x / sqrt 2)) / 2, where the constants are those of float16."""
    match = gelu(node, _HALF) if is_op(node, "Erf") else None
    if match is None or is_quantized(match.last) or not is_float(match.last.outputs[0]):
        return None
    domain = "" if editor.opset >= SINCE["Gelu"] else "com.microsoft"

    def make() -> None:
        editor.model.opset_imports.setdefault(domain, 1)
        editor.replace(match.last.outputs[0], editor.add("Gelu", match.inputs, match.last, domain=domain)[0])

    return rewrite_of("x * (1 + erf(x / sqrt 2)) / 2 written out", list(match.nodes), make)


RULES = (
    RewriteRule(
        "prelu-to-relu", "PReLU becomes ReLU",
        "The matrix unit applies a ReLU while it writes its results; PReLU is an op of its own on the vector units "
        "that what follows waits for.",
        SHOWCASE, "Use ReLU and train again.", False, _prelu, quantized=True,
    ),
    RewriteRule(
        "zero-slopes", "PReLU or LeakyRelu with slopes of 0 becomes ReLU",
        "With slopes of 0 it is a ReLU, which the matrix unit applies while it writes its results.",
        SHOWCASE, "Use ReLU.", True, _zero_slopes, quantized=True,
    ),
    RewriteRule(
        "equal-slopes", "PReLU with one slope becomes LeakyRelu",
        "One coefficient needs no tensor of slopes.", PREDICTED, "Use LeakyRelu with that slope.", True, _equal_slopes,
    ),
    RewriteRule(
        "prelu-as-maximum", "PReLU with slopes between 0 and 1 becomes the maximum of x and slope * x",
        "A product and a maximum are one instruction each and fuse with what is before; PReLU selects.",
        PREDICTED, "Max(x, slope * x).", True, _as_maximum,
    ),
    RewriteRule(
        "clamps-meet", "Clamps one after the other become one",
        "Only one clamp is applied for nothing where a result is written.", PREDICTED, "Intersect the bounds.", True,
        _clamps_meet,
    ),
    RewriteRule(
        "hard-swish", "HardSwish written out becomes HardSwish",
        "QNN has the op: one look-up in place of four passes.", "QNN op set: HardSwish", "Use HardSwish (opset 14).",
        True, _hard_swish,
    ),
    RewriteRule(
        "gelu", "Gelu written out becomes Gelu",
        "QNN has the op; Erf alone has none: where float16 rounds the constants, it is left to the CPU.",
        "QNN op set: Gelu", "Use Gelu (opset 20, or com.microsoft's).", True, _gelu,
    ),
)  # fmt: skip
