# SPDX-License-Identifier: Apache-2.0
"""Op table: how each ONNX op is grouped with the DequantizeLinear before and the QuantizeLinear after it.

The reader of QDQ models and the quantizer that writes them both use it, so that what is written is what is grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import onnx_ir

from hexforge.ir import DType, Encoding, QuantRule
from hexforge.ops.rules import OWN, SAME_FIRST, SELECT, SIGMOID, TANH


@dataclass(frozen=True, slots=True, eq=False)
class QdqCandidate:
    """A target with the types and encodings of its dequantized inputs and quantized outputs, before it is a group."""

    target: onnx_ir.Node
    ins: Mapping[int, tuple[DType, Encoding]]
    outs: Mapping[int, tuple[DType, Encoding]]

    def dtype_in(self, index: int) -> DType | None:
        """Integer type of a dequantized input, None where it has no DequantizeLinear."""
        return self.ins[index][0] if index in self.ins else None

    def dtype_out(self) -> DType | None:
        """Integer type of output 0, None where it has no QuantizeLinear."""
        return self.outs[0][0] if 0 in self.outs else None


QdqCheck = Callable[[QdqCandidate], bool]
"""A condition that a candidate must meet to be a group."""


def same_type(candidate: QdqCandidate) -> bool:
    """Every quantized input and output has one integer type."""
    return len({dtype for dtype, _ in (*candidate.ins.values(), *candidate.outs.values())}) == 1


def same_encoding(candidate: QdqCandidate) -> bool:
    """Input and output have one type and one encoding: the integers can be moved as they are."""
    return len({*candidate.ins.values(), *candidate.outs.values()}) == 1


def keeps_type(candidate: QdqCandidate) -> bool:
    """Output 0, where quantized, has the integer type of input 0."""
    return candidate.dtype_out() in (None, candidate.dtype_in(0))


def int8_weight(candidate: QdqCandidate) -> bool:
    """Signed 8-bit activations need a signed weight of at most 8 bits."""
    return candidate.dtype_in(0) is not DType.INT8 or candidate.dtype_in(1) in (DType.INT8, DType.INT4)


def int32_bias(candidate: QdqCandidate) -> bool:
    """Input 2 is int32, or has no DequantizeLinear (absent, or a float bias)."""
    return candidate.dtype_in(2) in (None, DType.INT32)


def unit_beta(candidate: QdqCandidate) -> bool:
    """A quantized bias is added as it is."""
    beta = candidate.target.attributes.get("beta")
    return 2 not in candidate.ins or beta is None or beta.as_float() == 1.0


def opset_12(candidate: QdqCandidate) -> bool:
    """MaxPool takes integers since opset 12."""
    return candidate.target.op_type != "MaxPool" or (candidate.target.version or 12) >= 12


@dataclass(frozen=True, slots=True)
class OnnxOp:
    """How one ONNX op is grouped and quantized."""

    rule: QuantRule
    """Its `data` inputs (None: all that are given) must come from a DequantizeLinear."""
    checks: tuple[QdqCheck, ...]
    optional: tuple[int, ...] = ()
    """Inputs that may also come from a DequantizeLinear; any other input must not."""
    quantized: Literal["all", "first", "maybe", "none"] = "all"
    """Which outputs go to a QuantizeLinear."""
    clip: bool = True
    """A Relu or Clip between the target and its QuantizeLinear belongs to the group."""
    bounds: tuple[float, float] | None = None
    """What its outputs are always within."""
    activation: bool = False
    """True for a function of each element of input 0 by itself that networks have behind their products."""
    writable: bool = True
    """False where a group is read and never written, because QNN has no such op by itself."""

    @property
    def is_norm(self) -> bool:
        """True for a normalization: it multiplies by a constant weight and is no product."""
        return self.rule.weight is not None and not self.rule.bilinear


_FIRST = QuantRule(data=(0,))
_TWO = QuantRule(data=(0, 1))
_INDEX = QuantRule("never", data=(0,))
_COMPARED = QuantRule("never", data=(0, 1))
_UNIT = replace(SIGMOID, data=(0,))
_SIGNED_UNIT = replace(TANH, data=(0,))
_SCALED = QuantRule(data=(0, 1), weight=1)
_NORM = replace(_SCALED, bias=2)
_MATRICES = replace(_SCALED, bilinear=True)
_PRODUCT = replace(_MATRICES, bias=2)

ROWS: tuple[tuple[str, OnnxOp], ...] = (
    # data movement
    ("Gather GatherElements Reshape Expand Flatten Transpose MaxPool Resize Squeeze Unsqueeze Tile",
     OnnxOp(SAME_FIRST, (same_encoding, opset_12), clip=False)),
    ("GatherND", OnnxOp(SAME_FIRST, (same_type,), clip=False, writable=False)),
    ("Slice DepthToSpace SpaceToDepth", OnnxOp(SAME_FIRST, (same_type,))),
    ("Split", OnnxOp(SAME_FIRST, (same_type,), clip=False)),
    ("Pad", OnnxOp(SAME_FIRST, (same_type,), optional=(2,))),
    ("TopK", OnnxOp(SAME_FIRST, (same_encoding,), quantized="first", clip=False)),
    ("Where", OnnxOp(SELECT, (same_type,))),
    ("ScatterElements", OnnxOp(QuantRule(data=(0, 2)), (same_type,))),
    # one input
    ("Relu LeakyRelu Gelu Elu HardSwish Softplus", OnnxOp(_FIRST, (same_type,), activation=True)),
    ("Sigmoid HardSigmoid", OnnxOp(_UNIT, (same_type,), bounds=(0.0, 1.0), activation=True)),
    ("Tanh", OnnxOp(_SIGNED_UNIT, (same_type,), bounds=(-1.0, 1.0), activation=True)),
    ("Clip", OnnxOp(_FIRST, (same_type,), optional=(1, 2), activation=True)),
    ("Selu ThresholdedRelu", OnnxOp(_FIRST, (same_type,), activation=True, writable=False)),
    ("Softmax", OnnxOp(_UNIT, (same_type,), bounds=(0.0, 1.0))),
    ("AveragePool GlobalAveragePool GlobalMaxPool ReduceMean ReduceMin ReduceMax ReduceProd ReduceSum ReduceL2 "
     "LogSoftmax Sqrt Atan Asin Sin Cos Sign Exp Log LRN Ceil Floor Round Abs Neg LpNormalization CumSum",
     OnnxOp(_FIRST, (same_type,))),
    ("Reciprocal", OnnxOp(_FIRST, (same_type,), quantized="maybe")),
    ("Erf LpPool", OnnxOp(_FIRST, (same_type,), writable=False)),
    ("ArgMax ArgMin", OnnxOp(_INDEX, (), quantized="none", clip=False)),
    # several inputs
    ("Add Div Mul Pow Sub PRelu GridSample", OnnxOp(_TWO, (same_type,))),
    ("Concat Max Min", OnnxOp(OWN, (same_type,))),
    ("Sum Mean", OnnxOp(OWN, (same_type,), writable=False)),
    ("Einsum", OnnxOp(OWN, (same_type,), quantized="maybe")),
    ("Equal Greater GreaterOrEqual Less LessOrEqual", OnnxOp(_COMPARED, (same_type,), quantized="none", clip=False)),
    # a constant weight
    ("Conv ConvTranspose", OnnxOp(_PRODUCT, (keeps_type, int8_weight, int32_bias), optional=(2,))),
    ("MatMul", OnnxOp(_MATRICES, (keeps_type, int8_weight))),
    ("Gemm", OnnxOp(_PRODUCT, (keeps_type, int8_weight, int32_bias, unit_beta), optional=(2,), quantized="maybe")),
    ("InstanceNormalization LayerNormalization", OnnxOp(_NORM, (keeps_type, int32_bias), optional=(2,))),
    ("RMSNormalization SimplifiedLayerNormalization", OnnxOp(_SCALED, (keeps_type,))),
    ("BatchNormalization", OnnxOp(_SCALED, (keeps_type, int8_weight), optional=(2, 3, 4))),
)  # fmt: skip
"""Op types, separated by blanks, and what holds for each of them."""

OPS: Mapping[str, OnnxOp] = MappingProxyType({op: row for ops, row in ROWS for op in ops.split()})
"""Op type -> how it is grouped; an op that is not here is in no group and computes in float."""

ACTIVATIONS = frozenset(op for op, row in OPS.items() if row.activation)
PRODUCTS = frozenset(op for op, row in OPS.items() if row.rule.bilinear)
"""Convolutions and matrix products."""
