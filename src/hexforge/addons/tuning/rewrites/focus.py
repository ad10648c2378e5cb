# SPDX-License-Identifier: Apache-2.0
"""Focus: a picture taken apart into every second pixel (or every r-th), and the convolution behind it, as one."""

from __future__ import annotations

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.conv import Conv, conv
from hexforge.addons.tuning.rewrites.rule import PREDICTED, Place, Rewrite, RewriteRule
from hexforge.ir import Array
from hexforge.patterns.language import op
from hexforge.patterns.nodes import ONNX, integer, shape
from hexforge.patterns.pieces import Pieces, cuts_to_the_end, sliced_pieces

MOST_STEP = 4
TOGETHER = op("Concat SpaceToDepth")
"""What puts the pieces of a picture together."""


def _pieces(node: Node) -> Pieces[Value, Node] | None:
    """The pieces that a Concat of channels puts together, or SpaceToDepth: rows first, then columns."""
    if node.op_type == "Concat":
        along_channels = len(shape(node.outputs[0])) == 4 and integer(node, "axis", 0) % 4 == 1
        return sliced_pieces(ONNX, node, cuts_to_the_end) if along_channels else None
    if node.inputs[0] is None:
        return None
    size = integer(node, "blocksize", 1)
    offsets = tuple((row, column) for row in range(size) for column in range(size))
    return Pieces(node.inputs[0], (size, size), offsets, (node,))


def _spread(convolution: Conv, pieces: Pieces[Value, Node]) -> Array:
    """The weights for the picture as it is: each pixel of a window of pieces at its place among the picture's."""
    rows, columns = pieces.step
    out, deep, height, width = convolution.weight.shape
    channels = deep // len(pieces.offsets)
    weight = np.zeros((out, channels, height * rows, width * columns), convolution.weight.dtype)
    for i, (row, column) in enumerate(pieces.offsets):
        part = convolution.weight[:, i * channels : (i + 1) * channels]
        weight[:, :, row::rows, column::columns] = part
    return weight


def _focus(place: Place) -> Rewrite | None:
    """A convolution of all pieces of a picture, as one of the picture with the steps as strides."""
    convolution, pieces = conv(place.node), _pieces(place.match.node(TOGETHER))
    if convolution is None or pieces is None or convolution.group != 1 or set(convolution.dilation) != {1}:
        return None
    rows, columns = pieces.step
    sizes = shape(pieces.picture)
    if len(sizes) != 4 or len(pieces.offsets) != rows * columns or not 1 < max(rows, columns) <= MOST_STEP:
        return None
    if sizes[2] % rows or sizes[3] % columns or sizes[1] * rows * columns != convolution.weight.shape[1]:
        return None
    steps = (rows, columns, rows, columns)

    def write() -> Value:
        return convolution.write(
            place.editor, pieces.picture, _spread(convolution, pieces), convolution.bias, 1,
            strides=tuple(s * by for s, by in zip(convolution.stride, pieces.step, strict=True)),
            pads=tuple(p * by for p, by in zip(convolution.pads, steps, strict=True)),
        )  # fmt: skip

    what = f"{len(pieces.offsets)} slices of {pieces.picture.name} and a Concat before {place.node.name}"
    return place.instead(what, write, pieces.offsets, nodes=[*pieces.nodes, place.node])


RULES = (
    RewriteRule(
        "focus-into-conv", "Slices of every second pixel, a Concat and a convolution become one convolution",
        "The slices copy the picture at its largest size, pixel by pixel; a convolution with stride 2 reads it once.",
        PREDICTED, "Use a convolution of twice the size with stride 2; its weights are the same, in another order.",
        True, op("Conv", TOGETHER), _focus,
    ),
)  # fmt: skip
