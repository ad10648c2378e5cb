# SPDX-License-Identifier: Apache-2.0
"""Quant units: which nodes of a float model are one fixed-point op together, and why a node stays float.

A unit is what the QNN EP makes one op of: DequantizeLinear before, the node (a product with the Add of its bias, a Relu
or Clip behind it), QuantizeLinear after. A node that has no such group computes in float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir

from hexforge.ir import QuantRule
from hexforge.model.op_table import OPS, PRODUCTS, OnnxOp
from hexforge.model.tensors import unrepeated
from hexforge.ops.rules import NEVER, SAME_FIRST
from hexforge.patterns.nodes import dims, float_constant, integer, is_clamp, only_reader, real, text

DOMAINS = ("", "ai.onnx", "com.microsoft")
FLOAT16_MOST = 65504.0

_CLIPPED = PRODUCTS | {"Add", "Sub", "Mul", "Div", "BatchNormalization"}
"""Ops that compute as one with the Relu or Clip behind them; a reader of groups takes it in behind more ops."""


@dataclass(frozen=True, slots=True)
class Bias:
    """A constant that is added to a product: int32, in steps of the data's scale times the weight's."""

    node: onnx_ir.Node
    index: int
    value: onnx_ir.Value
    product: onnx_ir.Node
    row: bool = True
    """True where it counts in steps of the product; a normalization's has a scale of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantUnit:
    """Nodes that compute as one; `reason` says why they stay float, where they do."""

    nodes: tuple[onnx_ir.Node, ...]
    rule: QuantRule
    reason: str | None = None
    bias: Bias | None = None
    reads: tuple[tuple[onnx_ir.Node, int, onnx_ir.Value], ...] = ()
    """Float tensors that become fixed point where it is quantized: who reads them, at which position."""
    writes: tuple[onnx_ir.Value, ...] = ()

    @property
    def target(self) -> onnx_ir.Node:
        """The node that the unit is about."""
        return self.nodes[0]

    @property
    def name(self) -> str:
        """The target's name."""
        return self.target.name or ""

    @property
    def weight(self) -> onnx_ir.Value | None:
        """The constant weight, where it has one."""
        index = self.rule.weight
        value = None if index is None or len(self.target.inputs) <= index else self.target.inputs[index]
        return value if value is not None and value.const_value is not None else None

    @property
    def moves(self) -> bool:
        """True where its outputs have the encoding of what it reads."""
        return self.rule.output == "input" and self.reason is None


def is_float(value: onnx_ir.Value | None) -> bool:
    """True for a float32 tensor."""
    return value is not None and value.dtype == onnx_ir.DataType.FLOAT


def quant_units(graph: onnx_ir.Graph) -> list[QuantUnit]:
    """The nodes of a sorted graph as units, in its order; nodes without float tensors are in none."""
    units: list[QuantUnit] = []
    taken: set[onnx_ir.Node] = set()
    for node in graph:
        if node in taken or not any(is_float(v) for v in (*node.inputs, *node.outputs)):
            continue
        unit = _unit(node)
        taken.update(unit.nodes)
        units.append(unit)
    return units


def _unit(node: onnx_ir.Node) -> QuantUnit:
    op = OPS.get(node.op_type) if node.domain in DOMAINS else None
    rule = op.rule if op is not None and op.writable else NEVER
    reason = _why_float(node, op)
    if reason is not None:
        reads = tuple((node, i, v) for i, v in enumerate(node.inputs) if v is not None and is_float(v))
        return QuantUnit((node,), rule, reason, None, reads, tuple(v for v in node.outputs if v.name and is_float(v)))
    rule = _pad_rule(node) if node.op_type == "Pad" else rule
    nodes, bias = [node], _bias(node, rule)
    if bias is None and (add := _added_row(node)) is not None:
        nodes.append(add.node)
        bias = add
    clip = _clip(nodes[-1]) if node.op_type in _CLIPPED else None
    nodes += [] if clip is None else [clip]
    indices = range(len(node.inputs)) if rule.data is None else rule.data
    reads = tuple((node, i, v) for i in indices if i < len(node.inputs) and (v := node.inputs[i]) is not None)
    writes = () if rule.output == "never" else tuple(v for v in nodes[-1].outputs if v.name and is_float(v))
    return QuantUnit(tuple(nodes), rule, None, bias, reads, writes)


def _why_float(node: onnx_ir.Node, op: OnnxOp | None) -> str | None:
    """Why a node cannot be quantized, and what happens instead."""
    if op is None or not op.writable:
        return f"{node.op_type} has no fixed-point form with Q and DQ nodes around it; it computes in float16"
    rule = op.rule
    indices = range(len(node.inputs)) if rule.data is None else rule.data
    data = [node.inputs[i] for i in indices if i < len(node.inputs) and node.inputs[i] is not None]
    other = next((v for v in data if v is not None and not is_float(v)), None)
    if other is not None:
        kind = "of unknown type" if other.dtype is None else other.dtype.name.lower()
        return f"{other.name!r} is {kind}; only float32 tensors are quantized"
    for value in data:
        array = float_constant(value)
        if value is not None and array is not None and not np.abs(unrepeated(array)).max(initial=0.0) <= FLOAT16_MOST:
            return f"constant {value.name!r} has numbers that no scale spans beside others; it computes in float16"
    others = [v for v in node.outputs if v.name and not is_float(v)]
    if rule.output == "input" and len(others) > (node.op_type == "TopK"):
        return f"{node.op_type} with indices as an output has no fixed-point form; it computes in float16"
    if node.op_type == "MaxPool" and (node.version or 12) < 12:
        return "MaxPool takes integers from opset 12 on; convert the model to a newer opset"
    if node.op_type == "Einsum" and _equation_is_odd(node):
        return "an Einsum that is no matrix product has no fixed-point form; it computes in float16"
    return _why_product(node, op)


def _why_product(node: onnx_ir.Node, op: OnnxOp) -> str | None:
    bias = op.rule.bias
    added = node.inputs[bias] if bias is not None and len(node.inputs) > bias else None
    if op.is_norm:
        if any(v.name and v.uses() for v in node.outputs[1:]):
            return f"{node.op_type} whose statistics are read has no fixed-point form; it computes in float16"
        if any(v is not None and float_constant(v) is None for v in node.inputs[1:]):
            return f"{node.op_type} with a weight made at run time has no fixed-point form; make it constant"
        return None
    if added is not None and float_constant(added) is None and node.op_type in ("Conv", "ConvTranspose", "Gemm"):
        return f"its bias {added.name!r} is made at run time; make it constant, or add it with an Add"
    if node.op_type == "Gemm":
        alpha, beta = real(node, "alpha", 1.0), real(node, "beta", 1.0)
        width = (dims(node.outputs[0]) or (0,))[-1]
        row = float_constant(added)
        if alpha != 1.0 or (added is not None and beta != 1.0) or (row is not None and row.size not in (1, width)):
            return "a Gemm with alpha, beta or a matrix to add computes in float16; use MatMul, Mul and Add"
    return None


def _equation_is_odd(node: onnx_ir.Node) -> bool:
    """True for an Einsum that is not a batched product of two matrices."""
    equation = text(node, "equation", "").replace(" ", "")
    inputs, arrow, out = equation.partition("->")
    terms = inputs.split(",")
    return not arrow or len(terms) != 2 or len(set(terms[0])) != len(terms[0]) or len(set(out)) != len(out)


def _pad_rule(node: onnx_ir.Node) -> QuantRule:
    """Zeros, mirrored and repeated borders have the input's encoding; another number may be outside of it."""
    mode = text(node, "mode", "constant")
    value = node.inputs[2] if len(node.inputs) > 2 else None
    filled = float_constant(value) if value is not None else np.asarray([real(node, "value", 0.0)])
    zero = filled is not None and not np.any(filled)
    return SAME_FIRST if zero or mode != "constant" else QuantRule(data=(0,))


def _bias(node: onnx_ir.Node, rule: QuantRule) -> Bias | None:
    if rule.bias is None or len(node.inputs) <= rule.bias:
        return None
    value = node.inputs[rule.bias]
    return None if value is None else Bias(node, rule.bias, value, node, rule.bilinear)


def _added_row(node: onnx_ir.Node) -> Bias | None:
    """The Add of a constant row right behind a product with a constant matrix, which QNN computes as one."""
    if node.op_type != "MatMul" or float_constant(node.inputs[1]) is None:
        return None
    add = only_reader(node.outputs[0])
    matrix, x = dims(node.inputs[1]), dims(node.inputs[0])
    if add is None or add.op_type != "Add" or matrix is None or len(matrix) != 2 or x is None or len(x) < 2:
        return None
    index = 1 if add.inputs[0] is node.outputs[0] else 0
    row = float_constant(add.inputs[index])
    value = add.inputs[index]
    if row is None or value is None or row.shape[-1:] != (matrix[1],) or math.prod(row.shape[:-1]) != 1:
        return None
    if dims(add.outputs[0]) != (*x[:-1], matrix[1]):
        return None
    return Bias(add, index, value, node)


def _clip(node: onnx_ir.Node) -> onnx_ir.Node | None:
    """The Relu, or Clip with constant bounds, that alone reads a node."""
    user = only_reader(node.outputs[0]) if len([v for v in node.outputs if v.name]) == 1 else None
    return user if user is not None and is_clamp(user) and user.inputs[0] is node.outputs[0] else None


def weight_axis(node: onnx_ir.Node) -> int | None:
    """The axis of a constant weight that runs over outputs; None where weights cannot have a scale per output."""
    match node.op_type:
        case "Conv":
            return 0
        case "ConvTranspose":
            return 1 if integer(node, "group", 1) == 1 else None
        case "Gemm":
            return 0 if integer(node, "transB", 0) else 1
        case "MatMul":
            shape = dims(node.inputs[1])
            return 1 if shape is not None and len(shape) == 2 else None
        case _:
            return None


def axis_of(graph: onnx_ir.Graph) -> dict[str, int]:
    """The output axis of every constant weight of a graph, by name."""
    axes = {}
    for node in graph:
        if node.op_type in PRODUCTS and len(node.inputs) > 1:
            axis, value = weight_axis(node), node.inputs[1]
            if axis is not None and value is not None and value.name and value.const_value is not None:
                axes[value.name] = axis
    return axes


def is_three_dimensional(node: onnx_ir.Node) -> bool:
    """True for a convolution over three spatial axes, which HTP has fewer weight types for."""
    shape = dims(node.inputs[0])
    return node.op_type in ("Conv", "ConvTranspose") and shape is not None and len(shape) == 5
