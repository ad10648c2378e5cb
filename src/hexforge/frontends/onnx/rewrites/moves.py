# SPDX-License-Identifier: Apache-2.0
"""Movement: transposes, copies and selections that move more than they need to."""

from __future__ import annotations

import math

import numpy as np
from onnx_ir import Node, Value

from hexforge.frontends.onnx.rewrites.rule import PREDICTED, Rewrite, RewriteRule, rewrite_of
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import data, integer, ints, is_float, is_op, operand, reader, shape, source

BROADCAST = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Where", "Pow", "Equal", "Less", "Greater", "And", "Or")
WINDOWS = "measured latencies (qai-hub-models): window reshapes and transposes are expensive, at 16 bit most of all"


def _perm(node: Node) -> tuple[int, ...]:
    rank = len(shape(node.inputs[0]))
    return ints(node, "perm", tuple(reversed(range(rank))))


def _transposes_meet(editor: Editor, node: Node) -> Rewrite | None:
    above = source(node) if is_op(node, "Transpose") else None
    if above is None or not is_op(above, "Transpose"):
        return None
    first, second = _perm(above), _perm(node)
    perm = tuple(first[i] for i in second)
    x = above.inputs[0]
    assert x is not None

    def make() -> None:
        same = perm == tuple(range(len(perm)))
        editor.replace(node.outputs[0], x if same else editor.add("Transpose", [x], node, perm=perm)[0])

    return rewrite_of("Transpose after Transpose", [above, node], make, perm)


def _heads(editor: Editor, node: Node) -> Rewrite | None:
    """Reshape, Transpose, Reshape that move nothing: axes of 1 change places."""
    if not is_op(node, "Transpose") or not node.inputs or node.inputs[0] is None:
        return None
    x, sizes, perm = node.inputs[0], shape(node.inputs[0]), _perm(node)
    if len(sizes) != len(perm):  # its shape is not known
        return None
    moving = [i for i in perm if sizes[i] != 1]
    if sizes == (-1,) or moving != sorted(moving) or list(perm) == sorted(perm) or editor.opset < 5:
        return None

    def make() -> None:
        editor.replace(node.outputs[0], editor.reshape(x, shape(node.outputs[0]), node))

    return rewrite_of("Transpose of axes of size 1", [node], make)


def _gather_to_slice(editor: Editor, node: Node) -> Rewrite | None:
    indices = data(operand(node, 1)) if is_op(node, "Gather") else None
    x = operand(node, 0)
    if indices is None or x is None or x.const_value is not None or indices.ndim > 1 or not indices.size:
        return None
    if editor.opset < 13 or math.prod(shape(node.outputs[0])) <= 1:
        return None
    sizes = shape(x)
    axis = integer(node, "axis", 0) % len(sizes)
    chosen = np.where(indices < 0, indices + sizes[axis], indices).reshape(-1).astype(np.int64)
    steps = np.unique(np.diff(chosen))
    if len(steps) > 1 or (len(steps) == 1 and steps[0] <= 0):
        return None
    step = int(steps[0]) if len(steps) else 1

    def make() -> None:
        ends = (chosen[:1], chosen[-1:] + 1, [axis], [step])
        inputs = [editor.constant(np.array(v, np.int64), f"{node.name}_slice") for v in ends]
        value = editor.add("Slice", [x, *inputs], node)[0]
        editor.replace(node.outputs[0], editor.reshape(value, shape(node.outputs[0]), node))

    return rewrite_of(f"Gather of {chosen.size} neighbours", [node], make, step)


def _split_concat(editor: Editor, node: Node) -> Rewrite | None:
    above = source(node) if is_op(node, "Concat") else None
    if above is None or not is_op(above, "Split") or list(node.inputs) != list(above.outputs):
        return None
    x = above.inputs[0]
    if x is None or shape(x) != shape(node.outputs[0]):
        return None
    rank = len(shape(x))
    if integer(node, "axis", 0) % rank != integer(above, "axis", 0) % rank:
        return None
    return rewrite_of("Concat of all parts of a Split", [above, node], lambda: editor.replace(node.outputs[0], x))


def _broadcast(editor: Editor, node: Node) -> Rewrite | None:
    """Expand or Tile of a tensor whose readers broadcast it themselves."""
    if not is_op(node, "Expand", "Tile") or not node.inputs or node.inputs[0] is None:
        return None
    x, out = node.inputs[0], node.outputs[0]
    if x.const_value is not None or shape(x) == (-1,) or out.is_graph_output() or not out.uses():
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
    return rewrite_of(f"{node.op_type} before ops that broadcast", [node], lambda: editor.replace(out, x))


def _mean_to_pool(editor: Editor, node: Node) -> Rewrite | None:
    if not is_op(node, "ReduceMean") or not is_float(node.outputs[0]) or len(shape(node.inputs[0])) != 4:
        return None
    second_input = data(operand(node, 1))
    axes = ints(node, "axes", ()) if second_input is None else tuple(int(a) for a in second_input)
    if sorted(a % 4 for a in axes) != [2, 3]:
        return None

    def make() -> None:
        (value,) = editor.add("GlobalAveragePool", [node.inputs[0]], node)
        editor.replace(node.outputs[0], editor.reshape(value, shape(node.outputs[0]), node))

    return rewrite_of("ReduceMean over an image", [node], make)


def _duplicate(editor: Editor, node: Node) -> Rewrite | None:
    """A node that computes what an earlier one has computed already."""
    x = next((v for v in node.inputs if v is not None and v.const_value is None), None)
    if x is None or node.domain or len(node.outputs) != 1 or node.op_type.startswith("Random"):
        return None
    if node.outputs[0].is_graph_output() or any(a.type.name in ("GRAPH", "GRAPHS") for a in node.attributes.values()):
        return None
    if node.op_type in ("QuantizeLinear", "DequantizeLinear", "Dropout", "Bernoulli", "Multinomial"):
        return None
    first = next(other for other, _ in x.uses() if other is node or _alike(other, node))
    if first is node:
        return None
    return rewrite_of(
        f"{node.op_type} as {first.name}", [node], lambda: editor.replace(node.outputs[0], first.outputs[0])
    )


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


def _channel_last(editor: Editor, node: Node) -> Rewrite | None:
    """An image input whose first reader is this node: the caller gives it channel-last."""
    x = next((v for v in node.inputs if v is not None and v.is_graph_input()), None)
    if x is None or not is_float(x) or len(shape(x)) != 4 or next(iter(x.uses()))[0] is not node or shape(x)[1] > 4:
        return None
    if is_op(node, "Transpose"):
        return None
    sizes = shape(x)

    def make() -> None:
        import onnx_ir

        users = list(x.uses())
        x.shape = onnx_ir.Shape((sizes[0], sizes[2], sizes[3], sizes[1]))
        (first,) = editor.add("Transpose", [x], node, perm=(0, 3, 1, 2))
        for user, index in users:
            user.replace_input_with(index, first)

    return rewrite_of(f"input {x.name} of {'x'.join(map(str, sizes))}", [node], make)


def _gathers(editor: Editor, node: Node) -> Rewrite | None:
    """Slices of neighbouring parts that cover an axis, as one Split; found at the first of them."""
    x = operand(node, 0) if is_op(node, "Slice") and editor.opset >= 13 else None
    if x is None or x.const_value is not None or reader(x) is node:
        return None
    parts: list[tuple[int, int, int, Node]] = []
    for user, index in x.uses():
        span = _span(user, shape(x)) if index == 0 and is_op(user, "Slice") else None
        if span is not None:
            parts.append((*span, user))
    parts.sort(key=lambda part: part[:3])
    axis = parts[0][0] if parts else -1
    if len(parts) < 2 or any(part[0] != axis for part in parts):
        return None
    edges = [0, *(part[2] for part in parts)]
    if [part[1] for part in parts] != edges[:-1] or edges[-1] != shape(x)[axis] or next(iter(x.uses()))[0] is not node:
        return None
    if any(part[3].outputs[0].is_graph_output() for part in parts):
        return None

    def make() -> None:
        sizes = editor.constant(np.diff(edges).astype(np.int64), f"{node.name}_sizes")
        pieces = editor.add("Split", [x, sizes], node, len(parts), axis=axis)
        for part, value in zip(parts, pieces, strict=True):
            editor.replace(part[3].outputs[0], value)

    return rewrite_of(f"{len(parts)} slices of {x.name}", [part[3] for part in parts], make)


def _span(node: Node, sizes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Axis, start and end of a Slice along one axis, by ones."""
    starts, ends, axes, steps = (data(operand(node, i)) for i in range(1, 5))
    if starts is None or ends is None or starts.size != 1 or axes is None or (steps is not None and steps[0] != 1):
        return None
    axis = int(axes[0]) % len(sizes)
    start, end, _ = slice(int(starts[0]), int(ends[0])).indices(sizes[axis])
    return axis, start, end


RULES = (
    RewriteRule(
        "transposes-meet", "Transposes one after the other become one or none",
        "Each moves every element; two that undo each other move it for nothing.", WINDOWS,
        "Multiply the permutations.", True, _transposes_meet,
    ),
    RewriteRule(
        "transpose-of-ones", "Transposes that move only axes of size 1 become Reshape",
        "The elements stay in their order, so nothing needs to move.", WINDOWS, "Use Reshape.", True, _heads,
    ),
    RewriteRule(
        "gather-to-slice", "Gather of neighbours becomes Slice",
        "A slice is a copy by rows; a gather looks every row up.", PREDICTED, "Use Slice.", True, _gather_to_slice,
    ),
    RewriteRule(
        "split-concat", "Concat of all parts of a Split becomes nothing",
        "The parts together are what was split.", PREDICTED, "Use what was split.", True, _split_concat,
    ),
    RewriteRule(
        "slices-to-split", "Slices that cover an axis become one Split",
        "The tensor is read once.", PREDICTED, "Use Split.", True, _gathers,
    ),
    RewriteRule(
        "broadcast", "Expand or Tile before an op that broadcasts becomes nothing",
        "Element-wise ops broadcast while they read; Expand and Tile write the copies.", PREDICTED,
        "Give the small tensor to the op.", True, _broadcast,
    ),
    RewriteRule(
        "mean-to-pool", "ReduceMean over an image becomes GlobalAveragePool",
        "Pooling keeps images in their layout; a general reduction may have to change it.", PREDICTED,
        "Use GlobalAveragePool.", True, _mean_to_pool,
    ),
    RewriteRule(
        "duplicates", "Nodes that compute the same become one",
        "What was computed once can be read twice.", PREDICTED, "Share the result.", True, _duplicate,
    ),
    RewriteRule(
        "channel-last-input", "Image inputs are given channel-last",
        "HTP computes channel-last; a channel-first input of an onnx graph is transposed at its largest size.",
        "measured latencies (qai-hub-models): the onnx path against qnn_dlc and tflite",
        "Declare the input as N, H, W, C and feed images as cameras and decoders give them.", False, _channel_last,
        ("onnx",),
    ),
)  # fmt: skip
