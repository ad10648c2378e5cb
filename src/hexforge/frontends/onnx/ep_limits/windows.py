# SPDX-License-Identifier: Apache-2.0
"""Limits of ops with windows: convolutions, pools, resizing, sampling."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits.limit import EpLimit, Evidence, Refuser, limit
from hexforge.frontends.onnx.ep_limits.resizing import LIMITS as RESIZING
from hexforge.frontends.onnx.ep_limits.subject import Subject

_POOLS = "AveragePool MaxPool LpPool"


def _dilated(subject: Subject) -> bool:
    return any(d != 1 for d in subject.attr("dilations", ()))


def _shortened(subject: Subject) -> bool:
    """ceil_mode where ONNX drops a last window that starts in the padding, and QNN counts it."""
    shape, out = subject.shape()[2:], subject.out_shape()[2:]
    if subject.attr("ceil_mode", 0) != 1 or subject.attr("auto_pad", "NOTSET") != "NOTSET":
        return False
    spatial = len(shape)
    kernel = subject.attr("kernel_shape")
    strides = subject.attr("strides", [1] * spatial)
    pads = subject.attr("pads", [0] * 2 * spatial)
    counted = [
        -(-(n + pads[i] + pads[i + spatial] - kernel[i]) // strides[i]) + 1 for i, n in enumerate(shape)
    ]  # fmt: skip
    return any(there < size for there, size in zip(out, counted, strict=False))


LIMITS: tuple[EpLimit, ...] = (
    limit(
        "Conv",
        lambda s: s.rank() == 5 and _dilated(s),
        "dilations in three dimensions; use dilations of 1",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "Conv ConvTranspose",
        lambda s: s.bits(0) > 0 and s.computed(2),
        "a bias computed at run time where the data is quantized; make it a constant",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "Conv ConvTranspose",
        lambda s: s.rank() != 4 and s.bits(1) == 16 and s.computed(1),
        "16-bit weights computed at run time but for two dimensions; make them constants, or 8-bit",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "ConvTranspose",
        _dilated,
        "dilations; use dilations of 1",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "QLinearConv",
        lambda s: s.computed(3),
        "weights computed at run time; make them constants",
        Refuser.BUILDER, Evidence.OBSERVED,
    ),
    limit(
        _POOLS,
        _dilated,
        "dilations; use dilations of 1",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "MaxPool",
        lambda s: len(s.outputs) > 1,
        "the output Indices; declare Y alone",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "AveragePool MaxPool",
        _shortened,
        "ceil_mode with a last window that starts in the padding; use ceil_mode=0 with pads that fit",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "LpPool",
        lambda s: s.attr("p", 2) not in (1, 2),
        "p other than 1 or 2; use AveragePool of powers",
        Refuser.BUILDER, Evidence.DOCUMENTED,
    ),
    limit(
        "LpPool",
        lambda s: s.attr("ceil_mode", 0) == 1,
        "ceil_mode=1; use ceil_mode=0 with pads that fit",
        Refuser.BUILDER, Evidence.OBSERVED,
    ),
    limit(
        "LpPool",
        lambda s: s.rank() > 4,
        "three spatial dimensions; reshape to two",
        Refuser.BUILDER, Evidence.DOCUMENTED,
    ),
    limit(
        "GridSample",
        lambda s: s.attr("mode", "linear") in ("cubic", "bicubic"),
        "cubic interpolation; use linear",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "GridSample",
        lambda s: s.rank() > 4 and not s.bits(),
        "volumes that are not quantized; quantize it, or sample slices of 4 dimensions",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "RoiAlign",
        lambda s: s.attr("mode", "avg") != "avg",
        "mode max; use avg",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "MaxRoiPool",
        lambda s: s.computed(1),
        "regions computed at run time; make them constants",
        Refuser.BUILDER, Evidence.OBSERVED,
    ),
    *RESIZING,
)  # fmt: skip
