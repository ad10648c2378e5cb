# SPDX-License-Identifier: Apache-2.0
"""Ops that name another op by their parameter `operation`, as that op; and the parameters of the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexforge.addons.qnn_graphs.declarations import QnnOp
from hexforge.errors import ModelError
from hexforge.ir.op import Op, ParamValue, lookup
from hexforge.ops import BUILT_IN

# The numbers are those of QnnOpDef.h.
_BINARY = (
    "Add And Divide Equal FloorDiv Fmod Greater GreaterEqual Less LessEqual Maximum Minimum Mod Multiply NotEqual Or "
    "Power SquaredDifference Subtract Xor"
).split()
_UNARY = "Abs Asin Atan Ceil Cos Exp Floor Log Neg Not - Round Rsqrt Sign Sin SquareRoot".split()
_NEURON = [name.title().replace("_", "") for name in lookup("ElementWiseNeuron").params[0].choices]
_PLAIN = {op.name for op in BUILT_IN if not op.params}
OPERATIONS: dict[str, tuple[str, ...]] = {
    "ElementWiseBinary": tuple(f"ElementWise{name}" for name in _BINARY),
    "ElementWiseUnary": tuple("" if name == "-" else f"ElementWise{name}" for name in _UNARY),
    "ElementWiseNeuron": tuple(name if name in _PLAIN else "" for name in _NEURON),
}
"""For each op with a parameter `operation` the op of its own that each number has; empty where it has none."""


_GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate", "hidden_state")
_NOTHING_ASKED: dict[str, float] = {
    "reuse_sparse_indices": 0.0,
    "threshold": 20.0,  # beyond it a softplus is its input, in as many bits as half has
    "hidden_state_offset": 0.0,
    **{f"{gate}_qscale": 0.0 for gate in _GATES},
}
"""Parameters that QNN's ops have and those of the table do not, at the value that asks for nothing."""


def resolve_op(op: QnnOp) -> tuple[Op, dict[str, ParamValue]]:
    """The op of the table that an op of a graph is, and its parameters in the types that the table declares."""
    name, params = op.type, dict(op.params)
    if name in OPERATIONS:
        if "operation" not in params:
            raise ModelError(f"op {op.name!r} ({name}): parameter operation is missing")
        number, known = int(params["operation"]), OPERATIONS[name]
        if not 0 <= number < len(known):
            raise ModelError(f"op {op.name!r} ({name}): operation {number} is not one of 0 to {len(known) - 1}")
        if known[number]:
            name, params = known[number], {}
    if name == "L2Norm" and "axis" in params:  # the older spelling, which the QNN execution provider writes
        params["axes"] = [params.pop("axis")]
    known_op = lookup(name)
    declared = {p.name: p for p in known_op.params}
    made = {
        key: _value(declared[key].type, value) if key in declared else _value("", value)
        for key, value in params.items()
        if key in declared or key not in _NOTHING_ASKED or _value("float32", value) != _NOTHING_ASKED[key]
    }
    return known_op, made


def _value(type: str, value: Any) -> ParamValue:
    plain = np.asarray(value).tolist()
    return _converted(type, plain)


def _converted(type: str, value: Any) -> ParamValue:
    if isinstance(value, list):
        return tuple(_converted(type, item) for item in value)
    if type == "bool":
        return bool(value)
    if type == "float32":
        return float(value)
    return int(value) if type and float(value).is_integer() else value
