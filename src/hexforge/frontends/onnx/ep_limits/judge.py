# SPDX-License-Identifier: Apache-2.0
"""The judge: every limit, in one table, and what they say of a unit."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits import control, moves, pointwise, products, reductions, tensor_limits, vision
from hexforge.frontends.onnx.ep_limits.evidence import Refuser
from hexforge.frontends.onnx.ep_limits.subject import Subject
from hexforge.frontends.onnx.unit import Unit, UnitKind
from hexforge.rules import RuleTable

EP_VERSION = "2.7.0"
"""The release of onnxruntime-qnn that the limits hold for, with the HTP backend and onnxruntime 1.31."""

LIMITS = RuleTable(
    (
        *tensor_limits.LIMITS,
        *pointwise.LIMITS,
        *reductions.LIMITS,
        *products.LIMITS,
        *moves.LIMITS,
        *vision.LIMITS,
        *control.LIMITS,
    )
)


def ep_refuses(unit: Unit, declared_opset: int = 0) -> str | None:
    """Why the EP does not take a unit that the backend takes: what is refused, what would work; None where it does.

    `declared_opset` is what the model's file says (`Model.declared_opset`), 0 where that is not known. A fusion is
    judged by the limits for all ops alone: where the EP cannot fuse it tries the parts. A convolution with what
    scales its channels is a Conv when the EP sees it, and products of what is quantized at run time are judged by what
    quantizes it.
    """
    subject = Subject(unit, declared_opset)
    op = subject.op if unit.kind in ("node", "qdq", "ScaledConv") else ""
    refused = LIMITS.refusal("DynamicQuantizeLinear" if unit.kind is UnitKind.DYNAMIC else op, subject)
    if refused is None:
        return None
    rule, reason = refused
    verb = "fails" if rule.refuser == Refuser.PREPARATION else "refuses it"
    return f"QNN EP {EP_VERSION} {verb}: {reason}"
