# SPDX-License-Identifier: Apache-2.0
"""Clean: what does nothing is removed, what depends on constants is computed, what is done twice is done once."""

from __future__ import annotations

from hexforge.errors import HexforgeError
from hexforge.ir import Array, Graph, Node, Role, ScaleOffset, Value, Work
from hexforge.ir.fixed_point import permute_type
from hexforge.ops import of_kind
from hexforge.ops.evaluate import evaluate
from hexforge.patterns.language import QNN, anything, find_ending, op
from hexforge.patterns.permutation import compose, moves_nothing

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


_SMALL_BYTES = 1 << 20  # results up to this are folded even if they are larger than their inputs
_MOST_REPEATED = 1 << 24  # elements of a constant that repeats a few numbers; computing on more takes too long


def fold(graph: Graph) -> int:
    """Make what nodes compute from STATIC values alone STATIC; transposes and reshapes are views where possible."""
    graph.sort()
    changes = 0
    for node in graph.nodes:
        if not node.inputs or any(v is not None and v.data is None for v in node.inputs):
            continue
        if any(v.role is not Role.NATIVE for v in node.outputs) or node.op.kind is Work.RANDOM:
            continue
        results = _views(node) or _computed(node)
        if results is not None:
            graph.remove(node)
            for value, data in zip(node.outputs, results, strict=True):
                graph.freeze(value, data)
            changes += 1
    return changes + remove_dead(graph) if changes else 0


def _views(node: Node) -> tuple[Array] | None:
    x, y = node.operand(0), node.outputs[0]
    assert x.data is not None
    if node.op.name == "Transpose" and y.type == permute_type(x.type, node.params["perm"]):
        return (x.data.transpose(node.params["perm"]),)
    if node.op.kind is Work.RESHAPE and y.encoding == x.encoding and not hasattr(x.encoding, "scales"):
        return (x.data.reshape(y.shape),)
    return None


def _computed(node: Node) -> tuple[Array, ...] | None:
    arrays = [None if v is None else v.data for v in node.inputs]
    if any(a is not None and a.size > _MOST_REPEATED and a.size * a.itemsize > _held_bytes(a) for a in arrays):
        return None
    room = max(_SMALL_BYTES, sum(a.nbytes if any(a.strides) else a.itemsize for a in arrays if a is not None))
    if sum(v.type.nbytes for v in node.outputs) > room and not _read_in_parts(node):
        return None
    try:
        return evaluate(node.call, arrays)
    except HexforgeError:  # wrong for these data: the run will say so, should it come to it
        return None


def _read_in_parts(node: Node) -> bool:
    """True where only slices read its results, which are constants then, so that it goes: weights of a direction."""
    users = [user for value in node.outputs for user in value.users]
    return bool(users) and all(user.op.kind is Work.SLICE and len(user.inputs) == 1 for user in users)


def _held_bytes(array: Array) -> int:
    """The bytes of memory that an array's elements lie in: fewer than they would take where they are repeated."""
    steps = zip(array.shape, array.strides, strict=True)
    return sum((int(size) - 1) * abs(int(stride)) for size, stride in steps) + int(array.itemsize)
