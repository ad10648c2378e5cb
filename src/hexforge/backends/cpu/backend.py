# SPDX-License-Identifier: Apache-2.0
"""The cpu backend: runs the reference of each op, float and fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hexforge.backend import Get, Read
from hexforge.backends.cpu.program import CpuProgram
from hexforge.formats.saved_graph import saved_graph
from hexforge.ir import Graph, Node, Value
from hexforge.ir.verify import verify
from hexforge.ops.packages import custom_named
from hexforge.options import OptionTable


class CpuBackend:
    """Runs every op of the table in every data type."""

    name = "cpu"
    Config: ClassVar[type[OptionTable]] = OptionTable

    def __init__(self, config: OptionTable | None = None, threads: int = 0) -> None:
        self.config = config if config is not None else OptionTable()  # the threads are numpy's and its BLAS's own

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

    def load(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get) -> CpuProgram:
        """A program from a context file, over the file's own bytes."""
        return self.compile(saved_graph(name, inputs, outputs, read(), get))
