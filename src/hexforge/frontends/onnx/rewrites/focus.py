# SPDX-License-Identifier: Apache-2.0
"""Focus: a picture taken apart into every second pixel (or every r-th), and the convolution behind it, as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx_ir import Node, Value

from hexforge.frontends.onnx.rewrites.conv import Conv, conv
from hexforge.frontends.onnx.rewrites.rule import PREDICTED, Rewrite, RewriteRule, rewrite_of
from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import data, integer, is_op, operand, reader, shape, source

MOST_STEP = 4
SPACE = (2, 3)
"""Rows and columns of a picture in ONNX's order of axes."""


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Parts of a picture: each is every `step`-th pixel from its offsets on, and they are one after the other."""

    picture: Value
    step: tuple[int, int]
    offsets: tuple[tuple[int, int], ...]
    nodes: tuple[Node, ...]


def _steps(node: Node) -> dict[int, tuple[int, int]] | None:
    """Start and step of a Slice by axis, where it goes to the end of each; None for another."""
    x = operand(node, 0)
    starts, ends = data(operand(node, 1)), data(operand(node, 2))
    if x is None or starts is None or ends is None or shape(x) == (-1,):
        return None
    sizes = shape(x)
    axes, steps = data(operand(node, 3)), data(operand(node, 4))
    if (operand(node, 3) is not None and axes is None) or (operand(node, 4) is not None and steps is None):
        return None
    axes = np.arange(starts.size) if axes is None else axes
    steps = np.ones(starts.size, np.int64) if steps is None else steps
    cuts = {}
    for axis, start, end, step in zip(axes.ravel(), starts.ravel(), ends.ravel(), steps.ravel(), strict=True):
        size = sizes[int(axis) % len(sizes)]
        first, last, by = slice(int(start), int(end), int(step)).indices(size)
        if by < 1 or len(range(first, last, by)) != len(range(first, size, by)):
            return None
        cuts[int(axis) % len(sizes)] = (first, by)
    return cuts


def _piece(value: Value) -> tuple[Value, tuple[int, int], tuple[int, int], tuple[Node, ...]] | None:
    """The picture that slices one after the other take a part of, the offsets, the steps and the slices."""
    offset, step, nodes = [0, 0], [1, 1], []
    node = value.producer()
    while node is not None and is_op(node, "Slice") and (cuts := _steps(node)) is not None:
        if not set(cuts) <= set(SPACE):
            return None
        for axis, (first, by) in cuts.items():  # of what is sliced already every `by`-th, so outer times inner
            at = SPACE.index(axis)
            offset[at], step[at] = first + by * offset[at], by * step[at]
        nodes.append(node)
        above = node.inputs[0]
        assert above is not None
        value, node = above, above.producer()
    return (value, (offset[0], offset[1]), (step[0], step[1]), tuple(nodes)) if nodes else None


def _sliced(node: Node) -> _Pieces | None:
    """The pieces that a Concat of channels puts together."""
    if not is_op(node, "Concat") or len(shape(node.outputs[0])) != 4 or integer(node, "axis", 0) % 4 != 1:
        return None
    candidates = [_piece(value) for value in node.inputs if value is not None]
    pieces = [piece for piece in candidates if piece is not None]
    if not pieces or len(pieces) != len(node.inputs):
        return None
    picture, _, step, _ = pieces[0]
    offsets = tuple(piece[1] for piece in pieces)
    if any(piece[0] is not picture or piece[2] != step for piece in pieces) or len(set(offsets)) != len(offsets):
        return None
    if any(not 0 <= at < by for offset in offsets for at, by in zip(offset, step, strict=True)):
        return None
    return _Pieces(picture, step, offsets, (*(n for piece in pieces for n in reversed(piece[3])), node))


def _space_to_depth(node: Node) -> _Pieces | None:
    """The pieces that SpaceToDepth puts together: rows first, then columns."""
    if not is_op(node, "SpaceToDepth") or node.inputs[0] is None:
        return None
    size = integer(node, "blocksize", 1)
    offsets = tuple((row, column) for row in range(size) for column in range(size))
    return _Pieces(node.inputs[0], (size, size), offsets, (node,))


def _spread(convolution: Conv, pieces: _Pieces) -> Array:
    """The weights for the picture as it is: each pixel of a window of pieces at its place among the picture's."""
    rows, columns = pieces.step
    out, deep, height, width = convolution.weight.shape
    channels = deep // len(pieces.offsets)
    weight = np.zeros((out, channels, height * rows, width * columns), convolution.weight.dtype)
    for i, (row, column) in enumerate(pieces.offsets):
        part = convolution.weight[:, i * channels : (i + 1) * channels]
        weight[:, :, row::rows, column::columns] = part
    return weight


def _focus(editor: Editor, node: Node) -> Rewrite | None:
    """A convolution of all pieces of a picture, as one of the picture with the steps as strides."""
    convolution = conv(node)
    above = source(node) if convolution is not None else None
    if convolution is None or above is None or reader(above.outputs[0]) is not node:
        return None
    pieces = _sliced(above) or _space_to_depth(above)
    if pieces is None or convolution.group != 1 or set(convolution.dilation) != {1}:
        return None
    rows, columns = pieces.step
    sizes = shape(pieces.picture)
    if len(sizes) != 4 or len(pieces.offsets) != rows * columns or not 1 < max(rows, columns) <= MOST_STEP:
        return None
    if sizes[2] % rows or sizes[3] % columns or sizes[1] * rows * columns != convolution.weight.shape[1]:
        return None
    steps = (rows, columns, rows, columns)

    def make() -> None:
        value = convolution.write(
            editor, pieces.picture, _spread(convolution, pieces), convolution.bias, 1,
            strides=tuple(s * by for s, by in zip(convolution.stride, pieces.step, strict=True)),
            pads=tuple(p * by for p, by in zip(convolution.pads, steps, strict=True)),
        )  # fmt: skip
        editor.replace(node.outputs[0], value)

    what = f"{len(pieces.offsets)} slices of {pieces.picture.name} and a Concat before {node.name}"
    return rewrite_of(what, [*dict.fromkeys(pieces.nodes), node], make, pieces.offsets)


RULES = (
    RewriteRule(
        "focus-into-conv", "Slices of every second pixel, a Concat and a convolution become one convolution",
        "The slices copy the picture at its largest size, pixel by pixel; a convolution with stride 2 reads it once.",
        PREDICTED, "Use a convolution of twice the size with stride 2; its weights are the same, in another order.",
        True, _focus,
    ),
)  # fmt: skip
