# SPDX-License-Identifier: Apache-2.0
"""Limits of tensors, whatever op reads them: opset, empty tensors, data types without an encoding, ranks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hexforge.frontends.onnx.ep_limits.subject import (
    NARROW,
    EpRule,
    Evidence,
    Subject,
    builder,
    preparation,
    shape_of,
    validation,
)

_UNSIGNED = frozenset({"UINT32", "UINT64"})
_ODD = NARROW | _UNSIGNED

# op type -> data types without an encoding that the HTP has no such op for
PLAIN_REFUSED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys("Abs Add Sub Div Greater GreaterOrEqual Less LessOrEqual Clip TopK Tile Split".split(), _ODD),
        **dict.fromkeys("GatherElements CumSum MaxPool".split(), _ODD),
        **dict.fromkeys("SpaceToDepth DepthToSpace Resize Upsample Pad".split(), _ODD | {"INT32", "INT64", "BOOL"}),
        **dict.fromkeys("Equal Where ReduceMax ReduceMin".split(), _ODD | {"BOOL"}),
        **dict.fromkeys("Mul Max Min ArgMax Gather Expand Concat Transpose ScatterND".split(), NARROW),
        **dict.fromkeys("Reshape Flatten Squeeze Unsqueeze Identity".split(), NARROW - {"UINT8"}),
        "Slice": _ODD - {"UINT8"},
        "ScatterElements": frozenset({"BOOL", "INT8", "INT16", "UINT32", "UINT64"}),
        "GatherND": _ODD | {"BOOL"},
        **dict.fromkeys(
            "ArgMin Neg Relu Sign Pow ReduceMean ReduceL2 ReduceLogSumExp MatMul Gemm".split(),
            _ODD | {"INT32", "INT64"},
        ),
        "ReduceSum": _UNSIGNED,
    }
)

_FOUR = "Atan Ceil Cos Elu Floor Log Neg Round Selu Sign Sin Softplus Sqrt Tan Tanh HardSwish Asin Mod Not And Or Xor"
_FOUR += " ArgMax ArgMin LpNormalization LayerNormalization RMSNormalization TopK GatherND ScatterElements"
_FOUR += " ReduceLogSumExp"


_UNSIGNED_ONLY = "BatchNormalization GatherElements HardSigmoid InstanceNormalization LRN LeakyRelu LogSoftmax Neg"
_UNSIGNED_ONLY += " RMSNormalization ScatterElements"


_NOT_SIGNED_16 = "Abs ArgMax ArgMin Asin Atan BatchNormalization Ceil Cos Exp Floor HardSigmoid HardSwish LeakyRelu Log"
_NOT_SIGNED_16 += " InstanceNormalization LayerNormalization LogSoftmax Min Neg Pow RMSNormalization ReduceMin Round"
_NOT_SIGNED_16 += " Sign Sin"


def _signed(subject: Subject, type: str) -> bool:
    """Signed data, but for a norm's bias that is computed: such a unit the EP leaves in float."""
    in_float = subject.op in ("InstanceNormalization", "LayerNormalization") and subject.computed(2)
    return subject.fixed() == type and not in_float


def _data(subject: Subject) -> int:
    """Position of the tensor whose data type decides."""
    return 1 if subject.op == "Where" else 0


def _plain_refused(subject: Subject) -> bool:
    return subject.plain(_data(subject)) in PLAIN_REFUSED.get(subject.op, ())


def _is_empty(subject: Subject) -> bool:
    return any(0 in shape_of(o.value) for o in (*subject.inputs[:1], *subject.outputs))


def _rank(subject: Subject) -> int:
    return max((len(shape_of(o.value)) for o in (*subject.inputs, *subject.outputs)), default=0)


def _wide_int64(subject: Subject) -> bool:
    return any(
        o.value.is_graph_input() and len(shape_of(o.value)) > 4 and o.value.dtype is not None
        and o.value.dtype.name == "INT64" for o in subject.inputs
    )  # fmt: skip


LIMITS: tuple[EpRule, ...] = (
    builder(
        "*",
        lambda s: 0 < s.declared_opset < 7,
        "the model is of an opset before 7; convert it to a newer one",
        Evidence.OBSERVED,
    ),
    preparation("*", _is_empty, "a tensor has no elements (a dimension of 0); leave it out of the model"),
    preparation("*", _wide_int64, "an int64 input of the model with more than 4 dimensions; declare it int32"),
    validation(
        " ".join(PLAIN_REFUSED),
        _plain_refused,
        "integers of this type without QuantizeLinear and DequantizeLinear; cast to float or int32, or quantize",
    ),
    validation(_FOUR, lambda s: _rank(s) > 4, "more than 4 dimensions; reshape to 4"),
    validation(_UNSIGNED_ONLY, lambda s: _signed(s, "INT8"), "signed 8-bit data; quantize it to uint8"),
    validation(
        _NOT_SIGNED_16,
        lambda s: _signed(s, "INT16") and not (s.op == "Min" and len(s.inputs) > 2),
        "signed 16-bit data; quantize it to uint16",
    ),
    validation(
        "CumSum", lambda s: s.rank() > 4 and s.bits() != 8, "more than 4 dimensions but for 8-bit data; reshape to 4"
    ),
    validation(
        "Max Min HardSigmoid",
        lambda s: _rank(s) > 4 and not s.bits(),
        "more than 4 dimensions where it is not quantized; reshape to 4",
    ),
    validation(
        "Gelu", lambda s: s.rank() > 4 and s.bits() > 0, "more than 4 dimensions where it is quantized; reshape to 4"
    ),
    validation(
        "Transpose Tile Identity",
        lambda s: s.rank() > 4 and s.plain() in ("INT32", "INT64", "UINT32"),
        "integers of more than 4 dimensions; reshape to 4",
    ),
    validation(
        "Tile Expand",
        lambda s: _rank(s) > 4 and s.plain() == "BOOL",
        "bool tensors of more than 4 dimensions; reshape to 4",
    ),
    validation(
        "Transpose",
        lambda s: s.plain() == "INT64" and s.from_graph() and s.to_graph(),
        "int64 from an input of the model straight to an output; declare both int32",
    ),
    validation(
        "GatherND", lambda s: s.plain() == "INT64" and s.from_graph(), "int64 data of a model input; declare it int32"
    ),
)
