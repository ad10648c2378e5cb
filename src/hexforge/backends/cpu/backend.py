# SPDX-License-Identifier: Apache-2.0
"""The cpu backend: runs the reference of each op, float and fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hexforge.backend import Get, Read
from hexforge.backends.cpu.program import CpuProgram
from hexforge.errors import FormatError
from hexforge.ir import Graph, Node, Value, text
from hexforge.ir.verify import verify
from hexforge.ops.packages import custom_named
from hexforge.options import OptionTable


@dataclass(frozen=True, slots=True)
class CpuConfig(OptionTable):
    """The cpu backend has no options."""

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "option of the cpu backend"


class CpuBackend:
    """Runs every op of the table in every data type."""

    name = "cpu"
    Config: ClassVar[type[OptionTable]] = CpuConfig

    def __init__(self, config: CpuConfig | None = None, threads: int = 0) -> None:
        self.config = config if config is not None else CpuConfig()  # the threads are numpy's and its BLAS's own

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
        data = read()
        if not isinstance(data, dict) or not isinstance(data.get("graph"), str):
            raise FormatError(f"program {name!r}: is malformed")
        import hexforge.ops  # noqa: F401 - fills the table

        graph = text.loads(data["graph"], get)
        for given, known in ((graph.inputs, inputs), (graph.outputs, outputs)):
            if [(v.name, v.type) for v in given] != [(v.name, v.type) for v in known]:
                raise FormatError(f"program {name!r}: has other inputs or outputs than the table of graphs says")
        if empty := [v.name for v in graph.values.values() if v.is_static and v.data is None]:
            raise FormatError(f"program {name!r}: constant {empty[0]!r} has no data")
        return self.compile(graph)
