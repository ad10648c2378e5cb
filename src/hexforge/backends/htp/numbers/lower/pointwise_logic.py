# SPDX-License-Identifier: Apache-2.0
"""Comparisons, logic, selection, integers, casts, Prelu; and functions of one small tensor as tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.arithmetic import OPERATIONS
from hexforge.backends.htp.numbers.float_results import adds_in_matrix_unit, tests_for_no_number
from hexforge.backends.htp.numbers.halves import MATRIX_LIMIT
from hexforge.backends.htp.numbers.lower import pointwise
from hexforge.backends.htp.numbers.lower.adapt import INTEGERS, constant, kind_of, nest, real, requantized
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.tables import Chain, has_table, table
from hexforge.ir import Array, DType, Node, Value, Work
from hexforge.ops import BUILT_IN, of_kind

_COMPARE = {
    "ElementWiseEqual": 0, "ElementWiseNotEqual": 1, "ElementWiseGreater": 2, "ElementWiseGreaterEqual": 3,
    "ElementWiseLess": 4, "ElementWiseLessEqual": 5,
}  # fmt: skip
_LOGIC = {"ElementWiseAnd": 0, "ElementWiseOr": 1, "ElementWiseXor": 2, "ElementWiseNot": 3}
_INTEGER = OPERATIONS | {"ElementWiseFloorDiv": 6, "ElementWiseMod": 7, "ElementWiseFmod": 8}
_UNARY = (
    {"Convert"}
    | of_kind(Work.CLAMP, Work.LOOKUP)
    | {op.name for op in BUILT_IN if op.kind is Work.ADD and len(op.inputs) == 1}
)
_TYPES = {
    t: i
    for i, t in enumerate(
        (DType.BOOL, DType.UINT8, DType.INT8, DType.UINT16, DType.INT16, DType.UINT32, DType.INT32, DType.INT64)
    )
}
_FLOAT = 8


def _two(node: Node) -> tuple[Value, Value, Value]:
    a, b = node.operands(2)
    return a, b, node.outputs[0]


@lowers(*_COMPARE)
def compare(lowering: Lowering, node: Node) -> bool:
    """Two broadcast tensors of one kind compared, as booleans."""
    a, b, y = _two(node)
    own, other = lowering.storage(a), lowering.storage(b)
    kind = "bool" if own.dtype == np.bool_ else kind_of(own)
    if kind is None or own.kind != other.kind or own.dtype != other.dtype:
        return False
    fixed: dict[str, Any] = {}
    if own.fixed:
        fixed = {"zero_a": own.zero_point, "zero_b": other.zero_point, "scale_a": own.scale, "scale_b": other.scale}
    lowering.emit(
        f"compare_{kind}", [a, b], [y], operation=_COMPARE[node.op.name], **nest(y.shape, a.shape, b.shape), **fixed
    )
    return True


@lowers("IsNan", "IsInf")
def no_number(lowering: Lowering, node: Node) -> bool:
    """Whether floats of the application are numbers; of halves 65536 is infinity, and what is beyond is no number."""
    x, y = node.operand(0), node.outputs[0]
    own, name = lowering.storage(x), lowering.read_by(node, x)
    if own.kind != "f32" or x.data is not None:
        return False
    halves = tests_for_no_number(node)
    if node.op.name == "IsNan" and not halves:
        loops = nest(y.shape, x.shape, x.shape)
        lowering.emit("compare_f32", [name, name], [y], operation=_COMPARE["ElementWiseNotEqual"], **loops)
        return True
    limit, loops = MATRIX_LIMIT if halves else np.inf, nest(y.shape, x.shape, ())
    beyond = ("ElementWiseGreater", "ElementWiseLess") if node.op.name == "IsNan" else ("ElementWiseEqual",) * 2
    wanted = [True, True] if node.op.name == "IsNan" else [node.params[f"detect_{s}"] for s in ("positive", "negative")]
    parts = []
    for bound, operation, asked in zip((limit, -limit), beyond, wanted, strict=True):
        if asked:
            parts.append(lowering.temp(lowering.storage(y), y.name) if all(wanted) else lowering.name(y))
            edge = constant(lowering, np.full(1, bound, np.float32), x.name)
            lowering.emit("compare_f32", [name, edge], [parts[-1]], operation=_COMPARE[operation], **loops)
    if not parts:
        return False
    if all(wanted):
        lowering.emit("logical", parts, [y], operation=_LOGIC["ElementWiseOr"], **nest(y.shape, y.shape, y.shape))
    return True


@lowers(*_LOGIC)
def logic(lowering: Lowering, node: Node) -> bool:
    """And, or, exclusive or, not of booleans."""
    inputs = [v for v in node.inputs if v is not None]
    y = node.outputs[0]
    if any(v.dtype is not DType.BOOL for v in (*inputs, y)):
        return False
    a, b = (*inputs, *inputs)[:2]
    lowering.emit("logical", [a, b], [y], operation=_LOGIC[node.op.name], **nest(y.shape, a.shape, b.shape))
    return True


@lowers("ElementWiseSelect")
def select(lowering: Lowering, node: Node) -> bool:
    """One of two tensors by a condition; both first brought to the output's encoding."""
    condition, a, b = node.operands(3)
    y = node.outputs[0]
    out = lowering.storage(y)
    names = []
    for value in (a, b):
        own = lowering.storage(value)
        if own.kind != out.kind and not (own.fixed and out.fixed):
            return False
        if own.kind == "raw" and own.dtype != out.dtype:
            return False
        name = lowering.name(value)
        names.append(requantized(lowering, name, own, out) if out.fixed else name)
    lowering.emit(
        "select", [condition, *names], [y], element_bytes=out.dtype.itemsize,
        **nest(y.shape, condition.shape, a.shape, b.shape),
    )  # fmt: skip
    return True


@lowers(*_INTEGER)
def arithmetic(lowering: Lowering, node: Node) -> bool:
    """Arithmetic of int32 and int64; fixed point and floats are lower_elementwise's."""
    a, b, y = _two(node)
    own = lowering.storage(y)
    kinds = {lowering.storage(v).dtype for v in (a, b, y)}
    if own.kind == "raw" and own.dtype in INTEGERS and len(kinds) == 1 and y.encoding is None:
        lowering.emit(
            f"integer_{own.dtype.name}", [a, b], [y], operation=_INTEGER[node.op.name],
            **nest(y.shape, a.shape, b.shape),
        )  # fmt: skip
        return True
    return node.op.name not in ("ElementWiseFloorDiv", "ElementWiseMod", "ElementWiseFmod") and (
        pointwise.binary(lowering, node)
    )


@lowers("ElementWiseSquaredDifference")
def squared_difference(lowering: Lowering, node: Node) -> bool:
    """(a - b)^2 of two broadcast tensors of one kind."""
    a, b, y = _two(node)
    own, other, out = (lowering.storage(v) for v in (a, b, y))
    if not own.kind == other.kind == out.kind or own.kind == "raw":
        return False
    fixed: dict[str, Any] = {}
    if own.fixed:
        fixed = {"zero_a": own.zero_point, "zero_b": other.zero_point, "scale_a": own.scale, "scale_b": other.scale}
        fixed |= {"scale": 1.0 / out.scale, **out.output()}
    lowering.emit(f"squared_difference_{own.kind}", [a, b], [y], **nest(y.shape, a.shape, b.shape), **fixed)
    return True


@lowers("Prelu")
def prelu(lowering: Lowering, node: Node) -> bool:
    """Negative elements times a coefficient, which broadcasts."""
    x, coefficient, y = _two(node)
    own, out = lowering.storage(x), lowering.storage(y)
    if own.kind == "raw" or own.kind != out.kind:
        return False
    loops = nest(y.shape, x.shape, coefficient.shape)
    if own.kind == "f32":
        if lowering.storage(coefficient).kind != "f32":
            return False
        lowering.emit("prelu_f32", [x, coefficient], [y], **loops)
        return True
    if coefficient.data is None:
        return False
    factors = constant(lowering, real(coefficient), coefficient.name)
    lowering.emit(
        f"prelu_{own.kind}", [x, factors], [y], **loops, scale=own.scale / out.scale, zero_a=own.zero_point,
        **out.output(),
    )  # fmt: skip
    return True


@lowers("Cast")
def cast(lowering: Lowering, node: Node) -> bool:
    """Between integers, booleans and floats; between float types as lower_elementwise does."""
    x, y = node.operand(0), node.outputs[0]
    if x.encoding is not None or y.encoding is not None:
        return pointwise.convert(lowering, node)
    own, out = lowering.storage(x), lowering.storage(y)
    if own.kind == out.kind == "f32":
        return pointwise.convert(lowering, node)
    source = _FLOAT if own.kind == "f32" else _TYPES.get(x.dtype)
    target = _FLOAT if out.kind == "f32" else _TYPES.get(y.dtype)
    if source is None or target is None:
        return False
    lowering.emit("cast", [x], [y], count=own.size, **{"from": source, "to": target})
    return True


_tables: dict[Any, Array] = {}


@lowers(*_UNARY)
def unary(lowering: Lowering, node: Node) -> bool:
    """A function of one tensor too small for a table of its own to pay: one that equal nodes share."""
    y = node.outputs[0]
    dynamic = {v for v in node.inputs if v is not None and v.data is None}
    scalars = [v for v in node.inputs if v is not None and v.data is not None]
    if len(dynamic) != 1 or any(v.type.size != 1 for v in scalars):
        return False
    source = dynamic.pop()
    if source.shape != y.shape or not has_table(source.type, y.type):
        return False
    key = (
        node.op.name, tuple(sorted(node.params.items())), source.dtype, source.encoding, y.dtype, y.encoding,
        tuple(v is source for v in node.inputs), tuple((v.dtype, v.encoding, real(v).tobytes()) for v in scalars),
        adds_in_matrix_unit(node, lowering.arch),
    )  # fmt: skip
    if key not in _tables:
        if len(_tables) >= 64:
            _tables.clear()
        _tables[key] = table(Chain(source, (node,), y), lowering.arch)
    pointwise.table(lowering, source, y, _tables[key])
    return True
