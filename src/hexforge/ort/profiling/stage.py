# SPDX-License-Identifier: Apache-2.0
"""StageProfile: what one QNN graph of a session does when it runs: simulated where its backend times, else measured."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hexforge.backend import Backend, KernelTime
from hexforge.errors import HexforgeError, UnsupportedError
from hexforge.formats.profile.record import MEASURED, SIMULATED, GraphProfile, ProfiledRun
from hexforge.ort.profiling.running_power import RunningPower
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stage
from hexforge.timeline import Times

if TYPE_CHECKING:
    from hexforge.chips.power import Power

AS_IS, RUNTIME = "as-is", "onnx"


class StageProfile:
    """A stage that is profiled; `graph` is what is known of it before it runs."""

    def __init__(self, stage: Stage, backend: Backend, level: str) -> None:
        if isinstance(stage.runner, CpuPart):
            raise UnsupportedError(f"{stage.name}: runs in onnxruntime's CPU provider, which has a profile of its own")
        self.name, self._level, self._backend = stage.name, level, backend
        self._same: dict[Power | None, ProfiledRun] = {}
        """What a run is under each power that there was."""
        graph = self._timed = stage.runner.graph
        if isinstance(backend, Times):
            self.source = SIMULATED
            made = self._simulated(backend)
            self._same[getattr(backend, "power", None)] = made.runs[0]
            self.graph = replace(made, name=stage.name, runs=())
        else:
            from hexforge.analysis.profile.measured import measured_graph

            self.source = MEASURED
            self.graph, self._ops = measured_graph(graph, backend.name, level)
            self.graph = replace(self.graph, name=stage.name)

    def _simulated(self, backend: Times) -> GraphProfile:
        from hexforge.analysis.profile.simulated import graph_profile

        line = backend.timing(self._timed, AS_IS, RUNTIME).timeline
        return graph_profile(self._timed, line, self._level, backend.chip_name)

    def run(
        self, times: Sequence[KernelTime], call_ns: int, program_ns: int, running: RunningPower | None = None
    ) -> ProfiledRun:
        """The record of a run: what the call took, and the program of it; simulated under the power that holds."""
        stamp = time.time_ns() // 1000
        if self.source == SIMULATED:
            power = getattr(self._backend, "power", None)
            power = power if running is None or power is None else running.of(power)
            if power not in self._same:
                other: Any = copy.copy(self._backend)
                other.power = power
                self._same[power] = self._simulated(other).runs[0]
            return replace(self._same[power], timestamp_us=stamp)
        from hexforge.analysis.profile.measured import measured_run

        return measured_run(self.name, self._ops, times, call_ns, program_ns, stamp, self._level)


def profiled_stages(
    stages: Sequence[Stage], backend: Backend, level: str, note: Callable[[str], None]
) -> dict[str, StageProfile]:
    """The stages that can be profiled by name; why another cannot is noted."""
    by_name: dict[str, StageProfile] = {}
    for stage in stages:
        if isinstance(stage.runner, CpuPart):
            continue
        try:
            by_name[stage.name] = StageProfile(stage, backend, level)
        except HexforgeError as error:
            note(f"profiling_level has no effect on graph {stage.name}: {error}")
    return by_name
