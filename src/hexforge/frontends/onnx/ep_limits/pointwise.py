# SPDX-License-Identifier: Apache-2.0
"""Limits of element-wise ops and casts."""

from __future__ import annotations

import numpy as np

from hexforge.frontends.onnx.ep_limits.subject import EpRule, Evidence, Subject, builder, preparation, validation

_WIDE = frozenset({"FLOAT", "FLOAT16", "INT32", "INT64", "BOOL", "UINT8", "UINT32"})

# from -> to: what the HTP's Cast does between tensors without an encoding
CASTS = {
    "FLOAT": _WIDE,
    "FLOAT16": frozenset({"FLOAT", "FLOAT16", "INT32", "INT64"}),
    "INT32": _WIDE,
    "INT64": _WIDE,
    "BOOL": _WIDE,
    "UINT8": _WIDE,
    "UINT32": _WIDE - {"FLOAT16"},
    "INT16": frozenset({"INT32"}),
}


def _cast(subject: Subject) -> bool:
    source, target = subject.plain(), subject.plain_out()
    return bool(source) and bool(target) and target not in CASTS.get(source, ())


def _int64_result(subject: Subject) -> bool:
    """A graph output of int64 is written as int32 and cast again, which the HTP only does for wide integers."""
    return (
        subject.plain_out() == "INT64"
        and subject.to_graph()
        and subject.plain() not in ("", "INT32", "INT64", "UINT32")
    )


def _clip_reversed(subject: Subject) -> bool:
    low, high = subject.numbers(1), subject.numbers(2)
    return low is not None and high is not None and bool(np.any(low > high))


def _mixed_power(subject: Subject) -> bool:
    types = {subject.plain(0), subject.plain(1)} - {""}
    return len(types) > 1 or not types <= {"FLOAT", "FLOAT16"}


def _wide_power(subject: Subject) -> bool:
    return len(subject.out_shape()) > 4 and subject.rank(0) < subject.rank(1)


def _full_slope(subject: Subject) -> bool:
    """A slope for every element; the HTP's 16-bit Prelu has one for each channel."""
    slope = subject.shape(1)
    return subject.bits() == 16 and len(slope) > 1 and slope == subject.shape(0)


LIMITS: tuple[EpRule, ...] = (
    validation(
        "Asin", lambda s: not s.bits(), "Asin that is not quantized; quantize it, or compute Atan(x / Sqrt(1 - x * x))"
    ),
    validation("Cast CastLike", _cast, "a cast between these data types; cast over int32 or float32"),
    validation(
        "Cast CastLike", _int64_result, "a cast of this data type to int64 for a model output; declare the output int32"
    ),
    builder(
        "Clip", lambda s: s.computed(1) or s.computed(2), "bounds computed at run time; make min and max constants"
    ),
    validation("Clip", _clip_reversed, "a min above the max; give them in order"),
    builder("Max Min Sum Mean", lambda s: len(s.inputs) < 2, "a single input; leave the node out", Evidence.OBSERVED),
    validation("IsInf", lambda s: True, "IsInf; compare with a finite bound"),
    preparation("Mean", lambda s: s.plain() == "FLOAT16", "float16 tensors; cast to float32, or use Add and Mul"),
    builder("Mod", lambda s: s.attr("fmod", 0) == 1, "fmod=1; use fmod=0 where the signs allow"),
    validation("Pow", _mixed_power, "a base and an exponent that are not both float of one type; cast both to float32"),
    preparation("Pow", _wide_power, "a base that is broadcast to 5 dimensions; expand it first, or reshape to 4"),
    preparation(
        "PRelu",
        _full_slope,
        "16-bit data with a slope for every element; give one for each channel, or quantize to 8 bits",
    ),
)
