"""Simulate: tasks on a timeline of the matrix unit, the vector units and DMA. Deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hexforge.backends.htp.cost import Costs
from hexforge.backends.htp.schedule import schedule
from hexforge.backends.htp.tile import Precision, Task
from hexforge.ir import Graph

SYNC_US = 0.1
"""From the end of a transfer to the first use of what it brought."""


@dataclass(frozen=True, slots=True)
class Event:
    """One unit at work."""

    unit: str
    """HMX, HVX or DMA."""
    name: str
    start_us: float
    end_us: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A task's share of the time."""

    name: str
    op: str
    ops: tuple[str, ...]
    """The QNN nodes that run as this task."""
    us: float
    """By how much the inference is longer for it: from the end of the task before to its own."""
    hmx_us: float
    hvx_us: float
    dma_us: float
    wait_us: float
    """Of its time, what it waited for DMA."""
    bound: str
    """What it took longest for: HMX, HVX, DMA or overhead."""
    weight_bytes: int
    spill_bytes: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One inference."""

    rows: tuple[Row, ...]
    events: tuple[Event, ...]
    accelerator_us: float
    host_us: float
    factor: float
    """What the path to the device multiplies the time by."""
    weight_bytes: int
    spill_bytes: int
    vtcm_peak_bytes: int

    @property
    def latency_us(self) -> float:
        """The whole inference as the application sees it."""
        return (self.accelerator_us + self.host_us) * self.factor

    def trace(self) -> dict[str, Any]:
        """The events for Chrome's or Perfetto's trace viewer."""
        lanes = {unit: i for i, unit in enumerate(("HMX", "HVX", "DMA"))}
        named: list[dict[str, Any]] = [
            {"ph": "M", "pid": 0, "tid": i, "name": "thread_name", "args": {"name": unit}} for unit, i in lanes.items()
        ]
        spans: list[dict[str, Any]] = [
            {
                "ph": "X",
                "pid": 0,
                "tid": lanes[e.unit],
                "name": e.name,
                "ts": round(e.start_us, 3),
                "dur": round(e.end_us - e.start_us, 3),
                "args": {"bytes": e.bytes} if e.unit == "DMA" else {},
            }
            for e in self.events
        ]
        return {"traceEvents": named + spans, "displayTimeUnit": "ms"}


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of a task: as many of its weights as are fetched at once."""

    task: int
    share: float
    weight_bytes: float
    free_after: int
    """How many tiles must have ended before there is room to fetch its weights."""


def tiles(tasks: Sequence[Task], vtcm_bytes: int) -> list[Tile]:
    """The tasks cut by weights into eighths of VTCM; three eighths hold weights that are fetched ahead."""
    piece, ahead = vtcm_bytes / 8, vtcm_bytes * 3 / 8
    found: list[Tile] = []
    before = [0.0]
    oldest = 0
    for index, task in enumerate(tasks):
        count = max(1, -(-task.weight_bytes // int(piece)))
        for _ in range(count):
            size = task.weight_bytes / count
            before.append(before[-1] + size)
            while before[oldest] < before[-1] - ahead:
                oldest += 1
            found.append(Tile(index, 1 / count, size, min(oldest, len(found))))
    return found


def simulate(graph: Graph, costs: Costs, precision: Precision | None, runtime: str = "qnn_dlc") -> Timeline:
    """The timeline of one inference; without a precision each node has that of its types."""
    tasks = schedule(graph, precision, runtime, costs.vtcm_bytes)
    elements = sum(v.type.size for v in (*graph.inputs, *graph.outputs))
    return run(tasks, costs, elements, runtime)


def run(tasks: Sequence[Task], costs: Costs, elements: int, runtime: str) -> Timeline:
    """The timeline of tasks in their order: weights are fetched ahead, spills share DMA with them."""
    hmx = [costs.hmx_us(t) for t in tasks]
    hvx = [costs.hvx_us(t) for t in tasks]
    serial, fixed = min(1.0, costs.values["serial"]), costs.values["task"]
    ends = [0.0]
    fetched = 0.0
    events: list[Event] = []
    total, waited, moved = [0.0] * len(tasks), [0.0] * len(tasks), [0.0] * len(tasks)
    for tile in tiles(tasks, costs.vtcm_bytes):
        task, i = tasks[tile.task], tile.task
        matrix, vector = hmx[i] * tile.share, hvx[i] * tile.share
        size = tile.weight_bytes + task.spill_bytes * tile.share
        if size:
            start = max(fetched, ends[tile.free_after])
            fetched = start + costs.dram_us(size)
            events.append(Event("DMA", task.name, start, fetched, round(size)))
            moved[i] += fetched - start
        ready = ends[-1] + max(matrix, vector) + serial * min(matrix, vector) + fixed * tile.share
        end = max(ready, fetched + SYNC_US) if size else ready
        if matrix:
            events.append(Event("HMX", task.name, ends[-1], ends[-1] + matrix))
        if vector:
            events.append(Event("HVX", task.name, max(ends[-1], ready - vector), ready))
        total[i] += end - ends[-1]
        waited[i] += end - ready
        ends.append(end)
    rows = tuple(
        Row(
            t.name, t.op, tuple(t.ops), total[i], hmx[i], hvx[i], moved[i], waited[i],
            _bound(hmx[i], hvx[i], waited[i], fixed), t.weight_bytes, t.spill_bytes,
        )
        for i, t in enumerate(tasks)
    )  # fmt: skip
    needed = (min(t.weight_bytes, costs.vtcm_bytes * 3 // 8) + t.out_bytes + sum(n for _, n in t.reads) for t in tasks)
    return Timeline(
        rows,
        tuple(events),
        ends[-1],
        costs.host_us(elements, runtime),
        costs.runtime(runtime),
        sum(t.weight_bytes for t in tasks),
        sum(t.spill_bytes for t in tasks),
        min(costs.vtcm_bytes, max(needed, default=0)),
    )


def _bound(hmx: float, hvx: float, wait: float, fixed: float) -> str:
    named = {"DMA": wait, "HMX": hmx, "HVX": hvx, "overhead": fixed}
    return max(named, key=lambda unit: named[unit])
