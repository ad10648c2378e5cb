# SPDX-License-Identifier: Apache-2.0
"""QHAS: a profile as one page of tables, pies, a timeline and a graph, and in sentences why it takes its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hexforge import amounts
from hexforge.addons.profiler.before_and_after import comparison_section
from hexforge.addons.profiler.profile_text import average
from hexforge.addons.profiler.record import DMA, HMX, HVX, MEASURED, SERVICE, GraphProfile, Profile, ProfiledRun
from hexforge.addons.profiler.summary import summary
from hexforge.addons.profiler.verdict import PRIORITIES, dominant_path, findings, priority
from hexforge.addons.tuning.advice.result import Advice
from hexforge.report.graph import MOST_NODES, GraphNode, GraphPicture, box_positions
from hexforge.report.page import SIMULATED, assemble_page
from hexforge.report.section import Bars, Column, Figure, Figures, Section, Step, Steps, Table

SCRIPTS = ("draw.js", "shell.js", "pie.js", "table.js", "charts.js", "graph.js", "paint.js", "timeline.js", "qhas.js")
MEASURED_HERE = "Measured by hexforge on this computer; a cycle is a nanosecond."
FIGURES = (
    Column("cycles", "number", 0, "sum", about="Of the main thread"),
    Column("share", "share", 1, "sum", about="Of the critical path, waits included"),
    Column("wait", "number", 0, "sum", about="Cycles that the main thread waits for it to go on", key="wait_cycles"),
    Column(
        "overlap", "number", 0, "sum", about="Of its cycles, while something is at work that nobody waits for",
        key="overlap_cycles",
    ),
    Column("HMX µs", "number", 2, "sum", about="The matrix unit at work", key="hmx_us"),
    Column("HVX µs", "number", 2, "sum", about="The vector units at work", key="hvx_us"),
    Column("DMA µs", "number", 2, "sum", about="Transfers for it", key="dma_us"),
    Column("DRAM read", "bytes", total="sum", key="dram_read_bytes"),
    Column("DRAM write", "bytes", total="sum", key="dram_write_bytes"),
    Column("MACs", "number", 0, "sum", about="Multiply-accumulates", key="macs"),
)  # fmt: skip
TYPES = (Column("type", about="QNN op"), Column("ops", "number", 0, "sum", key="count"), *FIGURES)
OPS = (
    Column("QNN op", key="qnn_op"),
    Column("type", choose=True),
    Column("framework ops", about="The model's own nodes", of=lambda row: ", ".join(row["framework_ops"])),
    Column("start µs", "number", 2, key="start_us"),
    Column("µs", "number", 2, "sum", about="Cycles and waits by the clock", key="us"),
    *FIGURES,
    Column("resources", of=lambda row: ", ".join(row["resources"])),
    Column("result"),
)
_ACTIVITY = (
    Column("HTP op"),
    Column("QNN op"),
    Column("unit", choose=True),
    Column("start µs", "number", 3),
    Column("µs", "number", 3, "sum"),
    Column("cycles", "number", 0, "sum"),
)
HTP_OPS = (*_ACTIVITY, Column("bytes", "bytes", total="sum"))
DOMINANT = (*_ACTIVITY[:2], Column("priority", choose=True), *_ACTIVITY[3:])
SERVICES = (
    Column("service"), Column("count", "number", 0, "sum"), Column("µs", "number", 2, "sum", key="us"),
    Column("bytes", "bytes", total="sum"),
)  # fmt: skip
_LANES = {HMX: "--hmx", HVX: "--hvx", DMA: "--dma", SERVICE: "--overhead", "CPU": "--hmx", "GPU": "--hvx"}


def qhas_page(
    profile: Profile,
    *,
    advice: Sequence[Advice] = (),
    before: Profile | None = None,
    graph: GraphProfile | None = None,
    advised: bool = True,
) -> str:
    """The page of one graph's runs, the first unless another is given; with `before` it is compared to that profile.

    `advised` says whether advice was asked for: then there may also be none.
    """
    chosen = graph if graph is not None else profile.graphs[0]
    run = average(chosen)
    content = summary(profile, chosen)
    starts: dict[int, float] = {}
    for a in run.activities:
        if a.unit != DMA:
            starts.setdefault(a.op, a.start_us)
    lead = [_reasons(profile, chosen, run, advice, advised)]
    if before is not None:
        lead.append(comparison_section(before, profile))
    page = {
        "title": profile.model,
        "facts": _facts(profile, chosen, content),
        "lead": [section.to_json() for section in lead],
        "overall": [part.to_json() for part in _overall(content)],
        "timeline": _timeline(chosen, run),
        "types": _filtered(Table.of(TYPES, content["qnn_op_types"], sort=2)),
        "ops": _filtered(Table.of(OPS, _timed_ops(content, starts, chosen))),
        "sources": [row["framework_ops"] for row in content["qnn_ops"]],
        "htp": _filtered(Table(HTP_OPS, [])),
        "dominant": _filtered(Table(DOMINANT, [])),
        "priorities": list(PRIORITIES),
        "services": Table.of(SERVICES, content["system_services"], sort=2).to_json(),
        "graph": _graph(chosen, run),
        "sections": [],
    }
    title = f"{profile.model} on {chosen.chip}: {run.netrun_us / 1e3:.3f} ms"
    return assemble_page(title, page, SCRIPTS, MEASURED_HERE if profile.source == MEASURED else SIMULATED)


def _filtered(table: Table) -> dict[str, Any]:
    return table.to_json() | {"filters": True, "pies": True}


def _timed_ops(content: dict[str, Any], starts: dict[int, float], graph: GraphProfile) -> list[dict[str, Any]]:
    """The ops of a summary with when each starts and how long it takes."""
    clock = graph.clock_mhz or math.inf
    return [
        {**row, "start_us": starts.get(place), "us": (row["cycles"] + row["wait_cycles"]) / clock}
        for place, row in enumerate(content["qnn_ops"])
    ]


def _facts(profile: Profile, graph: GraphProfile, content: dict[str, Any]) -> list[list[str]]:
    return [
        ["chip", graph.chip],
        ["backend", graph.backend],
        ["graph", graph.name],
        ["level", profile.level],
        ["times", profile.source],
        ["clock", f"{graph.clock_mhz:.0f} MHz"],
        ["runs", str(content["htp_overall_summary"]["runs"])],
        *([["left to the CPU", f"{profile.left_out} nodes, not in the times"]] if profile.left_out else []),
    ]


def _reasons(
    profile: Profile, graph: GraphProfile, run: ProfiledRun, advice: Sequence[Advice], advised: bool
) -> Section:
    """What bounds the model, and what to try, at the top of the page."""
    listed = findings(profile, graph, run)
    share = f"{100 * run.accelerator_us / run.netrun_us:.0f} % of it" if run.netrun_us else ""
    figures = [
        Figure("one inference", amounts.time(run.netrun_us), "as the application sees it"),
        Figure("accelerator", amounts.time(run.accelerator_us), share),
        Figure("critical path", f"{run.critical_cycles:,}", "cycles of the main thread"),
    ]
    reasons = [
        Step(f.title, f"{100 * f.share:.0f} %", f.text, f"Try: {f.try_this}" + _where(graph, f.ops)) for f in listed
    ]
    parts: list[Any] = [
        Figures(figures, f"{listed[0].title}: {100 * listed[0].share:.0f} %." if listed else ""),
        Steps(reasons, "What bounds it", "Nothing stands out."),
    ]
    if advised:
        steps = [
            Step(
                a.title,
                f"{100 * a.gain:.0f} % faster",
                a.why,
                f"{a.how} ({', '.join(a.nodes[:4])})" if a.nodes else a.how,
            )
            for a in advice
        ]
        parts.append(Steps(steps, "What was tried, and what it gains", "No rewrite that was tried gains 1 % or more."))
    return Section("Why it takes this long", parts)


def _where(graph: GraphProfile, ops: Sequence[int]) -> str:
    names = [graph.ops[i].name for i in ops if graph.ops[i].name]
    return f" ({', '.join(names)})" if names else ""


def _overall(content: dict[str, Any]) -> list[Any]:
    overall = content["htp_overall_summary"]
    shown = {
        "NetRun": amounts.time(overall["netrun_us"]),
        "RPC (execute) time": amounts.time(overall["rpc_us"]),
        "QNN accelerator (execute) time": amounts.time(overall["accelerator_us"]),
        "Critical path": f"{overall['critical_path_cycles']:,} cycles",
        "Executing": f"{overall['execute_cycles']:,} cycles",
        "Waiting": f"{overall['wait_cycles']:,} cycles",
        "Overlap": f"{overall['overlap_cycles']:,} cycles",
        "Clock": f"{overall['clock_mhz']:,.1f} MHz",
        "HVX threads": str(overall["hvx_threads"]),
        "QNN ops": f"{overall['qnn_ops']:,}",
        "HTP ops": f"{overall['htp_ops']:,}",
        "MACs": f"{overall['macs']:,}",
        "DRAM read": amounts.size(overall["dram_read_bytes"]),
        "DRAM written": amounts.size(overall["dram_write_bytes"]),
        "VTCM peak": f"{amounts.size(overall['vtcm_peak_bytes'])} of {amounts.size(overall['vtcm_bytes'])}",
        "Yields": str(overall["yields"]),
        "Initial VTCM acquire": amounts.time(overall["vtcm_acquire_us"]),
        "HVX + HMX power on": amounts.time(overall["power_us"]),
    }
    half = (len(shown) + 1) // 2
    rows = list(shown.items())
    columns = (Column("figure"), Column("value"))
    busy = [(unit, overall[f"{unit.lower()}_us"]) for unit in (HMX, HVX, DMA)]
    bars = Bars([unit for unit, _ in busy], [us for _, us in busy], "µs", "Units at work")
    tables = [Table(columns, part, narrow=True) for part in (rows[:half], rows[half:])]
    return [*tables, *([bars] if any(us for _, us in busy) else [])]


def _timeline(graph: GraphProfile, run: ProfiledRun) -> dict[str, Any]:
    used = [unit for unit in _LANES if any(a.unit == unit for a in run.activities)] or [HMX, HVX, DMA]
    kinds = list(dict.fromkeys(a.name for a in run.activities))
    number, lane = {name: i for i, name in enumerate(kinds)}, {unit: i for i, unit in enumerate(used)}
    before = max(0.0, run.netrun_us - run.accelerator_us) / 2
    shown = [a for a in run.activities if a.unit in lane]
    path = dominant_path(run.activities)
    acts = [run.activities[p.activity] for p in path]
    series = {track.name: track for track in run.counters}

    def steps(*names: str) -> list[list[float]]:
        points = sorted(
            (at, value)
            for name in names
            if name in series
            for at, value in zip(series[name].at_us, series[name].values, strict=True)
        )
        return [[round(at, 4) for at, _ in points], [round(value, 3) for _, value in points]]

    return {
        "lanes": [*([unit, _LANES[unit]] for unit in used), ["dominant", ""], ["host", "--rpc"]],
        "before": before,
        "accelerator": run.accelerator_us,
        "whole": run.accelerator_us + 2 * before,
        "mhz": graph.clock_mhz,
        "names": [op.label for op in graph.ops],
        "fused": [[] for _ in graph.ops],
        "units": used,
        "kinds": kinds,
        "events": {
            "unit": [lane[a.unit] for a in shown],
            "row": [a.op for a in shown],
            "kind": [number[a.name] for a in shown],
            "start": [round(a.start_us, 4) for a in shown],
            "us": [round(a.us, 4) for a in shown],
            "bytes": [a.bytes for a in shown],
        },
        "critical": {
            "unit": [lane.get(a.unit, 0) for a in acts],
            "row": [a.op for a in acts],
            "kind": [number[a.name] for a in acts],
            "priority": [priority(a) for a in acts],
            "start": [round(p.start_us, 4) for p in path],
            "us": [round(p.us, 4) for p in path],
            "bytes": [a.bytes for a in acts],
        },
        "host": [["call", 0.0, before], ["return", before + run.accelerator_us, before]],
        "vtcm": steps("VTCM alloc"),
        "vtcm_limit": graph.vtcm_bytes or 1,
        "dram": steps("DRAM read"),
    }


def _graph(graph: GraphProfile, run: ProfiledRun) -> dict[str, Any] | None:
    """The picture of the network's ops; None of more than anybody could read."""
    if not run.costs or not 1 < len(graph.ops) <= MOST_NODES:
        return None
    reads = [set(op.reads) for op in graph.ops]
    places = box_positions(reads)
    us = [(c.cycles + c.wait) / (graph.clock_mhz or 1.0) for c in run.costs]
    nodes = [
        GraphNode(op.name or op.label, op.type, us[i], None, i, *places[i])
        for i, op in enumerate(graph.ops)
        if op.type != "Start"
    ]
    at = {node.row: k for k, node in enumerate(nodes)}
    edges = sorted((at[r], at[i]) for i, mine in enumerate(reads) for r in mine if i in at and r in at)
    return GraphPicture(nodes, edges).to_json()
