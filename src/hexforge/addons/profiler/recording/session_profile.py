# SPDX-License-Identifier: Apache-2.0
"""Profiled session: what a session writes of its runs: onnxruntime's own trace, and the files of profiling_level."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hexforge.addons.profiler.record import HostEvent
from hexforge.addons.profiler.recording.session_files import ProfileFiles
from hexforge.addons.profiler.recording.session_trace import Trace
from hexforge.addons.profiler.recording.stage import StageProfile, profiled_stages
from hexforge.backend import Backend, timed_kernels
from hexforge.ort.observed_runs import SessionRecord
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.ort.options.running_power import RunningPower
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import Stage, Stages

OFF = "off"


class ProfiledSession(SessionRecord):
    """The record of one session: a trace where `prefix` begins the name of its file, and the files of its options."""

    def __init__(self, prefix: str | None, power: RunningPower) -> None:
        self._trace, self._power = None if prefix is None else Trace(prefix), power
        self._files: ProfileFiles | None = None
        self._stages: Mapping[str, StageProfile] = {}
        self.active = self._trace is not None
        self.start_ns = 0 if self._trace is None else self._trace.start_ns

    def start(self, name: str, plan: Stages, backend: Backend, options: ProviderOptions, loaded: bool,
              took_us: int, note: Callable[[str], None]) -> None:  # fmt: skip
        """Write what is known before the first run, such as how the graphs were made, and see to what each run adds."""
        message, what = ("INIT", "QNN (load binary) time") if loaded else ("FINALIZE", "QNN (finalize) time")
        made = HostEvent(message, what, took_us, root=True, timestamp_us=time.time_ns() // 1000)
        if options.profiling_level != OFF:
            self._files = ProfileFiles(
                Path(options.profiling_file_path),
                options.profiling_level,
                options.enable_framework_op_trace,
                plan.stages,
                backend,
                self._power,
                note,
            )
            self._files.start(name, [made])
            self._stages, self.active = self._files.stages, True
        elif self._trace is not None:  # onnxruntime's own profile has ops, too
            self._stages = profiled_stages(plan.stages, backend, "detailed", self._power, note)

    def when_freed(self) -> Callable[[int], None] | None:
        """The files of a profile say how long it took, too."""
        return None if self._files is None else self._files.close

    def end(self) -> str:
        """Write the trace."""
        return "" if self._trace is None else self._trace.end()

    def span(self, category: str, name: str, **arguments: str) -> contextlib.AbstractContextManager[None]:
        """Record in the trace, if there is one, how long a block takes."""
        return contextlib.nullcontext() if self._trace is None else self._trace.span(category, name, **arguments)

    def run_of(self, stage: Stage) -> contextlib.AbstractContextManager[None]:
        """Record what a stage does while the block runs it."""
        if stage.name in self._stages:
            return self._profiled(self._stages[stage.name])
        return self.span("Node", stage.name, provider=QNN if stage.part.taken else CPU)

    @contextlib.contextmanager
    def _profiled(self, stage: StageProfile) -> Iterator[None]:
        """Record the ops of a stage; a run that fails is not recorded."""
        called = time.monotonic_ns()
        with self.span("Node", stage.name, provider=QNN), timed_kernels() as times:
            begin = time.monotonic_ns()
            yield
            took = time.monotonic_ns() - begin
        run = stage.run(times, time.monotonic_ns() - called, took)
        if self._files is not None:
            self._files.add(stage, run)
        if self._trace is not None:
            self._trace.ops(stage.graph, run, begin, QNN, stage.source)
