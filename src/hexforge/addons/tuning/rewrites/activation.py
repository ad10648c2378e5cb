# SPDX-License-Identifier: Apache-2.0
"""Activations: PReLU, clamps that repeat, and functions written out that are one op."""

from __future__ import annotations

import math

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.rule import PREDICTED, Place, Rewrite, RewriteRule
from hexforge.patterns.activations import CLAMPED_SWISH, GELU, SINCE, X
from hexforge.patterns.language import anything, constant, op
from hexforge.patterns.nodes import clamp_bounds, data, dequantizes, is_float, is_op, operand, real, shape, source
from hexforge.patterns.written_out import keeps_shape

_HALF = 5e-4
"""How far off float16 has a root, relatively; the execution provider takes a Gelu with it for no Gelu."""
SHOWCASE = "QNN HTP linting profiling, showcase model 3: 2.8 M cycles with PReLU, 1.4 M with ReLU"
SLOPED = op("LeakyRelu PRelu", anything())


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


def _prelu(place: Place) -> Rewrite | None:
    slopes = _slopes(place.node)
    if slopes is None or not np.any(slopes):
        return None
    return place.instead(_where(place.node), lambda: place.add("Relu", place.node.inputs[0]))


def _zero_slopes(place: Place) -> Rewrite | None:
    slopes = _slopes(place.node)
    if slopes is None or np.any(slopes):
        return None
    return place.instead(f"{_where(place.node)} with slopes of 0", lambda: place.add("Relu", place.node.inputs[0]))


SLOPES = constant(lambda array: array.size > 1 and not np.ptp(array) and bool(array.any()))


def _equal_slopes(place: Place) -> Rewrite:
    alpha = float(place.array(SLOPES).reshape(-1)[0])
    what = f"{_where(place.node)} with one slope"
    return place.instead(what, lambda: place.add("LeakyRelu", place.node.inputs[0], alpha=alpha))


def _as_maximum(place: Place) -> Rewrite | None:
    node, x = place.node, operand(place.node, 0)
    slopes = _slopes(node) if is_float(place.out) else None
    if slopes is None or x is None or slopes.min() < 0 or slopes.max() > 1 or not np.any(slopes):
        return None
    if is_op(node, "PRelu") and data(operand(node, 1)) is None:
        return None

    def write() -> Value:
        dtype = x.dtype.numpy() if x.dtype is not None else np.float32
        factor = operand(node, 1) if is_op(node, "PRelu") else place.constant(slopes.astype(dtype)[0], "slope")
        return place.add("Max", x, place.add("Mul", x, factor))

    return place.instead(f"{_where(node)} with slopes between 0 and 1", write)


CLAMP = op("Relu Clip", where=lambda node: clamp_bounds(node) is not None)
CLAMPED_TWICE = op("Relu Clip", CLAMP, where=lambda node: clamp_bounds(node) is not None and is_float(node.outputs[0]))


def _clamps_meet(place: Place) -> Rewrite | None:
    above, node = place.match.nodes
    inner, outer = clamp_bounds(above), clamp_bounds(node)
    if inner is None or outer is None or place.editor.opset < 11:
        return None
    low, high = (min(max(end, outer[0]), outer[1]) for end in inner)  # the second clamp applied to the first one's ends

    def write() -> Value:
        x, dtype = above.inputs[0], place.out.dtype
        if (low, high) == (0.0, math.inf):
            return place.add("Relu", x)
        kind = dtype.numpy() if dtype is not None else np.float32
        ends = [None if math.isinf(end) else place.constant(np.array(end, kind), "bound") for end in (low, high)]
        return place.add("Clip", x, *ends)

    return place.instead(f"{above.op_type} and {node.op_type}, one after the other", write)


def _is_function(place: Place) -> bool:
    """True where what is written out is a function of floating-point numbers that keeps the shape."""
    return is_float(place.out) and keeps_shape(place[X], place.match.nodes)


def _hard_swish(place: Place) -> Rewrite | None:
    if place.editor.opset < SINCE["HardSwish"] or not _is_function(place):
        return None
    return place.instead("x * clip(x + 3, 0, 6) / 6 written out", lambda: place.add("HardSwish", place[X]))


def _gelu(place: Place) -> Rewrite | None:
    domain = "" if place.editor.opset >= SINCE["Gelu"] else "com.microsoft"

    def write() -> Value:
        place.editor.model.opset_imports.setdefault(domain, 1)
        return place.add("Gelu", place[X], domain=domain)

    return place.instead("x * (1 + erf(x / sqrt 2)) / 2 written out", write) if _is_function(place) else None


RULES = (
    RewriteRule(
        "prelu-to-relu", "PReLU becomes ReLU",
        "The matrix unit applies a ReLU while it writes its results; PReLU is an op of its own on the vector units "
        "that what follows waits for.",
        SHOWCASE, "Use ReLU and train again.", False, SLOPED, _prelu, quantized=True,
    ),
    RewriteRule(
        "zero-slopes", "PReLU or LeakyRelu with slopes of 0 becomes ReLU",
        "With slopes of 0 it is a ReLU, which the matrix unit applies while it writes its results.",
        SHOWCASE, "Use ReLU.", True, SLOPED, _zero_slopes, quantized=True,
    ),
    RewriteRule(
        "equal-slopes", "PReLU with one slope becomes LeakyRelu",
        "One coefficient needs no tensor of slopes.", PREDICTED, "Use LeakyRelu with that slope.", True,
        op("PRelu", anything(), SLOPES, where=lambda node: is_float(node.outputs[0])), _equal_slopes,
    ),
    RewriteRule(
        "prelu-as-maximum", "PReLU with slopes between 0 and 1 becomes the maximum of x and slope * x",
        "A product and a maximum are one instruction each and fuse with what is before; PReLU selects.",
        PREDICTED, "Max(x, slope * x).", True, SLOPED, _as_maximum,
    ),
    RewriteRule(
        "clamps-meet", "Clamps one after the other become one",
        "Only one clamp is applied for nothing where a result is written.", PREDICTED, "Intersect the bounds.", True,
        CLAMPED_TWICE, _clamps_meet,
    ),
    RewriteRule(
        "hard-swish", "HardSwish written out becomes HardSwish",
        "QNN has the op: one look-up in place of four passes.", "QNN op set: HardSwish", "Use HardSwish (opset 14).",
        True, CLAMPED_SWISH, _hard_swish,
    ),
    RewriteRule(
        "gelu", "Gelu written out becomes Gelu",
        "QNN has the op; Erf alone has none: where float16 rounds the constants, it is left to the CPU.",
        "QNN op set: Gelu", "Use Gelu (opset 20, or com.microsoft's).", True,
        GELU, _gelu, constants=_HALF,
    ),
)  # fmt: skip
