# SPDX-License-Identifier: Apache-2.0
"""The judge: every limit, in one table, what they say of a unit, and where the EP computes other numbers."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits import control, moves, pointwise, products, reductions, tensor_limits, vision
from hexforge.frontends.onnx.ep_limits.subject import Refuser, Subject
from hexforge.frontends.onnx.unit import Unit, UnitKind
from hexforge.ir import Node, ScaleOffset
from hexforge.ir.fixed_point import quantized_range
from hexforge.rules import RuleTable


def ep_departs(op_type: str, node: Node) -> str | None:
    """What the EP makes of a QDQ node of this ONNX op instead of what it means, and what would work; None: nothing."""
    if op_type == "Reciprocal" and node.op.name == "ElementWiseDivide":
        x = node.inputs[1]
        if x is not None and isinstance(x.encoding, ScaleOffset):
            most = x.encoding.scale * (quantized_range(x.dtype, x.encoding)[1] + x.encoding.offset)
            if most < 1:
                return (
                    f"the EP gives the 1 of a Reciprocal its input's encoding, which ends at {most:.3g}: on a device "
                    f"the result is {most:.3g} times what it should be; write a Div with its own 1, as quantize does"
                )
    if op_type == "BatchNormalization" and node.op.name == "Batchnorm":
        x = node.inputs[0]
        if x is None or x.encoding is None:
            return None
        return (
            "the EP writes the scale of a quantized BatchNormalization in 8 bits, and where it runs on x86 turns the "
            "sign of the largest positive shift; fold it into the layer before it, as quantize does"
        )
    return None


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
