# SPDX-License-Identifier: Apache-2.0
"""The IR: a QNN graph in NHWC with QNN op names, parameters and encodings."""

from hexforge.ir.graph import Graph, Node, Role, Value
from hexforge.ir.layout import ALONG_AXIS, BOUND, POINTWISE, Follows, Layout
from hexforge.ir.op import Call, Measure, Op, Param, ParamValue, QuantRule, define, lookup, moves, per_element, table
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
from hexforge.ir.work import Amounts, Work

__all__ = [
    "ALONG_AXIS",
    "BOUND",
    "POINTWISE",
    "Amounts",
    "Array",
    "AxisScaleOffset",
    "Block",
    "BlockwiseExpansion",
    "Call",
    "DType",
    "Encoding",
    "Follows",
    "Graph",
    "Layout",
    "Measure",
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
