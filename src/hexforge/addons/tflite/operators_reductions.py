# SPDX-License-Identifier: Apache-2.0
"""Reductions: operators that make one element of many: sums, pools, norms, orders."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hexforge.addons.tflite.operator_call import OperatorCall, Translation
from hexforge.addons.tflite.operators_products import window_padding


def _reduce(call: OperatorCall, op_type: str) -> None:
    """Over the axes of input 1, in the layout that the input is in where no axis is lost."""
    keeps, rank = call.options["keep_dims"], call.rank()
    axes = sorted({call.axis(axis) for axis in call.sizes(1, "axes")})
    if not axes:  # ONNX takes no axes for all of them
        call.write(call.node("Identity", call.read(0)))
        return
    first = bool(keeps) and call.prefers_first()
    places = sorted(call.place_of(axis, first, rank) for axis in axes)
    value = call.read(0, first)
    logical = call.dtype().kind == "b"
    if logical:
        value = call.cast(value, np.int32)
    value = call.node(op_type, value, call.array(places, np.int64), keepdims=int(keeps))
    call.write(call.cast(value, np.bool_) if logical else value, first=first)


def _arg(call: OperatorCall, op_type: str) -> None:
    axis = call.axis(call.sizes(1, "axis")[0])
    call.write(call.cast(call.node(op_type, call.read(0), axis=axis, keepdims=0), call.result_dtype()))


def _window(call: OperatorCall) -> dict[str, Any]:
    """Window, strides and padding of a pool, as attributes."""
    window = [call.options["filter_h"], call.options["filter_w"]]
    strides = [call.options["stride_h"], call.options["stride_w"]]
    if call.rank() != 4:
        raise call.refuse(f"its image has {call.rank()} dimensions instead of 4; the file is damaged")
    return {"kernel_shape": window, "strides": strides, **window_padding(call, 0, window, strides, [1, 1])}


def _pool(call: OperatorCall, op_type: str) -> None:
    more = {"count_include_pad": 0} if op_type == "AveragePool" else {}
    value = call.node(op_type, call.read(0, True), **_window(call), **more)
    call.write(call.activated(call.as_output(value) if call.options["activation"] else value), first=True)


def _l2_pool(call: OperatorCall) -> None:
    image = call.read(0, True)
    square = call.node("Mul", image, image)
    mean = call.node("AveragePool", square, **_window(call), count_include_pad=0)
    call.write(call.activated(call.node("Sqrt", mean)), first=True)


def _softmax(call: OperatorCall) -> None:
    beta = call.options["beta"]
    value = call.read(0) if beta == 1 else call.scaled(0, beta)
    call.write(call.node("Softmax", value, axis=-1))


def _log_softmax(call: OperatorCall) -> None:
    call.write(call.node("LogSoftmax", call.read(0), axis=-1))


def _l2_normalization(call: OperatorCall) -> None:
    value = call.read(0)
    axis = call.array([-1], np.int64)
    total = call.node("ReduceSum", call.node("Mul", value, value), axis, keepdims=1)
    length = call.node("Sqrt", call.node("Max", total, call.like(1e-6)))
    call.write(call.activated(call.node("Div", value, length)))


def _local_response_normalization(call: OperatorCall) -> None:
    size = 2 * call.options["radius"] + 1
    if size <= 0 or size > 1 << 20:
        raise call.refuse(f"its radius {call.options['radius']} is none; the file is damaged")
    value = call.node(
        "LRN", call.read(0, True), size=size, bias=call.options["bias"],
        alpha=call.options["alpha"] * size, beta=call.options["beta"],
    )  # fmt: skip
    call.write(value, first=True)


def _cumsum(call: OperatorCall) -> None:
    axis = call.array(call.axis(call.sizes(1, "axis")[0]), np.int64)
    flags = {name: int(call.options[name]) for name in ("exclusive", "reverse")}
    call.write(call.node("CumSum", call.read(0), axis, **flags))


def _topk(call: OperatorCall) -> None:
    count = call.reshape(call.wide(1), [1])
    values, places = call.nodes("TopK", 2, call.read(0), count, axis=-1)
    call.write(values)
    call.write(call.cast(places, call.result_dtype(1)), 1)


def _segments(call: OperatorCall, op_type: str, start: float | str) -> None:
    """Rows of one segment become one row; a segment without rows has the value that changes nothing."""
    shape = list(call.result_shape())
    dtype = call.dtype()
    if len(shape) == 0 or 0 in shape:
        raise call.refuse("the number of its segments is not known; convert it with fixed sizes")
    if isinstance(start, str):
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        start = getattr(limits, start)
    begin = call.node("Expand", call.like(start), call.array(shape, np.int64))
    indices = call.reshape(call.wide(1), [*call.shape(1), 1])
    call.write(call.node("ScatterND", begin, indices, call.read(0), reduction=op_type))


def _reducer(op_type: str) -> Translation:
    return Translation(partial(_reduce, op_type=op_type), "keep_dims:?")


def _segment(op_type: str, start: float | str) -> Translation:
    return Translation(partial(_segments, op_type=op_type, start=start))


_POOL = "padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b"
REDUCTIONS = {
    "ARG_MAX": Translation(partial(_arg, op_type="ArgMax"), "output_type:b"),
    "ARG_MIN": Translation(partial(_arg, op_type="ArgMin"), "output_type:b"),
    "AVERAGE_POOL_2D": Translation(partial(_pool, op_type="AveragePool"), _POOL),
    "CUMSUM": Translation(_cumsum, "exclusive:? reverse:?"),
    "L2_NORMALIZATION": Translation(_l2_normalization, "activation:b"),
    "L2_POOL_2D": Translation(_l2_pool, _POOL),
    "LOCAL_RESPONSE_NORMALIZATION": Translation(_local_response_normalization, "radius:i bias:f alpha:f beta:f"),
    "LOG_SOFTMAX": Translation(_log_softmax),
    "MAX_POOL_2D": Translation(partial(_pool, op_type="MaxPool"), _POOL),
    "MEAN": _reducer("ReduceMean"),
    "REDUCE_ALL": _reducer("ReduceMin"),
    "REDUCE_ANY": _reducer("ReduceMax"),
    "REDUCE_MAX": _reducer("ReduceMax"),
    "REDUCE_MIN": _reducer("ReduceMin"),
    "REDUCE_PROD": _reducer("ReduceProd"),
    "SEGMENT_SUM": _segment("add", 0),
    "SOFTMAX": Translation(_softmax, "beta:f"),
    "SUM": _reducer("ReduceSum"),
    "TOPK_V2": Translation(_topk),
    "UNSORTED_SEGMENT_MAX": _segment("max", "min"),
    "UNSORTED_SEGMENT_MIN": _segment("min", "max"),
    "UNSORTED_SEGMENT_PROD": _segment("mul", 1),
    "UNSORTED_SEGMENT_SUM": _segment("add", 0),
}
