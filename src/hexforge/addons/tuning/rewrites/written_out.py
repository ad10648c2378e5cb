# SPDX-License-Identifier: Apache-2.0
"""Ops that QNN has no op for, written with those that it has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx_ir import Value

from hexforge.addons.tuning.rewrites.rule import Place, Rewrite, RewriteRule
from hexforge.patterns.language import anything, op
from hexforge.patterns.nodes import integer, is_float, number, operand, real, reduced_axes, shape

AXES_AS_INPUT = 13
"""The opset from which on ReduceSum reads its axes."""
MOST_FACTORS = 16
"""Elements that a ReduceProd may multiply to become a chain of Mul."""
X = anything()


def _sum(place: Place, x: Value) -> Value:
    axes, keep = reduced_axes(place.node) or (), integer(place.node, "keepdims", 1)
    if place.editor.opset < AXES_AS_INPUT:
        return place.add("ReduceSum", x, axes=axes, keepdims=keep)
    return place.add("ReduceSum", x, place.constant(axes, "axes"), keepdims=keep)


WRITTEN: dict[str, tuple[str, Callable[[Place, Value], Value]]] = {
    "ReduceSumSquare": ("Mul and ReduceSum", lambda place, x: _sum(place, place.add("Mul", x, x))),
    "ReduceL1": ("Abs and ReduceSum", lambda place, x: _sum(place, place.add("Abs", x))),
    "ReduceLogSum": ("ReduceSum and Log", lambda place, x: place.add("Log", _sum(place, x))),
}


def _written_out(place: Place) -> Rewrite | None:
    axes = reduced_axes(place.node) if is_float(place.out) else None
    if axes is None:
        return None
    words, write = WRITTEN[place.node.op_type]
    return place.instead(f"{place.node.op_type}, which is {words}", lambda: write(place, place[X]), axes)


def _product(place: Place) -> Rewrite | None:
    """ReduceProd over one short axis as a chain of Mul."""
    axes = reduced_axes(place.node) if is_float(place.out) and place.editor.opset >= AXES_AS_INPUT else None
    if axes is None or len(axes) != 1 or not 2 <= shape(place[X])[axes[0]] <= MOST_FACTORS:
        return None
    axis, count = axes[0], shape(place[X])[axes[0]]

    def write() -> Value:
        product, *rest = place.split(place[X], [1] * count, axis)
        for factor in rest:
            product = place.add("Mul", product, factor)
        return place.reshaped(product)

    return place.instead(f"ReduceProd of {count}", write, axis)


def _softsign(place: Place, x: Value) -> Value:
    return place.add("Div", x, place.add("Add", place.add("Abs", x), _number(place, x, 1.0)))


def _celu(place: Place, x: Value) -> Value:
    """x where it is positive; else an Elu of x by alpha, times alpha."""
    alpha = real(place.node, "alpha", 1.0)
    if alpha == 1.0:
        return place.add("Elu", x, alpha=1.0)
    scaled = place.add("Mul", x, _number(place, x, 1 / alpha))
    return place.add("Mul", place.add("Elu", scaled), _number(place, x, alpha))


def _shrink(place: Place, x: Value) -> Value:
    """What is between the bounds is 0, the rest moves towards it by the bias."""
    bound, bias = real(place.node, "lambd", 0.5), real(place.node, "bias", 0.0)
    above = place.add("Greater", x, _number(place, x, bound))
    below = place.add("Less", x, _number(place, x, -bound))
    lower = place.add("Sub", x, _number(place, x, bias))
    higher = place.add("Add", x, _number(place, x, bias))
    rest = place.add("Where", below, higher, _number(place, x, 0.0))
    return place.add("Where", above, lower, rest)


def _number(place: Place, x: Value, amount: float) -> Value:
    dtype = x.dtype.numpy() if x.dtype is not None else np.dtype(np.float32)
    return place.constant(np.array(amount, dtype), "number")


POINTWISE: dict[str, tuple[str, Callable[[Place, Value], Value]]] = {
    "Softsign": ("Abs, Add and Div", _softsign),
    "Celu": ("Elu between two Mul", _celu),
    "Shrink": ("comparisons and Where", _shrink),
}


def _pointwise(place: Place) -> Rewrite | None:
    if not is_float(place.out) or shape(place.out) == (-1,) or real(place.node, "alpha", 1.0) <= 0:
        return None
    words, write = POINTWISE[place.node.op_type]
    return place.instead(f"{place.node.op_type}, which is {words}", lambda: write(place, place[X]))


def _triangle(place: Place) -> Rewrite | None:
    """Trilu with a constant diagonal as a Where with a constant mask."""
    x, given = place[X], operand(place.node, 1)
    k = 0 if given is None else number(given)
    if not is_float(place.out) or len(shape(x)) < 2 or k is None:
        return None
    cut = np.triu if integer(place.node, "upper", 1) else np.tril

    def write() -> Value:
        mask = place.constant(cut(np.ones(shape(x)[-2:], bool), int(k)), "mask")
        return place.add("Where", mask, x, _number(place, x, 0.0))

    return place.instead("Trilu, which is a Where with a constant mask", write, k)


NO_BUILDER = "onnxruntime's QNN execution provider, which has no op builder for it"

RULES = (
    RewriteRule(
        "reduction-written-out", "Reductions that the NPU has no op for become ReduceSum with an op around it",
        "ReduceSumSquare, ReduceL1 and ReduceLogSum stay on the CPU and cut the graph in two; ReduceSum, Mul, Abs and "
        "Log do not.", NO_BUILDER,
        "Write x * x, |x| or the logarithm by itself, and reduce by ReduceSum.", True,
        op(" ".join(WRITTEN), X), _written_out,
    ),
    RewriteRule(
        "pointwise-written-out", "Activations that the NPU has no op for become the ops that they are made of",
        "Softsign, Celu and Shrink stay on the CPU and cut the graph in two; what they are made of does not.",
        NO_BUILDER, "Write the formula out.", True,
        op(" ".join(POINTWISE), X), _pointwise,
    ),
    RewriteRule(
        "triangle-as-mask", "Trilu becomes a Where with a constant mask",
        "The NPU has no Trilu, and a triangle of ones that never changes is a constant.", NO_BUILDER,
        "Use Where with a mask of the triangle.", True,
        op("Trilu", X), _triangle,
    ),
    RewriteRule(
        "product-of-few", "ReduceProd of a few elements becomes a chain of Mul",
        "HTP has no ReduceProd; a short product is a few multiplications.", NO_BUILDER.replace(
            "has no op builder for it", "refuses it on HTP"),
        "Split along the axis and multiply.", True,
        op("ReduceProd", X), _product,
    ),
)  # fmt: skip
