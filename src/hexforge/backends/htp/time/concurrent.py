# SPDX-License-Identifier: Apache-2.0
"""Concurrent: several graphs on one accelerator, by priority, yielding between pieces of work. Deterministic.

Yielding is cooperative: a graph gives way to one of higher priority only at the end of a piece (a tile, a task), its
VTCM is saved to DRAM, and restored before it goes on. Graphs of the same priority run in the order they arrive. The
host's part of a call overlaps with the accelerator at work for another thread.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.timeline import Outcome, Shared, Span, Tenant, Timeline


@dataclass(frozen=True, slots=True)
class Job:
    """A graph that is called again and again."""

    name: str
    pieces: tuple[float, ...]
    """Microseconds of each piece of one inference; it can yield after each."""
    priority: Priority = Priority.NORMAL
    vtcm_bytes: int = 0
    """What is saved when it yields."""
    count: int = 1
    """Inferences in all, over its threads."""
    threads: int = 1
    """Threads of the application that call it, each one call at a time."""
    host_us: float = 0.0
    """The host's part of a call, half before and half after the accelerator's."""
    start_us: float = 0.0
    period_us: float = 0.0
    """From one inference being wanted to the next; 0: a thread calls again when its call returns."""

    def __post_init__(self) -> None:
        figures = (*self.pieces, self.host_us, self.start_us, self.period_us)
        if not all(math.isfinite(us) and us >= 0 for us in figures):
            raise CallError(f"{self.name}: times are finite and not below 0")
        if not sum(self.pieces) > 0:
            raise CallError(f"{self.name}: asks nothing of the accelerator; a job has pieces that take some time")
        if self.count < 1 or self.threads < 1 or self.vtcm_bytes < 0:
            raise CallError(f"{self.name}: count and threads are at least 1, vtcm_bytes at least 0")


@dataclass(order=True, slots=True)
class _Call:
    """One inference on its way; sorts by priority, then by when it reached the accelerator."""

    rank: int
    ready_us: float
    job: int
    inference: int
    since_us: float = field(compare=False)
    done: int = field(default=0, compare=False)
    """Pieces that have run."""
    saved: bool = field(default=False, compare=False)


class _Device:
    """The accelerator, its queue, and the threads that call it."""

    def __init__(self, jobs: Sequence[Job], us_per_mb: float) -> None:
        self.jobs = jobs
        self.move_us = [job.vtcm_bytes / 2**20 * us_per_mb for job in jobs]
        self.issued = [0] * len(jobs)
        self.latencies: list[dict[int, float]] = [{} for _ in jobs]
        self.last_us = [0.0] * len(jobs)
        self.spans: list[Span] = []
        self.coming: list[tuple[float, _Call]] = []
        self.waiting: list[_Call] = []
        self.now_us = 0.0
        for i, job in enumerate(jobs):
            for _ in range(job.threads):
                self.call(i, job.start_us)

    def call(self, i: int, free_us: float) -> None:
        """A thread that is free from then on makes the job's next call, if there is one left."""
        job, number = self.jobs[i], self.issued[i]
        if number == job.count:
            return
        self.issued[i] += 1
        wanted = job.start_us + number * job.period_us
        begins = max(free_us, wanted)
        ready = begins + job.host_us / 2
        self.host(i, number, begins, ready)
        call = _Call(-job.priority, ready, i, number, wanted if job.period_us else begins)
        heapq.heappush(self.coming, (ready, call))

    def host(self, i: int, number: int, start_us: float, end_us: float) -> None:
        """The host at work for a call."""
        if end_us > start_us:
            self.spans.append(Span("host", self.jobs[i].name, "host", number, start_us, end_us))

    def take(self, call: _Call, kind: str, us: float) -> None:
        """The accelerator at work for a call."""
        start, self.now_us = self.now_us, self.now_us + us
        self.spans.append(Span("HTP", self.jobs[call.job].name, kind, call.inference, start, self.now_us))

    def admit(self) -> None:
        """Calls that have reached the accelerator by now queue for it."""
        while self.coming and self.coming[0][0] <= self.now_us:
            heapq.heappush(self.waiting, heapq.heappop(self.coming)[1])

    def run(self) -> None:
        """Until every call has returned."""
        current: _Call | None = None
        while current or self.waiting or self.coming:
            if not current and not self.waiting:
                self.now_us = max(self.now_us, self.coming[0][0])
            self.admit()
            if current and self.waiting and self.waiting[0].rank < current.rank:
                self.take(current, "yield", self.move_us[current.job])
                current.saved = True
                heapq.heappush(self.waiting, current)
                current = None
                continue  # while it was saved another may have come
            if not current:
                current = heapq.heappop(self.waiting)
            if current.saved:
                self.take(current, "restore", self.move_us[current.job])
                current.saved = False
            job = self.jobs[current.job]
            self.take(current, "run", job.pieces[current.done])
            current.done += 1
            if current.done == len(job.pieces):
                self.finish(current)
                current = None

    def finish(self, call: _Call) -> None:
        """The call returns, and its thread makes the next."""
        end = self.now_us + self.jobs[call.job].host_us / 2
        self.host(call.job, call.inference, self.now_us, end)
        self.latencies[call.job][call.inference] = end - call.since_us
        self.last_us[call.job] = end
        self.call(call.job, end)


def share(jobs: Sequence[Job], us_per_mb: float = 0.0) -> Shared:
    """The jobs on one accelerator; us_per_mb is what a MiB of VTCM takes to or from DRAM."""
    if not jobs:
        raise CallError("there is no job to share the accelerator; give one or more")
    names = [job.name for job in jobs]
    if len(set(names)) != len(names):
        raise CallError(f"jobs need names of their own; given: {', '.join(names)}")
    if not (math.isfinite(us_per_mb) and us_per_mb >= 0):
        raise CallError(f"us_per_mb {us_per_mb} is not a time of 0 or more")
    device = _Device(jobs, us_per_mb)
    device.run()
    spans = sorted(device.spans, key=lambda s: (s.start_us, s.end_us))
    outcomes = []
    for i, job in enumerate(jobs):
        moves = [s for s in spans if s.name == job.name and s.kind in ("yield", "restore")]
        outcomes.append(
            Outcome(
                job.name,
                tuple(us for _, us in sorted(device.latencies[i].items())),
                sum(s.kind == "yield" for s in moves),
                sum(s.end_us - s.start_us for s in moves),
                job.start_us,
                device.last_us[i],
            )
        )
    return Shared(tuple(outcomes), tuple(spans))


def together(tenants: Sequence[Tenant], us_per_mb: float, count: int) -> Shared:
    """Several timelines on one accelerator, `count` inferences of each."""
    names = [tenant.name for tenant in tenants]
    jobs = [
        Job(
            tenant.name if names.count(tenant.name) == 1 else f"{tenant.name} #{i}",
            _pieces(tenant.timeline),
            Priority.of(tenant.priority),
            tenant.timeline.vtcm_peak_bytes,
            count,
            tenant.threads,
            tenant.timeline.host_us * tenant.timeline.factor,
            period_us=tenant.period_us,
        )
        for i, tenant in enumerate(tenants)
    ]
    return share(jobs, us_per_mb)


def _pieces(line: Timeline) -> tuple[float, ...]:
    return tuple(us * line.factor for us in line.pieces_us)
