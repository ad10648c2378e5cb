# SPDX-License-Identifier: Apache-2.0
"""Activations after convolutions, which HTP folds: the convolution's result is cut where the encoding of the
activation's result ends, and nowhere else.

So where that encoding has room outside the activation's range, what the activation would cut comes through. "Clients
that cannot guarantee that the quantization parameters of the Relu output exactly reflect the range of the data after
the Relu should set" FOLD_RELU_ACTIVATION_INTO_CONV_OFF: "this will come at the cost of performance, but preserve the
requested quantization encodings" (QNN's HTP guide, graph config options).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from hexforge.ir import Graph, Node, Role, ScaleOffset, Work
from hexforge.ir.fixed_point import quantized_range
from hexforge.ops import of_kind

CONVOLUTIONS = of_kind(Work.CONV, Work.DEPTHWISE, Work.TRANSPOSED_CONV)
MOVES = frozenset({"Reshape", "Transpose"})
"""What may stand between both and changes no number."""
ACTIVATIONS = of_kind(Work.CLAMP)


def follows_convolution(node: Node) -> bool:
    """True for an activation that is all that reads a convolution, moved or not."""
    if node.op.name not in ACTIVATIONS:
        return False
    source = node.inputs[0]
    while source is not None and source.producer is not None and source.role is Role.NATIVE:
        if sum(source.users.values()) != 1:
            break
        if source.producer.op.name in CONVOLUTIONS:
            return True
        if source.producer.op.name not in MOVES:
            return False
        source = source.producer.inputs[0]
    return False


def fold_activations(graph: Graph, only: Collection[str] | None = None) -> int:
    """Cut at the ends of the encoding what activations after convolutions would cut at their own bounds.

    `only` names the activations, where not all of them are meant.
    """
    changes = 0
    for node in graph:
        ends = _room_outside(node) if only is None or node.name in only else None
        if ends is None:
            continue
        name, inputs, outputs, source = node.name, list(node.inputs), list(node.outputs), node.source
        graph.remove(node)
        graph.node("ReluMinMax", inputs, outputs, name=name, source=source, min_value=ends[0], max_value=ends[1])
        changes += 1
    if changes:
        graph.sort()
    return changes


def encoding_hazard(node: Node) -> str | None:
    """What comes through an activation that is folded, and what would work; None where nothing does."""
    ends = _room_outside(node)
    if ends is None:
        return None
    low, high = _bounds(node)
    return (
        f"QNN folds it into the convolution before it, and its result's encoding has {ends[0]:.4g} to {ends[1]:.4g} "
        f"where it has {low:g} to {high:g}: what it cuts comes through there; give the result an encoding of its "
        "range, or compile with fold_relu_activation_into_conv_off"
    )


def loses_bounds(node: Node) -> bool:
    """True for an activation after a convolution whose encoding has room outside its range."""
    return _room_outside(node) is not None


def _room_outside(node: Node) -> tuple[float, float] | None:
    """The ends of a folded activation's encoding, where that has room outside its range."""
    if not follows_convolution(node):
        return None
    result = node.outputs[0].type
    if not isinstance(result.encoding, ScaleOffset):
        return None
    scale, zero_point = result.encoding.scale, -result.encoding.offset
    first, last = quantized_range(result.dtype, result.encoding)
    low, high = _bounds(node)
    least = first if low == -math.inf else round(low / scale) + zero_point
    most = last if high == math.inf else round(high / scale) + zero_point
    if least <= first and most >= last:
        return None
    return (first - zero_point) * scale, (last - zero_point) * scale


def _bounds(node: Node) -> tuple[float, float]:
    match node.op.name:
        case "Relu":
            return 0.0, math.inf
        case "Relu1":
            return -1.0, 1.0
        case "Relu6":
            return 0.0, 6.0
        case _:
            return float(node.params["min_value"]), float(node.params["max_value"])
