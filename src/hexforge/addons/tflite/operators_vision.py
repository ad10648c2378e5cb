# SPDX-License-Identifier: Apache-2.0
"""Vision: operators that resize images and rearrange their pixels, and what detectors do with boxes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from flatbuffers import flexbuffers

from hexforge.addons.tflite.operator_call import OperatorCall, Translation
from hexforge.addons.tflite.operators_products import transpose_conv_with_bias, window_padding


def _resize(call: OperatorCall, mode: str) -> None:
    if call.rank() != 4:
        raise call.refuse(f"its image has {call.rank()} dimensions instead of 4; the file is damaged")
    kept = [call.size(0, 0), call.size(0, 3)]
    if call.constant(1) is None:
        shape = call.node("Concat", call.array(kept, np.int64), call.wide(1), axis=0)
    else:
        size = call.sizes(1, "size")
        if len(size) != 2 or min(size) <= 0:
            raise call.refuse(f"its size {size} is none; the file is damaged")
        shape = call.array(kept + size, np.int64)
    align, half = call.options["align_corners"], call.options["half_pixel"]
    where = "align_corners" if align else "half_pixel" if half else "asymmetric"
    nearest = {"nearest_mode": "round_prefer_ceil" if align or (half and mode == "nearest") else "floor"}
    if mode == "nearest" and half and not align:
        nearest = {"nearest_mode": "round_prefer_ceil"}
    more = nearest if mode == "nearest" else {}
    value = call.node(
        "Resize", call.read(0, True), "", "", shape,
        mode=mode, coordinate_transformation_mode=where, **more,
    )  # fmt: skip
    if call.constant(1) is None:
        call.writer.note(value, [*kept, None, None])
    call.write(value, first=True)


def _depth_to_space(call: OperatorCall) -> None:
    if call.dtype().kind != "f":  # which onnxruntime has no DepthToSpace for
        _rearrange(call, lambda n, h, w, c, b: ((n, h, w, b, b, c // b // b), (n, h * b, w * b, c // b // b)))
        return
    call.write(call.node("DepthToSpace", call.read(0, True), blocksize=call.options["block"]), first=True)


def _space_to_depth(call: OperatorCall) -> None:
    """The channels of a block's pixels stand one pixel after the other, as in ONNX."""
    if call.dtype().kind != "f":
        _rearrange(call, lambda n, h, w, c, b: ((n, h // b, b, w // b, b, c), (n, h // b, w // b, c * b * b)))
        return
    call.write(call.node("SpaceToDepth", call.read(0, True), blocksize=call.options["block"]), first=True)


def _rearrange(call: OperatorCall, shapes: Callable[..., tuple[Sequence[int], Sequence[int]]]) -> None:
    """Pixels of blocks to or from channels by hand."""
    parts, result = shapes(*call.shape(0), call.options["block"])
    value = call.transpose(call.reshape(call.read(0), parts), (0, 1, 3, 2, 4, 5))
    call.write(call.reshape(value, result))


# -- boxes ----------------------------------------------------------------------------------------------------------


def _non_max_suppression(call: OperatorCall, is_soft: bool) -> None:
    """Which boxes are kept, padded with zeros to the most there may be, and how many they are."""
    if is_soft and (call.constant(5) is None or float(call.fixed(5, "sigma").reshape(-1)[0]) != 0):
        raise call.refuse("soft suppression (a sigma other than 0) is not translated; convert it with sigma 0")
    limit = call.sizes(2, "largest number of boxes")[0]
    if not 0 < limit < 1 << 20:
        raise call.refuse(f"its largest number of boxes, {limit}, is none")
    count = call.shape(1)[0]
    boxes, scores = call.reshape(call.read(0), [1, count, 4]), call.reshape(call.read(1), [1, 1, count])
    thresholds = [call.reshape(call.read(place), [1]) for place in (3, 4)]
    chosen = call.node("NonMaxSuppression", boxes, scores, call.array([limit], np.int64), *thresholds)
    places = call.reshape(call.node("Slice", chosen, *(call.array([n], np.int64) for n in (2, 3, 1))), [-1])
    number = call.node("Shape", places)
    kept = call.node("Gather", call.read(1), places)
    zero = call.array([0], np.int64)
    amount = call.node("Concat", zero, call.node("Sub", call.array([limit], np.int64), number), axis=0)
    results = [call.cast(call.node("Pad", places, amount), call.result_dtype())]
    if is_soft:
        results.append(call.node("Pad", kept, amount))
    results.append(call.cast(call.reshape(number, []), np.int32))
    for place, value in enumerate(results):
        call.write(value, place)


def _detection_post_process(call: OperatorCall) -> None:
    """Boxes decoded from anchors, the best class of each, suppressed without regard to classes, and the best first.

    Its parameters are a flexbuffer. This is what its fast form does; the exact one, class by class, is asked for by
    `use_regular_nms`.
    """
    wanted = _flexible(call)
    if wanted.get("use_regular_nms"):
        raise call.refuse(
            "use_regular_nms is not translated; convert it with the fast suppression, which is the default"
        )
    limit = int(wanted["max_detections"])
    anchors, count = call.fixed(2, "anchors"), call.shape(0)[-2]
    if call.shape(0)[0] != 1 or anchors.shape != (count, 4) or not 0 < limit < 1 << 16:
        raise call.refuse("it is translated for one image, with an anchor for each box; the file is damaged or batched")
    real = call.writer.real(call.inputs[2])
    assert real is not None
    classes = int(wanted["num_classes"])
    boxes, scores = call.reshape(call.read(0), [count, -1]), call.reshape(call.read(1), [count, -1])
    scores = _columns(call, scores, call.shape(1)[-1] - classes, call.shape(1)[-1])  # without the background's
    corners = _decoded(call, boxes, real, wanted)
    best = call.node("ReduceMax", scores, call.array([1], np.int64), keepdims=0)
    chosen = call.node(
        "NonMaxSuppression", call.reshape(corners, [1, count, 4]), call.reshape(best, [1, 1, count]),
        call.array([limit], np.int64), call.array([wanted["nms_iou_threshold"]], np.float32),
        call.array([wanted["nms_score_threshold"]], np.float32),
    )  # fmt: skip
    places = call.reshape(_columns(call, chosen, 2, 3), [-1])
    number = call.node("Shape", places)
    missing = call.node("Sub", call.array([limit], np.int64), number)
    kinds = call.cast(call.node("ArgMax", scores, axis=1, keepdims=0), np.float32)
    zero = call.array([0], np.int64)
    rows = call.node("Concat", call.array([0, 0], np.int64), missing, zero, axis=0)
    row = call.node("Concat", zero, missing, axis=0)
    padded = call.node("Pad", call.node("Gather", corners, places), rows)
    call.write(call.node("Unsqueeze", padded, zero))
    for place, values in ((1, kinds), (2, best)):
        call.write(call.node("Unsqueeze", call.node("Pad", call.node("Gather", values, places), row), zero), place)
    call.write(call.cast(number, np.float32), 3)


def _columns(call: OperatorCall, value: str, start: int, stop: int) -> str:
    return call.node("Slice", value, *(call.array([n], np.int64) for n in (start, stop, 1)))


def _decoded(call: OperatorCall, boxes: str, anchors: np.ndarray, wanted: dict[str, float]) -> str:
    """Corners (top, left, bottom, right) of boxes given as centre and size relative to their anchors."""
    scale = np.array([wanted[f"{name}_scale"] for name in "yxhw"], np.float32)
    relative = call.node("Div", _columns(call, boxes, 0, 4), call.array(scale))
    centre = call.node("Mul", _columns(call, relative, 0, 2), call.array(anchors[:, 2:4]))
    centre = call.node("Add", centre, call.array(anchors[:, 0:2]))
    half = call.node("Mul", call.node("Exp", _columns(call, relative, 2, 4)), call.array(anchors[:, 2:4] / 2))
    return call.node("Concat", call.node("Sub", centre, half), call.node("Add", centre, half), axis=1)


_NEEDED = (
    *("max_detections", "num_classes", "nms_score_threshold", "nms_iou_threshold"),
    *("y_scale", "x_scale", "h_scale", "w_scale"),
)


def _flexible(call: OperatorCall) -> dict[str, float]:
    try:
        wanted = flexbuffers.Loads(bytes(call.operator.custom_options))
    except (ValueError, TypeError, IndexError, KeyError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise call.refuse(f"its options are no flexbuffer ({error}); the file is damaged") from None
    if not isinstance(wanted, dict) or not all(isinstance(wanted.get(name), (int, float)) for name in _NEEDED):
        raise call.refuse(f"its options lack one of {', '.join(_NEEDED)}; the file is damaged")
    return wanted


# -- mediapipe's own -------------------------------------------------------------------------------------------------

_PADDINGS = {1: 0, 2: 1}
"""How TfLitePadding spells the schema's numbers of SAME and VALID."""


def _plain_options(call: OperatorCall, *names: str) -> None:
    """Options that are stored as numbers of 32 bits one after the other, padding first."""
    data = call.operator.custom_options
    if len(data) < 4 * len(names):
        raise call.refuse(f"its options have {len(data)} bytes instead of {4 * len(names)}; the file is damaged")
    numbers = dict(zip(names, struct.unpack_from(f"<{len(names)}i", data), strict=True))
    if numbers["padding"] not in _PADDINGS:
        raise call.refuse(f"its padding {numbers['padding']} is neither SAME nor VALID")
    call.__dict__["options"] = {**numbers, "padding": _PADDINGS[numbers["padding"]]}


def _transpose_conv_bias(call: OperatorCall) -> None:
    _plain_options(call, "padding", "stride_w", "stride_h")
    transpose_conv_with_bias(call)


_POOL = ("padding", "stride_w", "stride_h", "filter_w", "filter_h")


def _max_pool_with_argmax(call: OperatorCall) -> None:
    """The maxima, and where in its window each was, as a float: row times the window's width plus column, and 0.1."""
    _plain_options(call, *_POOL)
    window, strides = ([call.options[f"{name}_{axis}"] for axis in "hw"] for name in ("filter", "stride"))
    if window != strides or any(window_padding(call, 0, window, strides, [1, 1]).get("pads", [1])):
        raise call.refuse("it is translated for windows that do not overlap and need no padding")
    batch, height, width, channels = call.shape(0)
    rows, columns = height // window[0], width // window[1]
    value = call.reshape(call.read(0), [batch, rows, window[0], columns, window[1], channels])
    value = call.reshape(call.transpose(value, (0, 1, 3, 5, 2, 4)), [batch, rows, columns, channels, -1])
    call.write(call.node("ReduceMax", value, call.array([-1], np.int64), keepdims=0))
    places = call.node("ArgMax", value, axis=-1, keepdims=0)
    call.write(call.node("Add", call.cast(places, np.float32), call.array(0.1, np.float32)), 1)


def _max_unpool(call: OperatorCall) -> None:
    """Each value where its index says, and zeros around it."""
    _plain_options(call, *_POOL)
    window, strides = ([call.options[f"{name}_{axis}"] for axis in "hw"] for name in ("filter", "stride"))
    if window != strides:
        raise call.refuse("it is translated for windows that do not overlap")
    batch, rows, columns, channels = call.shape(0)
    cells = call.array(np.arange(window[0] * window[1]), np.int64)
    place = call.node("Unsqueeze", call.cast(call.read(1), np.int64), call.array([-1], np.int64))
    value = call.node("Unsqueeze", call.read(0), call.array([-1], np.int64))
    spread = call.node("Where", call.node("Equal", place, cells), value, call.like(0))
    spread = call.reshape(spread, [batch, rows, columns, channels, *window])
    spread = call.transpose(spread, (0, 1, 4, 2, 5, 3))
    call.write(call.reshape(spread, [batch, rows * window[0], columns * window[1], channels]))


VISION = {
    "DEPTH_TO_SPACE": Translation(_depth_to_space, "block:i"),
    "NON_MAX_SUPPRESSION_V4": Translation(partial(_non_max_suppression, is_soft=False)),
    "NON_MAX_SUPPRESSION_V5": Translation(partial(_non_max_suppression, is_soft=True)),
    "RESIZE_BILINEAR": Translation(
        partial(_resize, mode="linear"), "old_height:- old_width:- align_corners:? half_pixel:?"
    ),
    "RESIZE_NEAREST_NEIGHBOR": Translation(partial(_resize, mode="nearest"), "align_corners:? half_pixel:?"),
    "SPACE_TO_DEPTH": Translation(_space_to_depth, "block:i"),
}
CUSTOM = {
    "Convolution2DTransposeBias": Translation(_transpose_conv_bias),
    "MaxPoolingWithArgmax2D": Translation(_max_pool_with_argmax),
    "MaxUnpooling2D": Translation(_max_unpool),
    "TFLite_Detection_PostProcess": Translation(_detection_post_process),
}
