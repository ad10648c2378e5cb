"""The IR: a QNN graph in NHWC with QNN op names, parameters and encodings."""

from hexforge.ir.graph import Graph, Node, Role, Value
from hexforge.ir.op import Call, Op, Param, ParamValue, QuantRule, Work, define, lookup, moves, per_element, table
from hexforge.ir.types import (
    Array,
    AxisScaleOffset,
    Block,
    BlockwiseExpansion,
    DType,
    Encoding,
    ScaleOffset,
    TensorType,
)

__all__ = [
    "Array",
    "AxisScaleOffset",
    "Block",
    "BlockwiseExpansion",
    "Call",
    "DType",
    "Encoding",
    "Graph",
    "Node",
    "Op",
    "Param",
    "ParamValue",
    "QuantRule",
    "Role",
    "ScaleOffset",
    "TensorType",
    "Value",
    "Work",
    "define",
    "lookup",
    "moves",
    "per_element",
    "table",
]
