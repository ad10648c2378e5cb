# SPDX-License-Identifier: Apache-2.0
"""Numeric switches: what a chip may do otherwise than hexforge's arithmetic does by default, node by node."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from hexforge.backends.htp.activations import fold_activations, loses_bounds
from hexforge.backends.htp.symmetric_weights import round_weights, rounds_weights
from hexforge.ir import DType, Graph, Node, Role, ScaleOffset, TensorType, Value

WIDER = {DType.UINT8: DType.UINT16, DType.INT8: DType.INT16}
_FLOATS = (DType.FLOAT32, DType.FLOAT16)


@dataclass(frozen=True, slots=True)
class NumericSwitch:
    """One thing that may be otherwise: where in a graph it can be, and how it is made so."""

    title: str
    applies: Callable[[Node], bool]
    switch: Callable[[Graph, Collection[str]], object]
    """Makes nodes so, by their names."""


def _sums_floats(node: Node) -> bool:
    """True for a float product or dense convolution, whose sums have an order."""
    if node.op.name not in ("Conv2d", "FullyConnected", "MatMul") or node.params.get("group", 1) != 1:
        return False
    x, weight = node.inputs[0], node.inputs[1]
    plain = not node.params.get("transpose_in0") and not node.params.get("transpose_in1")
    if x is None or weight is None or not plain or len(weight.shape) < 2:
        return False
    floats = x.encoding is None and x.dtype in _FLOATS and weight.encoding is None
    axis = _summed_axis(node)
    return floats and x.shape[-1:] == weight.shape[axis : axis + 1 or None] and x.shape[-1] > 1


def _summed_axis(node: Node) -> int:
    return -1 if node.op.name == "FullyConnected" else -2


def _reverse_sums(graph: Graph, names: Collection[str]) -> None:
    """Let products add their terms in the reverse order of channels: the same sums, rounded elsewhere."""
    for node in [n for n in graph if n.name in names]:
        x, weight = node.operand(0), node.operand(1)
        turned = [_reversed(graph, node, x, -1), _reversed(graph, node, weight, _summed_axis(node))]
        graph.set_inputs(node, [*turned, *node.inputs[2:]])
    graph.sort()


def _reversed(graph: Graph, node: Node, value: Value, axis: int) -> Value:
    """A value whose elements along an axis are in reverse order."""
    if value.data is not None:
        turned = np.ascontiguousarray(np.flip(np.asarray(value.data), axis))
        return graph.static(turned, value.encoding, f"{value.name}_reversed")
    along = axis % len(value.shape)
    order = graph.static(np.arange(value.shape[along], dtype=np.int32)[::-1].copy(), None, f"{value.name}_order")
    made = graph.value(graph.unique(f"{value.name}_reversed"), TensorType(value.dtype, value.shape))
    graph.node("Gather", [value, order], [made], source=node.source, axis=along)
    return made


def _can_widen(node: Node) -> bool:
    """True for a node whose 8-bit result has an encoding of its own, and stays inside with all that only moves it."""
    return node.op.quant.output == "own" and _moved_results(node.outputs[0]) is not None


def _moved_results(value: Value) -> list[Value] | None:
    """An 8-bit value and what other nodes move it to; None where it, or one of these, leaves the graph."""
    if value.role is not Role.NATIVE or value.dtype not in WIDER or not isinstance(value.encoding, ScaleOffset):
        return None
    moved = [value]
    for user in value.users:
        if user.op.quant.output == "input":
            if any(v is not value and v is not None and v.encoding is not None for v in user.inputs):
                return None
            for result in user.outputs:
                more = _moved_results(result)
                if more is None:
                    return None
                moved += more
    return moved


def _widen_results(graph: Graph, names: Collection[str]) -> None:
    """Give results 16 bits over the range of their 8, so that rounding to them loses next to nothing."""
    for node in [n for n in graph if n.name in names]:
        for value in _moved_results(node.outputs[0]) or ():
            assert isinstance(value.encoding, ScaleOffset)
            wide, encoding = WIDER[value.dtype], value.encoding
            graph.retype(value, TensorType(wide, value.shape, ScaleOffset(encoding.scale / 256, encoding.offset * 256)))


SWITCHES = {
    "fold_relu": NumericSwitch(
        "activations after convolutions fold as QNN's default does: cut where their encodings end",
        loses_bounds,
        fold_activations,
    ),
    "short_depth": NumericSwitch(
        "weights with a zero point are rounded to 255 symmetric steps for each channel, as the matrix unit has them",
        rounds_weights,
        lambda graph, names: round_weights(graph, only=names),
    ),
    "float_order": NumericSwitch(
        "float products and convolutions add their terms in the reverse order of channels", _sums_floats, _reverse_sums
    ),
    "encodings": NumericSwitch(
        "results have 16 bits over the range of their 8-bit encodings", _can_widen, _widen_results
    ),
}
"""By the name that commands have for them."""


def switchable_nodes(graph: Graph, switch: str) -> tuple[Node, ...]:
    """The nodes of a graph that a switch changes."""
    return tuple(node for node in graph if SWITCHES[switch].applies(node))


def switch_nodes(graph: Graph, switch: str, names: Collection[str]) -> None:
    """Switch some nodes, by their names."""
    SWITCHES[switch].switch(graph, names)
