# SPDX-License-Identifier: Apache-2.0
"""The whole compile order: graph passes of HTP, then the lowering."""

from __future__ import annotations

from hexforge.backends.htp.activations import fold_activations
from hexforge.backends.htp.masked_softmax import fuse_masked_softmax
from hexforge.backends.htp.numbers.lower.graph import lower
from hexforge.backends.htp.numbers.lower.native_steps import Lowering
from hexforge.backends.htp.numbers.storage import storage
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.soc import DEFAULT_ARCH
from hexforge.ir import Graph, Node, Role, ScaleOffset, TensorType, Value, Work
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


def dequantize_last(graph: Graph) -> int:
    """Move data before it is dequantized: fewer bytes, and float32 results leave without passing through float16."""
    changes = 0
    for node in graph:
        if node.op.name == "Dequantize":
            while _swap_dequantize(graph, node):
                changes += 1
    if changes:
        graph.sort()
    return changes


def _swap_dequantize(graph: Graph, node: Node) -> bool:
    """Swap a Dequantize with the one node that reads it, if that only moves data."""
    source, real = node.inputs[0], node.outputs[0]
    if source is None or not isinstance(source.encoding, ScaleOffset) or real.role is not Role.NATIVE:
        return False
    if len(real.users) != 1:
        return False
    (user,) = real.users
    if user.op.kind not in (Work.RESHAPE, Work.TRANSPOSE):
        return False
    final = user.outputs[0]
    still = graph.value(graph.unique(f"{final.name}_fixed"), source.type.with_shape(final.shape))
    graph.set_inputs(user, [source])
    graph.set_outputs(user, [still])
    graph.set_inputs(node, [still])
    graph.set_outputs(node, [final])
    graph.remove_value(real)
    return True


PASSES: tuple[Pass, ...] = (fuse_masked_softmax, align_concat, dequantize_last)
"""Rewrites of the QNN graph that HTP makes before lowering, at every level: levels give the same bits."""


def prepare_graph(graph: Graph, folds: bool = True, rounds: Pass | None = None) -> Graph:
    """The graph after HTP's passes, edited in place: the one that is lowered, and the one that is timed.

    With `folds` convolutions take the place of the activations after them; `rounds` rounds weights first.
    """
    run(graph, ((rounds,) if rounds is not None else ()) + ((fold_activations, *PASSES) if folds else PASSES))
    return graph


def lower_graph(graph: Graph, config: GraphConfig, arch: int = DEFAULT_ARCH) -> Lowering:
    """The native steps of a prepared graph for an architecture. Level 1 keeps nodes apart, 2 and 3 fuse."""
    level, fold = config.level, config.folds_activations
    return lower(graph, level, fold, clamp_overflow=config.fp16_clamp_overflow, arch=arch)
