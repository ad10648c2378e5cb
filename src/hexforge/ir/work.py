# SPDX-License-Identifier: Apache-2.0
"""Work: the kinds of work that ops are, and the units it is counted in. What it costs is a backend's business."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Work(enum.StrEnum):
    """The kind of work an op is. Every op declares one, and what treats ops alike asks for it instead of names."""

    # the matrix unit
    CONV = "conv"
    """Windows of pixels times weights; the weight gives every output channel a window over its group's channels."""
    DEPTHWISE = "depthwise"
    """A convolution of each channel by itself."""
    TRANSPOSED_CONV = "transposed_conv"
    """Each pixel times weights, added up where the windows overlap."""
    FULLY_CONNECTED = "fully_connected"
    """Rows times a weight matrix."""
    MATMUL = "matmul"
    """A product of two matrices, either of which may be computed."""
    RECURRENT = "recurrent"
    """Products and gates in steps, each of which waits for the one before."""

    # vector units, an element at a time
    CLAMP = "clamp"
    """Elements limited to a range, which may be done where another op writes its result."""
    LOOKUP = "lookup"
    """A function of each element that is read from a table."""
    ADD = "add"
    """Arithmetic of one or two operands in a vector instruction or two."""
    DIVIDE = "divide"
    """A quotient of two operands."""
    PRELU = "prelu"
    """A product with coefficients where the element is negative."""
    AFFINE = "affine"
    """A product and a sum with constants of each channel."""
    LOGIC = "logic"
    """Comparisons, tests, logic of booleans and the choice between two operands."""
    CONVERT = "cast"
    """The same elements in another data type or encoding."""
    RANDOM = "random"
    """Numbers that are drawn, and so differ from run to run: never computed at compile time."""

    # vector units, many elements for each result
    SOFTMAX = "softmax"
    """Exponentials divided by their sum along an axis."""
    NORM = "norm"
    """A normalization over the elements of a row."""
    IMAGE_NORM = "image_norm"
    """A normalization over the pixels of a channel or of a group of them."""
    POOL = "pool"
    """The maximum or mean of windows."""
    REDUCE = "reduce"
    """One result of all elements along some axes."""
    SEARCH = "argmax"
    """The place of the largest or smallest elements along an axis."""
    RESIZE = "resize"
    """An image interpolated to another size."""

    # bytes that only move
    TRANSPOSE = "transpose"
    """The axes in another order."""
    RESHAPE = "reshape"
    """The elements in the same order under another shape."""
    CONCAT = "concat"
    """Tensors put one after another."""
    SLICE = "slice"
    """Parts of a tensor, or a tensor repeated or with something around it."""
    GATHER = "gather"
    """Elements from computed places."""
    DEPTH_TO_SPACE = "depth_to_space"
    """Blocks of one axis laid out along others."""
    MOVE = "move"
    """Any other movement."""

    OTHER = "other"
    """No kind of its own: its amounts say what it is."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much work a node is, in each unit."""

    macs: int = 0  # matrix multiply-accumulates
    lanes: int = 0  # vector element operations
    lookups: int = 0  # table look-ups or transcendental functions
    moved_bytes: int = 0  # bytes only moved
