# SPDX-License-Identifier: Apache-2.0
"""A unit: the model's nodes that become one op (or a few) together: a single node, a QDQ group, or a fusion."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeVar

import onnx_ir

from hexforge.errors import ModelError
from hexforge.ir import Array, DType, Encoding


class Refusal(Exception):  # noqa: N818 - an answer, not an error
    """A translator's word that the unit cannot become QNN ops: the reason, and what would work."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An input or output of a unit: the model's value at the unit's border, and its encoding if fixed point."""

    value: onnx_ir.Value
    encoding: Encoding | None = None


class UnitKind(enum.StrEnum):
    """What a unit is made of: one node, a group with its Q and DQ nodes, or the nodes of a fusion."""

    NODE = "node"
    QDQ = "qdq"
    CONVERT = "Convert"
    CAST_CONVERT = "CastConvert"
    DYNAMIC = "Dynamic"
    ACTIVATION = "Activation"
    SCALED_SOFTMAX = "ScaledSoftmax"
    LAYER_NORM = "LayerNorm"
    GROUP_NORM = "GroupNorm"
    L2_NORM = "L2Norm"
    SCALED_CONV = "ScaledConv"
    MATMUL_ADD = "MatMulAdd"
    RESHAPE_GEMM = "ReshapeGemm"
    SPACE_MOVE = "SpaceMove"
    LOW_RANK = "LowRank"
    FOCUS = "Focus"

    @property
    def is_fusion(self) -> bool:
        """True for a kind that has a translator of its own."""
        return self not in (UnitKind.NODE, UnitKind.QDQ)


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Nodes translated together."""

    kind: UnitKind
    target: onnx_ir.Node
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand | None, ...]
    nodes: tuple[onnx_ir.Node, ...]
    clip: onnx_ir.Node | None = None
    """A Relu or Clip behind the target that is applied to its result."""
    parts: tuple[Unit, ...] = ()
    """The units a fusion was made of."""
    detail: object = None
    """What a fusion's matcher knows and its translator needs, a record of the fusion's own (`detail_of`)."""
    refusal: str | None = None
    """Why it stays with the CPU, where that is known before it is translated."""
    dequantized: bool = False
    """True where the target computes on real numbers though its inputs are fixed point: its result is float."""

    @property
    def op(self) -> str:
        """`domain:Type` of the target, the domain left out where it is ai.onnx."""
        domain = "" if self.target.domain in ("", "ai.onnx") else f"{self.target.domain}:"
        return domain + self.target.op_type

    @property
    def quantized(self) -> bool:
        """True where any input or output carries an encoding."""
        return any(o is not None and o.encoding is not None for o in (*self.inputs, *self.outputs))


Detail = TypeVar("Detail")


def detail_of(unit: Unit, kind: type[Detail]) -> Detail:
    """The record that a fusion's matcher left for its translator."""
    assert isinstance(unit.detail, kind)
    return unit.detail


def single(node: onnx_ir.Node) -> Unit:
    """The unit of one node by itself."""
    inputs = tuple(None if v is None else Operand(v) for v in node.inputs)
    outputs = tuple(Operand(v) if v.name else None for v in node.outputs)
    return Unit(UnitKind.NODE, node, inputs, outputs, (node,))


def onnx_dtype(value: onnx_ir.Value) -> DType:
    """The DType of a model's value; Refusal for one QNN has no tensor of."""
    if value.dtype is None:
        raise Refusal(f"the data type of {value.name!r} is unknown")
    try:
        return DType.of(value.dtype.numpy())
    except (ModelError, TypeError):
        raise Refusal(
            f"tensor {value.name!r} is {value.dtype.name}, which no QNN op takes; cast it to a type QNN has"
        ) from None


def onnx_shape(value: onnx_ir.Value) -> tuple[int, ...]:
    """The static shape of a model's value; Refusal if it is dynamic."""
    if value.shape is None:
        raise Refusal(f"the shape of {value.name!r} is unknown; QNN needs static shapes")
    if not value.shape.is_static():
        raise Refusal(f"the shape {value.shape} of {value.name!r} is dynamic; fix it (hexforge fix-shapes)")
    return tuple(d for d in value.shape if isinstance(d, int))


def constant(value: onnx_ir.Value | None) -> Array | None:
    """The data of a constant value without copying it, or None."""
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()
