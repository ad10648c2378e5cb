# SPDX-License-Identifier: Apache-2.0
"""Movement: transposes, copies and selections that move more than they need to."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.rule import PREDICTED, Place, Rewrite, RewriteRule
from hexforge.patterns.language import any_node, anything, computed, constant, op
from hexforge.patterns.nodes import (
    data,
    integer,
    ints,
    is_float,
    is_op,
    reader,
    reduced_axes,
    shape,
    sliced_ranges,
    source,
)
from hexforge.patterns.permutation import compose, identity, moves_nothing

BROADCAST = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Where", "Pow", "Equal", "Less", "Greater", "And", "Or")
WINDOWS = "measured latencies (qai-hub-models): window reshapes and transposes are expensive, at 16 bit most of all"
X = anything()


def _perm(node: Node) -> tuple[int, ...]:
    rank = len(shape(node.inputs[0]))
    return ints(node, "perm", tuple(reversed(range(rank))))


FIRST = op("Transpose", X, stays=True)


def _transposes_meet(place: Place) -> Rewrite:
    above = place.match.node(FIRST)
    perm = compose(_perm(above), _perm(place.node))

    def write() -> Value:
        return place[X] if perm == identity(len(perm)) else place.add("Transpose", place[X], perm=perm)

    return place.instead("Transpose after Transpose", write, perm, nodes=[above, place.node])


def _heads(place: Place) -> Rewrite | None:
    """Reshape, Transpose, Reshape that move nothing: axes of 1 change places."""
    sizes, perm = shape(place[X]), _perm(place.node)
    if sizes == (-1,) or len(sizes) != len(perm) or place.editor.opset < 5:  # its shape is not known
        return None
    if not moves_nothing(perm, sizes) or perm == identity(len(perm)):
        return None
    return place.instead("Transpose of axes of size 1", lambda: place.reshaped(place[X]))


TENSOR, INDICES = computed(), constant(lambda array: array.ndim <= 1 and array.size > 0)


def _gather_to_slice(place: Place) -> Rewrite | None:
    x, indices = place[TENSOR], place.array(INDICES)
    if place.editor.opset < 13 or math.prod(shape(place.out)) <= 1:
        return None
    sizes = shape(x)
    axis = integer(place.node, "axis", 0) % len(sizes)
    chosen = np.where(indices < 0, indices + sizes[axis], indices).reshape(-1).astype(np.int64)
    steps = np.unique(np.diff(chosen))
    if len(steps) > 1 or (len(steps) == 1 and steps[0] <= 0):
        return None
    step = int(steps[0]) if len(steps) else 1

    def write() -> Value:
        ends = (chosen[:1], chosen[-1:] + 1, [axis], [step])
        return place.reshaped(place.add("Slice", x, *(place.constant(end, "slice") for end in ends)))

    return place.instead(f"Gather of {chosen.size} neighbours", write, step)


def _split_concat(place: Place) -> Rewrite | None:
    node, above = place.node, source(place.node)
    if above is None or not is_op(above, "Split") or list(node.inputs) != list(above.outputs):
        return None
    x = above.inputs[0]
    if x is None or shape(x) != shape(place.out):
        return None
    rank = len(shape(x))
    if integer(node, "axis", 0) % rank != integer(above, "axis", 0) % rank:
        return None
    return place.instead("Concat of all parts of a Split", lambda: x, nodes=[above, node])


def _broadcast(place: Place) -> Rewrite | None:
    """Expand or Tile of a tensor whose readers broadcast it themselves."""
    x, out = place[TENSOR], place.out
    if shape(x) == (-1,) or out.is_graph_output() or not out.uses():
        return None
    before = (1,) * (len(shape(out)) - len(shape(x))) + shape(x)
    if any(a not in (1, b) for a, b in zip(before, shape(out), strict=True)):
        return None
    for user, index in out.uses():
        others = [shape(v) for i, v in enumerate(user.inputs) if i != index and v is not None]
        if not is_op(user, *BROADCAST) or (-1,) in others:
            return None
        if np.broadcast_shapes(shape(x), *others) != shape(user.outputs[0]):
            return None
    return place.instead(f"{place.node.op_type} before ops that broadcast", lambda: x)


def _mean_to_pool(place: Place) -> Rewrite | None:
    if not is_float(place.out) or len(shape(place[X])) != 4 or reduced_axes(place.node) != (2, 3):
        return None
    return place.instead("ReduceMean over an image", lambda: place.reshaped(place.add("GlobalAveragePool", place[X])))


def _duplicate(place: Place) -> Rewrite | None:
    """A node that computes what an earlier one has computed already."""
    node = place.node
    x = next((v for v in node.inputs if v is not None and v.const_value is None), None)
    if x is None or node.domain or len(node.outputs) != 1 or node.op_type.startswith("Random"):
        return None
    if place.out.is_graph_output() or any(a.type.name in ("GRAPH", "GRAPHS") for a in node.attributes.values()):
        return None
    if node.op_type in ("QuantizeLinear", "DequantizeLinear", "Dropout", "Bernoulli", "Multinomial"):
        return None
    first = next(other for other, _ in x.uses() if other is node or _alike(other, node))
    return None if first is node else place.instead(f"{node.op_type} as {first.name}", lambda: first.outputs[0])


def _alike(a: Node, b: Node) -> bool:
    if a.op_type != b.op_type or a.domain != b.domain or len(a.inputs) != len(b.inputs) or len(a.outputs) != 1:
        return False
    if {n: x.value for n, x in a.attributes.items()} != {n: x.value for n, x in b.attributes.items()}:
        return False
    return all(_equal(v, w) for v, w in zip(a.inputs, b.inputs, strict=True))


def _equal(a: Value | None, b: Value | None) -> bool:
    if a is b:
        return True
    first, second = data(a), data(b)
    if first is None or second is None or first.shape != second.shape or first.dtype != second.dtype:
        return False
    # constants that repeat one number stand for weights a file leaves out: they are alike by chance
    return 0 not in first.strides and 0 not in second.strides and bool(np.array_equal(first, second))


def _channel_last(place: Place) -> Rewrite | None:
    """An image input whose first reader is this node: the caller gives it channel-last."""
    node = place.node
    x = next((v for v in node.inputs if v is not None and v.is_graph_input()), None)
    if x is None or not is_float(x) or len(shape(x)) != 4 or next(iter(x.uses()))[0] is not node or shape(x)[1] > 4:
        return None
    if is_op(node, "Transpose"):
        return None
    sizes = shape(x)

    def make() -> None:
        users = list(x.uses())
        x.shape = onnx_ir.Shape((sizes[0], sizes[2], sizes[3], sizes[1]))
        first = place.add("Transpose", x, perm=(0, 3, 1, 2))
        for user, index in users:
            user.replace_input_with(index, first)

    return place.change(f"input {x.name} of {'x'.join(map(str, sizes))}", make)


def _slices(place: Place) -> Rewrite | None:
    """Slices of neighbouring parts that cover an axis, as one Split; found at the first of them."""
    x = place[TENSOR]
    if place.editor.opset < 13 or reader(x) is place.node or next(iter(x.uses()))[0] is not place.node:
        return None
    parts: list[tuple[int, int, int, Node]] = []
    for user, index in x.uses():
        cuts = sliced_ranges(user) if index == 0 and is_op(user, "Slice") else None
        for axis, (start, end, step) in (cuts or {}).items():
            if step == 1 and len(cuts or {}) == 1:
                parts.append((axis, start, end, user))
    parts.sort(key=lambda part: part[:3])
    users, axes = [part[3] for part in parts], {part[0] for part in parts}
    if len(parts) < 2 or len(axes) != 1:
        return None
    edges = [0, *(part[2] for part in parts)]
    if [part[1] for part in parts] != edges[:-1] or edges[-1] != shape(x)[parts[0][0]]:
        return None
    if any(user.outputs[0].is_graph_output() for user in users):
        return None

    def make() -> None:
        pieces = place.split(x, np.diff(edges).tolist(), parts[0][0])
        for user, value in zip(users, pieces, strict=True):
            place.editor.replace(user.outputs[0], value)

    return place.change(f"{len(parts)} slices of {x.name}", make, nodes=users)


RULES = (
    RewriteRule(
        "transposes-meet", "Transposes one after the other become one or none",
        "Each moves every element; two that undo each other move it for nothing.", WINDOWS,
        "Multiply the permutations.", True,
        op("Transpose", FIRST), _transposes_meet,
    ),
    RewriteRule(
        "transpose-of-ones", "Transposes that move only axes of size 1 become Reshape",
        "The elements stay in their order, so nothing needs to move.", WINDOWS, "Use Reshape.", True,
        op("Transpose", X), _heads,
    ),
    RewriteRule(
        "gather-to-slice", "Gather of neighbours becomes Slice",
        "A slice is a copy by rows; a gather looks every row up.", PREDICTED, "Use Slice.", True,
        op("Gather", TENSOR, INDICES), _gather_to_slice,
    ),
    RewriteRule(
        "split-concat", "Concat of all parts of a Split becomes nothing",
        "The parts together are what was split.", PREDICTED, "Use what was split.", True,
        op("Concat"), _split_concat,
    ),
    RewriteRule(
        "slices-to-split", "Slices that cover an axis become one Split",
        "The tensor is read once.", PREDICTED, "Use Split.", True,
        op("Slice", TENSOR), _slices,
    ),
    RewriteRule(
        "broadcast", "Expand or Tile before an op that broadcasts becomes nothing",
        "Element-wise ops broadcast while they read; Expand and Tile write the copies.", PREDICTED,
        "Give the small tensor to the op.", True,
        op("Expand Tile", TENSOR), _broadcast,
    ),
    RewriteRule(
        "mean-to-pool", "ReduceMean over an image becomes GlobalAveragePool",
        "Pooling keeps images in their layout; a general reduction may have to change it.", PREDICTED,
        "Use GlobalAveragePool.", True,
        op("ReduceMean", X), _mean_to_pool,
    ),
    RewriteRule(
        "duplicates", "Nodes that compute the same become one",
        "What was computed once can be read twice.", PREDICTED, "Share the result.", True,
        any_node(), _duplicate,
    ),
    RewriteRule(
        "channel-last-input", "Image inputs are given channel-last",
        "HTP computes channel-last; a channel-first input of an onnx graph is transposed at its largest size.",
        "measured latencies (qai-hub-models): the onnx path against qnn_dlc and tflite",
        "Declare the input as N, H, W, C and feed images as cameras and decoders give them.", False,
        any_node(), _channel_last,
        ("onnx",),
    ),
)  # fmt: skip
