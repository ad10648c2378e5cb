# SPDX-License-Identifier: Apache-2.0
"""Where onnxruntime's QNN EP computes other numbers than the model says (docs/compatibility.md)."""

from __future__ import annotations

from hexforge.ir import Node, ScaleOffset
from hexforge.ir.fixed_point import quantized_range


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
