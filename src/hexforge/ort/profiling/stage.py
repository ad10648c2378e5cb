# SPDX-License-Identifier: Apache-2.0
"""StageProfile: what one QNN graph of a session does when it runs: simulated where its backend times, else measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from hexforge.backend import Backend, KernelTime
from hexforge.errors import HexforgeError, UnsupportedError
from hexforge.formats.profile.record import MEASURED, SIMULATED, ProfiledRun
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stage
from hexforge.timeline import Times

AS_IS, RUNTIME = "as-is", "onnx"


class StageProfile:
    """A stage that is profiled; `graph` is what is known of it before it runs."""

    def __init__(self, stage: Stage, backend: Backend, level: str) -> None:
        if isinstance(stage.runner, CpuPart):
            raise UnsupportedError(f"{stage.name}: runs in onnxruntime's CPU provider, which has a profile of its own")
        self.name, self._level = stage.name, level
        self._same: ProfiledRun | None = None
        graph = stage.runner.graph
        if isinstance(backend, Times):
            from hexforge.analysis.profile.simulated import graph_profile

            line = backend.timing(graph, AS_IS, RUNTIME).timeline
            made = graph_profile(graph, line, level, backend.chip_name)
            self._same, self.source = made.runs[0], SIMULATED
            self.graph = replace(made, name=stage.name, runs=())
        else:
            from hexforge.analysis.profile.measured import measured_graph

            self.source = MEASURED
            self.graph, self._ops = measured_graph(graph, backend.name, level)
            self.graph = replace(self.graph, name=stage.name)

    def run(self, times: Sequence[KernelTime], call_ns: int, program_ns: int) -> ProfiledRun:
        """The record of a run: what the call took, and the program of it."""
        stamp = time.time_ns() // 1000
        if self._same is not None:
            return replace(self._same, timestamp_us=stamp)
        from hexforge.analysis.profile.measured import measured_run

        return measured_run(self.name, self._ops, times, call_ns, program_ns, stamp, self._level)


def profiled_stages(
    stages: Sequence[Stage], backend: Backend, level: str, note: Callable[[str], None]
) -> dict[str, StageProfile]:
    """The stages that can be profiled by name; why another cannot is noted."""
    found: dict[str, StageProfile] = {}
    for stage in stages:
        if isinstance(stage.runner, CpuPart):
            continue
        try:
            found[stage.name] = StageProfile(stage, backend, level)
        except HexforgeError as error:
            note(f"profiling_level has no effect on graph {stage.name}: {error}")
    return found
