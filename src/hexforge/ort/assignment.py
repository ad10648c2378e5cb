# SPDX-License-Identifier: Apache-2.0
"""Graph assignment: which nodes each provider took, as onnxruntime lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import Stage


@dataclass(frozen=True, slots=True)
class AssignedNode:
    """A node in a graph assignment, as onnxruntime's OrtEpAssignedNode."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True, slots=True)
class AssignedSubgraph:
    """Nodes a provider took together, as onnxruntime's OrtEpAssignedSubgraph."""

    ep_name: str
    nodes: tuple[AssignedNode, ...]

    def get_nodes(self) -> list[AssignedNode]:
        """The nodes."""
        return list(self.nodes)


def assignment(stages: Iterable[Stage]) -> Iterator[AssignedSubgraph]:
    """The nodes of each QNN graph together, those on the CPU each alone."""
    for stage in stages:
        nodes = tuple(AssignedNode(row.node, row.domain, row.op_type) for row in stage.rows)
        if stage.part.taken:
            yield AssignedSubgraph(QNN, nodes)
        else:
            yield from (AssignedSubgraph(CPU, (node,)) for node in nodes)
