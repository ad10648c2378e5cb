"""Which ops form a QDQ unit with the DequantizeLinear before and the QuantizeLinear after them: one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import onnx_ir

from hexforge.ir import DType, Encoding


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A candidate: a target with the types and encodings of its dequantized inputs and quantized outputs."""

    target: onnx_ir.Node
    ins: Mapping[int, tuple[DType, Encoding]]
    outs: Mapping[int, tuple[DType, Encoding]]

    def dtype_in(self, index: int) -> DType | None:
        """Integer type of a dequantized input, None where it has no DequantizeLinear."""
        return self.ins[index][0] if index in self.ins else None

    def dtype_out(self) -> DType | None:
        """Integer type of output 0, None where it has no QuantizeLinear."""
        return self.outs[0][0] if 0 in self.outs else None


Rule = Callable[[Group], bool]


def same_type(group: Group) -> bool:
    """Every quantized input and output has one integer type."""
    return len({dtype for dtype, _ in (*group.ins.values(), *group.outs.values())}) == 1


def same_encoding(group: Group) -> bool:
    """Input and output have one type and one encoding: the integers can be moved as they are."""
    return len({*group.ins.values(), *group.outs.values()}) == 1


def keeps_type(group: Group) -> bool:
    """Output 0, where quantized, has the integer type of input 0."""
    return group.dtype_out() in (None, group.dtype_in(0))


def int8_weight(group: Group) -> bool:
    """Signed 8-bit activations need a signed weight of at most 8 bits."""
    return group.dtype_in(0) is not DType.INT8 or group.dtype_in(1) in (DType.INT8, DType.INT4)


def int32_bias(group: Group) -> bool:
    """Input 2 is int32, or has no DequantizeLinear (absent, or a float bias)."""
    return group.dtype_in(2) in (None, DType.INT32)


def unit_beta(group: Group) -> bool:
    """A quantized bias is added as it is."""
    beta = group.target.attributes.get("beta")
    return 2 not in group.ins or beta is None or beta.as_float() == 1.0


def opset_12(group: Group) -> bool:
    """MaxPool takes integers since opset 12."""
    return group.target.op_type != "MaxPool" or (group.target.version or 12) >= 12


@dataclass(frozen=True, slots=True)
class Selector:
    """How a family of ops is grouped.

    `required` and `optional` are the input positions that must and may come from a DequantizeLinear (None: all that
    are given); any other input must not. `quantized` says which outputs go to a QuantizeLinear.
    """

    name: str
    ops: frozenset[str]
    required: tuple[int, ...] | None
    rules: tuple[Rule, ...]
    optional: tuple[int, ...] = ()
    quantized: Literal["all", "first", "maybe", "none"] = "all"
    clip: bool = True
    """A Relu or Clip between the target and its QuantizeLinear belongs to the unit."""


def _row(
    name: str,
    ops: str,
    required: tuple[int, ...] | None,
    *rules: Rule,
    optional: tuple[int, ...] = (),
    quantized: Literal["all", "first", "maybe", "none"] = "all",
    clip: bool = True,
) -> Selector:
    return Selector(name, frozenset(ops.split()), required, rules, optional, quantized, clip)


SELECTORS: tuple[Selector, ...] = (
    _row(
        "DropQDQ",
        "Gather GatherElements Reshape Expand Flatten Transpose MaxPool Resize Squeeze Unsqueeze Tile",
        (0,), same_encoding, opset_12, clip=False,
    ),
    _row("DropDQ", "ArgMax ArgMin", (0,), quantized="none", clip=False),
    _row(
        "Unary",
        "AveragePool GlobalAveragePool GlobalMaxPool LeakyRelu ReduceMean ReduceMin ReduceMax ReduceProd ReduceSum "
        "ReduceL2 Relu Gelu Elu Erf HardSigmoid HardSwish Sigmoid Slice Softmax LogSoftmax Softplus Sqrt Atan Asin "
        "Sin Cos Sign Tanh Exp Log LRN Ceil Floor Round Abs Neg DepthToSpace SpaceToDepth LpNormalization",
        (0,), same_type,
    ),
    _row("Clip", "Clip", (0,), same_type, optional=(1, 2)),
    _row("Binary", "Add Div Mul Pow Sub PRelu GridSample", (0, 1), same_type),
    _row("Variadic", "Concat Max Min", None, same_type),
    _row("Split", "Split", (0,), same_type, clip=False),
    _row("Conv", "Conv ConvTranspose", (0, 1), keeps_type, int8_weight, int32_bias, optional=(2,)),
    _row("MatMul", "MatMul", (0, 1), keeps_type, int8_weight),
    _row("Gemm", "Gemm", (0, 1), keeps_type, int8_weight, int32_bias, unit_beta, optional=(2,), quantized="maybe"),
    _row("Einsum", "Einsum", None, same_type, quantized="maybe"),
    _row("Reciprocal", "Reciprocal", (0,), same_type, quantized="maybe"),
    _row("Norm", "InstanceNormalization LayerNormalization", (0, 1), keeps_type, int32_bias, optional=(2,)),
    _row("BatchNorm", "BatchNormalization", (0, 1), keeps_type, int8_weight, optional=(2, 3, 4)),
    _row("Logical", "Equal Greater GreaterOrEqual Less LessOrEqual", (0, 1), same_type, quantized="none", clip=False),
    _row("Where", "Where", (1, 2), same_type),
    _row("Pad", "Pad", (0,), same_type, optional=(2,)),
    _row("TopK", "TopK", (0,), same_encoding, quantized="first", clip=False),
    _row("CumSum", "CumSum", (0,), same_type),
    _row("ScatterElements", "ScatterElements", (0, 2), same_type),
    _row("RMSNorm", "RMSNormalization SimplifiedLayerNormalization", (0, 1), keeps_type),
)  # fmt: skip

BY_OP: dict[str, Selector] = {op: selector for selector in SELECTORS for op in selector.ops}
