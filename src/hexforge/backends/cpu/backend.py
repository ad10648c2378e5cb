# SPDX-License-Identifier: Apache-2.0
"""The cpu backend: runs the reference of each op, float and fixed point."""

from __future__ import annotations

from hexforge.backend import Backend
from hexforge.backends.cpu.program import CpuProgram
from hexforge.ir import Graph, Node
from hexforge.ir.verify import verify
from hexforge.ops.packages import custom_named


class CpuBackend(Backend):
    """Runs every op of the table in every data type; the threads are numpy's and its BLAS's own."""

    name = "cpu"

    def unsupported(self, node: Node) -> str | None:
        """None: what the op table defines, this backend runs; but for op packages that are for HTP alone."""
        custom = custom_named(node.op.name)
        if custom is not None and "CPU" not in custom.targets:
            return f"its op package {custom.package!r} is registered for HTP only; register it with the target CPU"
        return None

    def compile(self, graph: Graph) -> CpuProgram:
        """A program of the graph's nodes in order."""
        graph.sort()
        verify(graph)
        return CpuProgram(graph)
