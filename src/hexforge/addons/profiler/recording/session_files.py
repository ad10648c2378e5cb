# SPDX-License-Identifier: Apache-2.0
"""ProfileFiles: the CSV, the log and the schematics that profiling_level has a session write."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hexforge.addons.profiler import log, session_csv
from hexforge.addons.profiler.record import LEVELS, SIMULATED, HostEvent, Profile, ProfiledRun
from hexforge.addons.profiler.recording.stage import StageProfile, profiled_stages
from hexforge.backend import Backend
from hexforge.errors import CallError
from hexforge.formats.files import file_names, write_atomically
from hexforge.ort.options.running_power import RunningPower
from hexforge.runtime.stages import Stage

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
