# SPDX-License-Identifier: Apache-2.0
"""StageProfile: what one QNN graph of a session does when it runs: simulated where its backend times, else measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from hexforge.backend import Backend, KernelTime, TimedBackend
from hexforge.chips.deployment import AS_IS
from hexforge.chips.power import Power
from hexforge.errors import HexforgeError, UnsupportedError
from hexforge.formats.profile.record import MEASURED, SIMULATED, GraphProfile, ProfiledRun
from hexforge.ort.profiling.running_power import RunningPower
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stage

RUNTIME = "onnx"


class StageProfile:
    """A stage that is profiled; `graph` is what is known of it before it runs."""

    def __init__(self, stage: Stage, backend: Backend, level: str, running: RunningPower) -> None:
        if isinstance(stage.runner, CpuPart):
            raise UnsupportedError(f"{stage.name}: runs in onnxruntime's CPU provider, which has a profile of its own")
        self.name, self._level, self._running = stage.name, level, running
        self._same: dict[Power, ProfiledRun] = {}
        """What a run is under each power that there was."""
        graph = self._timed = stage.runner.graph
        self._clock = backend if isinstance(backend, TimedBackend) else None
        if self._clock is not None:
            self.source = SIMULATED
            made = self._simulated(self._clock, running.power)
            self.graph = replace(made, name=stage.name, runs=())
        else:
            from hexforge.analysis.profile.measured import measured_graph

            self.source = MEASURED
            self.graph, self._ops = measured_graph(graph, backend.name, level)
            self.graph = replace(self.graph, name=stage.name)

    def _simulated(self, clock: TimedBackend, power: Power) -> GraphProfile:
        from hexforge.analysis.profile.simulated import graph_profile

        line = clock.timing(self._timed, AS_IS, RUNTIME, power=power).timeline
        vtcm_bytes = clock.graph_config.vtcm_bytes or clock.accelerator().vtcm_bytes
        profile = graph_profile(self._timed, line, self._level, clock.chip_name, vtcm_bytes)
        self._same[power] = profile.runs[0]
        return profile

    def run(self, times: Sequence[KernelTime], call_ns: int, program_ns: int) -> ProfiledRun:
        """The record of a run: what the call took, and the program of it; simulated under the power that holds."""
        stamp = time.time_ns() // 1000
        if self._clock is not None:
            power = self._running.power
            if power not in self._same:
                self._simulated(self._clock, power)
            return replace(self._same[power], timestamp_us=stamp)
        from hexforge.analysis.profile.measured import measured_run

        return measured_run(self.name, self._ops, times, call_ns, program_ns, stamp, self._level)


def profiled_stages(
    stages: Sequence[Stage], backend: Backend, level: str, running: RunningPower, note: Callable[[str], None]
) -> dict[str, StageProfile]:
    """The stages that can be profiled by name; why another cannot is noted."""
    by_name: dict[str, StageProfile] = {}
    for stage in stages:
        if isinstance(stage.runner, CpuPart):
            continue
        try:
            by_name[stage.name] = StageProfile(stage, backend, level, running)
        except HexforgeError as error:
            note(f"profiling_level has no effect on graph {stage.name}: {error}")
    return by_name
