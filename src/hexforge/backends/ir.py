# SPDX-License-Identifier: Apache-2.0
"""The ir backend: takes whatever QNN has an op for, and only writes graphs down.

QNN's writes DLC files, whose format is Qualcomm's own; here a graph is written as text (`hexforge show --weights`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hexforge.backend import Backend, Program, Put
from hexforge.errors import CallError, UnsupportedError
from hexforge.ir import Array, Graph
from hexforge.ir.verify import verify


class IrBackend(Backend):
    """Takes every op of the table in every data type, and runs none."""

    name = "ir"

    def compile(self, graph: Graph) -> IrProgram:
        """The graph itself, checked."""
        graph.sort()
        verify(graph)
        return IrProgram(graph)


class IrProgram(Program):
    """A graph that is not run."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """CallError: nothing is run."""
        raise CallError(
            "the ir backend writes graphs (dump_qnn_ir_dlc_dir) and runs none; use backend_type=htp, or give the file "
            "that it wrote to qnn-net-run"
        )

    def save(self, put: Put) -> dict[str, Any]:
        """UnsupportedError: a context is for programs that run."""
        raise UnsupportedError("programs of the ir backend cannot be saved")
