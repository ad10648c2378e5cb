# SPDX-License-Identifier: Apache-2.0
"""Limits of resizing, sampling, regions and detection."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits.subject import EpRule, Evidence, Subject, builder, validation

_RESIZE = "Resize Upsample"


def _transform(subject: Subject) -> str:
    """How coordinates are transformed; before opset 11 there was one way."""
    default = "half_pixel" if subject.op == "Resize" and subject.opset >= 11 else "asymmetric"
    return str(subject.attr("coordinate_transformation_mode", default))


def _rounding(subject: Subject) -> str:
    default = "round_prefer_floor" if subject.op == "Resize" and subject.opset >= 11 else "floor"
    return str(subject.attr("nearest_mode", default))


def _is(subject: Subject, mode: str) -> bool:
    return bool(subject.attr("mode", "nearest") == mode)


def _nearest_pictures(subject: Subject) -> bool:
    """True for modes of 4 dimensions that the nearest neighbour's own op does not have."""
    rounding = _rounding(subject) in ("ceil", "round_prefer_floor")
    return _is(subject, "nearest") and subject.rank() == 4 and _transform(subject) == "asymmetric" and rounding


def _nearest_others(subject: Subject) -> bool:
    """True for modes of 3 or 5 dimensions that the general Resize does not have."""
    if not _is(subject, "nearest") or subject.rank() == 4:
        return False
    transform, rounding = _transform(subject), _rounding(subject)
    if rounding == "round_prefer_ceil":
        return transform != "align_corners"
    return rounding != "floor" or transform in ("pytorch_half_pixel", "align_corners")


def _channels(subject: Subject) -> bool:
    return subject.shape()[:2] != subject.out_shape()[:2]


def _uneven_cubic(subject: Subject) -> bool:
    """Scales that the sizes of input and output do not give back."""
    scales = subject.numbers(2 if subject.op == "Resize" and subject.opset >= 11 else 1)
    if not _is(subject, "cubic") or scales is None or not scales.size:
        return False
    if scales.size != subject.rank():
        return True
    pairs = zip(subject.shape(), subject.out_shape(), scales.tolist(), strict=False)
    return any(abs(there / here - scale) > 1e-4 for here, there, scale in pairs)


def _more_boxes(subject: Subject) -> bool:
    most = subject.numbers(2)
    return most is not None and bool(most.ravel()[:1].sum() > subject.shape(0)[1])


LIMITS: tuple[EpRule, ...] = (
    builder("Resize", lambda s: s.attr("antialias", 0) == 1, "antialias=1; use 0"),
    builder(
        "Resize",
        lambda s: _transform(s) not in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
        "this coordinate_transformation_mode; use half_pixel, pytorch_half_pixel, align_corners or asymmetric",
    ),
    builder(_RESIZE, lambda s: not 3 <= s.rank() <= 5, "a rank other than 3, 4 or 5; reshape to 4"),
    builder(_RESIZE, _channels, "a change of batch or channels; resize the spatial dimensions alone"),
    builder(
        _RESIZE, _nearest_pictures, "nearest_mode ceil or round_prefer_floor with asymmetric coordinates; use floor"
    ),
    builder(
        _RESIZE,
        _nearest_others,
        "this nearest_mode with these coordinates for 3 or 5 dimensions; use floor with half_pixel or asymmetric, "
        "or round_prefer_ceil with align_corners",
    ),
    validation(
        "Upsample",
        lambda s: _is(s, "nearest") and s.rank() != 4,
        "mode nearest of 3 or 5 dimensions; use Resize, or reshape to 4",
    ),
    builder(
        "Resize",
        _uneven_cubic,
        "cubic with scales that are not output size by input size of every dimension; give sizes, or such scales",
        Evidence.OBSERVED,
    ),
    builder(
        "GridSample", lambda s: s.attr("mode", "linear") in ("cubic", "bicubic"), "cubic interpolation; use linear"
    ),
    validation(
        "GridSample",
        lambda s: s.rank() > 4 and not s.bits(),
        "volumes that are not quantized; quantize it, or sample slices of 4 dimensions",
    ),
    builder("RoiAlign", lambda s: s.attr("mode", "avg") != "avg", "mode max; use avg"),
    builder(
        "MaxRoiPool", lambda s: s.computed(1), "regions computed at run time; make them constants", Evidence.OBSERVED
    ),
    builder(
        "NonMaxSuppression",
        lambda s: s.attr("center_point_box", 0) != 0,
        "center_point_box=1; give corners",
        Evidence.DOCUMENTED,
    ),
    validation("NonMaxSuppression", _more_boxes, "max_output_boxes_per_class above the number of boxes; lower it"),
)
