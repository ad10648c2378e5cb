# SPDX-License-Identifier: Apache-2.0
"""Convolutions and matrix products: weights packed for the kernels, zero points folded into biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower.adapt import three
from hexforge.backends.htp.numbers.lower.moves import merged, strides
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.lower.products import computed_weights, packed_weights
from hexforge.backends.htp.numbers.lower.products.phases import phases
from hexforge.backends.htp.numbers.lower.products.weights import (
    BLOCK,
    LANE,
    Weights,
    expanded,
    in_float16,
    kept_weights,
    packed,
    sixteen,
    spread,
)
from hexforge.backends.htp.numbers.storage import Storage, in_range
from hexforge.ir import (
    Array,
    AxisScaleOffset,
    BlockwiseExpansion,
    DType,
    Encoding,
    Node,
    ScaleOffset,
    TensorType,
    Value,
)
from hexforge.ir.fixed_point import centered, dequantize, scale_array

_LONG = 64
"""k-steps of a run."""
_BITS = {"u8": 8, "s16": 16, "f32": 32}


def _usable(weight: Value, bits: int, axis: int) -> bool:
    """True for constants the kernels take; scales must run along `axis`, which becomes the output's last."""
    if weight.data is None or (isinstance(weight.encoding, AxisScaleOffset) and weight.encoding.axis != axis):
        return False
    if bits == 32:
        return weight.encoding is None and weight.dtype.is_float
    allowed = {DType.INT8, DType.UINT8, DType.INT4, DType.UINT4} | (
        {DType.INT16, DType.UINT16} if bits == 16 else set()
    )
    return isinstance(weight.encoding, (ScaleOffset, AxisScaleOffset)) and weight.dtype in allowed


def _bias(bias: Value | None, outputs: int, x: Storage, encoding: Encoding | None) -> Array | None:
    """The bias as real numbers; None where it is computed at run time."""
    if bias is None:
        return np.zeros(outputs)
    if bias.data is None:
        return None
    if bias.encoding is None:
        return bias.data.astype(np.float64).ravel()
    if x.fixed and isinstance(encoding, (ScaleOffset, AxisScaleOffset, BlockwiseExpansion)):
        # A bias scale that is the product up to float32 rounding is meant to be it: the integers add up.
        scales = encoding.scale if isinstance(encoding, ScaleOffset) else encoding.scales
        product = x.scale * np.asarray(scales, np.float64)
        own = scale_array(bias.encoding, bias.shape).ravel()
        if np.all(np.abs(own - product) <= 1e-6 * product):
            return centered(bias.data, bias.type).ravel() * product
    return dequantize(bias.data, bias.type).ravel()


def constants(x: Storage, y: Storage, weights: Weights, bias: Array, groups: int, bits: int) -> dict[str, Any] | None:
    """Bias and multiplier attributes; None where the sums could leave 32 bits (16-bit activations: 53)."""
    outputs = weights.values.shape[-1]
    if bits == 32:
        return {"bias_f32": spread(matrix_half(bias), groups, np.float32)}
    sums = weights.values.sum((0, 1, 2, 3), dtype=np.int64)
    terms = int(np.prod(weights.values.shape[:4]))
    product = x.scale * np.broadcast_to(weights.scales, (outputs,))
    units = np.rint(bias / product)
    total = units - x.zero_point * sums + terms * x.zero_point * weights.offset
    multiplier = product / y.scale
    if not in_range(multiplier):
        return None
    if bits == 16:
        if (weights.magnitudes() * 32768 + np.abs(total)).max(initial=0) >= 2**53:
            return None
        return {"bias": spread(total, groups, np.int64), "multiplier": spread(multiplier, groups, np.float64)}
    reach = weights.magnitudes() * 255 + abs(weights.offset) * terms * 255 + np.abs(total)
    if reach.max(initial=0) >= 2**31:
        return None
    return {"bias32": spread(total, groups, np.int32), "multiplier32": spread(multiplier, groups, np.float32)}


def _row(x: Storage, bits: int, elements: int) -> Array:
    if bits == 32:
        return np.zeros(elements, np.float32)
    return np.full(elements, x.zero_point, x.dtype)


def _float_range() -> dict[str, Any]:
    return {"low": float("-inf"), "high": float("inf"), "half": 1}


@dataclass(frozen=True, slots=True)
class _Filter:
    """What a convolution multiplies with: [kd, kh, kw, in per group, out] weights, and a bias for each output."""

    data: Array
    type: TensorType
    bias: Array
    groups: int = 1
    depthwise: bool = False


@dataclass(frozen=True, slots=True)
class _Windows:
    """Where the windows of a convolution lie: depth, height and width of each."""

    sizes: tuple[int, ...]
    """How many there are, which is the output's size."""
    stride: tuple[int, ...] = (1, 1, 1)
    pad: tuple[int, ...] = (0, 0, 0)
    """Elements before the input that the first window begins at."""
    dilation: tuple[int, ...] = (1, 1, 1)


def _conv(lowering: Lowering, x: Value, filter: _Filter, windows: _Windows, out: Value | str, y: Storage) -> bool:
    """Write one convolution; False where it cannot be exact natively."""
    own = lowering.storage(x)
    bits, groups = _BITS[own.kind], filter.groups
    weights = Weights(filter.data, filter.type, bits)
    if not weights.planes:
        return False
    if filter.depthwise and weights.offset:
        weights.values, weights.offset = weights.values.astype(np.int16) - np.int16(weights.offset), 0
    fields = constants(own, y, weights, filter.bias, groups, bits)
    if fields is None:
        return False
    kernel = weights.values.shape[:3]
    channels, outputs = weights.values.shape[3], weights.values.shape[4] // groups
    whole = own.shape[-1]
    attributes: dict[str, Any] = {
        "batch": x.shape[0], "in": three(x.shape[1:-1], 1), "out": windows.sizes, "kernel": tuple(kernel),
        "stride": windows.stride, "pad": windows.pad, "dilation": windows.dilation, "x_stride": whole,
        "y_stride": y.shape[-1], **fields,
        **(_float_range() if bits == 32 else y.output()),
    }  # fmt: skip
    if filter.depthwise:
        lanes = -(-whole // BLOCK) * BLOCK
        planes = [plane.reshape(-1, whole) for plane in weights.planes_of_bytes]
        rows = matrix_half(planes[0]) if bits == 32 else np.concatenate(planes).astype(np.int64)
        lines = np.zeros((len(rows), lanes), np.float32 if bits == 32 else np.int32)
        lines[:, :whole] = rows if bits == 32 else rows & 0xFFFF
        attributes |= {"channels": whole, "out_channels": whole, "weights": lines, "pad_row": _row(own, bits, lanes)}
        if bits != 32 and any(
            np.abs(plane.astype(np.int64)).sum(0).max(initial=0) * 65536 >= 2**31 for plane in planes
        ):
            return False
        if bits == 16:
            attributes["planes"] = weights.planes
        lowering.emit(f"depthwise_{own.kind}", [x], [out], **attributes)
        return True
    attributes |= {"channels": channels, "out_channels": outputs, "groups": groups}
    if bits == 32 and groups == 1 and _has_tiles(x, filter, windows):
        lanes = -(-channels // LANE) * LANE
        # [3, 3, in, out]: the 4 x 4 cells of them, which are more, are made by the first run
        tiles = {"winograd": 1, "row_taps": 0, **kept_weights(in_float16(weights.values[0]))}
        lowering.emit("conv_f32", [x], [out], **attributes, **tiles, pad_row=_row(own, bits, lanes))
        return True
    # A kernel row is one run where a single position is too short for the loop around it; rows that leave the image are
    # copied then, which long ones are not worth.
    row_taps = groups == 1 and windows.dilation[2] == 1 and channels < _LONG * (32 // bits)
    run = kernel[2] * channels if row_taps else channels
    steps = -(-run // (32 // bits))
    attributes |= {
        "row_taps": row_taps, **kept_weights(packed(weights.stacked, bits, groups, row_taps), bits),
        "pad_row": _row(own, bits, steps * (32 // bits)), "weight_offset": -weights.offset,
    }  # fmt: skip
    if bits == 16:
        attributes |= sixteen(weights, groups, row_taps)
    lowering.emit(f"conv_{own.kind}", [x], [out], **attributes)
    return True


def _has_tiles(x: Value, filter: _Filter, windows: _Windows) -> bool:
    """True for a float convolution that Winograd's tiles make faster: its sizes decide which sums are computed."""
    kernel, ones = filter.data.shape[:3], (1, 1, 1)
    if kernel != (1, 3, 3) or windows.stride != ones or windows.dilation != ones or windows.pad[0] or len(x.shape) > 4:
        return False
    channels, outputs = filter.data.shape[3:]
    _, height, width = windows.sizes
    pixels, tiles = height * width, (height + 1) // 2 * ((width + 1) // 2)
    fewer = 3 * 16 * tiles <= 2 * 9 * pixels and pixels >= 16
    large = min(channels, outputs) >= 16 and channels * outputs >= 512
    return fewer and large


def _operands(lowering: Lowering, node: Node) -> tuple[Value, Value, Value | None, Storage, int] | None:
    x, weight = node.operand(0), node.operand(1)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    weight = expanded(weight)
    own, y = lowering.storage(x), lowering.storage(node.outputs[0])
    if own.kind not in _BITS or y.kind != own.kind or not _usable(weight, _BITS[own.kind], len(weight.shape) - 1):
        return None
    return x, weight, bias, y, _BITS[own.kind]


def convolution(lowering: Lowering, node: Node) -> bool:
    """Conv2d, Conv3d and DepthWiseConv2d (one output per input channel) with constant weights."""
    operands = _operands(lowering, node)
    if operands is None:
        return False
    x, weight, bias, y, _ = operands
    assert weight.data is not None
    real = _bias(bias, y.shape[-1], lowering.storage(x), weight.encoding)
    if real is None:
        return False
    depthwise = node.op.name == "DepthWiseConv2d"
    channels = x.shape[-1]
    groups = channels if depthwise else int(node.params["group"])
    if depthwise and weight.shape[-1] != channels:
        depthwise = False  # several outputs per channel: a grouped convolution
    data = weight.data.reshape((1,) * (5 - weight.data.ndim) + weight.shape)
    windows = _Windows(
        three(y.shape[1:-1], 1),
        three(node.params["stride"], 1),
        three((p[0] for p in node.params["pad_amount"]), 0),
        three(node.params["dilation"], 1),
    )
    filter = _Filter(data, weight.type, real, 1 if depthwise else groups, depthwise)
    return _conv(lowering, x, filter, windows, node.outputs[0], y)


@lowers("TransposeConv2d", "TransposeConv3d")
def transposed(lowering: Lowering, node: Node) -> bool:
    """Each phase of the stride is an ordinary convolution; its pixels are then written where they belong."""
    if node.inputs[1] is not None and node.inputs[1].data is None:
        return computed_weights.transposed(lowering, node)
    operands = _operands(lowering, node)
    if operands is None or int(node.params["group"]) != 1:
        return False
    x, weight, bias, y, bits = operands
    assert weight.data is not None
    real = _bias(bias, y.shape[-1], lowering.storage(x), weight.encoding)
    if real is None or not Weights(weight.data, weight.type, bits).planes:
        return False
    data = weight.data.reshape((1,) * (5 - weight.data.ndim) + weight.shape)
    stride = three(node.params["stride"], 1)
    before = three((p[0] for p in node.params["pad_amount"]), 0)
    sizes, spatial = three(y.shape[1:-1], 1), three(x.shape[1:-1], 1)
    if (
        data.shape[:3] == stride
        and before == (0, 0, 0)
        and sizes == tuple(n * s for n, s in zip(spatial, stride, strict=True))
    ):
        return _blocks(lowering, node, x, data, weight.type, real, y)
    for phase in phases(node, data.shape[:3], y):
        some = all(phase.taps)
        part = data[np.ix_(*phase.taps)] if some else np.zeros((1, 1, 1, *data.shape[3:]), data.dtype)
        if not some:  # outputs that no input reaches
            part = part.astype(np.int16 if bits != 32 else np.float32) + _zero_weight(weight.type)
        temp, like = phase.temp(lowering, y, node.outputs[0].name)
        filter = _Filter(np.ascontiguousarray(part), weight.type, real)
        if not _conv(lowering, x, filter, _Windows(phase.sizes, pad=phase.pad), temp, like):
            return False
        phase.place(lowering, temp, like, node.outputs[0], y)
    return True


def _blocks(lowering: Lowering, node: Node, x: Value, data: Array, type: TensorType, bias: Array, y: Storage) -> bool:
    """A kernel as wide as its stride: every input pixel becomes a block of outputs, one 1x1 convolution for all."""
    stride = data.shape[:3]
    count = int(np.prod(stride))
    batch, channels, outputs = x.shape[0], x.shape[-1], y.shape[-1]
    spatial = three(x.shape[1:-1], 1)
    matrix = np.ascontiguousarray(data.transpose(3, 0, 1, 2, 4)).reshape(1, 1, 1, channels, count * outputs)
    if isinstance(type.encoding, AxisScaleOffset):
        scales, offsets = type.encoding.scales * count, type.encoding.offsets * count
        encoding = AxisScaleOffset(4, scales, offsets, type.encoding.bitwidth)
        type = TensorType(type.dtype, matrix.shape, encoding)
    shape = (batch, *spatial, count * outputs)
    like = Storage(y.kind, y.dtype, shape, y.scale, y.zero_point, y.low, y.high, y.shift)
    temp = lowering.temp(like, node.outputs[0].name)
    if not _conv(lowering, x, _Filter(matrix, type, np.tile(bias, count)), _Windows(spatial), temp, like):
        return False
    source = strides((batch, *spatial, *stride, outputs))
    target = strides((batch, *(n * s for n, s in zip(spatial, stride, strict=True)), outputs))
    dims, strides_x, strides_y = merged(
        (batch, *(v for pair in zip(spatial, stride, strict=True) for v in pair), outputs),
        (source[0], *(v for i in range(3) for v in (source[1 + i], source[4 + i])), 1),
        (target[0], *(v for i in range(3) for v in (target[1 + i] * stride[i], target[1 + i])), 1),
    )
    lowering.emit(
        "copy", [temp], [node.outputs[0]], element_bytes=y.dtype.itemsize, dims=dims, strides_x=strides_x,
        strides_y=strides_y,
    )  # fmt: skip
    return True


def _zero_weight(type: TensorType) -> Any:
    """The stored integers that mean zero: one, or one per output."""
    if isinstance(type.encoding, AxisScaleOffset):
        return -np.asarray(type.encoding.offsets, np.int16)
    return np.int16(-type.encoding.offset) if isinstance(type.encoding, ScaleOffset) else np.int16(0)


def product(lowering: Lowering, node: Node) -> bool:
    """Matrix products: stationary weights as a 1x1 convolution over the rows, else both operands at run time."""
    x, w = node.operand(0), node.operand(1)
    out = node.outputs[0]
    own, y = lowering.storage(x), lowering.storage(out)
    connected = node.op.name == "FullyConnected"
    swap = connected or bool(node.params["transpose_in1"])
    if own.kind not in _BITS or y.kind != own.kind:
        return False
    bits = _BITS[own.kind]
    if w.data is not None and (connected or not node.params["transpose_in0"]):
        bias = _bias(node.inputs[2] if len(node.inputs) > 2 else None, y.shape[-1], own, w.encoding)
        if packed_weights.product(lowering, node, swap, bias):
            return True
        w = expanded(w)
        assert w.data is not None
        matrix = w.data.reshape(w.shape[-2:]) if int(np.prod(w.shape[:-2], dtype=np.int64)) == 1 else None
        axis = len(w.shape) - (2 if swap else 1)
        if matrix is None or bias is None or not _usable(w, bits, axis) or len(bias) != y.shape[-1]:
            return False
        matrix = matrix.T if swap else matrix
        rows = own.size // matrix.shape[0]
        flat = Storage(own.kind, own.dtype, (rows, matrix.shape[0]), own.scale, own.zero_point, own.low, own.high)
        wide = Storage(y.kind, y.dtype, (rows, matrix.shape[1]), y.scale, y.zero_point, y.low, y.high)
        return _rows(lowering, x, flat, matrix, w.type, bias, out, wide, bits)
    return computed_weights.product(lowering, node, own, y, swap)


def _rows(
    lowering: Lowering, x: Value, flat: Storage, matrix: Array, type: TensorType, bias: Array, out: Value,
    y: Storage, bits: int,
) -> bool:  # fmt: skip
    weights = Weights(matrix[None, None, None], type, bits)
    if not weights.planes:
        return False
    fields = constants(flat, y, weights, bias, 1, bits)
    if fields is None:
        return False
    rows, inner = flat.shape
    steps = -(-inner // (32 // bits))
    lowering.emit(
        f"conv_{flat.kind}", [x], [out], batch=1, **{"in": (1, 1, rows)}, out=(1, 1, rows), kernel=(1, 1, 1),
        stride=(1, 1, 1), pad=(0, 0, 0), dilation=(1, 1, 1), channels=inner, out_channels=y.shape[1],
        x_stride=inner, y_stride=y.shape[1], row_taps=True, weight_offset=-weights.offset,
        **kept_weights(packed(weights.stacked, bits, 1, True), bits),
        **(sixteen(weights, 1, True) if bits == 16 else {}),
        pad_row=_row(flat, bits, steps * (32 // bits)), **fields, **(_float_range() if bits == 32 else y.output()),
    )  # fmt: skip
    return True
