# SPDX-License-Identifier: Apache-2.0
"""Weights beyond 8 bits and one scale per channel: LPBQ as plain int8, int16 and blocks by the wide kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.lower.adapt import real, three
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.lower.products import computed_weights, constant_weights
from hexforge.backends.htp.numbers.storage import Storage
from hexforge.ir import Array, Block, BlockwiseExpansion, Node, Value
from hexforge.ir.fixed_point import centered, scale_array

_DEPTH, _ROWS = 32, 4  # what the kernel's rows of weights are filled up to


def _bias(value: Value | None, product: Array, y: Storage, outputs: int) -> tuple[Array, Array] | None:
    """The bias in steps of an exact sum (where one scale serves a channel), and in steps of the output."""
    none = np.zeros(outputs)
    if value is None:
        return none.astype(np.int64), none
    if value.data is None or value.type.size != outputs:
        return None
    if product.shape[1] > 1:
        return none.astype(np.int64), real(value).ravel() / y.scale
    scale = product[:, 0]
    if value.encoding is not None and np.all(np.abs(scale_array(value.encoding, value.shape) - scale) <= 1e-6 * scale):
        # a bias scale that is the product up to float32 rounding is meant to be it
        return centered(value.data, value.type).ravel().astype(np.int64), none
    return np.rint(real(value).ravel() / scale).astype(np.int64), none


def _blocks(integers: Array, scales: Array, block: int) -> tuple[Array, Array] | None:
    """[taps, in, out] weights as [out, blocks, taps * block] and their scales [out, blocks]; None where they vary."""
    taps, channels, outputs = integers.shape
    count = channels // block
    parts = scales.reshape(taps, count, block, outputs)
    if not (parts == parts[:1, :, :1]).all():
        return None
    rows = integers.reshape(taps, count, block, outputs).transpose(3, 1, 0, 2).reshape(outputs, count, taps * block)
    return rows, np.ascontiguousarray(parts[0, :, 0].T)


def _wide(
    lowering: Lowering, x: Value, weight: Value, bias: Value | None, y: Value, transposed: bool, groups: int,
    geometry: dict[str, Any],
) -> bool:  # fmt: skip
    """Write one convolution; the last two axes of `weight` are in and out, or out and in where `transposed`."""
    own, out = lowering.storage(x), lowering.storage(y)
    if not own.fixed or own.kind != out.kind or weight.data is None or weight.encoding is None:
        return False
    integers = centered(weight.data, weight.type).astype(np.int64)
    scales = np.broadcast_to(scale_array(weight.encoding, weight.shape), weight.shape)
    axis = len(weight.shape) - (1 if transposed else 2)
    if transposed:
        integers, scales = integers.swapaxes(-1, -2), scales.swapaxes(-1, -2)
    channels, outputs = integers.shape[-2:]
    block = channels
    if isinstance(weight.encoding, Block):
        block = weight.encoding.block_shape[axis]
    elif isinstance(weight.encoding, BlockwiseExpansion):
        block = channels // (len(weight.encoding.block_scales) // len(weight.encoding.scales))
    blocks = _blocks(integers.reshape(-1, channels, outputs), scales.reshape(-1, channels, outputs), block)
    if blocks is None:
        return False
    rows, scale = blocks
    product = own.scale * scale
    steps = _bias(bias, product, out, outputs)
    low = ((rows + 128) & 255) - 128
    high = (rows - low) >> 8
    if steps is None or high.min(initial=0) < -128 or high.max(initial=0) > 128:
        return False
    planes = {"weights_low": packed(low, groups)} | ({"weights_high": packed(high, groups)} if high.any() else {})
    lowering.emit(
        f"conv_wide_{own.kind}", [x], [y], channels=channels, out_channels=outputs // groups, groups=groups,
        blocks=channels // block, zero_a=own.zero_point, **out.output(), **geometry, **planes,
        sums=np.ascontiguousarray(rows.sum(2)), units=steps[0], bias=steps[1], scales=product / out.scale,
    )  # fmt: skip
    return True


def packed(rows: Array, groups: int) -> Array:
    """[outputs, blocks, n] as [groups, outputs filled up, blocks, n filled up] of int16."""
    outputs, blocks, n = rows.shape
    each = outputs // groups
    whole = np.zeros((groups, -(-each // _ROWS) * _ROWS, blocks, -(-n // _DEPTH) * _DEPTH), np.int16)
    whole[:, :each, :, :n] = rows.reshape(groups, each, blocks, n)
    return whole


def _operand(node: Node, index: int) -> Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


@lowers("Conv2d", "Conv3d", "DepthWiseConv2d")
def convolution(lowering: Lowering, node: Node) -> bool:
    """By its weights: computed ones, constant ones that the usual kernels take, others by the wide kernel."""
    x, weight, y = node.operand(0), node.operand(1), node.outputs[0]
    if weight.data is None:
        return computed_weights.convolution(lowering, node)
    if constant_weights.convolution(lowering, node):
        return True
    groups = x.shape[-1] if node.op.name == "DepthWiseConv2d" else int(node.params["group"])
    kernel = weight.shape[:-2]
    geometry = {
        "batch": x.shape[0], "in": three(x.shape[1:-1], 1), "out": three(y.shape[1:-1], 1),
        "kernel": three(kernel, 1), "stride": three(node.params["stride"], 1),
        "pad": three((p[0] for p in node.params["pad_amount"]), 0), "dilation": three(node.params["dilation"], 1),
    }  # fmt: skip
    return _wide(lowering, x, weight, _operand(node, 2), y, False, groups, geometry)


@lowers("FullyConnected", "MatMul")
def product(lowering: Lowering, node: Node) -> bool:
    """As the usual kernels take it, else by the wide one over the rows."""
    if constant_weights.product(lowering, node):
        return True
    x, weight, y = node.operand(0), node.operand(1), node.outputs[0]
    connected = node.op.name == "FullyConnected"
    swap = connected or bool(node.params["transpose_in1"])
    if weight.data is None or len(weight.shape) < 2 or math.prod(weight.shape[:-2]) != 1:
        return False
    if not connected and node.params["transpose_in0"]:
        return False
    inner = weight.shape[-1] if swap else weight.shape[-2]
    one = (1, 1, 1)
    size = (1, 1, x.type.size // inner)
    geometry = {"batch": 1, "in": size, "out": size, "kernel": one, "stride": one, "pad": (0, 0, 0), "dilation": one}
    return _wide(lowering, x, weight, _operand(node, 2), y, swap, 1, geometry)
