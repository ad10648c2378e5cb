# SPDX-License-Identifier: Apache-2.0
"""Cores: jobs on the NSP cores by priority, yielding between tasks, VTCM saved and restored, clocks of the moment.

A job gives way to one of higher priority only at the end of a task. Its VTCM is saved to DRAM where the other needs the
room, and restored before it goes on. Jobs of one priority run in the order they arrive.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from hexforge.chips.power import MODES
from hexforge.chips.priority import Priority
from hexforge.device.clock import Pending, Timer, VirtualClock
from hexforge.device.graph_time import Clocks, GraphTime, Inference
from hexforge.device.log import DeviceLog
from hexforge.device.power.votes import PowerVotes

AWAKE_US = MODES["burst"].sleep_latency_us
"""A wake-up that the fitted call includes already."""


class CoreJob:
    """One execution on its way."""

    __slots__ = (
        "batch", "clocks", "cores", "done", "energy_uj", "inference", "moved_us", "name", "number", "pending", "ran_us",
        "rank", "ready_us", "saved", "started", "time", "version", "vtcm_bytes", "yields",
    )  # fmt: skip

    def __init__(
        self, name: str, time: GraphTime, priority: Priority, vtcm_bytes: int = 0, cores: int = 1, batch: int = 1
    ) -> None:
        self.name, self.time, self.rank, self.vtcm_bytes = name, time, -priority, vtcm_bytes
        self.cores, self.batch = cores, batch
        self.pending = Pending()
        self.number = 0
        self.ready_us = self.moved_us = self.ran_us = self.energy_uj = 0.0
        self.done = self.yields = 0
        self.saved = self.started = False
        self.version = -1
        self.clocks = Clocks()
        self.inference: Inference | None = None

    def __lt__(self, other: CoreJob) -> bool:
        return (self.rank, self.ready_us, self.number) < (other.rank, other.ready_us, other.number)


class Core:
    """One NSP core."""

    __slots__ = ("busy_us", "helps", "idle_since_us", "job", "load", "number", "timer")

    def __init__(self, number: int) -> None:
        self.number = number
        self.job: CoreJob | None = None
        self.helps: Core | None = None
        """The core whose job it works for."""
        self.timer: Timer | None = None
        self.idle_since_us = -math.inf
        self.load = 0.5
        """Of late, 0 to 1: what DCVS follows."""
        self.busy_us = 0.0


class Cores:
    """All cores of a device, and what waits for them."""

    def __init__(
        self, clock: VirtualClock, log: DeviceLog, power: PowerVotes, count: int, vtcm_bytes: int, us_per_mb: float
    ) -> None:
        self._clock, self._log, self._power, self._us_per_mb = clock, log, power, us_per_mb
        self.cores = [Core(n) for n in range(count)]
        self.vtcm_bytes = vtcm_bytes
        self.reserved_bytes = 0
        """VTCM that others than graphs hold."""
        self._ready: list[CoreJob] = []
        self._ever = 0

    def submit(self, job: CoreJob) -> Pending:
        """Queue a job; the result is the job itself."""
        self._ever += 1
        job.number, job.ready_us = self._ever, self._clock.now_us
        heapq.heappush(self._ready, job)
        self._dispatch()
        return job.pending

    def reserve_vtcm(self, size: int) -> None:
        """Others take VTCM: graphs that need more than is left wait."""
        self.reserved_bytes += size
        self._log.write("vtcm_reserve", bytes=size, reserved_bytes=self.reserved_bytes)

    def release_vtcm(self, size: int) -> None:
        """Others give VTCM back."""
        self.reserved_bytes -= size
        self._log.write("vtcm_release", bytes=size, reserved_bytes=self.reserved_bytes)
        self._dispatch()

    def withdraw(self, gone: Callable[[CoreJob], bool], error: BaseException) -> int:
        """End the jobs that something is true of, running or not, with an error; how many."""
        found = [job for job in self._ready if gone(job)]
        self._ready = [job for job in self._ready if not gone(job)]
        heapq.heapify(self._ready)
        for core in self.cores:
            if core.job is not None and gone(core.job):
                found.append(core.job)
                if core.timer is not None:
                    self._clock.cancel(core.timer)
                self._free(core)
        for job in found:
            self._log.write("execute_end", job=job.number, graph=job.name, ok=False)
            job.pending.fail(error)
        self._dispatch()
        return len(found)

    def clocks(self, core: Core) -> Clocks:
        """The corners in force on a core."""
        corners, bus = self._power.corners(core.number, core.load)
        return Clocks(corners, bus, self._power.hmx(core.number, core.load))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give idle cores to what waits, the first first."""
        while self._ready:
            job = self._ready[0]
            idle = [c for c in self.cores if c.job is None and c.helps is None]
            if len(idle) < job.cores or job.vtcm_bytes > self.vtcm_bytes - self.reserved_bytes:
                return
            heapq.heappop(self._ready)
            first, *others = idle[: job.cores]
            for other in others:
                other.helps = first
            first.job = job
            self._begin(first, job)

    def _begin(self, core: Core, job: CoreJob) -> None:
        """Wake the core, restore what was saved, then the next task."""
        idle = self._clock.now_us - core.idle_since_us
        wait = max(0.0, min(self._power.sleep_latency_us(core.number), idle) - AWAKE_US)
        if not job.started:
            job.started = True
            queued = round(self._clock.now_us - job.ready_us, 3)
            self._log.write("execute_start", job=job.number, graph=job.name, core=core.number, queued_us=queued)
        if wait:
            self._log.write("wake", core=core.number, us=round(wait, 3))
        if job.saved:
            job.saved = False
            move = self._move_us(job)
            job.moved_us += move
            wait += move
            self._log.write("restore", job=job.number, graph=job.name, core=core.number, us=round(move, 3))
        if wait:
            core.busy_us += wait
            core.timer = self._clock.after(wait, self._task, core, job)
        else:
            self._task(core, job)

    def _task(self, core: Core, job: CoreJob) -> None:
        """Run the next task of a job at the clocks of now."""
        if job.version != self._power.version:
            job.version = self._power.version
            job.clocks = self.clocks(core)
            again = job.time.inference(job.clocks, job.batch, job.cores)
            if job.inference is None or len(again.pieces_us) == len(job.inference.pieces_us):
                job.inference = again  # else it was cut otherwise for these clocks, and this one has begun
        assert job.inference is not None
        us = job.inference.pieces_us[job.done]
        core.busy_us += us
        job.ran_us += us
        core.timer = self._clock.after(us, self._end, core, job)

    def _end(self, core: Core, job: CoreJob) -> None:
        """A task has ended: the job is done, or goes on, or gives way."""
        job.done += 1
        assert job.inference is not None
        if job.done == len(job.inference.pieces_us):
            elapsed = self._clock.now_us - max(core.idle_since_us, job.ready_us, 0.0)
            core.load = 0.5 * core.load + 0.5 * min(1.0, job.ran_us / elapsed if elapsed > 0 else 1.0)
            job.energy_uj = job.inference.energy_uj
            self._free(core)
            self._log.write(
                "execute_end", job=job.number, graph=job.name, ok=True, core=core.number, yields=job.yields,
                accelerator_us=round(job.ran_us, 3),
            )  # fmt: skip
            job.pending.resolve(job)
            self._dispatch()
        elif self._ready and self._ready[0].rank < job.rank and self._can_run(self._ready[0]):
            self._give_way(core, job, self._ready[0])
        else:
            self._task(core, job)

    def _can_run(self, job: CoreJob) -> bool:
        return job.vtcm_bytes <= self.vtcm_bytes - self.reserved_bytes

    def _give_way(self, core: Core, job: CoreJob, other: CoreJob) -> None:
        job.yields += 1
        kept = job.vtcm_bytes + other.vtcm_bytes <= self.vtcm_bytes - self.reserved_bytes
        move = 0.0 if kept else self._move_us(job)
        job.saved = not kept
        job.moved_us += move
        self._log.write(
            "yield", job=job.number, graph=job.name, core=core.number, to=other.name, saved=not kept, us=round(move, 3)
        )
        core.busy_us += move
        if move:
            core.timer = self._clock.after(move, self._given, core, job)
        else:
            self._given(core, job)

    def _given(self, core: Core, job: CoreJob) -> None:
        """What yielded waits; its core is free for another."""
        heapq.heappush(self._ready, job)
        self._free(core)
        self._dispatch()

    def _free(self, core: Core) -> None:
        core.job, core.timer, core.idle_since_us = None, None, self._clock.now_us
        for other in self.cores:
            if other.helps is core:
                other.helps, other.idle_since_us = None, self._clock.now_us

    def _move_us(self, job: CoreJob) -> float:
        """What saving or restoring a job's VTCM takes."""
        used = job.inference.vtcm_bytes if job.inference is not None else job.vtcm_bytes
        return min(used, job.vtcm_bytes) / 2**20 * self._us_per_mb
