# SPDX-License-Identifier: Apache-2.0
"""Clean: remove what does nothing, join what is done in two steps, do once what is done twice."""

from __future__ import annotations

from hexforge.ir import Graph, Node, Role, ScaleOffset, Value, Work
from hexforge.ops import of_kind
from hexforge.patterns.language import anything, find_ending, op
from hexforge.patterns.permutation import compose, moves_nothing
from hexforge.patterns.qnn_nodes import QNN

_SHARED = (Work.TRANSPOSE, Work.RESHAPE, Work.CONVERT)
"""Kinds of nodes of which one serves all that want the same of a value."""


def clean(graph: Graph) -> int:
    """Remove no-ops and dead nodes, join chains of Transposes and of Reshapes, merge equal movements of one value."""
    graph.sort()
    changes = 0
    seen: dict[object, Node] = {}
    for node in graph.nodes:
        changes += _join_moves(graph, node)
        if _does_nothing(node) and bypass(graph, node):
            changes += 1
            continue
        if node.op.kind in _SHARED:
            params = tuple(node.params.items())
            first = seen.setdefault((node.op.name, node.inputs, params, node.outputs[0].type), node)
            if first is not node and node.outputs[0].role is Role.NATIVE:
                graph.replace_uses(node.outputs[0], first.outputs[0])
                changes += 1
    return changes + remove_dead(graph)


def remove_dead(graph: Graph) -> int:
    """Remove nodes whose outputs nobody reads, then NATIVE and STATIC values nobody writes or reads."""
    changes = 0
    for node in reversed(graph.nodes):
        if all(v.role is Role.NATIVE and not v.users for v in node.outputs):
            graph.remove(node)
            changes += 1
    for value in tuple(graph.values.values()):
        if value.role in (Role.NATIVE, Role.STATIC) and not value.users and value.producer is None:
            graph.remove_value(value)
            changes += 1
    return changes


def bypass(graph: Graph, node: Node) -> bool:
    """Let the input of a one-in, one-out node stand for its output; False where both are fixed from outside."""
    x, y = node.operand(0), node.outputs[0]
    if y.role is Role.NATIVE:
        graph.replace_uses(y, x)
        graph.remove(node)
        graph.remove_value(y)
        return True
    if x.role is not Role.NATIVE or x.producer is None:
        return False
    writer = x.producer
    graph.remove(node)
    graph.set_outputs(writer, [y if v is x else v for v in writer.outputs])
    graph.replace_uses(x, y)
    graph.remove_value(x)
    return True


def _keeps_encoding(node: Node) -> bool:
    """True where a movement keeps the encoding: then it moves integers and nothing is rounded."""
    x = node.inputs[0]
    return x is not None and _one_scale(x) and x.encoding == node.outputs[0].encoding


X = anything()
TRANSPOSED = op("Transpose", X, where=_keeps_encoding, stays=True)
RESHAPES = " ".join(of_kind(Work.RESHAPE))
RESHAPED = op(RESHAPES, X, where=_keeps_encoding, stays=True)
TRANSPOSED_TWICE, RESHAPED_TWICE = op("Transpose", TRANSPOSED), op(RESHAPES, RESHAPED, where=_keeps_encoding)
MOVED_BY_NOTHING = op("Transpose", where=lambda node: _moves_nothing(node) and _keeps_encoding(node))


def _join_moves(graph: Graph, node: Node) -> int:
    """Join a Transpose or a Reshape with the one before it; a Transpose that moves no element becomes a Reshape."""
    changes = 0
    if (match := find_ending(TRANSPOSED_TWICE, QNN, node)) is not None:
        perm = compose(match.node(TRANSPOSED).params["perm"], node.params["perm"])
        graph.rewrite(node, "Transpose", [match[X]], {"perm": perm})
        changes = 1
    if find_ending(MOVED_BY_NOTHING, QNN, node) is not None:
        graph.rewrite(node, "Reshape", [node.operand(0)])
        changes = 1
    if (match := find_ending(RESHAPED_TWICE, QNN, node)) is not None:
        graph.rewrite(node, "Reshape", [match[X]])
        changes += 1
    return changes


def _moves_nothing(node: Node) -> bool:
    return moves_nothing(node.params["perm"], node.operand(0).shape)


def _one_scale(value: Value) -> bool:
    return value.encoding is None or isinstance(value.encoding, ScaleOffset)


def _does_nothing(node: Node) -> bool:
    """True where the one output is the one input."""
    if len(node.inputs) != 1 or len(node.outputs) != 1 or node.inputs[0] is None:
        return False
    if node.inputs[0].type != node.outputs[0].type:
        return False
    match node.op.kind:
        case Work.TRANSPOSE:
            return _moves_nothing(node)
        case Work.SLICE if node.op.name == "StridedSlice":
            # as many elements, forwards, without new or lost axes: all of them in order
            same_axes = not (node.params["shrink_axes"] or node.params["new_axes_mask"])
            return same_axes and all(step > 0 for _, _, step in node.params["ranges"])
        case Work.RESHAPE | Work.CONVERT | Work.CONCAT | Work.SLICE:
            return True
        case _:
            return False
