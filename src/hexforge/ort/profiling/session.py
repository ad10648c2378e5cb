# SPDX-License-Identifier: Apache-2.0
"""SessionProfile: what a session writes of its runs: onnxruntime's own trace, and the files of profiling_level."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hexforge.backend import Backend, timed_kernels
from hexforge.formats.profile.record import HostEvent
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.ort.profiling.device_runs import RunningPower
from hexforge.ort.profiling.files import ProfileFiles
from hexforge.ort.profiling.stage import StageProfile, profiled_stages
from hexforge.ort.profiling.trace import Trace
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import Stage, Stages

OFF = "off"


class SessionProfile:
    """The profile of one session; `active` says whether runs add to it."""

    def __init__(self, trace: Trace | None, power: RunningPower) -> None:
        self.trace, self._power = trace, power
        self.files: ProfileFiles | None = None
        self.stages: Mapping[str, StageProfile] = {}
        self.active = trace is not None

    def start(self, name: str, plan: Stages, backend: Backend, options: ProviderOptions, made: HostEvent,
              note: Callable[[str], None]) -> None:  # fmt: skip
        """Write what is known before the first run, such as how the graphs were made, and see to what each run adds."""
        if options.profiling_level != OFF:
            self.files = ProfileFiles(
                Path(options.profiling_file_path),
                options.profiling_level,
                options.enable_framework_op_trace,
                plan.stages,
                backend,
                self._power,
                note,
            )
            self.files.start(name, [made])
            self.stages, self.active = self.files.stages, True
        elif self.trace is not None:  # onnxruntime's own profile has ops, too
            self.stages = profiled_stages(plan.stages, backend, "detailed", self._power, note)

    def span(self, category: str, name: str, **arguments: str) -> contextlib.AbstractContextManager[None]:
        """Record in the trace, if there is one, how long a block takes."""
        return contextlib.nullcontext() if self.trace is None else self.trace.span(category, name, **arguments)

    def run_of(self, stage: Stage) -> contextlib.AbstractContextManager[None]:
        """Record what a stage does while the block runs it."""
        if stage.name in self.stages:
            return self._profiled(self.stages[stage.name])
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
        if self.files is not None:
            self.files.add(stage, run)
        if self.trace is not None:
            self.trace.ops(stage.graph, run, begin, QNN, stage.source)
