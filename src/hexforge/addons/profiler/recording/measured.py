# SPDX-License-Identifier: Apache-2.0
"""Measured profiles: kernels' real times on this computer as a record. A cycle is a nanosecond there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexforge.addons.profiler.record import LEVELS, Activity, GraphProfile, OpCost, ProfiledRun, RunSpan
from hexforge.addons.profiler.recording.graph_json import GraphOps, graph_ops
from hexforge.addons.profiler.recording.simulated import RUNTRACES
from hexforge.backend import KernelTime
from hexforge.ir import Graph

NANOSECONDS_MHZ = 1000.0
"""The clock whose cycles are nanoseconds."""


def measured_graph(graph: Graph, backend: str, level: str) -> tuple[GraphProfile, GraphOps]:
    """A graph that is run here, without its runs."""
    ops = graph_ops(graph)
    shown_ops = ops.ops if level != LEVELS[0] else ()
    return GraphProfile(graph.name, backend, "this computer", NANOSECONDS_MHZ, ops=shown_ops), ops


def measured_run(
    name: str, ops: GraphOps, times: Sequence[KernelTime], call_ns: int, program_ns: int, stamp_us: int, level: str
) -> ProfiledRun:
    """One run: what the call took, what the program took of it, and each kernel's part of that.

    What passes between two kernels is the wait of the later one, so that cycles and waits are the time from the first
    kernel's start to the last one's end.
    """
    first, last = (times[0].start_ns, max(t.end_ns for t in times)) if times else (0, 0)
    cycles, waits = [0] * len(ops.ops), [0] * len(ops.ops)
    units: dict[int, set[str]] = {}
    at = first
    activities = []
    for kernel in sorted(times, key=lambda t: t.start_ns):
        place = ops.places.get(kernel.node, 1)
        start = max(at, kernel.start_ns)
        waits[place] += start - at
        cycles[place] += max(0, kernel.end_ns - start)
        at = max(at, kernel.end_ns)
        units.setdefault(place, set()).add(kernel.unit)
        begin, end = (kernel.start_ns - first) / 1e3, (kernel.end_ns - first) / 1e3
        activities.append(Activity(kernel.unit, ops.ops[place].type, place, begin, end))
    whole = last - first
    run = ProfiledRun(
        stamp_us,
        netrun_us=max(call_ns, program_ns, whole) / 1e3,
        rpc_us=max(program_ns, whole) / 1e3,
        accelerator_us=whole / 1e3,
        critical_cycles=whole,
        spans=(RunSpan(RUNTRACES, name, "execute", 0.0, whole / 1e3),),
    )
    if level != LEVELS[0]:
        run = replace(
            run,
            costs=tuple(
                OpCost(c, w, resources=tuple(sorted(units.get(i, ()))))
                for i, (c, w) in enumerate(zip(cycles, waits, strict=True))
            ),
        )
    return replace(run, activities=tuple(activities)) if level == LEVELS[-1] else run
