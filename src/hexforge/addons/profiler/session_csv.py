# SPDX-License-Identifier: Apache-2.0
"""The CSV that the QNN execution provider writes profiling events to, column by column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from hexforge.addons.profiler.record import GraphProfile, HostEvent, ProfiledRun
from hexforge.errors import CallError

HEADER = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier"
SOURCES = "ONNX Source Ops"
SEPARATOR = ";"
"""Between the model's nodes that an op came from."""


def header(sources: bool) -> str:
    """The first line."""
    return f"{HEADER},{SOURCES}\n" if sources else f"{HEADER}\n"


def check_appendable(path: Path, sources: bool) -> bool:
    """True where a file is there that rows can be added to; CallError where it is something else."""
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline()
    except FileNotFoundError:
        return False
    except UnicodeDecodeError:
        first = "?"
    if first and first != header(sources):
        raise CallError(f"profiling_file_path={path}: is there and is no CSV with these columns; name another file")
    return bool(first)


def rows(events: Iterable[HostEvent], sources: bool = False) -> str:
    """The CSV lines of events; `run_rows` adds the sources of a profile's ops."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    for event in events:
        write([*_cells(event), *([""] if sources else [])])
    return out.getvalue()


def _cells(event: HostEvent) -> list[object]:
    level = "ROOT" if event.root else "SUB-EVENT"
    return [event.timestamp_us, event.message, event.value, event.unit, "BACKEND", level, event.name or "NULL"]


def run_rows(graph: GraphProfile, run: ProfiledRun, level: str, sources: bool = False) -> str:
    """The lines of one run: the call's figures, then each op's as its level has them."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    empty = [""] if sources else []
    for event in run_events(run):
        write([*_cells(event), *empty])
        if event.unit != "CYCLES":
            continue
        for op, cost in zip(graph.ops, run.costs, strict=False):
            node = HostEvent("NODE", f"{op.label} (cycles)", cost.cycles, "CYCLES", timestamp_us=run.timestamp_us)
            write([*_cells(node), *([SEPARATOR.join(op.sources)] if sources else [])])
            if level in ("basic", "detailed"):
                continue
            for name, cycles in (
                ("Wait (Scheduler) time", cost.wait),
                ("Overlap time", cost.overlap),
                ("Overlap (wait) time", cost.overlap_wait),
            ):
                write([*_cells(HostEvent("NODE", name, cycles, "CYCLES", timestamp_us=run.timestamp_us)), *empty])
    return out.getvalue()


def run_events(run: ProfiledRun) -> list[HostEvent]:
    """The figures of a run as QNN's events, in its order."""
    at = run.timestamp_us
    accelerator = round(run.accelerator_us)
    rpc = max(accelerator + 1, round(run.rpc_us))
    figures = [
        ("BACKEND", "Number of HVX threads used", run.hvx_threads, "COUNT"),
        ("BACKEND", "RPC (execute) time", rpc, "US"),
        ("BACKEND", "QNN accelerator (execute) time", accelerator, "US"),
        ("BACKEND", "Num times yield occured", run.yields, "COUNT"),
        ("BACKEND", "Time for initial VTCM acquire", round(run.vtcm_acquire_us), "US"),
        ("BACKEND", "Time for HVX + HMX power on and acquire", round(run.power_us), "US"),
        ("BACKEND", "Accelerator (execute) time (cycles)", run.critical_cycles, "CYCLES"),
        ("EXECUTE DEVICE", "Accelerator (execute) time", accelerator, "US"),
        ("EXECUTE", "QNN (execute) time", max(rpc + 1, round(run.netrun_us)), "US"),
    ]
    return [HostEvent(message, name, value, unit, True, at) for message, name, value, unit in figures]
