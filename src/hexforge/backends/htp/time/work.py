# SPDX-License-Identifier: Apache-2.0
"""Work: what a convolution, a matrix product, or an op without a rule of its own asks of the units."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hexforge.backends.htp.tiled_caches import JOIN, tile_of
from hexforge.backends.htp.time.tile import CHANNELS, Task, lanes, padded_elements, pixel_rows, round_up, window_depth
from hexforge.ir import Block, BlockwiseExpansion, Node, Role, Value, Work
from hexforge.ops import of_kind

RECURRENT = of_kind(Work.RECURRENT)
STRIDED_AS_PACKED = {"w8a8", "w8a16"}
"""Rates at which a shallow image that is packed takes only the pixels a stride leaves."""
MACS_PER_BYTE = 4
"""Assumed: multiply-accumulates that the vector units do in the time of an addition of one byte."""
WHOLE_BYTES = 32768
"""Bytes from which on an op is spread over the vector threads and has the whole fixed cost of that."""

WHOLE_GROUP = CHANNELS
"""Channels that a group of a convolution has a multiple of where it is a dense convolution of its own."""
RELAID = frozenset(("w8a8",))
"""Rates at which constants that tokens are multiplied by are brought into the weights' layout as other operands are."""
LARGE_WINDOW = 5
"""Rows or columns above which a depthwise window takes longer for each multiply-accumulate."""


def fixed_cost_share(size: float) -> float:
    """The share of an op's fixed cost that a tensor of `size` bytes has."""
    return min(1.0, size / WHOLE_BYTES)


def stored_constant(value: Value) -> Value | None:
    """The constant that a value is, or is dequantized from; None where it is computed."""
    if value.is_static:
        return value
    node = value.producer
    source = node.inputs[0] if node is not None and node.op.name == "Dequantize" else None
    return source if source is not None and source.is_static else None


def weight_bytes(task: Task, value: Value) -> int:
    """Bytes of weights: at the precision that is asked for, or, at the model's own, as many as their codes have.

    A scale per block is a half, or what LPBQ has in its place.
    """
    encoding = value.encoding
    if not task.own_types or encoding is None:
        return task.precision.weight_bytes(value.type.size)
    scales = 0
    if isinstance(encoding, Block):
        scales = 2 * len(encoding.scales)
    if isinstance(encoding, BlockwiseExpansion):
        scales = len(encoding.block_scales) * encoding.block_scale_bitwidth // 8
    return value.type.size * (encoding.bitwidth or value.dtype.bits) // 8 + scales


def dynamic_inputs(node: Node) -> list[Value]:
    """The inputs that are not constant."""
    return [v for v in node.inputs if v is not None and stored_constant(v) is None]


def data_input(node: Node) -> Value:
    """The first input that is not constant."""
    return dynamic_inputs(node)[0]


def constant_input(node: Node, index: int = 1) -> Value | None:
    """The constant that the input at an index is, or is dequantized from, else None."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return stored_constant(value) if value is not None else None


def convolution(task: Task, node: Node, source: Sequence[int], out: Sequence[int], *, on_hvx: bool = False) -> None:
    """A convolution: the matrix unit by tiles of pixels and channels, vectors for what a stride or few channels ask.

    With `on_hvx` one of short depth is the vector units' work.
    """
    p = task.precision
    weight = node.inputs[1]
    kernel = weight.shape if weight is not None else (1, 1, source[-1], out[-1])
    height, width = kernel[0], kernel[1]
    group = node.params.get("group", 1)
    stride = max(node.params.get("stride", (1, 1)))
    dilation = max(node.params.get("dilation", (1, 1)))
    constant = constant_input(node)
    task.weight_bytes = p.weight_bytes(math.prod(kernel)) if constant is None else weight_bytes(task, constant)
    pointwise = height * width == group == 1 and source[-1] >= CHANNELS and node.op.name == "Conv2d"
    rows, wide = pixel_rows(out, p, folded=pointwise), round_up(out[-1], CHANNELS)
    size = p.activation_bytes / 1e6
    if node.op.name == "TransposeConv2d":
        kind, deep = "grouped" if group > 1 else "conv", round_up(source[-1] // group, CHANNELS)
        macs = pixel_rows(source, p) * deep * round_up(out[-1] * height * width, CHANNELS)
        task.add("shuffle", padded_elements(out) * size)
    elif node.op.name == "DepthWiseConv2d" or source[-1] == group > 1:
        # a diagonal block for each 32 channels, or half of one
        kind, macs = "depthwise", rows * height * width * CHANNELS * lanes(out[-1])
    elif group > 1:
        # groups of whole tiles are dense convolutions beside each other; others share a tile, or end within one
        deep, each = source[-1] // group, out[-1] // group
        kind = "grouped" if deep % WHOLE_GROUP or each % WHOLE_GROUP else "conv"
        wide = group * round_up(each, CHANNELS) if each > CHANNELS else wide
        macs = rows * height * width * round_up(deep, CHANNELS) * wide
    else:
        kind, macs = "pointwise" if pointwise else "conv", rows * window_depth(height, width, source[-1]) * wide
        if source[-1] <= 4:
            task.add("pack", padded_elements(source) * size)
    if on_hvx and node.op.name == "Conv2d" and group == 1 and source[-1] < CHANNELS:
        task.add("mac", math.prod(out) * height * width * source[-1] * p.activation_bytes / MACS_PER_BYTE / 1e6)
        task.halo = (height - 1) * dilation / max(1, out[-3])
        return
    task.hmx[kind] = macs / 1e9
    if dilation > 1 and kind == "conv":
        task.hmx["dilation"] = macs / 1e9
    if kind == "depthwise" and max(height, width) > LARGE_WINDOW:
        task.hmx["large_window"] = macs / 1e9
    packed = "pack" in task.hvx and p.rate in STRIDED_AS_PACKED
    if stride > 1 and (height > 1 or kind == "depthwise") and not packed and node.op.name != "TransposeConv2d":
        task.add("stride", padded_elements(source) * size)
    task.halo = (height - 1) * dilation / max(1, out[-3]) if node.op.name != "TransposeConv2d" else 0.0


def convolution_3d(task: Task, node: Node, out: Sequence[int]) -> None:
    """A convolution over frames: images of the frames, a window of as many planes as the kernel has frames."""
    kernel = node.inputs[1].shape if node.inputs[1] is not None else (1, 1, 1, out[-1], out[-1])
    rows = math.prod(out[:-3]) * round_up(out[-3], 8) * round_up(out[-2], 4)
    depth = kernel[0] * window_depth(kernel[1], kernel[2], kernel[3])
    task.hmx["conv3d"] = rows * depth * round_up(out[-1], CHANNELS) / 1e9
    constant = constant_input(node)
    task.weight_bytes = (
        task.precision.weight_bytes(math.prod(kernel)) if constant is None else weight_bytes(task, constant)
    )


def product(task: Task, node: Node, source: Sequence[int], out: Sequence[int]) -> None:
    """A product with weights, or of two results."""
    p = task.precision
    constant = constant_input(node)
    if constant is not None:
        task.weight_bytes = weight_bytes(task, constant)
    if node.op.name == "FullyConnected":
        weight = constant.shape if constant is not None else (out[-1], source[-1])
        wide, deep = weight[0], weight[1]
        rows, batch = math.prod(out) // wide, 1
    else:
        deep = source[-2] if node.params.get("transpose_in0") else source[-1]
        rows, wide = (out[-2] if len(out) > 1 else 1), out[-1]
        batch = math.prod(out) // (rows * wide)
    of_pixels = node.op.name == "FullyConnected" and len(out) == 4 and out[1] > 1
    kind = "linear" if of_pixels else "product" if rows > 1 else "classifier"  # one row waits for its weights
    second, times = node.inputs[1], batch
    laid_out = second is not None and bool(tile_of(second))  # a cache may lie in the weights' layout
    if constant is not None:
        laid_out, times = kind != "product" or p.rate not in RELAID, math.prod(constant.shape[:-2])
    if not laid_out:
        task.add("operand", times * round_up(deep, CHANNELS) * round_up(wide, CHANNELS) * p.activation_bytes / 1e6)
    lines = batch * round_up(rows, p.rows * p.columns)
    task.hmx[kind] = lines * round_up(deep, CHANNELS) * round_up(wide, CHANNELS) / 1e9
    task.add("handover", fixed_cost_share(math.prod(out) * p.activation_bytes))


def brings_into_rows(task: Task, node: Node) -> None:
    """A cache that came in tiles and leaves the graph row by row is brought into that order."""
    joined = node.outputs[0]
    if node.op.name == JOIN and joined.role is Role.APP_READ and not joined.tile and tile_of(joined):
        *heads, deep, wide = joined.shape  # matrices beside each other, as `product` has them, and no image
        elements = math.prod(heads) * round_up(deep, CHANNELS) * round_up(wide, CHANNELS)
        task.add("operand", elements * task.precision.activation_bytes / 1e6)


def other_op(task: Task, node: Node, written: float, *, whole_sequence: bool = False) -> None:
    """The work of an op without a rule of its own, by the kind of work that the op declares.

    Of a recurrent op the state is handed over between time steps, unless it runs as one for the `whole_sequence`.
    """
    p, work = task.precision, node.op.work(node.call)
    if node.op.name in RECURRENT:  # a step waits for the one before
        shape = data_input(node).shape
        steps = 1 if len(shape) < 3 else shape[0] if node.params.get("time_major") else shape[1]
        task.add("handover", 1 if whole_sequence else steps)
        task.add("vector_op", 4 * steps)
    if work.macs:
        task.hmx["product"] = work.macs / 1e9
        task.weight_bytes = p.weight_bytes(sum(v.type.size for v in node.inputs if v is not None and v.is_static))
    task.add("add", work.lanes * p.activation_bytes / 1e6)
    task.add("lookup", work.lookups * p.activation_bytes / 1e6)
    if not (work.macs or work.lanes or work.lookups):
        task.add("copy", written)
