# SPDX-License-Identifier: Apache-2.0
"""Elementwise nodes with two dynamic operands, and the converts between float and fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.arithmetic import OPERATIONS, binary_scales
from hexforge.backends.htp.numbers.float_results import adds_in_matrix_unit
from hexforge.backends.htp.numbers.lower.adapt import nest
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.ir import Array, Node, Role, Value


def flat_nest(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> dict[str, Any] | None:
    """The broadcast loops of two operands; None where the innermost strides are not 0 or 1."""
    loops = nest(shape, a, b)
    dims, strides = loops["dims"], loops["strides"]
    strides_a, strides_b = strides[: len(dims)], strides[len(dims) :]
    if strides_a[-1] > 1 or strides_b[-1] > 1:
        return None
    return {"dims": dims, "strides_a": strides_a, "strides_b": strides_b}


def binary(lowering: Lowering, node: Node) -> bool:
    """Add, subtract, multiply, divide, maximum, minimum of two broadcast tensors of one kind."""
    a, b = node.operands(2)
    out = node.outputs[0]
    own, other, y = lowering.storage(a), lowering.storage(b), lowering.storage(out)
    if not own.kind == other.kind == y.kind or y.kind == "raw" or out.type.size == 0:
        return False
    loops = flat_nest(out.shape, a.shape, b.shape)
    if loops is None:
        return False
    operation = OPERATIONS[node.op.name]
    if y.kind == "f32":
        half = 2 if adds_in_matrix_unit(node, lowering.arch) else 1
        lowering.emit("binary_f32", [a, b], [out], operation=operation, half=half, **loops)
        return True
    scales = binary_scales(operation, own, other, y)
    if scales is None:
        return False
    lowering.emit(
        f"binary_{y.kind}", [a, b], [out], operation=operation, scale_a=scales[0], scale_b=scales[1],
        zero_a=own.zero_point, zero_b=other.zero_point, **y.output(), **loops,
    )  # fmt: skip
    return True


@lowers("Quantize", "Dequantize")
def convert(lowering: Lowering, node: Node) -> bool:
    """Between float and fixed point, and between float types."""
    x, out = node.operand(0), node.outputs[0]
    own, y = lowering.storage(x), lowering.storage(out)
    if own.kind == "f32" and y.fixed:
        source = x.name if x.role is Role.APP_WRITE else x  # not rounded to float16
        lowering.tensors.setdefault(x.name, own)
        lowering.emit(f"quantize_{y.kind}", [source], [out], count=y.size, scale=_single(y.scale), **y.output())
    elif own.fixed and y.kind == "f32":
        # Read only by the application: float32 as it is. Read by other nodes: float16.
        final = out.role is Role.APP_READ and not out.users
        target = out if final else lowering.temp(y, out.name)
        lowering.emit(
            f"dequantize_{own.kind}", [x], [target], count=y.size, scale=_single(own.scale), zero_point=own.zero_point
        )
        if not final:
            lowering.emit("round_half", [target], [out], count=y.size)
    elif own.kind == y.kind == "f32":
        lowering.emit("round_half", [x], [out], count=y.size)
    else:
        return False
    return True


def _single(scale: float) -> float:
    return float(np.float32(scale))


def table(lowering: Lowering, source: Value, out: Value, entries: Array) -> None:
    """A look-up of every element of `source`."""
    own, y = lowering.storage(source), lowering.storage(out)
    kind = f"table_{own.kind}" if own.kind == y.kind else f"table_{own.kind}_{y.kind}"
    lowering.emit(kind, [source], [out], count=y.size, table=entries)
