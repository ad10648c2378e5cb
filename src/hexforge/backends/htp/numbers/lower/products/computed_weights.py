# SPDX-License-Identifier: Apache-2.0
"""Convolutions and matrix products whose second operand is computed at run time, too: kernels pack it in every run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower.adapt import real, three
from hexforge.backends.htp.numbers.lower.moves import strides
from hexforge.backends.htp.numbers.lower.native_steps import Lowering
from hexforge.backends.htp.numbers.lower.products.phases import phases
from hexforge.backends.htp.numbers.lower.tiled_layout import reads_tiled
from hexforge.backends.htp.numbers.storage import Storage, in_range
from hexforge.backends.htp.tiled_caches import tile_of
from hexforge.errors import UnsupportedError
from hexforge.ir import Array, Node, Value

_BLOCK = 64
_MOST_PRODUCTS = {"u8": 33025, "s16": 1 << 21}
"""Of a sum: 255 * 255 * 33025 is below 2^31, and 2^16 * 2^16 * 2^21 is 2^53."""
_STEPS = {"matmul_u8", "matmul_s16", "matmul_s16_u8", "matmul_f32"}
"""Products by the kinds of their operands."""
_MOST_TAPS = 255
"""Of a depthwise convolution of 16 bits, whose sums of either half of the weights have 32 bits."""


def _integers(lowering: Lowering, w: Value, own: Storage) -> tuple[Value | str, Storage] | None:
    """The second operand as kernels of `own`'s kind read it: bytes are widened beside 16 bits, to the same integers."""
    other = lowering.storage(w)
    if other.kind == own.kind:
        return w, other
    if (own.kind, other.kind) != ("s16", "u8"):
        return None
    wide = replace(other, kind="s16", dtype=np.dtype(np.int16))
    name = lowering.temp(wide, w.name)
    lowering.emit("table_u8_s16", [w], [name], count=other.size, table=np.arange(256, dtype=np.int16))
    return name, wide


def _settled(own: Storage, other: Storage, y: Storage, products: int, bias: Value | None) -> dict[str, Any] | None:
    """How sums of so many products become outputs, and what is added to them; None where they would not be exact."""
    if own.kind == "f32":
        return {"half": 1} | ({} if bias is None else {"bias": _each(matrix_half(real(bias)), y)})
    scale = own.scale * other.scale
    if products > _MOST_PRODUCTS[own.kind] or not in_range(scale / y.scale):
        return None
    settled: dict[str, Any] = {
        "zero_a": own.zero_point, "zero_b": other.zero_point, "scale": scale / y.scale, **y.output(),
    }  # fmt: skip
    if bias is not None:
        units = np.rint(real(bias) / scale)
        most = 2**31 - 255 * 255 * products if own.kind == "u8" else 2**52
        if np.abs(units).max(initial=0) >= most:
            return None
        settled["bias"] = _each(units.astype(np.int32 if own.kind == "u8" else np.int64), y)
    return settled


def _each(bias: Array, y: Storage) -> Array:
    """One for each output."""
    return np.ascontiguousarray(np.broadcast_to(bias.ravel(), (y.shape[-1],)))


def product(lowering: Lowering, node: Node, own: Storage, y: Storage, swap: bool) -> bool:
    """A product of two operands that are computed at run time; its bias may be constant."""
    x, w, out = node.operand(0), node.operand(1), node.outputs[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    turned = node.op.name != "FullyConnected" and bool(node.params["transpose_in0"])
    if len(x.shape) < 2 or len(w.shape) < 2 or (bias is not None and bias.data is None):
        return False
    m, k = x.shape[-2:][:: -1 if turned else 1]
    n = y.shape[-1]
    if w.shape[-1 if swap else -2] != k or y.shape[-2:] != (m, n):
        return False  # FullyConnected of rows that are not the last axis alone
    starts_a, starts_b = (_starts(shape, y.shape[:-2]) for shape in (x.shape, w.shape))
    attributes: dict[str, Any] = {
        "batch": len(starts_a), "m": m, "n": n, "k": k, "row_a": 1 if turned else k, "column_a": m if turned else 1,
        "row_b": 1 if swap else n, "column_b": k if swap else 1,
    }  # fmt: skip
    for side, starts in (("a", starts_a), ("b", starts_b)):
        stride = int(starts[1]) if len(starts) > 1 else 0
        attributes[f"stride_{side}"] = stride
        if not np.array_equal(starts, stride * np.arange(len(starts))):
            attributes[f"at_{side}"] = tuple(map(int, starts))
    if w in lowering.tiled and reads_tiled(lowering, node, w):
        settled = _settled(own, lowering.storage(w), y, k, bias)
        if settled is None:
            raise UnsupportedError(f"tensor {w.name!r}: scales too far apart for a native cache; leave it flat")
        lowering.emit(f"matmul_hmx_{own.kind}", [x, lowering.tiled[w]], [out], **attributes, **settled, tile=tile_of(w))
        return True
    other = lowering.storage(w)
    step = f"matmul_{own.kind}" if own.kind == other.kind else f"matmul_{own.kind}_{other.kind}"
    settled = _settled(own, other, y, k, bias) if step in _STEPS else None
    if settled is None:
        return False
    lowering.emit(step, [x, w], [out], **attributes, **settled)
    return True


@dataclass(frozen=True, slots=True)
class _Taps:
    """Which kernel positions of the weights a convolution has: their number, the first, and from one to the next."""

    kernel: tuple[int, ...]
    first: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Convolution:
    """What all convolutions that a node becomes have in common."""

    lowering: Lowering
    x: Value
    weight: Value
    ready: Value | str
    """The weights as kernels read them."""
    settled: dict[str, Any]
    """How sums become outputs."""

    @property
    def kernel(self) -> tuple[int, ...]:
        """Kernel positions along three axes."""
        return three(self.weight.shape[:-2], 1)

    def write(self, out: Value | str, y: Storage, windows: dict[str, tuple[int, ...]], taps: _Taps,
              groups: int = 1, depthwise: bool = False) -> None:  # fmt: skip
        """One step: windows of the input times some kernel positions."""
        own = self.lowering.storage(self.x)
        values = 4 // own.dtype.itemsize
        channels, outputs = self.weight.shape[-2:]
        *outer, row, column = strides(self.weight.shape)
        apart = three(outer, 0)
        steps = tuple(n * s for n, s in zip(taps.step, apart, strict=True))
        row_taps = windows["dilation"][2] == 1 and channels < 64 * values and steps[2] == channels * row
        row_taps = row_taps and groups == 1 and not depthwise
        run = -(-channels * (taps.kernel[2] if row_taps else 1) // values) * values
        sizes = (
            {"channels": outputs, "out_channels": outputs}
            if depthwise
            else {"channels": channels, "out_channels": outputs // groups, "groups": groups, "row_taps": row_taps}
        )
        self.lowering.emit(
            f"{'depthwise' if depthwise else 'conv'}_{own.kind}", [self.x, self.ready], [out], batch=self.x.shape[0],
            **{"in": three(self.x.shape[1:-1], 1)}, kernel=taps.kernel, x_stride=own.shape[-1], y_stride=y.shape[-1],
            weight_start=sum(n * s for n, s in zip(taps.first, apart, strict=True)),
            weight_strides=(*steps, row, column), **windows, **sizes, **self.settled,
            pad_row=np.full(-(-outputs // _BLOCK) * _BLOCK if depthwise else run, own.zero_point, own.dtype),
        )  # fmt: skip


def _begun(lowering: Lowering, node: Node) -> _Convolution | None:
    """The node's operands, made ready; None where no kernel is exact."""
    x, weight = node.operand(0), node.operand(1)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    own, y = lowering.storage(x), lowering.storage(node.outputs[0])
    if own.kind == "raw" or y.kind != own.kind or (bias is not None and bias.data is None):
        return None
    ready = _integers(lowering, weight, own)
    if ready is None:
        return None
    settled = _settled(own, ready[1], y, math.prod(weight.shape[:-1]), bias)
    if settled is None:
        return None
    if "bias" in settled:
        settled["added"] = settled.pop("bias")
    if own.kind == "f32":
        settled |= {"low": -math.inf, "high": math.inf}
    return _Convolution(lowering, x, weight, ready[0], settled)


def convolution(lowering: Lowering, node: Node) -> bool:
    """Conv2d, Conv3d and DepthWiseConv2d with computed weights."""
    one = _begun(lowering, node)
    if one is None:
        return False
    y = lowering.storage(node.outputs[0])
    apart = node.op.name == "DepthWiseConv2d"
    groups = one.x.shape[-1] if apart else int(node.params["group"])
    depthwise = apart and one.weight.shape[-1] == groups  # else several outputs per channel: a grouped convolution
    if depthwise and y.kind == "s16" and math.prod(one.kernel) > _MOST_TAPS:
        return False
    windows = {
        "out": three(y.shape[1:-1], 1), "stride": three(node.params["stride"], 1),
        "pad": three((p[0] for p in node.params["pad_amount"]), 0), "dilation": three(node.params["dilation"], 1),
    }  # fmt: skip
    taps = _Taps(one.kernel, (0, 0, 0), (1, 1, 1))
    one.write(node.outputs[0], y, windows, taps, 1 if depthwise else groups, depthwise)
    return True


def transposed(lowering: Lowering, node: Node) -> bool:
    """TransposeConv2d and TransposeConv3d with computed weights."""
    one = _begun(lowering, node)
    if one is None or int(node.params["group"]) != 1:
        return False
    y = lowering.storage(node.outputs[0])
    for phase in phases(node, one.kernel, y):
        if not all(phase.taps):
            return False  # outputs that no input reaches
        temp, like = phase.temp(lowering, y, node.outputs[0].name)
        windows = {"out": phase.sizes, "stride": (1, 1, 1), "pad": phase.pad, "dilation": (1, 1, 1)}
        taps = _Taps(tuple(map(len, phase.taps)), tuple(t[0] for t in phase.taps), tuple(-s for s in phase.stride))
        one.write(temp, like, windows, taps)
        phase.place(lowering, temp, like, node.outputs[0], y)
    return True


def _starts(shape: tuple[int, ...], lead: tuple[int, ...]) -> Array:
    """Where the matrix of each of the output's leading indices begins, in elements: broadcast as numpy does."""
    own = shape[:-2]
    indices = np.arange(int(np.prod(own, dtype=np.int64))).reshape(own) * (shape[-1] * shape[-2])
    return np.broadcast_to(indices, lead).ravel()
