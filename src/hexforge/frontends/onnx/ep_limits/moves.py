# SPDX-License-Identifier: Apache-2.0
"""Limits of ops that move data: Pad, Gather and Scatter, CumSum, OneHot, Reshape, the lone Q and DQ."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits.subject import EpRule, Subject, builder, preparation, validation


def _pads(subject: Subject) -> list[int]:
    constant = subject.numbers(1)
    pads = subject.attr("pads", ()) if constant is None else constant.ravel().tolist()
    return [int(p) for p in pads]


def _mode(subject: Subject) -> str:
    return str(subject.attr("mode", "constant"))


def _reflects_too_far(subject: Subject) -> bool:
    pads, shape = _pads(subject), subject.shape()
    return _mode(subject) == "reflect" and (
        any(p < 0 for p in pads) or any(p >= n for p, n in zip(pads, (*shape, *shape), strict=False))
    )


def _five_dimensional_border(subject: Subject) -> bool:
    """Rank 5 with mirrored or repeated borders; reflecting all sides is the one thing fixed point does."""
    if subject.rank() < 5 or _mode(subject) not in ("reflect", "edge"):
        return False
    return not (subject.bits() and _mode(subject) == "reflect" and all(_pads(subject)))


def _axis(subject: Subject) -> int:
    return int(subject.attr("axis", 0)) % max(subject.rank(), 1)


def _first_axis_gather(subject: Subject) -> bool:
    """Along the first axis, up to or down from 5 dimensions."""
    if _axis(subject) != 0:
        return False
    out = len(subject.out_shape())
    if subject.rank() == 5:
        indices = subject.numbers(1)
        return subject.bits() != 8 and (indices is None or indices.size > 1)
    return subject.rank() == 4 and out == 5


def _single_batch_gather(subject: Subject) -> bool:
    return (
        subject.rank() == 5 and _axis(subject) == 1 and subject.shape()[0] == 1 and subject.rank(1) == 0
        and subject.computed(1)
    )  # fmt: skip


def _one_hot_values(subject: Subject) -> bool:
    return subject.plain(2) not in ("", "FLOAT", "INT32")


LIMITS: tuple[EpRule, ...] = (
    builder("Pad", lambda s: s.given(3), "axes; give pads for all dimensions"),
    builder("Pad", lambda s: _mode(s) not in ("constant", "reflect", "edge"), "mode wrap; use Concat of slices"),
    builder("Pad", _reflects_too_far, "reflect with a negative pad, or one as large as the dimension; pad less"),
    validation("Pad", _five_dimensional_border, "reflect or edge of 5 dimensions; reshape to 4"),
    builder(
        "CumSum",
        lambda s: s.attr("exclusive", 0) == 1 or s.attr("reverse", 0) == 1,
        "exclusive=1 or reverse=1; use 0, with Slice and Pad or a flip around it",
    ),
    preparation("Gather", _first_axis_gather, "the first axis with 5 dimensions before or after; reshape to 4"),
    preparation(
        "Gather", _single_batch_gather, "the second of 5 axes behind a first of length 1, by a scalar; reshape to 4"
    ),
    validation(
        "Gather",
        lambda s: s.plain() == "INT64" and not s.computed(0) and s.to_graph(),
        "constant int64 data for a model output; make both int32",
    ),
    validation(
        "GatherElements",
        lambda s: s.rank() > 4 and (_axis(s) == 0 or (s.plain(1) == "INT64" and s.computed(1))),
        "5 dimensions along the first axis, or with int64 indices; reshape to 4, with int32 indices",
    ),
    validation("GatherND", lambda s: s.attr("batch_dims", 0) != 0, "batch_dims; flatten the batch into the indices"),
    validation(
        "ScatterElements",
        lambda s: s.real and str(s.attr("reduction", "none")) != "none",
        "a reduction of float data; quantize it, or use ScatterND",
    ),
    validation(
        "ScatterElements",
        lambda s: (s.bits() or s.dequantized_bits(0)) == 16 and str(s.attr("reduction", "none")) == "max",
        "reduction max of 16-bit data; quantize it to 8 bits",
    ),
    validation("OneHot", lambda s: len(s.out_shape()) > 3, "indices of more than 2 dimensions; flatten them"),
    validation(
        "OneHot",
        lambda s: int(s.attr("axis", -1)) % max(len(s.out_shape()), 1) not in (0, len(s.out_shape()) - 1),
        "an axis between others; put the classes first or last, with Transpose behind it",
    ),
    validation("OneHot", _one_hot_values, "values that are neither float32 nor int32; cast behind it"),
    validation(
        "DequantizeLinear", lambda s: s.bits() == 32, "32-bit integers that are computed; cast to float and multiply"
    ),
)
