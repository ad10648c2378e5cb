"""From QNN graph to steps: chains become tables, nodes their native steps, the rest the op's reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hexforge.backends.htp import (  # noqa: F401 - registry
    lower_elementwise,
    lower_index,
    lower_layout,
    lower_logic,
    lower_mac,
    lower_move,
    lower_recurrent,
    lower_reduce,
    lower_resize,
    lower_wide,
    lower_window,
)
from hexforge.backends.htp.lowering import LOWERINGS, Lowering, Reference, Step
from hexforge.backends.htp.tables import Chain, chains, table
from hexforge.ir import DType, Graph, Node, Role


def lower(graph: Graph, level: int = 2, fold_activation: bool = True) -> Lowering:
    """The steps of a graph. Level 1 runs node by node, 2 fuses chains into tables, 3 puts tables into convolutions."""
    lowering = Lowering(graph)
    lowering.round_inputs()
    found = chains(graph) if level >= 2 else []
    by_last: dict[Node, Chain] = {c.nodes[-1]: c for c in found if c.nodes and _worthwhile(lowering, c)}
    absorbed = {n for c in by_last.values() for n in c.nodes[:-1]}
    for node in graph:
        lowering.node = node
        if node in absorbed:
            continue
        chain = by_last.get(node)
        if chain is not None:
            _table(lowering, chain, fold_activation and level >= 3)
        elif not _native(lowering, node):
            lowering.steps.append(Reference(node))
    return lowering


def _worthwhile(lowering: Lowering, chain: Chain) -> bool:
    # A table of 65536 entries costs as much as so many elements.
    return lowering.storage(chain.source).kind == "u8" or chain.output.type.size >= 1024


def _native(lowering: Lowering, node: Node) -> bool:
    function = LOWERINGS.get(node.op.name)
    if function is None or any(0 in v.shape for v in (*node.inputs, *node.outputs) if v is not None):
        return False
    if any(v.dtype is DType.BFLOAT16 for v in (*node.inputs, *node.outputs) if v is not None):
        return False  # the float kernels round to float16
    before = len(lowering.steps)
    if function(lowering, node):
        return True
    del lowering.steps[before:]
    return False


def _table(lowering: Lowering, chain: Chain, fold: bool) -> None:
    entries = table(chain)
    last = lowering.steps[-1] if lowering.steps else None
    source = chain.source
    if (
        fold
        and isinstance(last, Step)
        and last.kind in ("conv_u8", "depthwise_u8")
        and "table" not in last.attributes
        and last.outs == (lowering.name(source),)
        and source.role is Role.NATIVE
        and all(user in chain.nodes for user in source.users)
        and entries.dtype == np.uint8
    ):
        attributes = {**last.attributes, "table": entries}
        lowering.steps[-1] = replace(last, outs=(lowering.name(chain.output),), attributes=attributes)
        return
    lower_elementwise.table(lowering, source, chain.output, entries)
