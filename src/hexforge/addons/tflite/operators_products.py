# SPDX-License-Identifier: Apache-2.0
"""Products: convolutions and matrix products."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from hexforge.addons.tflite.operator_call import OperatorCall, Translation

SAME = 0
_OUT_FIRST_2D, _OUT_FIRST_3D = (0, 3, 1, 2), (4, 3, 0, 1, 2)


def same_padding(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """What SAME puts before and behind one dimension."""
    if stride <= 0 or window <= 0:
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def window_padding(
    call: OperatorCall, place: int, window: list[int], strides: list[int], dilations: list[int]
) -> dict[str, Any]:
    """The padding of a window over an image as ONNX says it: all beginnings, then all ends, or SAME of open sizes."""
    if min(*window, *strides, *dilations) <= 0:
        raise call.refuse(f"its window {window} with strides {strides} is none; the file is damaged")
    if call.options["padding"] != SAME:
        return {"pads": [0] * (2 * len(window))}
    if call.is_open(place):
        return {"auto_pad": "SAME_UPPER"}
    pairs = [same_padding(*each) for each in zip(call.shape(place)[1:-1], window, strides, dilations, strict=True)]
    return {"pads": [before for before, _ in pairs] + [behind for _, behind in pairs]}


def _weights(call: OperatorCall, place: int, order: tuple[int, ...], shape: tuple[int, ...] = ()) -> str:
    """The filter of a convolution with its axes as ONNX has them, which is done now where it is constant."""
    if call.rank(place) != len(order):
        raise call.refuse(f"its filter has {call.rank(place)} dimensions instead of {len(order)}; the file is damaged")
    index = call.inputs[place]
    if call.constant(place) is not None:
        return call.writer.read_constant(index, order, shape)
    value = call.transpose(call.read(place), order)
    return call.reshape(value, shape) if shape else value


def _bias(call: OperatorCall, place: int, count: int) -> list[str]:
    """The bias as ONNX wants it: one number for each output channel, or none."""
    if not call.has(place) or not call.rank(place):
        return []
    if call.constant(place) is not None and call.rank(place) != 1:
        return [call.writer.read_constant(call.inputs[place], tuple(range(call.rank(place))), (count,))]
    return [call.read(place)]


def _require_rank(call: OperatorCall, place: int, rank: int) -> None:
    if call.rank(place) != rank:
        raise call.refuse(f"its image (input {place}) has {call.rank(place)} dimensions instead of {rank}")


def _conv_2d(call: OperatorCall) -> None:
    _require_rank(call, 0, 4)
    out, height, width, depth = _filter_shape(call, 1, 4)
    channels = call.size(0, 3)
    if not depth or channels % depth:
        raise call.refuse(f"its filter reads {depth} of {channels} channels; the file is damaged")
    _convolve(call, 0, _weights(call, 1, _OUT_FIRST_2D), [height, width], channels // depth, out)


def _depthwise_conv_2d(call: OperatorCall) -> None:
    _require_rank(call, 0, 4)
    _, height, width, out = _filter_shape(call, 1, 4)
    weights = _weights(call, 1, (3, 0, 1, 2))
    _convolve(call, 0, weights, [height, width], call.size(0, 3), out)


def _filter_shape(call: OperatorCall, place: int, rank: int) -> tuple[int, ...]:
    shape = call.shape(place)
    if len(shape) != rank or 0 in shape:
        raise call.refuse(f"its filter has shape {list(shape)}; the file is damaged")
    return shape


def _convolve(call: OperatorCall, place: int, weights: str, window: list[int], groups: int, count: int) -> None:
    axes = "dhw"[-len(window) :]
    strides = [call.options[f"stride_{axis}"] for axis in axes]
    dilations = [call.options.get(f"dilation_{axis}", 1) for axis in axes]
    padding = window_padding(call, place, window, strides, dilations)
    value = call.node(
        "Conv", call.read(place, True), weights, *_bias(call, 2, count),
        kernel_shape=window, strides=strides, dilations=dilations, group=groups, **padding,
    )  # fmt: skip
    call.write(call.activated(value), first=True)


def _conv_3d(call: OperatorCall) -> None:
    _require_rank(call, 0, 5)
    *window, depth, out = _filter_shape(call, 1, 5)
    channels = call.size(0, 4)
    if channels % depth:
        raise call.refuse(f"its filter reads {depth} of {channels} channels; the file is damaged")
    _convolve(call, 0, _weights(call, 1, _OUT_FIRST_3D), list(window), channels // depth, out)


def _transposed(call: OperatorCall, image: int, filter_order: tuple[int, ...], bias: int) -> None:
    """A transposed convolution whose output has the size that the file declares; the builtin ones have that size as
    their first input, and the image as the third."""
    shape = _filter_shape(call, 1, len(filter_order))
    _require_rank(call, image, len(filter_order))
    out_axis = filter_order[1]
    window = [shape[axis] for axis in filter_order[2:]]
    strides = [call.options[f"stride_{axis}"] for axis in "dhw"[-len(window) :]]
    result = call.result_shape()[1:-1]
    if len(result) != len(window) or min(strides) <= 0:
        raise call.refuse("the size of its output is not known; convert it with fixed sizes")
    before, behind, more = [], [], []
    for size, wanted, extent, stride in zip(call.shape(image)[1:-1], result, window, strides, strict=True):
        full = (size - 1) * stride + extent
        before.append(same_padding(wanted, extent, stride)[0] if call.options["padding"] == SAME else 0)
        behind.append(max(full - before[-1] - wanted, 0))
        more.append(max(wanted - (full - before[-1]), 0))
    value = call.node(
        "ConvTranspose", call.read(image, True), _weights(call, 1, filter_order), *_bias(call, bias, shape[out_axis]),
        kernel_shape=window, strides=strides, output_padding=more, pads=before + behind,
    )  # fmt: skip
    call.write(call.activated(value, call.options.get("activation", 0)), first=True)


def transpose_conv_with_bias(call: OperatorCall) -> None:
    """mediapipe's own: image, filter and bias."""
    _transposed(call, 0, (3, 0, 1, 2), 2)


def _fully_connected(call: OperatorCall) -> None:
    if call.options["weights_format"]:
        raise call.refuse("its weights are shuffled for one kernel; convert the model again without that")
    count, depth = _filter_shape(call, 1, 2)
    keeps = call.options["keep_dims"] and call.rank() != 2
    if keeps and call.is_open(0):
        value = call.node("MatMul", call.read(0), _weights(call, 1, (1, 0)))
        call.write(call.activated(reduce(partial(call.node, "Add"), _bias(call, 2, count), value)))
        return
    image = call.read(0)
    if call.rank() != 2 or call.size(0, 1) != depth:
        image = call.as_input(call.reshape(image, [-1, depth]), 0)
    value = call.node("Gemm", image, _weights(call, 1, (0, 1)), *_bias(call, 2, count), transB=1)
    value = call.activated(value)
    if keeps:
        value = call.reshape(call.as_output(value), [*call.shape(0)[:-1], count])
    call.write(value)


def _batch_matmul(call: OperatorCall) -> None:
    sides = []
    for place, flag in ((0, "adj_x"), (1, "adj_y")):
        order = list(range(call.rank(place)))
        if call.options[flag]:
            order[-2:] = reversed(order[-2:])
            sides.append(call.as_input(_weights(call, place, tuple(order)), place))
        else:
            sides.append(call.read(place))
    call.write(call.node("MatMul", *sides))


def _embedding_lookup(call: OperatorCall) -> None:
    call.write(call.node("Gather", call.read(1), call.wide(0)))


_CONV = "padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1"
_CONV_3D = "padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 dilation_w:i=1 dilation_h:i=1"
PRODUCTS = {
    "BATCH_MATMUL": Translation(_batch_matmul, "adj_x:? adj_y:?"),
    "CONV_2D": Translation(_conv_2d, _CONV),
    "CONV_3D": Translation(_conv_3d, _CONV_3D),
    "CONV_3D_TRANSPOSE": Translation(partial(_transposed, image=2, filter_order=(4, 3, 0, 1, 2), bias=3), _CONV_3D),
    "DEPTHWISE_CONV_2D": Translation(
        _depthwise_conv_2d, "padding:b stride_w:i stride_h:i multiplier:i activation:b dilation_w:i=1 dilation_h:i=1"
    ),
    "EMBEDDING_LOOKUP": Translation(_embedding_lookup),
    "FULLY_CONNECTED": Translation(_fully_connected, "activation:b weights_format:b keep_dims:?"),
    "TRANSPOSE_CONV": Translation(
        partial(_transposed, image=2, filter_order=(3, 0, 1, 2), bias=3), "padding:b stride_w:i stride_h:i activation:b"
    ),
}
