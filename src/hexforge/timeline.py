# SPDX-License-Identifier: Apache-2.0
"""Timeline: one inference as it runs on a chip, per task and per unit: what any backend that times gives.

Reports, profiles and advice read it; they know no backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hexforge.chrome_trace import ChromeTrace
from hexforge.ir import Node

UNITS = ("HMX", "HVX", "DMA")


@dataclass(frozen=True, slots=True)
class Event:
    """One unit at work."""

    unit: str
    """HMX, HVX or DMA."""
    name: str
    """The task it works for."""
    start_us: float
    end_us: float
    bytes: int = 0
    written_bytes: int = 0
    """Of a transfer's bytes, those that go to DRAM."""


@dataclass(frozen=True, slots=True)
class MainStep:
    """A part of a task on the main thread: it executes from start to ready, then waits for its transfer until end."""

    row: int
    start_us: float
    ready_us: float
    end_us: float
    transfer: int = -1
    """Which of the timeline's events brings its bytes; -1: none does."""


@dataclass(frozen=True, slots=True)
class Row:
    """A task's share of the time."""

    name: str
    op: str
    ops: tuple[str, ...]
    """The QNN nodes that run as this task."""
    start_us: float
    us: float
    """By how much the inference is longer for it: from the end of the task before to its own."""
    cycles: int
    """The same in core clocks."""
    hmx_us: float
    hvx_us: float
    dma_us: float
    wait_us: float
    """Of its time, what it waited for DMA."""
    overlap_us: float
    """Of its time, while two units or more were at work."""
    bound: str
    """What it took longest for: HMX, HVX, DMA or overhead."""
    weight_bytes: int
    spill_bytes: int
    """Of activations that went to DRAM or came back."""
    vtcm_bytes: int
    """In use while it runs."""
    kinds: tuple[str, ...] = ()
    """The ops of `ops`."""
    parts_us: tuple[float, ...] = ()
    """What each of `ops` asks for of the time, waits and the packing of a graph's inputs and outputs left out."""
    pieces: int = 1
    """How many smaller ones it is cut into, so that each fits VTCM."""


@dataclass(frozen=True, slots=True)
class Share:
    """A QNN node and its part of the time."""

    node: str
    op: str
    us: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """One inference."""

    rows: tuple[Row, ...]
    events: tuple[Event, ...]
    critical: tuple[Event, ...]
    """What the end waited for, back to the start; its pieces add up to accelerator_us."""
    accelerator_us: float
    rpc_us: float
    """The call to the accelerator and back."""
    io_us: float
    """Inputs and outputs converted and copied on the host."""
    wait_us: float
    """Wake-ups and votes beyond what a call in burst has."""
    factor: float
    """What the path to the device has multiplied the times by, those of waits left out."""
    core_mhz: float
    vtcm_bytes: int
    """What the graph was prepared for; the compiler may leave some of the chip's."""
    vtcm_peak_bytes: int
    weight_bytes: int
    spill_bytes: int
    """Of activations that went to DRAM or came back."""
    context_bytes: int
    """About what a context binary of it takes."""
    batch: int = 1
    spill_fill_bytes: int = 0
    """The buffer in DRAM for activations that VTCM has no room for."""
    work_us: tuple[tuple[str, str, float], ...] = ()
    """What the end waited for by matrix rate and kind of work, the call included, waits beyond burst left out."""
    steps: tuple[MainStep, ...] = ()
    """The main thread from the start to the end of the accelerator's time, without a gap."""
    hvx_threads: int = 0
    """Vector threads that the graph uses."""
    energy_uj: float = 0.0
    """Of the accelerator and its transfers (assumed: nothing of it is measured); 0 where a backend has no figure."""

    @property
    def host_us(self) -> float:
        """Everything around the accelerator's time."""
        return self.rpc_us + self.io_us + self.wait_us

    @property
    def latency_us(self) -> float:
        """The whole inference as the application sees it."""
        return self.accelerator_us + self.host_us

    @property
    def dram_bytes(self) -> int:
        """What passes to and from DRAM."""
        return sum(e.bytes for e in self.events if e.unit == "DMA")

    @property
    def pieces_us(self) -> tuple[float, ...]:
        """The times between which the graph can yield to another."""
        return tuple(row.us / row.pieces for row in self.rows for _ in range(row.pieces))

    def throughput(self, threads: int = 1) -> float:
        """Samples per second with `threads` calling: while one call is on the host, another runs on the accelerator."""
        return self.batch * 1e6 / max(self.accelerator_us, self.latency_us / threads)

    def bottlenecks(self) -> list[Share]:
        """Nodes by the time they execute (waits for DMA left out), longest first: fused ones by what each asks for."""
        us_by_node: dict[tuple[str, str], float] = {}
        for row in self.rows:
            for node, op, us in zip(row.ops, row.kinds, row.parts_us, strict=True):
                us_by_node[node, op] = us_by_node.get((node, op), 0.0) + us
        return sorted((Share(*key, us) for key, us in us_by_node.items()), key=lambda share: -share.us)

    def vtcm(self) -> list[tuple[float, int]]:
        """Bytes of VTCM in use from each time on."""
        return [(row.start_us, row.vtcm_bytes) for row in self.rows] + [(self.accelerator_us, 0)]

    def bandwidth(self) -> list[tuple[float, float]]:
        """GB/s to and from DRAM from each time on."""
        steps: list[tuple[float, float]] = []
        for event in sorted((e for e in self.events if e.unit == "DMA"), key=lambda e: e.start_us):
            if steps and steps[-1][0] == event.start_us:
                steps.pop()
            steps.append((event.start_us, event.bytes / max(event.end_us - event.start_us, 1e-9) / 1e3))
            steps.append((event.end_us, 0.0))
        return steps

    def trace(self) -> ChromeTrace:
        """Lanes and graphs for Chrome's or Perfetto's trace viewer."""
        trace = ChromeTrace()
        lanes = {lane: i for i, lane in enumerate((*UNITS, "critical path", "host"))}
        for lane, number in lanes.items():
            trace.name_thread(0, number, lane)
        before = self.host_us / 2  # half of a call is on the way to the accelerator, half on the way back
        after = before + self.accelerator_us
        trace.span(0, lanes["host"], "call", 0, before)
        trace.span(0, lanes["host"], "return", after, after + self.host_us / 2)
        for e in self.events:
            args = {"bytes": e.bytes} if e.bytes else {}
            trace.span(0, lanes[e.unit], e.name, before + e.start_us, before + e.end_us, args)
        for e in self.critical:
            start, end = before + e.start_us, before + e.end_us
            trace.span(0, lanes["critical path"], e.name, start, end, {"unit": e.unit})
        for at, size in self.vtcm():
            trace.counter(0, "VTCM bytes", before + at, "VTCM bytes", size)
        for at, rate in self.bandwidth():
            trace.counter(0, "DRAM GB/s", before + at, "DRAM GB/s", rate)
        return trace


def serial_timeline(times: Iterable[tuple[Node, float]], unit: str = "HVX", call_us: float = 0.0) -> Timeline:
    """Nodes one after the other on one unit, each for its microseconds: what a backend gives that knows no more."""
    rows: list[Row] = []
    events: list[Event] = []
    at = 0.0
    for node, us in times:
        weights = sum(v.type.nbytes for v in node.inputs if v is not None and v.is_static)
        spent = {"hmx_us": 0.0, "hvx_us": 0.0, "dma_us": 0.0, f"{unit.lower()}_us": us}
        rows.append(
            Row(node.name, node.op.name, (node.name,), at, us, 0, **spent, wait_us=0.0, overlap_us=0.0, bound=unit,
                weight_bytes=weights, spill_bytes=0, vtcm_bytes=0, kinds=(node.op.name,), parts_us=(us,), pieces=1)
        )  # fmt: skip
        events.append(Event(unit, node.name, at, at + us))
        at += us
    total = sum(row.weight_bytes for row in rows)
    return Timeline(tuple(rows), tuple(events), tuple(events), at, rpc_us=call_us, io_us=0.0, wait_us=0.0, factor=1.0,
                    core_mhz=0.0, vtcm_bytes=0, vtcm_peak_bytes=0, weight_bytes=total, spill_bytes=0,
                    context_bytes=total)  # fmt: skip


def join_timelines(lines: Sequence[Timeline]) -> Timeline:
    """Several graphs of one model, one after the other, as one timeline; each is a call of its own."""
    first, *rest = lines
    for line in rest:
        first = _append_timeline(first, line)
    return first


def scaled_timeline(line: Timeline, factor: float) -> Timeline:
    """The timeline with every time but the wait multiplied; `factor` of it says so, cycles and work_us stay."""
    if factor == 1:
        return line
    k = factor

    def event(e: Event) -> Event:
        return replace(e, start_us=e.start_us * k, end_us=e.end_us * k)

    return replace(
        line,
        rows=tuple(
            replace(
                row, start_us=row.start_us * k, us=row.us * k, hmx_us=row.hmx_us * k, hvx_us=row.hvx_us * k,
                dma_us=row.dma_us * k, wait_us=row.wait_us * k, overlap_us=row.overlap_us * k,
                parts_us=tuple(us * k for us in row.parts_us),
            )
            for row in line.rows
        ),
        events=tuple(map(event, line.events)),
        critical=tuple(map(event, line.critical)),
        steps=tuple(
            replace(s, start_us=s.start_us * k, ready_us=s.ready_us * k, end_us=s.end_us * k) for s in line.steps
        ),
        accelerator_us=line.accelerator_us * k,
        rpc_us=line.rpc_us * k,
        io_us=line.io_us * k,
        factor=line.factor * k,
    )  # fmt: skip


def _append_timeline(one: Timeline, two: Timeline) -> Timeline:
    start = one.accelerator_us

    def later(event: Event) -> Event:
        return replace(event, start_us=event.start_us + start, end_us=event.end_us + start)

    return replace(
        one,
        rows=(*one.rows, *(replace(row, start_us=row.start_us + start) for row in two.rows)),
        events=(*one.events, *map(later, two.events)),
        critical=(*one.critical, *map(later, two.critical)),
        accelerator_us=start + two.accelerator_us,
        rpc_us=one.rpc_us + two.rpc_us,
        io_us=one.io_us + two.io_us,
        wait_us=one.wait_us + two.wait_us,
        vtcm_peak_bytes=max(one.vtcm_peak_bytes, two.vtcm_peak_bytes),
        weight_bytes=one.weight_bytes + two.weight_bytes,
        spill_bytes=one.spill_bytes + two.spill_bytes,
        context_bytes=one.context_bytes + two.context_bytes,
        spill_fill_bytes=max(one.spill_fill_bytes, two.spill_fill_bytes),
        work_us=(*one.work_us, *two.work_us),
        energy_uj=one.energy_uj + two.energy_uj,
        steps=(*one.steps, *(_later_step(step, start, len(one.rows), len(one.events)) for step in two.steps)),
    )


def _later_step(step: MainStep, us: float, rows: int, events: int) -> MainStep:
    transfer = step.transfer + events if step.transfer >= 0 else -1
    return MainStep(step.row + rows, step.start_us + us, step.ready_us + us, step.end_us + us, transfer)


def overlaps(events: Sequence[Event], windows: Sequence[tuple[float, float]]) -> list[float]:
    """For each of consecutive windows, how long two units or more are at work in it."""
    edges = sorted(
        [(e.start_us, 1) for e in events if e.end_us > e.start_us]
        + [(e.end_us, -1) for e in events if e.end_us > e.start_us]
    )
    shared_us = [0.0] * len(windows)
    busy: list[tuple[float, float]] = []
    depth, since = 0, 0.0
    for at, step in edges:
        if depth >= 2 > depth + step:
            busy.append((since, at))
        if depth < 2 <= depth + step:
            since = at
        depth += step
    n = 0
    for i, (start, end) in enumerate(windows):
        while n < len(busy) and busy[n][1] <= start:
            n += 1
        k = n
        while k < len(busy) and busy[k][0] < end:
            shared_us[i] += min(end, busy[k][1]) - max(start, busy[k][0])
            k += 1
    return shared_us


# -- backends that time -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timing:
    """A timeline, and how far to trust it."""

    timeline: Timeline
    band: float
    """Nine of ten rows of model families nobody fitted were off by at most this part, for a graph known as well."""
    provenance: str
    """Whether the chip's costs were fitted on its own measurements."""
    little_known: tuple[str, ...] = ()
    """Kinds of work that few measured model families have, for which the band is wider."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What models that run at the same time share."""

    vtcm_bytes: int
    us_per_mb: float
    """What a MiB of VTCM takes to or from DRAM."""
    provenance: str = "assumed"
    """Whether that was fitted on measurements of the chip."""
