# SPDX-License-Identifier: Apache-2.0
"""Fold: compute at compile time what depends on constants only, unless that would take more memory."""

from __future__ import annotations

from hexforge.errors import HexforgeError
from hexforge.ir import Array, Graph, Node, Role, Work
from hexforge.ir.fixed_point import permute_type
from hexforge.ops.evaluate import evaluate
from hexforge.passes.clean import remove_dead

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
    if sum(v.type.nbytes for v in node.outputs) > room:
        return None
    try:
        return evaluate(node.call, arrays)
    except HexforgeError:  # wrong for these data: the run will say so, should it come to it
        return None


def _held_bytes(array: Array) -> int:
    """The bytes of memory that an array's elements lie in: fewer than they would take where they are repeated."""
    steps = zip(array.shape, array.strides, strict=True)
    return sum((int(size) - 1) * abs(int(stride)) for size, stride in steps) + int(array.itemsize)
