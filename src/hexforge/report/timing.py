# SPDX-License-Identifier: Apache-2.0
"""Timing: an estimate as what the page shows, plain and ready for JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hexforge.analysis.estimate import Estimate
from hexforge.analysis.estimate_views import task_columns
from hexforge.report import formatting
from hexforge.report.section import Column, Table
from hexforge.results import select
from hexforge.timeline import UNITS, Event, Row, Timeline

TOP = 5

KINDS = (
    Column("op"),
    Column("tasks", "number", 0, "sum"),
    Column("µs", "number", 2, "sum"),
    Column("share", "share", 1, "sum", about="Of the accelerator's time"),
    Column("HMX µs", "number", 2, "sum"),
    Column("HVX µs", "number", 2, "sum"),
    Column("wait µs", "number", 2, "sum", about="Waits for DMA"),
)


def summary(estimate: Estimate) -> dict[str, Any]:
    """The figures at the top of the page."""
    line = estimate.timeline
    parts = time_spent(estimate)
    groups = {"host": sum(p["us"] for p in parts if p["key"] in ("rpc", "io", "wait"))}
    groups |= {p["key"]: p["us"] for p in parts if p["key"] in formatting.BOUND}
    most = max(groups, key=lambda key: groups[key])
    share = 100 * groups[most] / max(sum(groups.values()), 1e-9)
    energy, process = estimate.energy_uj, estimate.application_bytes
    return {
        "model": estimate.model,
        "facts": [
            ["chip", estimate.soc],
            ["precision", estimate.precision],
            ["runtime", estimate.runtime],
            ["performance mode", estimate.deployment.power.performance_mode],
            ["core clock", f"{line.core_mhz:.0f} MHz"],
            ["batch", str(line.batch)],
            ["threads", str(estimate.threads)],
            ["costs", estimate.provenance],
            *(
                [["energy (assumed)", f"{energy / 1e3:.3g} mJ, nothing of it is measured"]]
                if energy is not None
                else []
            ),
        ],
        "batch": line.batch,
        "latency_ms": estimate.latency_ms,
        "low_ms": estimate.low_ms,
        "high_ms": estimate.high_ms,
        "throughput": estimate.throughput,
        "partial": formatting.npu_part_only(estimate) if estimate.left_on_cpu else "",
        "whole": formatting.whole_time(estimate) if estimate.left_on_cpu else "",
        "factor": line.factor,
        "parts": parts,
        "memory": [
            {"name": "VTCM peak", "bytes": line.vtcm_peak_bytes, "of": line.vtcm_bytes, "about": "of its budget"},
            {"name": "DRAM traffic", "bytes": line.dram_bytes, "about": "moved in one inference"},
            {"name": "weights", "bytes": line.weight_bytes, "about": "as they lie on the chip"},
            {"name": "activations", "bytes": line.spill_bytes, "about": "to DRAM and back, where VTCM has no room"},
            {"name": "context", "bytes": line.context_bytes, "about": "the compiled file, about"},
            {
                "name": "on the device",
                "bytes": estimate.memory_bytes,
                "about": "context, spill-fill, inputs and outputs",
            },
            *(
                [{"name": "the process", "bytes": process, "about": "at most, on the host"}]
                if process is not None
                else []
            ),
        ],
        "bound": formatting.BOUND[most].format(share),
        "bottlenecks": bottlenecks(line),
        "critical": {"text": formatting.critical(line), "parts": _critical_parts(line)},
    }


def bottlenecks(line: Timeline) -> list[dict[str, Any]]:
    """What takes longest; the layers of a model repeat, so tasks of the same work count together."""
    same: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(line.rows):
        work = (row.op, row.bound, round(row.hmx_us, 3), round(row.hvx_us, 3), row.weight_bytes)
        same[work].append(i)
    groups = [sorted(group, key=lambda i: -line.rows[i].us) for group in same.values()]
    groups.sort(key=lambda group: -sum(line.rows[i].us for i in group))
    return [
        {
            "row": group[0],
            "name": line.rows[group[0]].name,
            "op": line.rows[group[0]].op,
            "text": formatting.bottleneck([line.rows[i] for i in group], line.accelerator_us or 1.0),
        }
        for group in groups[:TOP]
    ]


def _critical_parts(line: Timeline) -> list[dict[str, Any]]:
    return [
        {"key": unit.lower(), "name": unit, "us": us}
        for unit in UNITS
        if (us := sum(e.end_us - e.start_us for e in line.critical if e.unit == unit)) > 0
    ]


def time_spent(estimate: Estimate) -> list[dict[str, Any]]:
    """Where the latency goes: parts that add up to it."""
    line = estimate.timeline
    units: dict[str, float] = defaultdict(float)
    for row in line.rows:
        for key, us in split_by_unit(row).items():
            units[key] += us
    queue = estimate.latency_ms * 1e3 - line.latency_us
    parts = (
        ("hmx", "HMX", units["hmx"], "the matrix unit at work"),
        ("hvx", "HVX", units["hvx"], "the vector units at work"),
        ("dma", "DMA wait", units["dma"], "for weights and activations from DRAM"),
        ("overhead", "overhead", units["overhead"], "starting tasks"),
        ("rpc", "RPC", line.rpc_us, "the call to the accelerator and back"),
        ("io", "I/O", line.io_us, "inputs and outputs on the host"),
        ("wait", "wake-ups", line.wait_us, "clocks and cores that slept"),
        ("queue", "other threads", queue, "their calls on the accelerator"),
    )
    return [
        {"key": key, "name": name, "us": us, "about": about}
        for key, name, us, about in parts
        if us > 0 or key in ("hmx", "hvx", "dma", "rpc")
    ]


def split_by_unit(row: Row) -> dict[str, float]:
    """A task's time by unit; while HMX and HVX both work, the time counts to the one that works longer."""
    busy = max(0.0, row.us - row.wait_us)
    first, second = ("hmx", "hvx") if row.hmx_us >= row.hvx_us else ("hvx", "hmx")
    longer = min(busy, max(row.hmx_us, row.hvx_us))
    other = min(busy - longer, min(row.hmx_us, row.hvx_us))
    return {first: longer, second: other, "dma": row.wait_us, "overhead": busy - longer - other}


def timeline(line: Timeline) -> dict[str, Any]:
    """Lanes and graphs by columns: a page of 50,000 events stays small and quick to read."""
    before = line.host_us / 2  # as in Timeline.trace: half of a call is on the way there, half on the way back
    rows = _row_of(line)
    return {
        "before": before,
        "accelerator": line.accelerator_us,
        "whole": line.accelerator_us + line.host_us,
        "mhz": line.core_mhz,
        "names": [row.name for row in line.rows],
        "fused": [list(row.ops) if len(row.ops) > 1 else [] for row in line.rows],
        "units": list(UNITS),
        "events": _columns(line.events, rows(line.events)),
        "critical": _columns(merged := formatting.pieces(line.critical), rows(merged)),
        "host": [
            ["call: half of RPC, I/O and wake-ups", 0.0, before],
            ["return: half of RPC, I/O and wake-ups", before + line.accelerator_us, before],
        ],
        "vtcm": _steps(line.vtcm()),
        "vtcm_limit": line.vtcm_bytes,
        "dram": _steps(line.bandwidth()),
    }


def ops(line: Timeline) -> Table:
    """Every task, every figure of it."""
    name, op, *figures = select(task_columns(line))
    nodes = Column("nodes", "number", 0, "sum", about="QNN nodes that run as this task", of=lambda row: len(row.ops))
    return Table.of([name, op, nodes, *figures], line.rows)


def kinds(line: Timeline) -> Table:
    """The time of each type of op."""
    whole = line.accelerator_us or 1.0
    sums: dict[str, list[float]] = {}
    for row in line.rows:
        sums_of_op = sums.setdefault(row.op, [0, 0.0, 0.0, 0.0, 0.0])
        for k, amount in enumerate((1, row.us, row.hmx_us, row.hvx_us, row.wait_us)):
            sums_of_op[k] += amount
    rows = [(op, count, us, us / whole, hmx, hvx, wait) for op, (count, us, hmx, hvx, wait) in sums.items()]
    return Table(KINDS, rows, sort=2)


def _row_of(line: Timeline) -> Any:
    """Which row each event is of. A batch may run a task several times: its events are shared out in their order."""
    at: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(line.rows):
        at[row.name].append(i)

    def rows(events: Sequence[Event]) -> list[int]:
        count: dict[tuple[str, str], int] = defaultdict(int)
        for event in events:
            count[event.unit, event.name] += 1
        seen: dict[tuple[str, str], int] = defaultdict(int)
        rows_of = []
        for event in events:
            key, mine = (event.unit, event.name), at[event.name]
            rows_of.append(mine[seen[key] * len(mine) // count[key]])
            seen[key] += 1
        return rows_of

    return rows


def _columns(events: Sequence[Event], rows: Sequence[int]) -> dict[str, list[Any]]:
    order = sorted(range(len(events)), key=lambda i: events[i].start_us)
    return {
        "unit": [UNITS.index(events[i].unit) for i in order],
        "row": [rows[i] for i in order],
        "start": [round(events[i].start_us, 4) for i in order],
        "us": [round(events[i].end_us - events[i].start_us, 4) for i in order],
        "bytes": [events[i].bytes for i in order],
    }


def _steps(series: Iterable[tuple[float, float]]) -> list[list[float]]:
    points = sorted(series, key=lambda point: point[0])
    return [[round(at, 4) for at, _ in points], [round(amount, 3) for _, amount in points]]
