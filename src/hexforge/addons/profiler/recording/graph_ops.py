# SPDX-License-Identifier: Apache-2.0
"""The ops of a QNN graph as profiles name them: its input, its unnamed start, its nodes, its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hexforge.addons.profiler.record import FIRST_NODE, INPUT, OUTPUT, START, ProfiledOp
from hexforge.ir import Graph, Node, Role


@dataclass(frozen=True, slots=True)
class GraphOps:
    """The ops, and where each node is among them."""

    ops: tuple[ProfiledOp, ...]
    places: Mapping[str, int]
    """The place of each node's op among the ops, by the node's name."""
    readers: frozenset[int]
    """Places of nodes that read the graph's inputs."""
    writers: frozenset[int]
    """Places of nodes that write its outputs."""

    @property
    def input(self) -> int:
        """The place of the graph's input."""
        return 0

    @property
    def output(self) -> int:
        """The place of the graph's output."""
        return len(self.ops) - 1


def graph_ops(graph: Graph) -> GraphOps:
    """The ops of a graph in the order of its nodes, which is one in which they run."""
    nodes = graph.nodes
    places = {node.name: at for at, node in enumerate(nodes, 2)}
    ops: list[ProfiledOp] = [
        ProfiledOp(INPUT, "Input", "Input", result_bytes=sum(v.type.nbytes for v in graph.inputs)),
        ProfiledOp(START, "", "Start"),
    ]
    readers, writers = set(), set()
    for number, node in enumerate(nodes):
        place, reads = number + 2, set()
        for value in node.inputs:
            if value is None or value.is_static:
                continue
            if value.producer is None:
                readers.add(place)
                reads.add(0)
            else:
                reads.add(places[value.producer.name])
        if any(value.role is Role.APP_READ for value in node.outputs):
            writers.add(place)
        ops.append(
            ProfiledOp(
                FIRST_NODE + number,
                node.name,
                node.op.name,
                node.source,
                tuple(sorted(reads)),
                node.outputs[0].dtype.value,
                node.outputs[0].shape,
                sum(v.type.nbytes for v in node.outputs),
                macs(node),
                sum(v.type.nbytes for v in node.inputs if v is not None and v.is_static),
            )
        )
    size = sum(v.type.nbytes for v in graph.outputs)
    ops.append(ProfiledOp(OUTPUT, "Output", "Output", reads=tuple(sorted(writers)), result_bytes=size))
    return GraphOps(tuple(ops), places, frozenset(readers), frozenset(writers))


def macs(node: Node) -> int:
    """Multiply-accumulates of a node; 0 for one whose work is counted otherwise."""
    return node.op.work.macs(node.call) if node.op.work.macs is not None else 0
