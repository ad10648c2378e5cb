# SPDX-License-Identifier: Apache-2.0
"""The ir backend: takes whatever QNN has an op for, and only writes graphs down.

QNN's writes DLC files, whose format is Qualcomm's own; here a graph is written as text (`hexforge show --weights`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hexforge.errors import CallError
from hexforge.ir import Array, Graph, Node
from hexforge.ir.verify import verify
from hexforge.options import OptionTable


class IrBackend:
    """Takes every op of the table in every data type, and runs none."""

    name = "ir"
    Config: ClassVar[type[OptionTable]] = OptionTable

    def __init__(self, config: OptionTable | None = None, threads: int = 0) -> None:
        self.config = config if config is not None else OptionTable()

    def unsupported(self, node: Node) -> str | None:
        """None: what the op table defines can be written."""
        return None

    def compile(self, graph: Graph) -> IrProgram:
        """The graph itself, checked."""
        graph.sort()
        verify(graph)
        return IrProgram(graph)


class IrProgram:
    """A graph that is not run."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """CallError: nothing is run."""
        raise CallError(
            "the ir backend writes graphs (dump_qnn_ir_dlc_dir) and runs none; use backend_type=htp, or give the file "
            "that it wrote to qnn-net-run"
        )
