# SPDX-License-Identifier: Apache-2.0
"""Ops that QNN has no op for, written with those that it has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx_ir import Node, Value

from hexforge.frontends.onnx.rewrites.rule import Rewrite, RewriteRule, rewrite_of
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import data, integer, ints, is_float, is_op, number, operand, real, shape

AXES_AS_INPUT = 13
"""The opset from which on ReduceSum reads its axes."""
MOST_FACTORS = 16
"""Elements that a ReduceProd may multiply to become a chain of Mul."""


def reduced_axes(node: Node) -> tuple[int, ...] | None:
    """The axes that a reduction goes over, in order; None where they are computed, or where none means none."""
    rank = len(shape(node.inputs[0]))
    given = operand(node, 1)
    axes = ints(node, "axes", ()) if given is None else data(given)
    if axes is None or shape(node.inputs[0]) == (-1,):
        return None
    if not len(axes):
        return None if integer(node, "noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({int(axis) % rank for axis in np.ravel(axes)}))


def _sum(editor: Editor, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    keep = integer(node, "keepdims", 1)
    if editor.opset < AXES_AS_INPUT:
        return editor.add("ReduceSum", [x], node, axes=axes, keepdims=keep)[0]
    given = editor.constant(np.array(axes, np.int64), f"{node.name}_axes")
    return editor.add("ReduceSum", [x, given], node, keepdims=keep)[0]


def _sum_of_squares(editor: Editor, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return _sum(editor, node, editor.add("Mul", [x, x], node)[0], axes)


def _sum_of_sizes(editor: Editor, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return _sum(editor, node, editor.add("Abs", [x], node)[0], axes)


def _log_of_sum(editor: Editor, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return editor.add("Log", [_sum(editor, node, x, axes)], node)[0]


WRITTEN: dict[str, tuple[str, Callable[[Editor, Node, Value, tuple[int, ...]], Value]]] = {
    "ReduceSumSquare": ("Mul and ReduceSum", _sum_of_squares),
    "ReduceL1": ("Abs and ReduceSum", _sum_of_sizes),
    "ReduceLogSum": ("ReduceSum and Log", _log_of_sum),
}


def _written_out(editor: Editor, node: Node) -> Rewrite | None:
    if not is_op(node, *WRITTEN) or not is_float(node.outputs[0]):
        return None
    x, axes = node.inputs[0], reduced_axes(node)
    if x is None or axes is None:
        return None
    words, write = WRITTEN[node.op_type]
    return rewrite_of(
        f"{node.op_type}, which is {words}",
        [node],
        lambda: editor.replace(node.outputs[0], write(editor, node, x, axes)),
        axes,
    )


def _product(editor: Editor, node: Node) -> Rewrite | None:
    """ReduceProd over one short axis as a chain of Mul."""
    if not is_op(node, "ReduceProd") or not is_float(node.outputs[0]) or editor.opset < AXES_AS_INPUT:
        return None
    x, axes = node.inputs[0], reduced_axes(node)
    if x is None or axes is None or len(axes) != 1 or not 2 <= shape(x)[axes[0]] <= MOST_FACTORS:
        return None
    axis, count = axes[0], shape(x)[axes[0]]

    def make() -> None:
        sizes = editor.constant(np.ones(count, np.int64), f"{node.name}_sizes")
        product, *rest = editor.add("Split", [x, sizes], node, count, axis=axis)
        for factor in rest:
            (product,) = editor.add("Mul", [product, factor], node)
        editor.replace(node.outputs[0], editor.reshape(product, shape(node.outputs[0]), node))

    return rewrite_of(f"ReduceProd of {count}", [node], make, axis)


def _softsign(editor: Editor, node: Node, x: Value) -> Value:
    (size,) = editor.add("Abs", [x], node)
    (sum_,) = editor.add("Add", [size, _number(editor, node, x, 1.0)], node)
    return editor.add("Div", [x, sum_], node)[0]


def _celu(editor: Editor, node: Node, x: Value) -> Value:
    """x where it is positive; else an Elu of x by alpha, times alpha."""
    alpha = real(node, "alpha", 1.0)
    if alpha == 1.0:
        return editor.add("Elu", [x], node, alpha=1.0)[0]
    (scaled,) = editor.add("Mul", [x, _number(editor, node, x, 1 / alpha)], node)
    return editor.add("Mul", [editor.add("Elu", [scaled], node)[0], _number(editor, node, x, alpha)], node)[0]


def _shrink(editor: Editor, node: Node, x: Value) -> Value:
    """What is between the bounds is 0, the rest moves towards it by the bias."""
    bound, bias = real(node, "lambd", 0.5), real(node, "bias", 0.0)
    (above,) = editor.add("Greater", [x, _number(editor, node, x, bound)], node)
    (below,) = editor.add("Less", [x, _number(editor, node, x, -bound)], node)
    (lower,) = editor.add("Sub", [x, _number(editor, node, x, bias)], node)
    (higher,) = editor.add("Add", [x, _number(editor, node, x, bias)], node)
    (rest,) = editor.add("Where", [below, higher, _number(editor, node, x, 0.0)], node)
    return editor.add("Where", [above, lower, rest], node)[0]


def _number(editor: Editor, node: Node, x: Value, amount: float) -> Value:
    dtype = x.dtype.numpy() if x.dtype is not None else np.dtype(np.float32)
    return editor.constant(np.array(amount, dtype), f"{node.name}_number")


POINTWISE: dict[str, tuple[str, Callable[[Editor, Node, Value], Value]]] = {
    "Softsign": ("Abs, Add and Div", _softsign),
    "Celu": ("Elu between two Mul", _celu),
    "Shrink": ("comparisons and Where", _shrink),
}


def _pointwise(editor: Editor, node: Node) -> Rewrite | None:
    if not is_op(node, *POINTWISE) or not is_float(node.outputs[0]) or shape(node.outputs[0]) == (-1,):
        return None
    x = node.inputs[0]
    if x is None or real(node, "alpha", 1.0) <= 0:
        return None
    words, write = POINTWISE[node.op_type]
    return rewrite_of(
        f"{node.op_type}, which is {words}", [node], lambda: editor.replace(node.outputs[0], write(editor, node, x))
    )


def _triangle(editor: Editor, node: Node) -> Rewrite | None:
    """Trilu with a constant diagonal as a Where with a constant mask."""
    x, given = node.inputs[0] if node.inputs else None, operand(node, 1)
    if not is_op(node, "Trilu") or not is_float(node.outputs[0]) or x is None or len(shape(x)) < 2:
        return None
    k = 0 if given is None else number(given)
    if k is None:
        return None
    cut = np.triu if integer(node, "upper", 1) else np.tril

    def make() -> None:
        mask = cut(np.ones(shape(x)[-2:], bool), int(k))
        chosen = [editor.constant(mask, f"{node.name}_mask"), x, _number(editor, node, x, 0.0)]
        editor.replace(node.outputs[0], editor.add("Where", chosen, node)[0])

    return rewrite_of("Trilu, which is a Where with a constant mask", [node], make, k)


NO_BUILDER = "onnxruntime's QNN execution provider, which has no op builder for it"

RULES = (
    RewriteRule(
        "reduction-written-out", "Reductions that the NPU has no op for become ReduceSum with an op around it",
        "ReduceSumSquare, ReduceL1 and ReduceLogSum stay on the CPU and cut the graph in two; ReduceSum, Mul, Abs and "
        "Log do not.", NO_BUILDER,
        "Write x * x, |x| or the logarithm by itself, and reduce by ReduceSum.", True, _written_out,
    ),
    RewriteRule(
        "pointwise-written-out", "Activations that the NPU has no op for become the ops that they are made of",
        "Softsign, Celu and Shrink stay on the CPU and cut the graph in two; what they are made of does not.",
        NO_BUILDER, "Write the formula out.", True, _pointwise,
    ),
    RewriteRule(
        "triangle-as-mask", "Trilu becomes a Where with a constant mask",
        "The NPU has no Trilu, and a triangle of ones that never changes is a constant.", NO_BUILDER,
        "Use Where with a mask of the triangle.", True, _triangle,
    ),
    RewriteRule(
        "product-of-few", "ReduceProd of a few elements becomes a chain of Mul",
        "HTP has no ReduceProd; a short product is a few multiplications.", NO_BUILDER.replace(
            "has no op builder for it", "refuses it on HTP"),
        "Split along the axis and multiply.", True, _product,
    ),
)  # fmt: skip
