# SPDX-License-Identifier: Apache-2.0
"""RequestedDumps: what is to be written of a session's graphs, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexforge.errors import CallError


@dataclass(frozen=True, slots=True)
class RequestedDumps:
    """Which dumps are written, each by its folder; None: not that one."""

    graphs: Path | None = None
    """dump_json_qnn_graph"""
    op_trace: Path | None = None
    """enable_framework_op_trace"""
    input_graph: Path | None = None
    """dump_qnn_ep_input_graph"""
    texts: Path | None = None
    """dump_qnn_ir_dlc"""

    @property
    def folders(self) -> tuple[Path | None, ...]:
        """Where each goes."""
        return self.graphs, self.op_trace, self.input_graph, self.texts

    @property
    def any(self) -> bool:
        """Whether there is one at all."""
        return any(folder is not None for folder in self.folders)

    def check(self) -> None:
        """CallError where a folder is not there; that of op traces is made, as the provider makes it."""
        if self.op_trace is not None:
            try:
                self.op_trace.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CallError(f"framework_op_trace_dir: {self.op_trace}: cannot be made: {error.strerror}") from None
        for folder in self.folders:
            if folder is not None and not folder.is_dir():
                raise CallError(f"{folder}: no such folder; make it, or name another for the dump")
