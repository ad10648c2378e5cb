# SPDX-License-Identifier: Apache-2.0
"""Windows of convolutions and pools; and pools: one QNN op where its windows are ONNX's, else composed axis by axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hexforge.frontends.onnx.translate.builder import (
    Builder,
    binary,
    carried,
    cast,
    map_axis,
    take_axis,
    translates,
    unary,
)
from hexforge.frontends.onnx.translate.pointwise_activation import wide
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, DType, Value

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial axis: kernel size, stride, dilation, (before, after) pads."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pairs

    @property
    def extent(self) -> tuple[int, ...]:
        """Elements from the first to the last tap."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def dilated(self) -> bool:
        """True where taps lie apart."""
        return any(d > 1 and k > 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def unsqueezed(self) -> Window:
        """A one-dimensional window as a two-dimensional one of height 1."""
        return Window((1, *self.kernel), (1, *self.stride), (1, *self.dilation), ((0, 0), *self.pads))


def numbers(b: Builder, u: Unit, name: str, dims: int, default: int, least: int) -> tuple[int, ...]:
    """An attribute of `dims` integers, each at least `least`."""
    value = tuple(int(v) for v in b.attr(u, name) or (default,) * dims)
    if len(value) != dims or min(value) < least:
        raise Refusal(f"{name} {list(value)} must be {dims} numbers of at least {least}")
    return value


def explicit_pads(b: Builder, u: Unit, dims: int) -> Pairs:
    """The pads attribute, axis by axis."""
    flat = numbers(b, u, "pads", 2 * dims, 0, 0)
    return tuple((flat[i], flat[i + dims]) for i in range(dims))


def window(b: Builder, u: Unit, sizes: tuple[int, ...], kernel: tuple[int, ...] | None = None) -> Window:
    """The window of a Conv or pool over spatial `sizes`; auto_pad resolved.

    The SAME pads of a dilated pool are those that it would have without dilations, as onnxruntime's kernels have it.
    """
    dims, pools = len(sizes), kernel is None
    kernel = numbers(b, u, "kernel_shape", dims, 0, 1) if kernel is None else kernel
    stride, dilation = numbers(b, u, "strides", dims, 1, 1), numbers(b, u, "dilations", dims, 1, 1)
    auto = b.attr(u, "auto_pad", "NOTSET")
    pads = explicit_pads(b, u, dims) if auto == "NOTSET" else ((0, 0),) * dims
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
            total = (-(-n // s) - 1) * s + (k if pools else d * (k - 1) + 1) - n
            if total < 0 and pools and any(each > 1 for each in dilation):
                raise Refusal(f"auto_pad {auto} with dilations and strides beyond the window; give pads")
            total = max(total, 0)
            small, large = total // 2, total - total // 2
            pairs.append((small, large) if auto == "SAME_UPPER" else (large, small))
        pads = tuple(pairs)
    elif auto not in ("NOTSET", "VALID"):
        raise Refusal(f"auto_pad {auto!r} is unknown; use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return Window(kernel, stride, dilation, pads)


_LARGEST_PATCHES = 1 << 26  # elements a composed MaxPool with indices may gather


def _exact_pads(shape: Window, sizes: tuple[int, ...], out: tuple[int, ...]) -> Pairs | None:
    """Pads that give `out` by rounding down (so ceil_mode needs none of QNN's rounding), None where none do."""
    pads = []
    for n, o, k, s, (before, after) in zip(sizes, out, shape.extent, shape.stride, shape.pads, strict=True):
        least = (o - 1) * s + k - n - before
        after = min(max(after, least, 0), least + s - 1)
        if after < 0 or before >= k or (o - 1) * s - before >= n:
            return None
        pads.append((before, after))
    return tuple(pads)


def _emit(b: Builder, u: Unit, op: str, x: Value, shape: Window, pads: Pairs, **params: object) -> None:
    """Write the channel-last pool and bring its result to the unit's output."""
    out, x = b.output(u), b.to_channel_last(x)
    last = (out.shape[0], *out.shape[2:], out.shape[1])
    kernel, stride = shape.kernel, shape.stride
    if len(last) == 3:
        x = b.reshape(x, (x.shape[0], 1, *x.shape[1:]))
        kernel, stride, pads = (1, *kernel), (1, *stride), ((0, 0), *pads)
    spatial = (last[0], 1, *last[1:]) if len(last) == 3 else last
    dims = "" if op == "L2Pool2d" else f"{len(spatial) - 2}d"
    value = b.emit(
        op + dims, [x], out.type.with_shape(spatial), filter_size=kernel, stride=stride, pad_amount=pads, **params
    )
    b.to_channel_first(b.reshape(value, last), out)


def _positions(shape: Window, out: tuple[int, ...]) -> Iterator[tuple[int, Array]]:
    """Per spatial axis: its index in NC..., and where the taps of each window lie, [out, kernel]."""
    for i, o in enumerate(out):
        taps = np.arange(shape.kernel[i]) * shape.dilation[i] - shape.pads[i][0]
        yield i + 2, np.arange(o)[:, None] * shape.stride[i] + taps


def _shape(b: Builder, u: Unit, x: Value) -> tuple[Window, tuple[int, ...]]:
    """The window and the output's spatial sizes; no window of ceil_mode may start beyond the input."""
    _check(x)
    shape, out = window(b, u, x.shape[2:]), b.output(u).shape[2:]
    axes = zip(x.shape[2:], out, shape.stride, shape.pads, strict=True)
    if b.attr(u, "ceil_mode", 0) and any((o - 1) * s >= n + before for n, o, s, (before, _) in axes):
        # opset 22 drops it; before, shape inference and kernels disagree
        raise Refusal("ceil_mode with a last window beyond the input; use opset 22, or ceil_mode 0")
    return shape, out


def _check(x: Value) -> None:
    if len(x.shape) not in (3, 4, 5):
        raise Refusal(f"input {list(x.shape)}; QNN pools 1 to 3 spatial axes")
    if min(x.shape) < 1:
        raise Refusal(f"input {list(x.shape)} is empty")


@translates("MaxPool", writes=("Argmax", "ElementWiseAdd", "Gather", "PoolMax2d", "PoolMax3d", "ReduceMax"))
def max_pool(b: Builder, u: Unit) -> None:
    """MaxPool; dilated ones and indices are composed."""
    x = carried(b, u)
    shape, out = _shape(b, u, x)
    if b.wants(u, 1):
        _max_with_indices(b, u, shape)
        return
    pads = _exact_pads(shape, x.shape[2:], out)
    if pads is not None and not shape.dilated:
        _emit(b, u, "PoolMax", x, shape, pads)
        return
    for axis, at in _positions(shape, out):
        x = take_axis(b, x, axis, _inside(at, x.shape[axis]))
        reduced = (*x.shape[: axis + 1], *x.shape[axis + 2 :])
        x = b.emit("ReduceMax", [x], x.type.with_shape(reduced), axes=(axis + 1,), keep_dims=False)
    b.finish(u, x)


def _inside(at: Array, size: int) -> Array:
    """Positions with those outside the axis replaced by the window's first inside it: that changes no maximum."""
    valid = (at >= 0) & (at < size)
    if not valid.any(axis=1).all():
        raise Refusal("a window that sees only padding has no maximum; reduce the pads")
    first = np.take_along_axis(at, valid.argmax(axis=1)[:, None], axis=1)
    return np.where(valid, at, first)


def _max_with_indices(b: Builder, u: Unit, shape: Window) -> None:
    """Patches gathered by constant indices, their maximum, and the place of it in the input."""
    x, out = b.real(u, 0), b.output(u).shape
    sizes, rows = x.shape[2:], x.shape[0] * x.shape[1]
    axes = [at for _, at in _positions(shape, out[2:])]
    windows, taps = math.prod(out[2:]), math.prod(shape.kernel)
    if rows * windows * taps > _LARGEST_PATCHES:
        raise Refusal("indices of a MaxPool this large; drop the second output")
    # [out..., kernel...] -> [windows, taps] of row-major positions, -1 outside
    dims = len(sizes)
    grids = [
        np.broadcast_to(
            at.reshape([n if i in (axis, dims + axis) else 1 for i, n in enumerate((*out[2:], *shape.kernel))]),
            (*out[2:], *shape.kernel),
        ).reshape(windows, taps)
        for axis, at in enumerate(axes)
    ]
    valid = np.all([(g >= 0) & (g < n) for g, n in zip(grids, sizes, strict=True)], axis=0)
    flat = np.where(valid, np.ravel_multi_index(grids, sizes, mode="clip"), -1)
    flat = _inside(flat, math.prod(sizes))
    patches = take_axis(b, b.reshape(x, (rows, math.prod(sizes))), 1, flat)
    b.finish(u, b.emit("ReduceMax", [patches], axes=(2,), keep_dims=False))
    names = flat
    if b.attr(u, "storage_order", 0):
        strides = np.cumprod((1, *sizes[:-1]))
        names = sum((g * s for g, s in zip(np.unravel_index(flat, sizes), strides, strict=True)), np.zeros_like(flat))
    tap = cast(b, b.emit("Argmax", [patches], axis=2, keep_dims=False), DType.INT32)
    place = binary(b, "Add", tap, b.static((np.arange(windows) * taps).astype(np.int32)))
    offsets = b.emit("Gather", [b.static(names.ravel().astype(np.int64)), place], axis=0)
    start = (np.arange(rows) * math.prod(sizes)).astype(np.int64)[:, None]
    b.finish(u, binary(b, "Add", offsets, b.static(start)), 1)


@translates("AveragePool", writes=("MatMul", "PoolAvg2d", "PoolAvg3d"))
def average_pool(b: Builder, u: Unit) -> None:
    """AveragePool; dilated ones, and pads that count beside ceil_mode, are products with averaging matrices."""
    x = carried(b, u)
    shape, out = _shape(b, u, x)
    count_pads = bool(b.attr(u, "count_include_pad", 0))
    pads = _exact_pads(shape, x.shape[2:], out)
    grown = pads is not None and any(new[1] > old[1] for new, old in zip(pads, shape.pads, strict=True))
    if pads is not None and not shape.dilated and not (count_pads and grown):
        _emit(b, u, "PoolAvg", x, shape, pads, count_pad_for_edges=count_pads)
        return
    value = wide(b, u)
    for axis, at in _positions(shape, out):
        size, (before, after) = x.shape[axis], shape.pads[axis - 2]
        low, high = (-before, size + after) if count_pads else (0, size)
        count = ((at >= low) & (at < high)).sum(axis=1)
        if not count.all():
            raise Refusal("a window that sees only padding has no mean; reduce the pads")
        value = map_axis(b, value, axis, _taps_matrix(at, size) / count[:, None])
    b.finish(u, value)


def _taps_matrix(at: Array, size: int) -> Array:
    """[out, size] with a one where a window has a tap."""
    matrix = np.zeros((at.shape[0], size))
    rows, columns = np.nonzero((at >= 0) & (at < size))
    matrix[rows, at[rows, columns]] = 1
    return matrix


@translates("LpPool", writes=("ElementWiseAbs", "ElementWisePower", "L2Pool2d", "MatMul"))
def lp_pool(b: Builder, u: Unit) -> None:
    """LpPool; three spatial axes and dilated ones are composed."""
    x, p = carried(b, u), int(b.attr(u, "p", 2))
    if p < 1:
        raise Refusal(f"p {p} must be at least 1")
    shape, out = _shape(b, u, x)
    pads = _exact_pads(shape, x.shape[2:], out)
    if pads is not None and not shape.dilated and len(out) < 3:
        _emit(b, u, "L2Pool2d", x, shape, pads, p=p)
        return
    value = unary(b, "Abs", wide(b, u))
    value = binary(b, "Power", value, float(p)) if p != 1 else value
    for axis, at in _positions(shape, out):
        value = map_axis(b, value, axis, _taps_matrix(at, x.shape[axis]))
    b.finish(u, binary(b, "Power", value, 1 / p) if p != 1 else value)


@translates("GlobalAveragePool", writes=("PoolAvg2d", "PoolAvg3d", "ReduceMean"))
@translates("GlobalMaxPool", writes=("PoolMax2d", "PoolMax3d", "ReduceMax"))
def global_pool(b: Builder, u: Unit) -> None:
    """A pool whose window is the whole input; a reduction where it has more axes than pools have."""
    x, largest = carried(b, u), u.target.op_type == "GlobalMaxPool"
    sizes = x.shape[2:]
    if 3 <= len(x.shape) <= 5:
        _check(x)
        shape = Window(sizes, sizes, (1,) * len(sizes), ((0, 0),) * len(sizes))
        _emit(b, u, "PoolMax" if largest else "PoolAvg", x, shape, shape.pads)
        return
    if not sizes:
        raise Refusal(f"input {list(x.shape)} has no spatial axes")
    axes = tuple(range(2, len(x.shape)))
    b.emit("ReduceMax" if largest else "ReduceMean", [x], b.output(u), axes=axes, keep_dims=True)
