# SPDX-License-Identifier: Apache-2.0
"""Scheduler: jobs on the cores of an accelerator by priority, yielding between pieces, with VTCM saved and restored.

Estimates of models that run at the same time and the simulated device both run on it, so that they agree. Yielding is
cooperative: a job gives way to one of higher priority only at the end of a piece. Its VTCM stays where it is while
there is room for both; else it is saved to DRAM, and restored before the job goes on. Jobs of one priority run in the
order they arrive.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from hexforge.addons.device.scheduling.clock import Pending, Timer, VirtualClock
from hexforge.timeline import Accelerator, Timeline


@dataclass(frozen=True, slots=True)
class Inference:
    """What one execution asks of the device."""

    pieces_us: tuple[float, ...]
    """The pieces of its tasks; it can yield after each."""
    rpc_us: float = 0.0
    """The call there and back."""
    io_us: float = 0.0
    """Inputs and outputs converted and copied on the host."""
    vtcm_bytes: int = 0
    """What is saved when it yields."""
    energy_uj: float = 0.0
    """Assumed; nothing of it is measured."""

    @classmethod
    def of(cls, line: Timeline) -> Inference:
        """An execution as its timeline has it."""
        return cls(line.pieces_us or (0.0,), line.rpc_us, line.io_us, line.vtcm_peak_bytes, line.energy_uj)

    @property
    def accelerator_us(self) -> float:
        """Without the host's part."""
        return sum(self.pieces_us)


class JobEvent(Enum):
    """What happens to a job."""

    START = "execute_start"
    WAKE = "wake"
    RUN = "run"
    YIELD = "yield"
    SAVE = "save"
    RESTORE = "restore"
    END = "execute_end"
    WITHDRAWN = "withdrawn"


class Job:
    """One execution on its way."""

    __slots__ = (
        "cores", "done", "inference", "kept_on", "moved_us", "name", "number", "pending", "ran_us", "rank", "ready_us",
        "started", "vtcm_bytes", "worked_us", "yields",
    )  # fmt: skip

    def __init__(
        self, name: str, priority: int, vtcm_bytes: int = 0, cores: int = 1, inference: Inference | None = None
    ) -> None:
        """`vtcm_bytes` is what it reserves while it runs; its inference says how much of that is saved."""
        self.name, self.rank, self.vtcm_bytes, self.cores, self.inference = (
            name,
            -priority,
            vtcm_bytes,
            cores,
            inference,
        )
        self.pending = Pending()
        self.number = 0
        self.ready_us = self.moved_us = self.ran_us = 0.0
        self.done = self.yields = 0
        self.started = False
        self.worked_us = -math.inf
        """When the accelerator last worked for its caller, where that was not a job: it slept no longer."""
        self.kept_on: Core | None = None
        """The core whose VTCM still has what this job left there when it gave way."""

    def __lt__(self, other: Job) -> bool:
        return (self.rank, self.ready_us, self.number) < (other.rank, other.ready_us, other.number)


class Core:
    """One NSP core."""

    __slots__ = ("helps", "idle_since_us", "job", "kept", "load", "number", "timer")

    def __init__(self, number: int) -> None:
        self.number = number
        self.job: Job | None = None
        self.helps: Core | None = None
        """The core whose job it works for."""
        self.kept: list[Job] = []
        """Jobs that gave way and whose VTCM is not saved."""
        self.timer: Timer | None = None
        self.idle_since_us = -math.inf
        self.load = 0.5
        """Of late, 0 to 1: what DCVS follows."""


class Scheduler:
    """All cores of an accelerator, and what waits for them."""

    records_tasks: ClassVar[bool] = True
    """Whether `record` is told of every task; there are many."""

    def __init__(self, clock: VirtualClock, accelerator: Accelerator, cores: int = 1) -> None:
        self.clock = clock
        self.cores = [Core(n) for n in range(cores)]
        self.vtcm_bytes, self._us_per_mb = accelerator.vtcm_bytes, accelerator.us_per_mb
        self.reserved_bytes = 0
        """VTCM that others than graphs hold."""
        self._ready: list[Job] = []
        self._ever = 0

    # -- what a kind of scheduler has of its own ----------------------------------------------------------------------

    def wake_us(self, core: Core, idle_us: float) -> float:
        """What a core takes to wake that was idle so long."""
        return 0.0

    def inference(self, core: Core, job: Job) -> Inference:
        """What the job asks for, as the core is driven now."""
        assert job.inference is not None
        return job.inference

    def restore_shared_us(self, job: Job) -> float:
        """What it takes to bring back what another job has put in place of what this one needs, as it goes on."""
        return 0.0

    def record(self, event: JobEvent, job: Job, core: Core | None, us: float = 0.0, to: Job | None = None) -> None:
        """Something begins, and takes so long; `to` is the job that another gives way to."""

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> Pending:
        """Queue a job; the result is the job itself."""
        self._ever += 1
        job.number, job.ready_us = self._ever, self.clock.now_us
        heapq.heappush(self._ready, job)
        self._dispatch()
        return job.pending

    @property
    def waiting(self) -> list[Job]:
        """What waits for a core, the first first."""
        return sorted(self._ready)

    def reserve_vtcm(self, size: int) -> None:
        """Others take VTCM: graphs that need more than is left wait."""
        self.reserved_bytes += size

    def release_vtcm(self, size: int) -> None:
        """Others give VTCM back."""
        self.reserved_bytes -= size
        self._dispatch()

    def withdraw(self, gone: Callable[[Job], bool], error: BaseException) -> int:
        """End the jobs for which `gone` is true, running or not, with an error, and return how many."""
        ended = [job for job in self._ready if gone(job)]
        self._ready = [job for job in self._ready if not gone(job)]
        heapq.heapify(self._ready)
        for core in self.cores:
            core.kept = [job for job in core.kept if not gone(job)]
            if core.job is not None and gone(core.job):
                ended.append(core.job)
                if core.timer is not None:
                    self.clock.cancel(core.timer)
                self._free(core)
        for job in ended:
            self.record(JobEvent.WITHDRAWN, job, None)
            job.pending.fail(error)
        self._dispatch()
        return len(ended)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give idle cores to what waits, the first first."""
        while self._ready:
            job = self._ready[0]
            idle = [c for c in self.cores if c.job is None and c.helps is None]
            if len(idle) < job.cores or not self._can_run(job):
                return
            if job.kept_on is not None:
                idle.sort(key=lambda core: core is not job.kept_on)
            chosen = idle[: job.cores]
            crowded = [core for core in chosen if core.kept and self._crowded(core, job, job.vtcm_bytes)]
            if crowded:
                self._evict(crowded[0], max(kept for kept in crowded[0].kept if kept is not job))
                continue  # while that is saved another may come
            heapq.heappop(self._ready)
            for other in chosen[1:]:
                other.helps = chosen[0]
            chosen[0].job = job
            self._begin(chosen[0], job)

    def _begin(self, core: Core, job: Job) -> None:
        """Wake the core, restore what was saved, then the next task."""
        wait = self.wake_us(core, self.clock.now_us - max(core.idle_since_us, job.worked_us))
        if not job.started:
            self.record(JobEvent.START, job, core, self.clock.now_us - job.ready_us)
        if wait:
            self.record(JobEvent.WAKE, job, core, wait)
        if job.started:
            us = self._resume_us(core, job)
            job.moved_us += us
            wait += us
            self.record(JobEvent.RESTORE, job, core, us)
        job.started = True
        wait += self.restore_shared_us(job)
        if wait:
            core.timer = self.clock.after(wait, self._task, core, job)
        else:
            self._task(core, job)

    def _resume_us(self, core: Core, job: Job) -> float:
        """What bringing back a job's VTCM takes: nothing on the core that kept it, twice the way on another."""
        kept_on, job.kept_on = job.kept_on, None
        if kept_on is None:
            return self._move_us(job)
        kept_on.kept.remove(job)
        return 0.0 if kept_on is core else 2 * self._move_us(job)

    def _task(self, core: Core, job: Job) -> None:
        """Run the next task of a job."""
        job.inference = self.inference(core, job)
        us = job.inference.pieces_us[job.done]
        job.ran_us += us
        if self.records_tasks:
            self.record(JobEvent.RUN, job, core, us)
        core.timer = self.clock.after(us, self._end, core, job)

    def _end(self, core: Core, job: Job) -> None:
        """A task has ended: the job is done, or goes on, or gives way."""
        job.done += 1
        assert job.inference is not None
        if job.done == len(job.inference.pieces_us):
            self.record(JobEvent.END, job, core)
            self._free(core)
            job.pending.resolve(job)
            self._dispatch()
        elif self._ready and self._ready[0].rank < job.rank and self._can_run(self._ready[0]):
            self._give_way(core, job, self._ready[0])
        else:
            if not self.records_tasks:
                self._pass_tasks(core, job)
            self._task(core, job)

    def _pass_tasks(self, core: Core, job: Job) -> None:
        """Run all tasks but the last that end before anything else happens: the same times without their events."""
        inference = job.inference = self.inference(core, job)
        clock, last = self.clock, len(inference.pieces_us) - 1
        until = clock.free_until_us
        while job.done < last:
            us = inference.pieces_us[job.done]
            if not clock.now_us + us < until:
                return
            job.ran_us += us
            job.done += 1
            clock.pass_to(clock.now_us + us)

    def _give_way(self, core: Core, job: Job, other: Job) -> None:
        job.yields += 1
        if self._crowded(core, other, job.vtcm_bytes + other.vtcm_bytes):
            self._save(core, job, JobEvent.YIELD, other)
        else:
            job.kept_on = core
            core.kept.append(job)
            self.record(JobEvent.YIELD, job, core, to=other)
            self._wait_again(core, job)

    def _evict(self, core: Core, job: Job) -> None:
        """Save the VTCM of a job that gave way, for which there is no room any more."""
        self._ready.remove(job)
        heapq.heapify(self._ready)
        core.kept.remove(job)
        job.kept_on = None
        self._save(core, job, JobEvent.SAVE)

    def _save(self, core: Core, job: Job, event: JobEvent, to: Job | None = None) -> None:
        us = self._move_us(job)
        job.moved_us += us
        self.record(event, job, core, us, to)
        core.job = job
        core.timer = self.clock.after(us, self._wait_again, core, job)

    def _wait_again(self, core: Core, job: Job) -> None:
        """What gave way waits; its core is free for another."""
        heapq.heappush(self._ready, job)
        self._free(core)
        self._dispatch()

    def _free(self, core: Core) -> None:
        core.job, core.timer, core.idle_since_us = None, None, self.clock.now_us
        for other in self.cores:
            if other.helps is core:
                other.helps, other.idle_since_us = None, self.clock.now_us

    def _can_run(self, job: Job) -> bool:
        return job.vtcm_bytes <= self.vtcm_bytes - self.reserved_bytes

    def _crowded(self, core: Core, job: Job, needed: int) -> bool:
        """Whether so many bytes do not fit into a core's VTCM with what it keeps for others than a job."""
        if core.kept:
            needed += sum(kept.vtcm_bytes for kept in core.kept if kept is not job)
        return needed > self.vtcm_bytes - self.reserved_bytes

    def _move_us(self, job: Job) -> float:
        """What saving or restoring a job's VTCM takes."""
        used = job.inference.vtcm_bytes if job.inference is not None else job.vtcm_bytes
        return min(used, job.vtcm_bytes) / 2**20 * self._us_per_mb
