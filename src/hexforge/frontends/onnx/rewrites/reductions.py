# SPDX-License-Identifier: Apache-2.0
"""Reductions that QNN has no op for, written with those that it has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx_ir import Node, Value

from hexforge.frontends.onnx.rewrites.rule import Rewrite, RewriteRule, rewrite_of
from hexforge.model.edit import Editor
from hexforge.model.nodes import data, integer, ints, is_float, is_op, operand, shape

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


NO_BUILDER = "onnxruntime's QNN execution provider, which has no op builder for it"

RULES = (
    RewriteRule(
        "reduction-written-out", "Reductions that the NPU has no op for become ReduceSum with an op around it",
        "ReduceSumSquare, ReduceL1 and ReduceLogSum stay on the CPU and cut the graph in two; ReduceSum, Mul, Abs and "
        "Log do not.", NO_BUILDER,
        "Write x * x, |x| or the logarithm by itself, and reduce by ReduceSum.", True, _written_out,
    ),
    RewriteRule(
        "product-of-few", "ReduceProd of a few elements becomes a chain of Mul",
        "HTP has no ReduceProd; a short product is a few multiplications.", NO_BUILDER.replace(
            "has no op builder for it", "refuses it on HTP"),
        "Split along the axis and multiply.", True, _product,
    ),
)  # fmt: skip
