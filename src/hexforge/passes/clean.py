# SPDX-License-Identifier: Apache-2.0
"""Clean: remove what does nothing, join what is done in two steps, do once what is done twice."""

from __future__ import annotations

from hexforge.ir import Graph, Node, Role, ScaleOffset, Value, Work
from hexforge.patterns.permutation import compose, moves_nothing

_SHARED = (Work.TRANSPOSE, Work.RESHAPE, Work.CONVERT)
"""Kinds of nodes of which one serves all that want the same of a value."""


def clean(graph: Graph) -> int:
    """Remove no-ops and dead nodes, join chains of Transposes and of Reshapes, merge equal movements of one value."""
    graph.sort()
    changes = 0
    seen: dict[object, Node] = {}
    for node in graph.nodes:
        changes += compose_transposes(graph, node) + _join_reshapes(graph, node)
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


def compose_transposes(graph: Graph, node: Node) -> int:
    """A Transpose of a Transpose reads the first one's input; one that moves no element becomes a Reshape."""
    if node.op.name != "Transpose":
        return 0
    changes = 0
    x, perm = node.operand(0), node.params["perm"]
    if x.producer is not None and x.producer.op.name == "Transpose" and _follows_rule(x.producer):
        perm = compose(x.producer.params["perm"], perm)
        x = x.producer.operand(0)
        graph.rewrite(node, "Transpose", [x], {"perm": perm})
        changes = 1
    if moves_nothing(perm, x.shape) and _one_scale(x) and x.encoding == node.outputs[0].encoding:
        graph.rewrite(node, "Reshape", [x])
        changes = 1
    return changes


def _join_reshapes(graph: Graph, node: Node) -> int:
    x = node.inputs[0] if node.op.kind is Work.RESHAPE else None
    if x is None or x.producer is None or x.producer.op.kind is not Work.RESHAPE or not _one_scale(x):
        return 0
    source = x.producer.operand(0)
    if not source.encoding == x.encoding == node.outputs[0].encoding:
        return 0  # the step between requantizes
    graph.rewrite(node, "Reshape", [source])
    return 1


def _follows_rule(node: Node) -> bool:
    """True where a movement keeps the encoding: then it moves integers and nothing is rounded."""
    x = node.inputs[0]
    return x is not None and _one_scale(x) and x.encoding == node.outputs[0].encoding


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
            return bool(moves_nothing(node.params["perm"], node.inputs[0].shape))
        case Work.SLICE if node.op.name == "StridedSlice":
            # as many elements, forwards, without new or lost axes: all of them in order
            same_axes = not (node.params["shrink_axes"] or node.params["new_axes_mask"])
            return same_axes and all(step > 0 for _, _, step in node.params["ranges"])
        case Work.RESHAPE | Work.CONVERT | Work.CONCAT | Work.SLICE:
            return True
        case _:
            return False
