# SPDX-License-Identifier: Apache-2.0
"""Convolutions, channel-last: dense, depthwise and transposed, over two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from hexforge.ir import Array, AxisScaleOffset, Call, Measure, Param, QuantRule, TensorType, Work, define
from hexforge.ops.pointwise_elementwise import same_dtype

_SCRATCH_BYTES = 4 << 20  # patches gathered at a time: small enough to stay in the last-level cache
_BLOCK_BYTES = 256 << 10  # depthwise accumulators worked on at a time: fits the second-level cache
CONV = QuantRule(weight=1, weight_axis=-1, bias=2, bilinear=True)

_Spatial = tuple[int, ...]
_Pads = tuple[tuple[int, int], ...]


def _spatial_param(call: Call, name: str, dims: int, least: int) -> _Spatial:
    value = tuple(int(v) for v in call[name])
    if len(value) != dims or min(value) < least:
        raise call.fail(f"{name} {list(value)} must be {dims} numbers of at least {least}")
    return value


def pads_param(call: Call, dims: int) -> _Pads:
    """The pad_amount parameter: (before, after) of each spatial axis, none negative."""
    value = call["pad_amount"]
    if len(value) != dims or any(len(pair) != 2 or min(pair) < 0 for pair in value):
        raise call.fail(f"pad_amount {value} must be {dims} pairs of numbers not below 0")
    return tuple((int(before), int(after)) for before, after in value)


def pad_spatial(x: Array, pads: _Pads, fill: float = 0) -> Array:
    """`x` [N, spatial, C] with its spatial axes padded; `x` itself where there is nothing to pad."""
    if not any(map(any, pads)):
        return x
    spatial = [n + a + b for n, (a, b) in zip(x.shape[1:-1], pads, strict=True)]
    out = np.full((x.shape[0], *spatial, x.shape[-1]), fill, x.dtype)
    out[(slice(None), *(slice(a, a + n) for n, (a, _) in zip(x.shape[1:-1], pads, strict=True)))] = x
    return out


def windows(x: Array, kernel: _Spatial, stride: _Spatial, dilation: _Spatial, out: _Spatial) -> Array:
    """A view of `x` [N, spatial, C] as [N, out, kernel, C]: the elements each output position sees."""
    steps = x.strides[1:-1]
    shape = (x.shape[0], *out, *kernel, x.shape[-1])
    strides = (
        x.strides[0],
        *(n * s for n, s in zip(steps, stride, strict=True)),
        *(n * d for n, d in zip(steps, dilation, strict=True)),
        x.strides[-1],
    )
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def _blocks(shape: tuple[int, ...], bytes_per_row: int, limit: int) -> Iterator[tuple[slice, slice]]:
    """Slices (samples, rows) covering [N, rows, ...] in blocks of about `limit` bytes."""
    samples, rows = shape[:2]
    if bytes_per_row * rows <= limit:
        step = max(1, limit // max(1, bytes_per_row * rows))
        for n in range(0, samples, step):
            yield slice(n, min(n + step, samples)), slice(0, rows)
        return
    step = max(1, limit // bytes_per_row)
    for n in range(samples):
        for r in range(0, rows, step):
            yield slice(n, n + 1), slice(r, min(r + step, rows))


def _exact(function: Callable[..., Array]) -> Callable[..., Array]:
    """Integers go through float64 (exact below 2**53), where matrix products are fast."""

    def reference(call: Call, x: Array, w: Array, bias: Array | None = None) -> Array:
        if x.dtype.kind == "f":
            w = w.astype(x.dtype, copy=False)
            return function(call, x, w, bias)
        wide = None if bias is None else bias.astype(np.float64)
        return np.rint(function(call, x.astype(np.float64), w.astype(np.float64), wide)).astype(np.int64)

    return reference


def _add_bias(out: Array, bias: Array | None) -> Array:
    if bias is not None:
        out += bias
    return out


# -- shape inference ------------------------------------------------------------------------------------------------


def _check(call: Call, dims: int) -> tuple[_Spatial, _Spatial]:
    x, w = call.input(0).shape, call.input(1).shape
    if len(x) != dims + 2 or len(w) != dims + 2:
        raise call.fail(f"input {list(x)} and filter {list(w)} must have {dims + 2} dimensions")
    return x, w


def _check_bias(call: Call, channels: int) -> None:
    if call.has(2) and call.input(2).shape != (channels,):
        raise call.fail(f"bias {list(call.input(2).shape)} must have the shape [{channels}]")


def _forward_shape(call: Call, dims: int, dilation: _Spatial) -> _Spatial:
    x, w = call.input(0).shape, call.input(1).shape
    stride, pads = _spatial_param(call, "stride", dims, 1), pads_param(call, dims)
    out = tuple(
        (n + a + b - d * (k - 1) - 1) // s + 1
        for n, k, s, d, (a, b) in zip(x[1:-1], w[:dims], stride, dilation, pads, strict=True)
    )
    if min(out) < 1:
        raise call.fail(f"filter {list(w[:dims])} does not fit the padded input {list(x)}")
    return out


def _infer_conv(dims: int) -> Callable[[Call], tuple[TensorType, ...]]:
    def infer(call: Call) -> tuple[TensorType, ...]:
        x, w = _check(call, dims)
        group = int(call["group"])
        if group < 1 or x[-1] != w[-2] * group or w[-1] % group:
            raise call.fail(f"filter {list(w)} with group {group} does not fit the input {list(x)}")
        _check_bias(call, w[-1])
        out = _forward_shape(call, dims, _spatial_param(call, "dilation", dims, 1))
        return (TensorType(same_dtype(call, 0, 1), (x[0], *out, w[-1])),)

    return infer


def _infer_depthwise(call: Call) -> tuple[TensorType, ...]:
    x, w = _check(call, 2)
    if w[2] != 1 or w[3] % x[3]:
        raise call.fail(f"filter {list(w)} must be [height, width, 1, multiple of {x[3]}]")
    _check_bias(call, w[3])
    out = _forward_shape(call, 2, _spatial_param(call, "dilation", 2, 1))
    return (TensorType(same_dtype(call, 0, 1), (x[0], *out, w[3])),)


def _infer_transpose(dims: int) -> Callable[[Call], tuple[TensorType, ...]]:
    def infer(call: Call) -> tuple[TensorType, ...]:
        x, w = _check(call, dims)
        group, type = int(call["group"]), call.input(1)
        if group < 1 or x[-1] != w[-2] or x[-1] % group:
            raise call.fail(f"filter {list(w)} with group {group} does not fit the input {list(x)}")
        if group > 1 and isinstance(type.encoding, AxisScaleOffset):
            # Its scales would run over one group's channels, not over the output's.
            raise call.fail("a filter of several groups must have one scale; use group 1 or a per-tensor encoding")
        _check_bias(call, w[-1] * group)
        stride, pads = _spatial_param(call, "stride", dims, 1), pads_param(call, dims)
        extra = _spatial_param(call, "output_padding", dims, 0)
        out = tuple(
            s * (n - 1) + k - a - b + e
            for n, k, s, e, (a, b) in zip(x[1:-1], w[:dims], stride, extra, pads, strict=True)
        )
        if min(out) < 1:
            raise call.fail(f"pad_amount {pads} leaves nothing of the output")
        return (TensorType(same_dtype(call, 0, 1), (x[0], *out, w[-1] * group)),)

    return infer


# -- references -----------------------------------------------------------------------------------------------------


def _conv(call: Call, x: Array, w: Array, bias: Array | None) -> Array:
    dims = x.ndim - 2
    kernel, stride, dilation = w.shape[:dims], tuple(call["stride"]), tuple(call["dilation"])
    group, spatial, pads = int(call["group"]), call.out().shape[1:-1], pads_param(call, dims)
    if group == 1 and math.prod(kernel) == 1 and set(stride) == {1} and not any(map(any, pads)):
        product = np.matmul(x.reshape(-1, x.shape[-1]), w.reshape(w.shape[-2:]))
        return _add_bias(product, bias).reshape(*x.shape[:-1], w.shape[-1])
    view = windows(pad_spatial(x, pads), kernel, stride, dilation, spatial)
    out = np.empty((x.shape[0], *spatial, w.shape[-1]), x.dtype)
    depth = math.prod(w.shape[:-1])
    # [kernel * Cin, Cout], or [group, kernel * Cin / group, Cout / group]: one product for all groups
    matrix = w.reshape(depth, -1) if group == 1 else w.reshape(depth, group, -1).transpose(1, 0, 2)
    row_bytes = math.prod(spatial[1:]) * depth * group * x.itemsize
    for samples, rows in _blocks(view.shape, row_bytes, _SCRATCH_BYTES):
        part, target = view[samples, rows], out[samples, rows]
        if group == 1:  # the block is contiguous in `out`: the product is written in place
            np.matmul(part.reshape(-1, depth), matrix, out=target.reshape(-1, w.shape[-1]))
        else:
            split = np.moveaxis(part.reshape(*part.shape[:-1], group, -1), -2, 0)
            product = np.matmul(split.reshape(group, -1, depth), matrix)
            target[...] = product.transpose(1, 0, 2).reshape(target.shape)
    return _add_bias(out, bias)


def _depthwise(call: Call, x: Array, w: Array, bias: Array | None) -> Array:
    stride, dilation = tuple(call["stride"]), tuple(call["dilation"])
    shape, channels = call.out().shape, x.shape[-1]
    multiple = shape[-1] // channels
    view = windows(pad_spatial(x, pads_param(call, 2)), w.shape[:2], stride, dilation, shape[1:3])
    out = np.empty((*shape[:3], channels, multiple), x.dtype)
    taps = w.reshape(*w.shape[:2], channels, multiple)
    start = None if bias is None else bias.reshape(channels, multiple).astype(x.dtype, copy=False)
    for samples, rows in _blocks(shape, shape[2] * shape[3] * x.itemsize, _BLOCK_BYTES):
        part, target = view[samples, rows], out[samples, rows]
        scratch = np.empty_like(target)
        for i, (row, column) in enumerate(np.ndindex(*w.shape[:2])):
            np.multiply(part[:, :, :, row, column, :, None], taps[row, column], out=scratch if i else target)
            if i:
                target += scratch
        if start is not None:
            target += start
    return out.reshape(shape)


def _transpose_conv(call: Call, x: Array, w: Array, bias: Array | None) -> Array:
    dims = x.ndim - 2
    kernel, stride, group = w.shape[:dims], tuple(call["stride"]), int(call["group"])
    pads, shape = pads_param(call, dims), call.out().shape
    # the full result: what every input position adds, before pads are cut off and output_padding is added
    full = [s * (n - 1) + k for n, k, s in zip(x.shape[1:-1], kernel, stride, strict=True)]
    reach = [max(f, a + o) for f, (a, _), o in zip(full, pads, shape[1:-1], strict=True)]
    out = np.zeros((x.shape[0], *reach, shape[-1]), x.dtype)
    rows = x.reshape(-1, group, x.shape[-1] // group).transpose(1, 0, 2)
    for tap in np.ndindex(*kernel):
        matrix = w[tap].reshape(group, -1, w.shape[-1])
        product = np.matmul(rows[0], matrix[0]) if group == 1 else np.matmul(rows, matrix).transpose(1, 0, 2)
        where = tuple(slice(t, t + s * (n - 1) + 1, s) for t, s, n in zip(tap, stride, x.shape[1:-1], strict=True))
        out[(slice(None), *where)] += product.reshape(*x.shape[:-1], shape[-1])
    kept = tuple(slice(a, a + o) for (a, _), o in zip(pads, shape[1:-1], strict=True))
    return _add_bias(np.ascontiguousarray(out[(slice(None), *kept)]), bias)


# -- the table ------------------------------------------------------------------------------------------------------


def _macs_forward(call: Call) -> int:
    return call.out().size * math.prod(call.input(1).shape[:-1])


def _macs_transpose(call: Call) -> int:
    return call.input(0).size * math.prod((*call.input(1).shape[:-2], call.input(1).shape[-1]))


_GROUP = Param("group", "uint32", default=1)
_PAD = Param("pad_amount", "uint32", rank=2)
for _dims in (2, 3):
    _stride = Param("stride", "uint32", rank=1)
    define(
        f"Conv{_dims}d",
        "in filter bias?",
        params=(_stride, _PAD, _GROUP, Param("dilation", "uint32", rank=1, default=(1,) * _dims)),
        infer=_infer_conv(_dims),
        reference=_exact(_conv),
        kind=Work.CONV,
        work=Measure(macs=_macs_forward),
        quant=CONV,
        doc=f"Convolution over {_dims} spatial axes; filter [kernel, Cin / group, Cout].",
    )
    define(
        f"TransposeConv{_dims}d",
        "in filter bias?",
        params=(_stride, _PAD, _GROUP, Param("output_padding", "uint32", rank=1, default=(0,) * _dims)),
        infer=_infer_transpose(_dims),
        reference=_exact(_transpose_conv),
        kind=Work.TRANSPOSED_CONV,
        work=Measure(macs=_macs_transpose),
        quant=CONV,
        doc=f"Transposed convolution over {_dims} spatial axes; filter [kernel, Cin, Cout / group].",
    )
define(
    "DepthWiseConv2d",
    "in filter bias?",
    params=(Param("stride", "uint32", rank=1), _PAD, Param("dilation", "uint32", rank=1, default=(1, 1))),
    infer=_infer_depthwise,
    reference=_exact(_depthwise),
    kind=Work.DEPTHWISE,
    work=Measure(macs=_macs_forward),
    quant=CONV,
    doc="Each channel convolved with its own filters [height, width, 1, Cin * multiplier].",
)
