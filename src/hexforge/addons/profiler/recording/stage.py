# SPDX-License-Identifier: Apache-2.0
"""StageProfile: what one QNN graph of a session does when it runs: simulated where its backend times, else measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from hexforge.addons.profiler.record import MEASURED, SIMULATED, GraphProfile, ProfiledRun
from hexforge.analysis.in_turn import with_waits
from hexforge.backend import Backend, KernelTime, TimedBackend
from hexforge.chips.deployment import AS_IS, Deployment
from hexforge.chips.power import Power
from hexforge.errors import HexforgeError, UnsupportedError
from hexforge.ort.options.running_power import RunningPower
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stage
from hexforge.timeline import Timeline

RUNTIME = "onnx"


class CallsInTurn:
    """The QNN graphs of a session on its chip, which are called one after the other."""

    def __init__(self, stages: Sequence[Stage], backend: TimedBackend) -> None:
        self._graphs = {stage.name: stage.runner.graph for stage in stages if not isinstance(stage.runner, CpuPart)}
        self._backend = backend
        self._known: dict[Power, dict[str, Timeline]] = {}

    def timeline(self, name: str, power: Power) -> Timeline:
        """One call of a graph under some power."""
        if power not in self._known:
            timings = [self._backend.timing(graph, AS_IS, RUNTIME, power=power) for graph in self._graphs.values()]
            lines = with_waits([timing.timeline for timing in timings], power)
            self._known[power] = dict(zip(self._graphs, lines, strict=True))
        return self._known[power][name]

    def deployment(self, power: Power) -> Deployment:
        """Where and how the graphs run."""
        backend = self._backend
        return Deployment(backend.chip_name, AS_IS, RUNTIME, backend.graph_config, power, backend.name)


class StageProfile:
    """A stage that is profiled; `graph` is what is known of it before it runs."""

    def __init__(
        self, stage: Stage, backend: Backend, level: str, running: RunningPower, calls: CallsInTurn | None
    ) -> None:
        if isinstance(stage.runner, CpuPart):
            raise UnsupportedError(f"{stage.name}: runs in onnxruntime's CPU provider, which has a profile of its own")
        self.name, self._level, self._running = stage.name, level, running
        self._same: dict[Power, ProfiledRun] = {}
        """What a run is under each power that there was."""
        graph = self._timed = stage.runner.graph
        self._calls = calls
        if calls is not None:
            self.source = SIMULATED
            made = self._simulated(calls, running.power)
            self.graph = replace(made, name=stage.name, runs=())
        else:
            from hexforge.addons.profiler.recording.measured import measured_graph

            self.source = MEASURED
            self.graph, self._ops = measured_graph(graph, backend.name, level)
            self.graph = replace(self.graph, name=stage.name)

    def _simulated(self, calls: CallsInTurn, power: Power) -> GraphProfile:
        from hexforge.addons.profiler.recording.simulated import graph_profile

        line = calls.timeline(self.name, power)
        profile = graph_profile(self._timed, line, self._level, calls.deployment(power))
        self._same[power] = profile.runs[0]
        return profile

    def run(self, times: Sequence[KernelTime], call_ns: int, program_ns: int) -> ProfiledRun:
        """The record of a run: what the call took, and the program of it; simulated under the power that holds."""
        stamp = time.time_ns() // 1000
        if self._calls is not None:
            power = self._running.power
            if power not in self._same:
                self._simulated(self._calls, power)
            return replace(self._same[power], timestamp_us=stamp)
        from hexforge.addons.profiler.recording.measured import measured_run

        return measured_run(self.name, self._ops, times, call_ns, program_ns, stamp, self._level)


def profiled_stages(
    stages: Sequence[Stage], backend: Backend, level: str, running: RunningPower, note: Callable[[str], None]
) -> dict[str, StageProfile]:
    """The stages that can be profiled by name; why another cannot is noted."""
    by_name: dict[str, StageProfile] = {}
    calls = CallsInTurn(stages, backend) if isinstance(backend, TimedBackend) else None
    for stage in stages:
        if isinstance(stage.runner, CpuPart):
            continue
        try:
            by_name[stage.name] = StageProfile(stage, backend, level, running, calls)
        except HexforgeError as error:
            note(f"profiling_level has no effect on graph {stage.name}: {error}")
    return by_name
