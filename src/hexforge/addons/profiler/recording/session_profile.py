# SPDX-License-Identifier: Apache-2.0
"""Profiled session: what a session writes of its runs: onnxruntime's own trace, and the files of profiling_level."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hexforge.addons.profiler import log, session_csv
from hexforge.addons.profiler.record import (
    INPUT,
    LEVELS,
    OUTPUT,
    SIMULATED,
    GraphProfile,
    HostEvent,
    Profile,
    ProfiledRun,
)
from hexforge.addons.profiler.recording.stage import StageProfile, profiled_stages
from hexforge.backend import Backend, timed_kernels
from hexforge.chrome_trace import ChromeTrace
from hexforge.errors import CallError
from hexforge.formats.files import file_names, write_atomically
from hexforge.ort.observed_runs import SessionRecord
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.ort.options.running_power import RunningPower
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import Stage, Stages

_MARK = "\0"
"""Where a line's time goes in the text of runs that are all the same."""


class ProfileFiles:
    """Files that each run of a session adds to; every addition is one write."""

    def __init__(
        self,
        path: Path,
        level: str,
        sources: bool,
        stages: Sequence[Stage],
        backend: Backend,
        running: RunningPower,
        note: Callable[[str], None],
    ) -> None:
        path = path.absolute()  # the process may go elsewhere before the session ends
        self._level, self._csv = level, path
        self._sources = sources and level != LEVELS[0]
        if not path.parent.is_dir():
            raise CallError(f"profiling_file_path={path}: there is no folder {path.parent}; make it, or name another")
        there = session_csv.check_appendable(path, self._sources)
        self.log_path = path.with_name(f"{path.stem}_qnn.log")
        self.stages = profiled_stages(stages, backend, level, running, note)
        self._numbers = {name: i for i, name in enumerate(self.stages)}
        self._runs = dict.fromkeys(self.stages, 0)
        self._texts: dict[tuple[str, tuple[float, ...]], str] = {}
        self._first: dict[str, tuple[float, ...]] = {}
        self._lock = threading.Lock()
        if not there:
            write_atomically(path, session_csv.header(self._sources).encode())

    def start(self, model: str, events: Sequence[HostEvent]) -> None:
        """Write what is known before the first run: how the graphs came to be, their ops, their schematics."""
        graphs = tuple(stage.graph for stage in self.stages.values())
        source = next((stage.source for stage in self.stages.values()), SIMULATED)
        log.write(self.log_path, Profile(model, self._level, source, graphs, tuple(events)))
        self._append(session_csv.rows(events, self._sources))
        if self._level == LEVELS[-1]:
            stems = file_names(graph.name for graph in graphs)
            for graph in graphs:
                one = Profile(model, self._level, source, (graph,))
                log.write(self._csv.with_name(f"{stems[graph.name]}_schematic.bin"), one)

    def add(self, stage: StageProfile, run: ProfiledRun) -> None:
        """One more run of a graph."""
        number = self._numbers[stage.name]
        same = run.netrun_us, run.rpc_us, run.accelerator_us, run.critical_cycles
        if stage.source == SIMULATED:
            if (stage.name, same) not in self._texts:
                text = session_csv.run_rows(stage.graph, run, self._level, self._sources)
                self._texts[stage.name, same] = _marked(text, run.timestamp_us)
            text = self._texts[stage.name, same].replace(_MARK, str(run.timestamp_us))
        else:
            text = session_csv.run_rows(stage.graph, run, self._level, self._sources)
        with self._lock:
            first = self._runs[stage.name] == 0
            self._runs[stage.name] += 1
            again = stage.source == SIMULATED and not first and self._first[stage.name] == same
            self._first.setdefault(stage.name, same)
            frame = log.repeated_run_frame(number, 0, run.timestamp_us) if again else log.run_frame(number, run)
            self._append(text)
            log.append(self.log_path, frame)

    def close(self, took_us: int) -> None:
        """The session ended, and freeing it took so long."""
        event = HostEvent("DE-INIT", "QNN (deinit) time", took_us, root=True, timestamp_us=time.time_ns() // 1000)
        self._append(session_csv.rows([event], self._sources))

    def _append(self, text: str) -> None:
        handle = os.open(self._csv, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)


def _marked(text: str, stamp: int) -> str:
    """Lines with a mark for the time they begin with."""
    start = f"{stamp},"
    return "".join(_MARK + line[len(start) - 1 :] if line.startswith(start) else line for line in text.splitlines(True))


class Trace:
    """Events of one session; written once, by `end`."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        self._path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        self._trace = ChromeTrace()
        self._lock = threading.Lock()
        self._open = True

    @contextmanager
    def span(self, category: str, name: str, **arguments: str) -> Iterator[None]:
        """Record how long the block takes."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            start_us = (begin - self.start_ns) // 1000
            self._add(category, name, start_us, start_us + (time.monotonic_ns() - begin) // 1000, arguments)

    def ops(self, graph: GraphProfile, run: ProfiledRun, begin_ns: int, provider: str, source: str) -> None:
        """A span for each op of a run that began then: by the chip's clock where that is simulated."""
        at = float((begin_ns - self.start_ns) // 1000)
        for index, (op, cost) in enumerate(zip(graph.ops, run.costs, strict=True)):
            at += cost.wait / graph.clock_mhz
            us = cost.cycles / graph.clock_mhz
            if op.name and op.id not in (INPUT, OUTPUT):
                clock = f"simulated {graph.chip}" if source == SIMULATED else "measured"
                arguments = {
                    "op_name": op.type, "provider": provider, "graph": graph.name, "node_index": str(index),
                    "cycles": str(cost.cycles), "clock": clock, "onnx_nodes": ", ".join(op.sources),
                }  # fmt: skip
                self._add("Node", f"{op.name}_kernel_time", at, at + us, arguments)
            at += us

    def _add(self, category: str, name: str, start_us: float, end_us: float, arguments: dict[str, str]) -> None:
        with self._lock:
            if self._open:
                self._trace.span(os.getpid(), threading.get_native_id(), name, start_us, end_us, arguments, category)

    def end(self) -> str:
        """Write the file and return its name; later events are dropped."""
        with self._lock:
            if self._open:
                self._open = False
                self._path.write_text(json.dumps(self._trace.events, indent=0), encoding="utf-8")
        return str(self._path)


OFF = "off"


def _finalize_steps(plan: Stages, took_us: int, timed_us: int) -> list[tuple[str, int]]:
    """What preparing graphs took here, by QNN's names for the steps and in their order.

    Nodes are read, placed and translated; passes run; graphs are lowered; and placed in VTCM, which is done for the
    profile and not for what computes here, so it is no part of the whole. QNN's others have nothing here.
    """
    return [
        ("Graph Preparation Initializing", max(0, took_us - plan.graphs_us - plan.programs_us)),
        ("Graph Optimizations", plan.graphs_us),
        ("Graph Sequencing for Target", plan.programs_us),
        ("VTCM Allocation", timed_us),
    ]


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
        stamp = time.time_ns() // 1000
        made = HostEvent(message, what, took_us, root=True, timestamp_us=stamp)
        if options.profiling_level != OFF:
            began = time.monotonic_ns()
            self._files = ProfileFiles(
                Path(options.profiling_file_path),
                options.profiling_level,
                options.enable_framework_op_trace,
                plan.stages,
                backend,
                self._power,
                note,
            )
            timed_us = (time.monotonic_ns() - began) // 1000
            steps = [] if loaded or options.profiling_level == LEVELS[0] else _finalize_steps(plan, took_us, timed_us)
            events = [HostEvent(message, step, us, timestamp_us=stamp) for step, us in steps]
            self._files.start(name, [*events, made])
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
