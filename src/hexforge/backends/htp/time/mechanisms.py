# SPDX-License-Identifier: Apache-2.0
"""Mechanisms: what is believed to cost time beyond the work that an op declares, each with a prior and a reason.

Each is a switch: `python -m hexforge.latency choose` says by folds of families which of them the measurements keep. One
that is off costs nothing (or, as a factor, is 1): what stays is the plain price of bytes and multiply-accumulates.
What an op asks for is counted whether its switch is on or not: a file of costs says what that is worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hexforge.backends.htp.time.tile import CHANNELS, Precision
from hexforge.backends.htp.time.work import data_input, dynamic_inputs
from hexforge.ir import Node, Work
from hexforge.ops import of_kind

NOTHING, NO_FACTOR = 1e-12, 1.0
"""What a switch that is off is worth: as a price, and as a factor."""
BYTES, ROWS, ELEMENTS = "us per 1e6 bytes", "us per thousand rows", "us per thousand elements"
SHARE = "of a dense convolution of as many MACs, on top"
DEVIATES = "of the time for as many bytes of float16"


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A switch: the parameter it is, what is believed of it before a fit (within a factor `e**spread`), and why."""

    name: str
    unit: str
    prior: float
    spread: float
    reason: str

    @property
    def off(self) -> float:
        """What the parameter is where the switch is off."""
        return NO_FACTOR if self.name.startswith("deviation.") else NOTHING

    @property
    def kind(self) -> str:
        """The kind of work whose price it is."""
        return self.name.partition(".")[2]


MECHANISMS = (
    Mechanism("share.dilation", SHARE, 0.5, 0.7, "pixels of a dilated window lie in other tiles"),
    Mechanism("share.large_window", SHARE, 0.5, 0.3, "depthwise windows above 5 reach beyond the tile beside theirs"),
    Mechanism("hvx.batchnorm", BYTES, 60, 0.5, "at fixed point each channel is rescaled by numbers of its own"),
    Mechanism("hvx.large_attention", BYTES, 50, 0.7, "a head's scores above half of VTCM are cut by rows"),
    Mechanism("hvx.loose_product", BYTES, 40, 0.5, "products in no image that fill no tiles are padded row by row"),
    Mechanism("hvx.split", BYTES, 200, 0.7, "parts of float rows are copied by scalar code"),
    Mechanism("hvx.across", BYTES, 15, 0.5, "sums over pixels go across tiles, those along rows within them"),
    Mechanism("hvx.border_transpose", BYTES, 60, 0.5, "an image as it arrives lies in no tiles"),
    Mechanism("hvx.large_sum", BYTES, 6, 0.5, "arithmetic beyond half of VTCM waits for its tiles"),
    Mechanism("hvx.piece", ROWS, 2, 0.7, "pieces of rows that are no whole tiles are copied one by one"),
    Mechanism("hvx.cut", ROWS, 6, 0.7, "a float onnx graph slices rows where a DLC splits once"),
    Mechanism("hvx.scalar", ELEMENTS, 8, 0.3, "averages of integers beyond the image are added one by one"),
    Mechanism("hvx.sorted", ELEMENTS, 100, 0.7, "TopK compares element by element"),
    Mechanism("hvx.loose_row", ROWS, 3, 0.3, "floats in no image that fill no tiles are worked on row by row"),
    Mechanism("hvx.narrow_shuffle", ROWS, 20, 0.7, "channels that fill no tiles are shuffled pixel by pixel"),
    Mechanism("deviation.w8a8.lookup", DEVIATES, 1, 0.15, "functions of codes are tables, of floats polynomials"),
    Mechanism("deviation.w8a8.move", DEVIATES, 1, 0.15, "bytes are moved by other instructions than halves"),
    Mechanism("deviation.w8a16.lookup", DEVIATES, 1, 0.15, "a table of 65,536 codes does not fit one look-up"),
    Mechanism("deviation.w8a16.move", DEVIATES, 1, 0.15, "codes of 16 bit are requantized as they move"),
    Mechanism("deviation.fixed.divide", DEVIATES, 1, 0.15, "a quotient of codes is computed and brought back to codes"),
    Mechanism("deviation.w8a16.product", DEVIATES, 1, 0.15, "operands of 16 bit are multiplied in two halves"),
)
SWITCHES = tuple(mechanism.name for mechanism in MECHANISMS)
BY_BYTES = tuple(m.kind for m in MECHANISMS if m.unit == BYTES)
BY_COUNT = tuple(m.kind for m in MECHANISMS if m.unit in (ROWS, ELEMENTS))
ELEMENTWISE = of_kind(Work.ADD, Work.AFFINE, Work.DIVIDE, Work.PRELU, Work.CLAMP, Work.LOOKUP, Work.REDUCE)
ARITHMETIC = of_kind(Work.ADD, Work.AFFINE, Work.DIVIDE)


def added_work(node: Node, p: Precision, half_vtcm: int) -> Iterator[tuple[str, float]]:
    """Kinds and amounts of work that mechanisms of their own add to an op."""
    op, result = node.op.name, node.outputs[0].shape
    operands = dynamic_inputs(node)
    shape: Sequence[int] = max((*(v.shape for v in operands), result), key=math.prod)
    size, rows = math.prod(shape) * p.activation_bytes, math.prod(shape[:-1]) / 1e3
    loose = len(shape) != 4 and bool(shape) and shape[-1] % CHANNELS != 0
    if op == "TopK":
        yield "sorted", math.prod(data_input(node).shape) / 1e3
    elif op == "MatMul" and loose and len(operands) > 1:
        yield "loose_product", size / 1e6
    elif op == "ChannelShuffle" and shape[-1] % CHANNELS:
        yield "narrow_shuffle", rows
    elif op in ELEMENTWISE:
        if loose and p.rate == "float":
            yield "loose_row", rows
        if size > half_vtcm and op in ARITHMETIC:
            yield "large_sum", size / 1e6
