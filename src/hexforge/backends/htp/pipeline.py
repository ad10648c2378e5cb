"""The whole compile order: graph passes of HTP, then the lowering."""

from __future__ import annotations

from hexforge.backends.htp.lower import lower
from hexforge.backends.htp.lowering import Lowering
from hexforge.backends.htp.storage import storage
from hexforge.ir import Graph, TensorType, Value
from hexforge.passes import Pass, run


def align_concat(graph: Graph) -> int:
    """Give Concat inputs its output's encoding by a Convert each, which then fuses with what made the input."""
    changes = 0
    for node in graph:
        if node.op.name != "Concat" or not storage(node.outputs[0].type).fixed:
            continue
        out = node.outputs[0]
        inputs: list[Value | None] = []
        for value in node.inputs:
            if value is None or value.type.with_shape(()) == out.type.with_shape(()) or value.data is not None:
                inputs.append(value)
                continue
            made = graph.value(graph.unique(f"{value.name}_aligned"), TensorType(out.dtype, value.shape, out.encoding))
            graph.node("Convert", [value], [made], source=node.source)
            inputs.append(made)
            changes += 1
        graph.set_inputs(node, inputs)
    if changes:
        graph.sort()
    return changes


PASSES: tuple[Pass, ...] = (align_concat,)
"""Rewrites of the QNN graph that HTP makes before lowering; none changes a number."""


def compile_graph(graph: Graph, level: int, fold_activation: bool = True) -> Lowering:
    """The lowered graph. Level 1 keeps nodes apart, 2 and 3 fuse."""
    if level >= 2:
        run(graph, PASSES)
    return lower(graph, level, fold_activation)

