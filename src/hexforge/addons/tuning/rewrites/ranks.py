# SPDX-License-Identifier: Apache-2.0
"""Ranks: tensors of six dimensions and more, whose neighbouring axes go everywhere together, with those axes merged.

A region is all nodes that such tensors connect. Each node says of its axes which belong together: a label, and axes of
size 1 that belong to any. Neighbours of one label are merged, from the left, until few are left; the node is written
again on what is merged, and Reshape, which moves nothing, is put between nodes that merge in different ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.rule import Place, Rewrite, RewriteRule
from hexforge.addons.tuning.rewrites.written_out import AXES_AS_INPUT
from hexforge.model.edit import Editor
from hexforge.patterns.language import any_node
from hexforge.patterns.nodes import attributes, data, integer, ints, is_quantized, operand, reduced_axes, shape
from hexforge.patterns.permutation import canonical

MOST_RANK = 5
"""Dimensions that HTP takes."""
WANTED_RANK = 4
"""Dimensions at which merging ends: fewer would part what HTP lays out by its last axes."""
RESHAPES = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
ELEMENTWISE = frozenset(
    "Abs Add And Cast Ceil Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish "
    "IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid "
    "Sign Sin Softplus Softsign Sqrt Sub Tanh Where Xor".split()
)
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceLogSumExp")
SOFTMAX_OF_ONE_AXIS = 13
"""The opset from which on Softmax is along one axis, not along all from it on."""
ANY = None
"""The label of an axis of size 1 that changes nothing."""
Label = Hashable


@dataclass(frozen=True, slots=True)
class _Merging:
    """Axes in groups of neighbours that become one."""

    groups: tuple[tuple[int, ...], ...]

    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """A shape of as many axes, merged."""
        return tuple(math.prod(sizes[axis] for axis in group) for group in self.groups)

    def axis(self, axis: int) -> int:
        """Where an axis went."""
        return next(i for i, group in enumerate(self.groups) if axis in group)


def merge_axes(labels: Sequence[Label | None], wanted: int = WANTED_RANK) -> _Merging | None:
    """Neighbours of one label merged from the left until `wanted` are left; None where too many stay."""
    groups: list[tuple[int, ...]] = [(i,) for i in range(len(labels))]
    of = list(labels)
    at = 0
    while len(groups) > wanted and at + 1 < len(groups):
        if of[at] == of[at + 1] or ANY in (of[at], of[at + 1]):
            groups[at : at + 2] = [groups[at] + groups[at + 1]]
            of[at : at + 2] = [of[at + 1] if of[at] is ANY else of[at]]
        else:
            at += 1
    return _Merging(tuple(groups)) if len(groups) <= MOST_RANK else None


Written = Callable[[Editor, Sequence[Value | None]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class _Lowered:
    """A node on merged axes: the shapes that its inputs get (None: as they are), and how it is written."""

    inputs: tuple[tuple[int, ...] | None, ...]
    write: Written


def _aligned(sizes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(sizes)) + sizes


def _pattern(sizes: Sequence[int], whole: Sequence[int]) -> list[str]:
    """Of each axis whether an operand has it or is broadcast along it."""
    return ["has" if size == of else "one" for size, of in zip(sizes, whole, strict=True)]


def _broadcast(node: Node) -> _Lowered | None:
    """Ops element by element: axes belong together where every operand has both or is broadcast along both."""
    whole = shape(node.outputs[0])
    single = [v is None or math.prod(shape(v)) == 1 for v in node.inputs]
    sizes = [_aligned(shape(v), len(whole)) for v in node.inputs]
    patterns = [_pattern(s, whole) for s, one in zip(sizes, single, strict=True) if not one]
    labels = [ANY if size == 1 else tuple(p[i] for p in patterns) for i, size in enumerate(whole)]
    merging = merge_axes(labels)
    if merging is None:
        return None
    few = [None if len(shape(v)) < 2 else (1,) for v in node.inputs]  # a bound of Clip has no axis at all
    inputs = tuple(f if one else merging.shape(s) for s, one, f in zip(sizes, single, few, strict=True))
    return _Lowered(inputs, lambda editor, values: [editor.like(node, values)])


def _expand(node: Node) -> _Lowered | None:
    x, whole = shape(node.inputs[0]), shape(node.outputs[0])
    sizes = _aligned(x, len(whole))
    merging = merge_axes([ANY if n == 1 else p for n, p in zip(whole, _pattern(sizes, whole), strict=True)])
    if merging is None:
        return None

    def write(editor: Editor, values: Sequence[Value | None]) -> list[Value]:
        wanted = editor.constant(np.array(merging.shape(whole), np.int64), f"{node.name}_shape")
        return [editor.add("Expand", [values[0], wanted], node)[0]]

    return _Lowered((merging.shape(sizes), None), write)


def _transpose(node: Node) -> _Lowered | None:
    """Axes belong together where they stay neighbours; those of size 1 go anywhere."""
    sizes = shape(node.inputs[0])
    perm = ints(node, "perm", tuple(reversed(range(len(sizes)))))
    merged, merged_perm = canonical(sizes, perm)
    if len(merged) > MOST_RANK:
        return None

    def write(editor: Editor, values: Sequence[Value | None]) -> list[Value]:
        (x,) = values
        assert x is not None
        return [x if len(merged) < 2 else editor.add("Transpose", [x], node, perm=merged_perm)[0]]

    return _Lowered((merged or (1,),), write)


def _reduction(node: Node) -> _Lowered | None:
    axes, sizes = reduced_axes(node), shape(node.inputs[0])
    if axes is None:
        return None
    merging = merge_axes([ANY if n == 1 else i in axes for i, n in enumerate(sizes)])
    if merging is None:
        return None
    reduced = sorted({merging.axis(axis) for axis in axes if sizes[axis] != 1})
    if not reduced and node.op_type == "ReduceL2":  # of one element it is the absolute value; others are that element
        return None

    def write(editor: Editor, values: Sequence[Value | None]) -> list[Value]:
        if not reduced:
            assert values[0] is not None
            return [values[0]]
        given = len(node.inputs) > 1 or editor.opset >= (AXES_AS_INPUT if node.op_type == "ReduceSum" else 18)
        if not given:
            return [editor.add(node.op_type, values[:1], node, axes=reduced, keepdims=1)[0]]
        at = editor.constant(np.array(reduced, np.int64), f"{node.name}_axes")
        return [editor.add(node.op_type, [values[0], at], node, keepdims=1)[0]]

    return _Lowered((merging.shape(sizes), *(None for _ in node.inputs[1:])), write)


def _around(axis: int, rank: int) -> list[Label]:
    """Labels of what is before an axis, the axis alone, and what is behind it."""
    return ["axis" if i == axis else "behind" if i > axis else "before" for i in range(rank)]


def _along(node: Node) -> _Lowered | None:
    """Ops along one axis: Softmax, Concat, Split."""
    whole = shape(node.inputs[0])
    axis = integer(node, "axis", {"Concat": 0, "Split": 0}.get(node.op_type, -1)) % len(whole)
    merging = merge_axes(_around(axis, len(whole)))
    if merging is None:
        return None
    data_inputs = len(node.inputs) if node.op_type == "Concat" else 1
    inputs = tuple(merging.shape(shape(v)) if i < data_inputs else None for i, v in enumerate(node.inputs))

    def write(editor: Editor, values: Sequence[Value | None]) -> Sequence[Value]:
        changed = attributes(node) | {"axis": merging.axis(axis)}
        return editor.add(node.op_type, values, node, len(node.outputs), **changed)

    return _Lowered(inputs, write)


def _gather(node: Node) -> _Lowered | None:
    whole = shape(node.inputs[0])
    axis = integer(node, "axis", 0) % len(whole)
    indices = len(shape(node.inputs[1]))
    merging = merge_axes(_around(axis, len(whole)), WANTED_RANK - max(indices - 1, 0))
    if merging is None or len(merging.groups) - 1 + indices > MOST_RANK or shape(node.inputs[1]) == (-1,):
        return None

    def write(editor: Editor, values: Sequence[Value | None]) -> list[Value]:
        return [editor.add("Gather", values, node, axis=merging.axis(axis))[0]]

    return _Lowered((merging.shape(whole), None), write)


def _slice(node: Node) -> _Lowered | None:
    whole = shape(node.inputs[0])
    ends = [data(operand(node, i)) for i in range(1, 5)]
    if any(array is None and operand(node, i + 1) is not None for i, array in enumerate(ends)) or ends[0] is None:
        return None
    axes = np.arange(ends[0].size) if ends[2] is None else ends[2] % len(whole)
    cut = {int(axis) for axis in axes.ravel()}
    merging = merge_axes([("cut", i) if i in cut else ("whole", _first(i, cut)) for i in range(len(whole))])
    if merging is None:
        return None

    def write(editor: Editor, values: Sequence[Value | None]) -> list[Value]:
        at = np.array([merging.axis(int(axis)) for axis in axes.ravel()], np.int64)
        arrays = [ends[0], ends[1], at, *([ends[3]] if ends[3] is not None else [])]
        constants = [editor.constant(np.asarray(a, np.int64), f"{node.name}_ends") for a in arrays]
        return [editor.add("Slice", [values[0], *constants], node)[0]]

    return _Lowered((merging.shape(whole), *(None for _ in node.inputs[1:])), write)


def _first(axis: int, cut: set[int]) -> int:
    """Which run of whole axes an axis is in."""
    return sum(1 for other in cut if other < axis)


def _tile(node: Node) -> _Lowered | None:
    """Repeats: an axis that is repeated stands alone."""
    whole, repeats = shape(node.inputs[0]), data(operand(node, 1))
    if repeats is None or len(repeats) != len(whole):
        return None
    counts = [int(count) for count in repeats]
    repeated = {i for i, count in enumerate(counts) if count != 1}
    labels = [
        ("repeated", i) if i in repeated else ANY if n == 1 else ("whole", _first(i, repeated))
        for i, n in enumerate(whole)
    ]
    merging = merge_axes(labels)
    if merging is None:
        return None

    def write(editor: Editor, values: Sequence[Value | None]) -> list[Value]:
        merged = editor.constant(np.array(merging.shape(counts), np.int64), f"{node.name}_repeats")
        return [editor.add("Tile", [values[0], merged], node)[0]]

    return _Lowered((merging.shape(whole), None), write)


def _matmul(node: Node) -> _Lowered | None:
    """Products of matrices whose outer axes are the same, or of one constant or plain matrix."""
    left, right = shape(node.inputs[0]), shape(node.inputs[1])
    if len(right) == 2:
        inputs: tuple[tuple[int, ...], ...] = ((math.prod(left[:-1]), left[-1]), right)
    elif left[:-2] == right[:-2]:
        outer = math.prod(left[:-2])
        inputs = ((outer, *left[-2:]), (outer, *right[-2:]))
    else:
        return None
    return _Lowered(inputs, lambda editor, values: editor.add("MatMul", values, node))


LOWERED: dict[str, Callable[[Node], _Lowered | None]] = {
    **dict.fromkeys(ELEMENTWISE, _broadcast),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Concat", "Split"), _along),
    "Expand": _expand, "Transpose": _transpose, "Gather": _gather, "Slice": _slice, "MatMul": _matmul,
    "Tile": _tile,
}  # fmt: skip


# -- regions -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Region:
    """Nodes that tensors of too many axes connect, in order, and how each is written on fewer."""

    nodes: list[Node]
    lowered: dict[Node, _Lowered | None] = field(default_factory=dict)
    """None for a node that only gives a tensor another shape."""


def _is_high(value: Value | None) -> bool:
    return value is not None and len(shape(value)) > MOST_RANK


def _touches(node: Node) -> bool:
    return any(_is_high(v) and v is not None and v.const_value is None for v in (*node.inputs, *node.outputs))


def _region(editor: Editor, start: Node) -> _Region | None:
    """The region that a node begins; None where it does not, or where a node of it cannot be written on fewer axes."""
    members, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        high = [v for v in (*node.inputs, *node.outputs) if v is not None and _is_high(v)]
        near = [p for v in high if (p := v.producer()) is not None] + [user for v in high for user, _ in v.uses()]
        waiting += [other for other in dict.fromkeys(near) if other not in members]
        members.update(near)
    nodes = [node for node in editor.graph if node in members]
    if not nodes or nodes[0] is not start or len(nodes) != len(members):  # some are in the body of another node
        return None
    if not any(_is_high(v) and not v.is_graph_output() for node in nodes for v in node.outputs):
        return None  # only inputs and outputs of the model have too many, and they keep their shapes
    region = _Region(nodes)
    for node in nodes:
        if node.domain or is_quantized(node) or any(shape(v) == (-1,) or not math.prod(shape(v)) for v in node.outputs):
            return None
        if node.op_type in RESHAPES:
            region.lowered[node] = None
            continue
        if node.op_type.endswith("Softmax") and editor.opset < SOFTMAX_OF_ONE_AXIS:
            return None
        lower = LOWERED.get(node.op_type)
        lowered = lower(node) if lower is not None else None
        if lowered is None:
            return None
        region.lowered[node] = lowered
    return region


def _rewrite(editor: Editor, region: _Region) -> None:
    """Write every node on fewer axes; what leaves the region has its shape again."""
    low: dict[Value, Value] = {}
    for node in region.nodes:
        plan = region.lowered[node]
        if plan is None:
            x = node.inputs[0]
            assert x is not None
            written: Sequence[Value] = [low.get(x, x)]
        else:
            sizes = (*plan.inputs, *(None for _ in node.inputs[len(plan.inputs) :]))
            operands = [_operand(editor, node, low, v, s) for v, s in zip(node.inputs, sizes, strict=True)]
            written = plan.write(editor, operands)
        for old, new in zip(node.outputs, written, strict=True):
            if _is_high(old):
                low[old] = new
            if not _is_high(old) or old.is_graph_output():
                editor.replace(old, editor.reshape(new, shape(old), node))
    for node in reversed(region.nodes):
        editor.drop(node)


def _operand(
    editor: Editor, node: Node, low: dict[Value, Value], value: Value | None, sizes: tuple[int, ...] | None
) -> Value | None:
    if value is None or sizes is None:
        return value if value is None else low.get(value, value)
    array = data(value)
    if array is not None and shape(value) != sizes:
        return editor.constant(array.reshape(sizes), f"{value.name}_merged")
    return editor.reshape(low.get(value, value), sizes, node)


def _merged(place: Place) -> Rewrite | None:
    region = _region(place.editor, place.node) if _touches(place.node) else None
    if region is None:
        return None
    most = max(len(shape(v)) for n in region.nodes for v in n.outputs)
    what = f"{len(region.nodes)} nodes on tensors of {most} dimensions"
    return place.change(what, lambda: _rewrite(place.editor, region), nodes=region.nodes)


RULES = (
    RewriteRule(
        "merge-dimensions", "Tensors of six dimensions, whose axes go together, get five or fewer",
        "HTP takes five dimensions; what has more stays on the CPU, though neighbouring axes that are never parted "
        "count as one, and so do axes of size 1.",
        "onnxruntime's QNN execution provider: tensors of up to 5 dimensions",
        "Reshape before and after, and leave axes that go together in one.", True,
        any_node(), _merged,
    ),
)  # fmt: skip
