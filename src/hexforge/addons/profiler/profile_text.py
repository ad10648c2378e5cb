# SPDX-License-Identifier: Apache-2.0
"""A profile as qnn-profile-viewer prints it: basic, detailed and linting, every run by itself or their average."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hexforge.addons.profiler.record import LEVELS, GraphProfile, OpCost, Profile, ProfiledRun
from hexforge.errors import CallError, FormatError

AVERAGE = "Average"
CRITICAL = "Accelerator (critical path execute) time (cycles)"
CYCLES = "Accelerator (execute) time (cycles)"
RPC, ACCELERATOR = "RPC (execute) time", "QNN accelerator (execute) time"
YIELDS = "Num times yield occured"  # as QNN spells it
VTCM, POWER = "Time for initial VTCM acquire", "Time for HVX + HMX power on and acquire"
_TITLE = re.compile(r"Execute Stats \((.+)\):")
_NETRUN = re.compile(r"NetRun:\s+(\d+) us")
_BACKEND = re.compile(r"Backend \((.+)\): (\d+)\s+(us|count|cycles)")
_OP = re.compile(r"(.*?OpId_\d+) \(cycles\): (\d+)\s+cycles")
_ENTRY = re.compile(r"(Wait \(Scheduler\)|Overlap|Overlap \(wait\)) time: (\d+)\s+cycles")
_RESOURCES = re.compile(r"Resources:\s*((?:\w+(?:, )?)*)")


@dataclass(frozen=True, slots=True)
class LintedOp:
    """An op's lines in the report."""

    label: str
    cycles: int
    wait: int | None = None
    """None where the report is detailed and not linting, as are all fields that follow."""
    overlap: int | None = None
    beside: tuple[str, ...] = ()
    overlap_wait: int | None = None
    beside_wait: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """An execution as text has it."""

    title: str
    """Average, or which run it is."""
    netrun_us: int
    backend: tuple[tuple[str, int, str], ...]
    """Figures of the backend: name, value, unit."""
    ops: tuple[LintedOp, ...] = ()

    def figure(self, name: str) -> int | None:
        """A figure of the backend by its name."""
        return next((value for figure_name, value, _ in self.backend if figure_name == name), None)

    def __str__(self) -> str:
        return "\n".join(_lines(self)) + "\n"


def _lines(report: ExecutionReport) -> Iterator[str]:
    title = f"Execute Stats ({report.title}):"
    yield from (title, "-" * len(title), "Total Inference Time:", "-" * 21, f"   NetRun:  {report.netrun_us} us")
    for name, value, unit in report.backend:
        yield f"   Backend ({name}): {value}  {unit}"
    for op in report.ops:
        yield f"      {op.label} (cycles): {op.cycles}  cycles"
        if op.wait is None:
            continue
        yield f"            Wait (Scheduler) time: {op.wait}  cycles"
        yield f"            Overlap time: {op.overlap}  cycles"
        yield from (f"               {name}" for name in op.beside)
        yield f"            Overlap (wait) time: {op.overlap_wait}  cycles"
        yield from (f"               {name}" for name in op.beside_wait)
        yield f"            Resources: {', '.join(op.resources)}".rstrip()


def parse(text: str, where: str = "report") -> ExecutionReport:
    """The report of a text; FormatError naming the line that is none of its lines."""
    reports = parse_all(text, where)
    if len(reports) != 1:
        raise FormatError(f"{where}: has {len(reports)} reports where one is expected")
    return reports[0]


def parse_all(text: str, where: str = "report") -> list[ExecutionReport]:
    """Every report in a text; other lines may only come before the first."""
    reports: list[ExecutionReport] = []
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    starts = [k for k, (_, line) in enumerate(lines) if _TITLE.fullmatch(line)]
    for start, end in pairwise([*starts, len(lines)]):
        reports.append(_report(lines[start:end], where))
    return reports


def _report(lines: Sequence[tuple[int, str]], where: str) -> ExecutionReport:
    title = _TITLE.fullmatch(lines[0][1])
    assert title is not None
    netrun: int | None = None
    backend: list[tuple[str, int, str]] = []
    ops: list[LintedOp] = []
    fields: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    label, entry, resources = "", "", None

    def close() -> None:
        if not label:
            return
        linted = entry != ""
        if linted and (resources is None or fields.keys() != {"cycles", *_FIELDS.values()}):
            raise FormatError(f"{where}: {label}: its wait, overlaps or resources are missing")
        ops.append(
            LintedOp(
                label, fields["cycles"], fields.get("wait"), fields.get("overlap"), tuple(names.get("overlap", ())),
                fields.get("overlap_wait"), tuple(names.get("overlap_wait", ())), resources or (),
            )
        )  # fmt: skip

    for number, line in lines[1:]:
        if line == "Total Inference Time:" or not line.strip("-"):
            continue
        if match := _NETRUN.fullmatch(line):
            netrun = int(match[1])
        elif match := _BACKEND.fullmatch(line):
            backend.append((match[1], int(match[2]), match[3]))
        elif match := _OP.fullmatch(line):
            close()
            label, entry, resources = match[1], "", None
            fields, names = {"cycles": int(match[2])}, {}
        elif label and (match := _ENTRY.fullmatch(line)):
            entry = _FIELDS[match[1]]
            fields[entry] = int(match[2])
        elif label and entry and (match := _RESOURCES.fullmatch(line)):
            resources = tuple(match[1].split(", ")) if match[1] else ()
        elif label and entry in ("overlap", "overlap_wait") and resources is None and "OpId_" in line:
            names.setdefault(entry, []).append(line)
        else:
            raise FormatError(f"{where}: line {number} is no line of a report: {line[:80]!r}")
    close()
    if netrun is None:
        raise FormatError(f"{where}: has no NetRun line")
    return ExecutionReport(title[1], netrun, tuple(backend), tuple(ops))


_FIELDS = {"Wait (Scheduler)": "wait", "Overlap": "overlap", "Overlap (wait)": "overlap_wait"}


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
