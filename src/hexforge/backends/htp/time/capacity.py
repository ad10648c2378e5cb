# SPDX-License-Identifier: Apache-2.0
"""Capacity: what no tiling makes fit. A tensor or a graph beyond a session's memory, a single tile beyond VTCM."""

from __future__ import annotations

import math

from hexforge.backends.htp.time.tile import CHANNELS, Precision, round_up
from hexforge.chips.soc import SESSION_BYTES
from hexforge.errors import CapacityError
from hexforge.ir import Graph, Node, Value, Work
from hexforge.ops import of_kind

WHOLE_ROWS = of_kind(Work.SOFTMAX, Work.NORM) - {"Lrn"}
"""Ops that need a whole row of their last axis at once."""


def require_capacity(graph: Graph, precision: Precision | None, vtcm_bytes: int, batch: int = 1) -> None:
    """CapacityError naming the tensor, how big it is and what would fit."""
    wrong = _too_big(graph, precision, batch)
    for node in graph:
        need, value = _smallest(node, precision)
        if value is not None and need > vtcm_bytes:
            wrong.append(
                f"node {node.name} ({node.op.name}): its smallest tile holds {_mb(need)} of tensor {value.name!r} "
                f"{list(value.shape)} at once, VTCM has {_mb(vtcm_bytes)}; {_advice(node, need)}"
            )
    if wrong:
        more = f" (and {len(wrong) - 5} more)" if len(wrong) > 5 else ""
        raise CapacityError(f"graph {graph.name!r} does not fit: {'; '.join(wrong[:5])}{more}")


def _bytes(value: Value, precision: Precision | None) -> int:
    if precision is None:
        return value.type.nbytes if not value.dtype.is_float else value.type.size * 2  # floats run as float16
    return precision.weight_bytes(value.type.size) if value.is_static else value.type.size * precision.activation_bytes


def _too_big(graph: Graph, precision: Precision | None, batch: int) -> list[str]:
    sizes: dict[Value, int] = {}
    for node in graph:
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                sizes[value] = _bytes(value, precision) * (1 if value.is_static else batch)
    each, smaller = (f" for a batch of {batch}", "give a smaller batch") if batch > 1 else ("", "make it smaller")
    wrong = [
        f"tensor {value.name!r} {list(value.shape)} takes {_mb(size)}{each}, a session holds {_mb(SESSION_BYTES)}; "
        f"{smaller} or split the model"
        for value, size in sizes.items()
        if size > SESSION_BYTES
    ]
    constants = sum(size for value, size in sizes.items() if value.is_static)
    if not wrong and constants > SESSION_BYTES:
        wrong.append(
            f"its constants take {_mb(constants)} together, a session holds {_mb(SESSION_BYTES)}; split the model, "
            "or use fewer bits for weights"
        )
    return wrong


def _smallest(node: Node, precision: Precision | None) -> tuple[int, Value | None]:
    """Bytes that must be in VTCM at once for the smallest piece of a node, and the tensor they belong to."""
    data = next((v for v in node.inputs if v is not None and not v.is_static), None)
    if data is None or not data.shape:
        return 0, None
    size = 2 if precision is None and data.dtype.is_float else (precision.activation_bytes if precision else 1)
    if node.op.name in WHOLE_ROWS:
        return 2 * round_up(data.shape[-1], CHANNELS) * size, data
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    if weight is None or node.op.name not in ("Conv2d", "TransposeConv2d", "FullyConnected"):
        return 0, None
    # 32 outputs accumulate over the whole depth: their weights, and one row of tiles of the input, are there at once
    per_output = math.prod(weight.shape) // max(1, weight.shape[0 if node.op.name == "FullyConnected" else -1])
    bits = precision.weight_bits if precision else 16 if weight.dtype.is_float else weight.dtype.bits
    return round_up(per_output, CHANNELS) * CHANNELS * bits // 8, weight


def _advice(node: Node, need: int) -> str:
    mb = -(-need >> 20) if need % (1 << 20) == 0 else (need >> 20) + 1
    if mb <= 16:
        return f"vtcm_mb {mb} would fit, on a chip that has it"
    return "no chip has as much: split its last axis" if node.op.name in WHOLE_ROWS else "no chip has as much: split it"


def _mb(size: int) -> str:
    return f"{size / 2**30:.2f} GB" if size >= 1 << 30 else f"{size / 2**20:.2f} MB"
