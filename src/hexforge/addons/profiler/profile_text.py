# SPDX-License-Identifier: Apache-2.0
"""A profile as qnn-profile-viewer prints it, every run by itself or their average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hexforge.addons.profiler.linting import (
    ACCELERATOR,
    AVERAGE,
    CRITICAL,
    CYCLES,
    POWER,
    RPC,
    VTCM,
    YIELDS,
    ExecutionReport,
    LintedOp,
)
from hexforge.addons.profiler.record import LEVELS, GraphProfile, OpCost, Profile, ProfiledRun
from hexforge.errors import CallError


def reports(profile: Profile) -> list[ExecutionReport]:
    """Every run by itself, as libQnnHtpProfilingReader shows them."""
    return [
        execution_report(graph, run, profile.level, _title(graph, number, profile))
        for graph in profile.graphs
        for number, run in enumerate(graph.runs, 1)
    ]


def average_reports(profile: Profile) -> list[ExecutionReport]:
    """The average of each graph's runs, as libQnnChrometraceProfilingReader shows it."""
    several = len(profile.graphs) > 1
    return [
        execution_report(g, average(g), profile.level, f"{AVERAGE}, {g.name}" if several else AVERAGE)
        for g in profile.graphs
        if g.runs
    ]


def heap_lines(profile: Profile) -> list[str]:
    """What the DSP's heap had before the first context and after the last, where that was profiled."""
    return [f"{event.name}: {event.value}  bytes" for event in profile.events if event.name.startswith("DSP:")]


def _title(graph: GraphProfile, number: int, profile: Profile) -> str:
    name = f", {graph.name}" if len(profile.graphs) > 1 else ""
    return f"Run {number} of {len(graph.runs)}{name}"


def average(graph: GraphProfile) -> ProfiledRun:
    """The mean of a graph's runs; values that are no numbers are taken from the first run."""
    runs = graph.runs
    if not runs:
        raise CallError(f"graph {graph.name!r} was never run: there is nothing to average")
    if len(runs) == 1:
        return runs[0]

    def mean(numbers: Sequence[float]) -> float:
        return math.fsum(numbers) / len(numbers)

    costs = tuple(_mean_cost(same_op) for same_op in zip(*(run.costs for run in runs), strict=True))
    critical = sum(c.cycles + c.wait for c in costs) if costs else round(mean([r.critical_cycles for r in runs]))
    return replace(
        runs[0],
        netrun_us=mean([r.netrun_us for r in runs]),
        rpc_us=mean([r.rpc_us for r in runs]),
        accelerator_us=mean([r.accelerator_us for r in runs]),
        critical_cycles=critical,
        yields=round(mean([r.yields for r in runs])),
        vtcm_acquire_us=mean([r.vtcm_acquire_us for r in runs]),
        power_us=mean([r.power_us for r in runs]),
        costs=costs,
    )


def _mean_cost(costs: Sequence[OpCost]) -> OpCost:
    count = len(costs)
    cycles, wait = round(sum(c.cycles for c in costs) / count), round(sum(c.wait for c in costs) / count)
    return replace(
        costs[0],
        cycles=cycles,
        wait=wait,
        overlap=min(cycles, round(sum(c.overlap for c in costs) / count)),
        overlap_wait=min(wait, round(sum(c.overlap_wait for c in costs) / count)),
    )


def execution_report(graph: GraphProfile, run: ProfiledRun, level: str, title: str = AVERAGE) -> ExecutionReport:
    """One run as its level shows it: the call, the cycles of each op, what went on beside it."""
    accelerator = round(run.accelerator_us)
    rpc = max(accelerator + 1, round(run.rpc_us))
    netrun = max(rpc + 1, round(run.netrun_us))
    linted = LEVELS.index(level) >= LEVELS.index("linting")
    figures = [
        (RPC, rpc, "us"),
        (ACCELERATOR, accelerator, "us"),
        (YIELDS, run.yields, "count"),
        (VTCM, round(run.vtcm_acquire_us), "us"),
        (POWER, round(run.power_us), "us"),
    ]
    if run.critical_cycles:
        figures.append((CRITICAL if linted else CYCLES, run.critical_cycles, "cycles"))
    labels = [op.label for op in graph.ops]
    ops = [_lint_lines(labels, i, cost, linted) for i, cost in enumerate(run.costs)]
    return ExecutionReport(title, netrun, tuple(figures), tuple(ops))


def _lint_lines(labels: Sequence[str], place: int, cost: OpCost, linted: bool) -> LintedOp:
    if not linted:
        return LintedOp(labels[place], cost.cycles)
    return LintedOp(
        labels[place],
        cost.cycles,
        cost.wait,
        cost.overlap,
        tuple(labels[b] for b in cost.beside) if cost.overlap else (),
        cost.overlap_wait,
        tuple(labels[b] for b in cost.beside_wait) if cost.overlap_wait else (),
        cost.resources,
    )
