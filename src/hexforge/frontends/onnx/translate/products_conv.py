# SPDX-License-Identifier: Apache-2.0
"""Convolutions: Conv, ConvTranspose, and the integer and quantized ones."""

from __future__ import annotations

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, carried, less_zero_point, translates
from hexforge.frontends.onnx.translate.reductions_windows import explicit_pads, numbers, window
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import AxisScaleOffset, Encoding, ScaleOffset, TensorType, Value
from hexforge.ir.fixed_point import offset_array


@translates("Conv", writes=("Conv2d", "Conv3d", "DepthWiseConv2d"))
def conv(b: Builder, u: Unit) -> None:
    """Conv of one to three spatial axes."""
    convolve(b, u, carried(b, u), carried(b, u, 1), carried(b, u, 2) if b.has(u, 2) else None)


@translates("QLinearConv", "com.microsoft:QLinearConv", writes=("Conv2d", "Conv3d", "DepthWiseConv2d"))
def qlinear_conv(b: Builder, u: Unit) -> None:
    """Conv of fixed-point tensors; the encodings come with the unit."""
    if b.attr(u, "channels_last", 0):
        raise Refusal("channels_last=1; leave the layout to the execution provider")
    if any(o is None or o.encoding is None for o in (u.inputs[0], u.inputs[3], u.outputs[0])):
        raise Refusal("scales and zero points must be constant to become encodings")
    x, w = b.input(u, 0), b.input(u, 3)
    bias = None
    if b.has(u, 8):
        if not isinstance(x.encoding, ScaleOffset) or not isinstance(w.encoding, (ScaleOffset, AxisScaleOffset)):
            raise Refusal("a bias beside blockwise scales; add it with another node")
        steps = b.constant(u, 8, "bias")
        assert steps is not None
        bias = b.static(steps, _product(x.encoding.scale, w.encoding), f"{b.operand(u, 8).value.name}_bias")
    convolve(b, u, x, w, bias)


def _product(scale: float, weight: ScaleOffset | AxisScaleOffset) -> Encoding:
    """The encoding of a bias: it counts in steps of input scale times weight scale."""
    if isinstance(weight, ScaleOffset):
        return ScaleOffset(scale * weight.scale)
    return AxisScaleOffset(0, tuple(scale * s for s in weight.scales), (0,) * len(weight.scales))


@translates("ConvInteger", writes=("Conv2d", "Conv3d", "DepthWiseConv2d", "ElementWiseSubtract"))
def conv_integer(b: Builder, u: Unit) -> None:
    """int32 Conv of 8-bit tensors less their zero points."""
    filter_rank = len(b.input(u, 1).shape)
    # a zero point of the filter for each output channel
    convolve(b, u, less_zero_point(b, u, 0), less_zero_point(b, u, 1, filter_rank - 1), None)


def _squeezed(b: Builder, value: Value) -> Value:
    """A filter [O, I, width] as [O, I, 1, width]; encodings along O or I stay as they are."""
    shape = (*value.shape[:2], 1, *value.shape[2:])
    if value.data is not None:
        return b.static(value.data.reshape(shape), value.encoding, f"{value.name}_2d")
    return b.reshape(value, shape)


def _spatial_first(b: Builder, x: Value) -> Value:
    """The input channel-last, one spatial axis made two."""
    x = b.to_channel_last(x)
    return b.reshape(x, (x.shape[0], 1, *x.shape[1:])) if len(x.shape) == 3 else x


def _write(b: Builder, u: Unit, op: str, inputs: list[Value | None], **params: object) -> None:
    """Write the channel-last op and bring its result to the unit's output."""
    out = b.output(u)
    last = (out.shape[0], *out.shape[2:], out.shape[1])
    spatial = (last[0], 1, *last[1:]) if len(last) == 3 else last
    value = b.emit(op, inputs, out.type.with_shape(spatial), **params)
    b.to_channel_first(b.reshape(value, last), out)


def _check(b: Builder, u: Unit, x: Value, w: Value) -> tuple[int, ...]:
    rank = len(x.shape)
    if rank not in (3, 4, 5) or len(w.shape) != rank:
        raise Refusal(f"input {list(x.shape)} and filter {list(w.shape)}; QNN convolves 1 to 3 spatial axes")
    kernel = w.shape[2:]
    if numbers(b, u, "kernel_shape", rank - 2, 1, 1) != kernel and b.attr(u, "kernel_shape") is not None:
        raise Refusal(f"kernel_shape {b.attr(u, 'kernel_shape')} is not the filter's {list(kernel)}")
    return kernel


def convolve(b: Builder, u: Unit, x: Value, w: Value, bias: Value | None) -> None:
    """Write the convolution of the unit's target, of `x` by `w`, to its output."""
    kernel, group = _check(b, u, x, w), int(b.attr(u, "group", 1))
    shape = window(b, u, x.shape[2:], kernel)
    channels = x.shape[1]
    if group < 1 or channels != w.shape[1] * group or w.shape[0] % group:
        raise Refusal(f"group {group} does not fit input {list(x.shape)} and filter {list(w.shape)}")
    if len(x.shape) == 3:
        shape, w = shape.unsqueezed(), _squeezed(b, w)
    spatial = range(2, len(w.shape))
    filter = b.transpose(w, (*spatial, 1, 0))
    params = {"stride": shape.stride, "pad_amount": shape.pads, "dilation": shape.dilation}
    inputs = [_spatial_first(b, x), filter, bias]
    if group == channels > 1 and len(w.shape) == 4:
        _write(b, u, "DepthWiseConv2d", inputs, **params)
    else:
        _write(b, u, f"Conv{len(w.shape) - 2}d", inputs, group=group, **params)


# -- ConvTranspose --------------------------------------------------------------------------------------------------


@translates("ConvTranspose", writes=("Gather", "Pad", "TransposeConv2d", "TransposeConv3d"))
def conv_transpose(b: Builder, u: Unit) -> None:
    """ConvTranspose; a dilated kernel is spread with zeros."""
    x, w = carried(b, u), carried(b, u, 1)
    bias = carried(b, u, 2) if b.has(u, 2) else None
    _check(b, u, x, w)
    group, dims = int(b.attr(u, "group", 1)), len(x.shape) - 2
    if group < 1 or x.shape[1] != w.shape[0] or x.shape[1] % group:
        raise Refusal(f"group {group} does not fit input {list(x.shape)} and filter {list(w.shape)}")
    for axis, step in enumerate(numbers(b, u, "dilations", dims, 1, 1), 2):
        w = _spread(b, w, axis, step)
    stride, pads, extra = _transposed_window(b, u, x.shape[2:], w.shape[2:])
    if group > 1 and isinstance(w.encoding, AxisScaleOffset):
        w, group = _dense(b, w, group), 1
    if dims == 1:
        w, stride, pads, extra = _squeezed(b, w), (1, *stride), ((0, 0), *pads), (0, *extra)
    filter = b.transpose(w, (*range(2, len(w.shape)), 0, 1))
    _write(
        b, u, f"TransposeConv{len(w.shape) - 2}d", [_spatial_first(b, x), filter, bias],
        stride=stride, pad_amount=pads, group=group, output_padding=extra,
    )  # fmt: skip


def _transposed_window(
    b: Builder, u: Unit, sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Strides, pads and output padding; pads follow from the output's shape where that is what is given."""
    dims, out = len(sizes), b.output(u).shape[2:]
    stride, extra = numbers(b, u, "strides", dims, 1, 1), numbers(b, u, "output_padding", dims, 0, 0)
    auto, given = b.attr(u, "auto_pad", "NOTSET"), b.attr(u, "output_shape")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Refusal(f"auto_pad {auto!r} is unknown; use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads, fill = [], []
    for i, (n, k, s, e) in enumerate(zip(sizes, kernel, stride, extra, strict=True)):
        full = s * (n - 1) + k
        if given is not None or auto.startswith("SAME"):
            total = max(full + e - out[i], 0)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        else:
            before = explicit_pads(b, u, dims)[i][0] if auto == "NOTSET" else 0
        after = full - before - out[i]
        pads.append((before, max(after, 0)))
        fill.append(max(-after, 0))
    return stride, tuple(pads), tuple(fill)


def _spread(b: Builder, w: Value, axis: int, step: int) -> Value:
    """The filter with `step - 1` zeros between taps along `axis`."""
    taps = w.shape[axis]
    if step == 1 or taps == 1:
        return w
    size = step * (taps - 1) + 1
    if w.data is not None:
        zero = 0 if w.encoding is None else -offset_array(w.encoding, w.shape)
        shape = (*w.shape[:axis], size, *w.shape[axis + 1 :])
        if w.encoding is not None and not isinstance(w.encoding, (ScaleOffset, AxisScaleOffset)):
            raise Refusal("a dilated filter with blockwise scales; dequantize it")
        data = np.broadcast_to(zero, shape).astype(w.data.dtype)
        data[(slice(None),) * axis + (slice(None, None, step),)] = w.data
        return b.static(data, w.encoding, f"{w.name}_spread")
    if w.encoding is not None:
        raise Refusal("a dilated filter that is computed at run time and fixed point; make it constant")
    amount = [(0, 1) if i == axis else (0, 0) for i in range(len(w.shape))]
    padded = b.emit("Pad", [w], scheme=0, pad_amount=amount, pad_constant_value=0.0)
    index = np.full(size, taps, np.int32)
    index[::step] = np.arange(taps)
    return b.emit("Gather", [padded, b.static(index)], axis=axis)


def _dense(b: Builder, w: Value, group: int) -> Value:
    """A filter of several groups with per-channel scales as one of group 1, zero between groups."""
    encoding = w.encoding
    assert isinstance(encoding, AxisScaleOffset)
    if w.data is None or encoding.axis != 1:
        raise Refusal("several groups with per-channel scales need a constant filter, scales along axis 1")
    inputs, outputs = w.shape[0] // group, w.shape[1]
    scales = AxisScaleOffset(1, encoding.scales * group, encoding.offsets * group, encoding.bitwidth)
    type = TensorType(w.dtype, (w.shape[0], outputs * group, *w.shape[2:]), scales)
    data = np.broadcast_to(-offset_array(scales, type.shape), type.shape).astype(w.data.dtype)
    for g in range(group):
        data[g * inputs : (g + 1) * inputs, g * outputs : (g + 1) * outputs] = w.data[g * inputs : (g + 1) * inputs]
    return b.static(data, scales, f"{w.name}_dense")
