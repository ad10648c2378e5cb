# SPDX-License-Identifier: Apache-2.0
"""Ops of detectors and of sound: boxes that are kept, regions of interest, Fourier transforms."""

from __future__ import annotations

import numpy as np

from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.lower.products.weights import pack, spread
from hexforge.ir import Array, Node

_LONGEST_FRAME = 1024
"""Samples of a frame up to which a product with all waves is about as fast as a fast Fourier transform, or faster."""


@lowers("NonMaxSuppression")
def non_max_suppression(lowering: Lowering, node: Node) -> bool:
    """Boxes that no better one overlaps."""
    boxes, scores = node.operand(0), node.operand(1)
    kinds = [lowering.storage(v).kind for v in (boxes, scores)]
    if kinds != ["f32", "f32"] or any(lowering.storage(v).dtype != np.dtype(np.int32) for v in node.outputs):
        return False
    lowering.emit(
        "select_boxes", [boxes, scores], [*node.outputs], batch=boxes.shape[0], classes=scores.shape[1],
        boxes=boxes.shape[1], most=int(node.params["max_boxes_selected"]), rows=node.outputs[0].shape[0],
        iou=float(node.params["iou_threshold"]), least=float(node.params["score_threshold"]),
    )  # fmt: skip
    return True


@lowers("RoiAlign")
def roi_align(lowering: Lowering, node: Node) -> bool:
    """Bilinear samples of regions, averaged by bins."""
    x, regions, images = node.operand(0), node.operand(1), node.operand(2)
    y = node.outputs[0]
    own, places, out = lowering.storage(x), lowering.storage(regions), lowering.storage(y)
    if own.kind == "raw" or own.kind != out.kind or places.kind == "raw" or (own.kind == "f32" != places.kind):
        return False
    if lowering.storage(images).dtype != np.dtype(np.int32):
        return False
    ratio_y, ratio_x = (float(r) for r in node.params["img_size_ratio"])
    fixed = {} if own.kind == "f32" else {"scale": own.scale / out.scale, "zero_a": own.zero_point, **out.output()}
    coordinates = {} if places.kind == "f32" else {"grid_scale": places.scale, "grid_zero": places.zero_point}
    lowering.emit(
        f"roi_align_{own.kind}_{places.kind}", [x, regions, images], [y], batch=x.shape[0], out=y.shape[1:3],
        channels=x.shape[3], regions=y.shape[0], aligned=int(bool(node.params["aligned"])),
        samples=(int(node.params["num_samples_y"]), int(node.params["num_samples_x"])), ratio_y=ratio_y,
        ratio_x=ratio_x, **{"in": x.shape[1:3]}, **fixed, **coordinates,
    )  # fmt: skip
    return True


@lowers("Stft")
def stft(lowering: Lowering, node: Node) -> bool:
    """A convolution of the signal with all waves under the window, which is constant; its steps are the frames'."""
    x, y = node.operand(0), node.outputs[0]
    window = node.inputs[1] if len(node.inputs) > 1 else None
    length, step = int(node.params["frame_length"]), int(node.params["frame_step"])
    if lowering.storage(x).kind != "f32" or lowering.storage(y).kind != "f32" or length > _LONGEST_FRAME:
        return False
    if window is not None and (window.data is None or window.encoding is not None):
        return False
    _, samples, parts = x.shape
    _, frames, bins, _ = y.shape
    shape = (
        matrix_half(window.data.astype(np.float32))
        if window is not None and window.data is not None
        else np.ones(length)
    )
    weights = _waves(shape.astype(np.float64), parts, bins)
    lowering.emit(
        "conv_f32", [x], [y], batch=x.shape[0], **{"in": (1, 1, samples)}, out=(1, 1, frames), kernel=(1, 1, length),
        stride=(1, 1, step), pad=(0, 0, 0), dilation=(1, 1, 1), channels=parts, out_channels=2 * bins, groups=1,
        x_stride=parts, y_stride=2 * bins, row_taps=True, weight_offset=0, weights=pack(weights, 32, True, 1024),
        pad_row=np.zeros(length * parts, np.float32), bias_f32=spread(np.zeros(2 * bins), 1, np.float32),
        low=float("-inf"), high=float("inf"), half=1,
    )  # fmt: skip
    return True


def _waves(window: Array, parts: int, bins: int) -> Array:
    """[1, 1, samples, parts, 2 * bins]: real and imaginary part of every bin, of a real or a complex signal."""
    length = len(window)
    # turns as whole numbers of 1 / length: the angle of a long wave keeps its precision
    angle = 2 * np.pi / length * (np.outer(np.arange(length), np.arange(bins)) % length)
    cosine, sine = window[:, None] * np.cos(angle), window[:, None] * np.sin(angle)
    waves = np.stack([np.stack([cosine, -sine], -1), np.stack([sine, cosine], -1)][:parts], 1)
    return waves.reshape(1, 1, length, parts, 2 * bins).astype(np.float32)
