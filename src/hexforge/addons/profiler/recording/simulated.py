# SPDX-License-Identifier: Apache-2.0
"""Simulated profiles: what a chip's timeline says of a model's graphs, as a record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from hexforge.addons.device.scheduling.concurrent import ConcurrentRun, simulate_estimates
from hexforge.addons.profiler.record import (
    LEFT_OUT,
    LEVELS,
    SIMULATED,
    GraphProfile,
    HostEvent,
    OpCost,
    Profile,
    ProfiledRun,
    RunSpan,
)
from hexforge.addons.profiler.recording.graph_json import graph_ops
from hexforge.addons.profiler.recording.main_thread import main_thread
from hexforge.addons.profiler.recording.services import activities, counters
from hexforge.addons.profiler.recording.timing_options import options_of
from hexforge.analysis.estimate import Estimate, estimate
from hexforge.analysis.in_turn import with_waits
from hexforge.analysis.timed_graphs import TimedGraphs, timed_graphs
from hexforge.chips.deployment import AS_IS, Deployment
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError
from hexforge.ir import Graph, text
from hexforge.options import did_you_mean
from hexforge.runtime.prepare import ModelRequest
from hexforge.timeline import Timeline

if TYPE_CHECKING:
    from hexforge.backend import Program
    from hexforge.model.reader import Model
    from hexforge.model.source import ModelSource

RUNTRACES, YIELDS = "Runtraces", "Yields"
OPTRACE = LEVELS[-1]


SAVE, ACQUIRE, RESTORE = "save VTCM", "re-acquire", "restore VTCM"
POWER_ON = "power on and acquire HVX and HMX"


@dataclass(frozen=True, slots=True)
class CoRunning:
    """A model that runs on the chip meanwhile."""

    model: ModelSource | TimedGraphs
    priority: str = "normal"


def require_profile_level(level: str) -> str:
    """A level of profiling; CallError for another."""
    if level not in LEVELS:
        raise CallError(f"level {level!r} is not known; it is one of {', '.join(LEVELS)}{did_you_mean(level, LEVELS)}")
    return level


def profile(
    model: ModelSource | Model | Graph | Program | TimedGraphs,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    *,
    level: str = OPTRACE,
    runs: int = 1,
    priority: str = "normal",
    co_running: Sequence[CoRunning] = (),
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Profile:
    """What runs of a model do on a chip: of a model file, a context, a QNN graph or a compiled program."""
    require_profile_level(level)
    if runs < 1:
        raise CallError(f"runs {runs}: a profile is of 1 or more")
    chosen = Deployment.of(deployment)
    began = time.monotonic_ns()
    timed = timed_graphs(model, chosen, ModelRequest(dims, shapes))
    estimates = [estimate(replace(timed, graphs=(graph,)), chosen, cpu_part=False) for graph in timed.graphs]
    lines = with_waits([e.timeline for e in estimates], chosen.driven)
    prepared_us = (time.monotonic_ns() - began) // 1000
    timed_at = AS_IS if timed.built else chosen.precision
    graphs = [
        graph_profile(graph, line, level, replace(e.deployment, precision=timed_at))
        for graph, line, e in zip(timed.graphs, lines, estimates, strict=True)
    ]
    if co_running:
        graphs[0] = _run_among_others(graphs[0], estimates[0], priority, co_running)
    graphs = [replace(graph, runs=graph.runs * runs) for graph in graphs]
    return profile_of_graphs(timed.name, level, graphs, int(prepared_us), len(timed.left_on_cpu))


def profile_of_graphs(
    name: str, level: str, graphs: Sequence[GraphProfile], prepared_us: int, left_out: int = 0
) -> Profile:
    """A simulated profile of graphs whose runs begin now and follow each other."""
    start = time.time_ns() // 1000
    made = []
    for graph in graphs:
        stamps = accumulate((run.netrun_us for run in graph.runs), initial=0.0)
        runs = zip(graph.runs, stamps, strict=False)
        made.append(replace(graph, runs=tuple(replace(run, timestamp_us=start + round(us)) for run, us in runs)))
    events = [HostEvent("FINALIZE", "QNN (finalize) time", prepared_us, root=True, timestamp_us=start)]
    if left_out:
        events.append(HostEvent("BACKEND", LEFT_OUT, left_out, "COUNT", True, start))
    return Profile(name, level, SIMULATED, tuple(made), tuple(events))


def graph_profile(graph: Graph, line: Timeline, level: str, deployment: Deployment) -> GraphProfile:
    """A graph with one run of it, timed under a deployment."""
    ops = graph_ops(graph)
    costs = main_thread(line, ops)
    critical = sum(cost.cycles + cost.wait for cost in costs)
    power = deployment.driven  # of the waits the core's is a part of the accelerator's call, the CPU's of the RPC
    cpu_us = min(line.wait_us, power.cpu_wake_us(line.accelerator_us))
    core_us = max(0.0, line.wait_us - cpu_us - 2 * power.vote_us)
    rpc = max(line.accelerator_us + line.rpc_us + core_us + cpu_us, line.accelerator_us)  # also where that is rounded
    run = ProfiledRun(
        timestamp_us=0,
        netrun_us=max(line.latency_us, rpc),
        rpc_us=rpc,
        accelerator_us=line.accelerator_us,
        critical_cycles=critical,
        power_us=core_us,
        hvx_threads=line.hvx_threads,
        spans=_run_alone(graph.name, line.accelerator_us, core_us),
    )
    if level != LEVELS[0]:
        run = replace(run, costs=tuple(costs if level != LEVELS[1] else (OpCost(c.cycles, c.wait) for c in costs)))
    if level == OPTRACE:
        acts = activities(line, ops)
        cores = deployment.config.num_cores
        run = replace(run, activities=tuple(acts), counters=tuple(counters(line, ops, acts, cores)))
    shown = ops.ops if level != LEVELS[0] else ()
    vtcm_bytes = deployment.config.vtcm_bytes or require_chip(deployment.soc).vtcm_mb << 20
    return GraphProfile(
        graph.name, "htp", deployment.soc, line.core_mhz, vtcm_bytes, shown, (run,),
        options_of(deployment, line.batch), text.dumps_without_weights(graph),
    )  # fmt: skip


def _run_alone(graph: str, accelerator_us: float, power_us: float) -> tuple[RunSpan, ...]:
    """A run that no other interrupts, on the accelerator's clock."""
    spans = [RunSpan(RUNTRACES, graph, "execute", 0.0, accelerator_us)]
    if power_us:
        spans.insert(0, RunSpan(RUNTRACES, graph, POWER_ON, -power_us, 0.0))
    return tuple(spans)


def _run_among_others(
    graph: GraphProfile, alone: Estimate, priority: str, co_running: Sequence[CoRunning]
) -> GraphProfile:
    """The graph's first inference among others: when it ran, gave way, and was restored."""
    others = [estimate(n.model, alone.deployment, threads=alone.threads, cpu_part=False) for n in co_running]
    shared = simulate_estimates([alone, *others], [priority, *(n.priority for n in co_running)])
    mine = shared.jobs[0]
    run = graph.runs[0]
    spans = _job_spans(shared, mine.name, graph.name, 0)
    for job in shared.jobs[1:]:
        spans += _job_spans(shared, job.name, job.name, None)
    yields = sum(s.name == mine.name and s.inference == 0 and s.kind == "yield" for s in shared.spans)
    longer = mine.latencies_us[0] - alone.timeline.latency_us
    run = replace(
        run,
        netrun_us=run.netrun_us + longer,
        rpc_us=run.rpc_us + longer,
        yields=yields,
        spans=tuple(sorted(spans, key=lambda s: (s.start_us, s.lane))),
    )
    return replace(graph, runs=(run,))


def _job_spans(shared: ConcurrentRun, job: str, graph: str, inference: int | None) -> list[RunSpan]:
    """What a job did on the accelerator: its runs, and from each yield to its being restored."""
    spans: list[RunSpan] = []
    saved: float | None = None
    for span in shared.spans:
        if span.name != job or span.unit == "host" or (inference is not None and span.inference != inference):
            continue
        if span.kind in ("yield", "save"):
            spans.append(RunSpan(YIELDS, graph, SAVE, span.start_us, span.end_us))
            saved = span.end_us
        elif span.kind == "wake":
            spans.append(RunSpan(RUNTRACES, graph, POWER_ON, span.start_us, span.end_us))
        elif span.kind == "restore":
            if saved is not None and span.start_us > saved:
                spans.append(RunSpan(YIELDS, graph, ACQUIRE, saved, span.start_us))
            spans.append(RunSpan(YIELDS, graph, RESTORE, span.start_us, span.end_us))
            saved = None
        else:
            last = spans[-1] if spans else None
            if last and last.lane == RUNTRACES and abs(last.end_us - span.start_us) < 1e-9:
                spans[-1] = replace(last, end_us=span.end_us)
            else:
                spans.append(RunSpan(RUNTRACES, graph, "execute", span.start_us, span.end_us))
    return spans
