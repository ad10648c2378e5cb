# SPDX-License-Identifier: Apache-2.0
"""The judge: every limit, in one tuple, and what they say of a unit."""

from __future__ import annotations

from collections.abc import Mapping

from hexforge.frontends.onnx.ep_limits import elementwise, matrix, movement, reductions, sequences, tensors, windows
from hexforge.frontends.onnx.ep_limits.limit import EpLimit, Refuser
from hexforge.frontends.onnx.ep_limits.subject import Subject
from hexforge.frontends.onnx.units.unit import Unit

EP_VERSION = "2.7.0"
"""The release of onnxruntime-qnn that the limits hold for, with the HTP backend and onnxruntime 1.31."""

LIMITS: tuple[EpLimit, ...] = (
    *tensors.LIMITS,
    *elementwise.LIMITS,
    *reductions.LIMITS,
    *windows.LIMITS,
    *matrix.LIMITS,
    *movement.LIMITS,
    *sequences.LIMITS,
)

_FOR_ALL = tuple(row for row in LIMITS if not row.ops)
_BY_OP: Mapping[str, tuple[EpLimit, ...]] = {
    op: tuple(row for row in LIMITS if op in row.ops) for row in LIMITS for op in row.ops
}


def limits_of(op: str) -> tuple[EpLimit, ...]:
    """The limits that an op type can meet, in the order they are tried."""
    return (*_FOR_ALL, *_BY_OP.get(op, ()))


def ep_refuses(unit: Unit, declared_opset: int = 0) -> str | None:
    """Why the EP does not take a unit that the backend takes: what is refused, what would work; None where it does.

    `declared_opset` is what the model's file says (`Model.declared_opset`), 0 where that is not known. A fusion is
    judged by the limits for all ops alone: where the EP cannot fuse it tries the parts. A convolution with its
    normalization is a Conv when the EP sees it.
    """
    subject = Subject(unit, declared_opset)
    rows = limits_of(subject.op) if unit.kind in ("node", "qdq", "ConvBatchNorm") else _FOR_ALL
    for row in rows:
        if row.bites(subject):
            verb = "fails" if row.refuser is Refuser.PREPARATION else "refuses it"
            return f"QNN EP {EP_VERSION} {verb}: {row.reason}"
    return None
