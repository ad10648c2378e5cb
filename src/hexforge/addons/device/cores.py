# SPDX-License-Identifier: Apache-2.0
"""Cores: the scheduler of a device, whose jobs run at the clocks of the moment and whose events are logged."""

from __future__ import annotations

from collections.abc import Callable

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.graph_time import Clocks, GraphTime
from hexforge.addons.device.log import DeviceLog
from hexforge.addons.device.scheduling.clock import VirtualClock
from hexforge.addons.device.scheduling.scheduler import Core, Inference, Job, JobEvent, Scheduler
from hexforge.addons.device.votes import PowerVotes
from hexforge.chips.power import core_wake_us
from hexforge.chips.priority import Priority
from hexforge.timeline import Accelerator


class CoreJob(Job):
    """One execution on its way, whose time follows the clocks."""

    __slots__ = ("batch", "clocks", "energy_uj", "restore_shared_us", "time", "version")

    def __init__(
        self, name: str, time: GraphTime, priority: Priority, vtcm_bytes: int = 0, cores: int = 1, batch: int = 1
    ) -> None:
        super().__init__(name, priority, vtcm_bytes, cores)
        self.time, self.batch = time, batch
        self.clocks = Clocks()
        self.energy_uj = 0.0
        self.restore_shared_us: Callable[[], float] = float
        """Brings back what graphs of its context share, and says how long that takes: nothing unless it is told."""
        self.version = -1
        """The state of the votes that its inference was asked for under."""


class Cores(Scheduler):
    """All cores of a device, and what waits for them."""

    records_tasks = False

    def __init__(
        self, clock: VirtualClock, log: DeviceLog, power: PowerVotes, accelerator: Accelerator, cores: int
    ) -> None:
        super().__init__(clock, accelerator, cores)
        self._log, self._power = log, power
        clock.when_idle(self._end_starved_jobs)

    def clocks(self, core: Core) -> Clocks:
        """The corners in force on a core."""
        corners, bus = self._power.corners(core.number, core.load)
        return Clocks(corners, bus, self._power.hmx(core.number, core.load))

    def reserve_vtcm(self, size: int, process: str = "") -> None:
        """Others take VTCM: graphs that need more than is left wait."""
        super().reserve_vtcm(size)
        self._log.write("vtcm_reserve", process=process, bytes=size, reserved_bytes=self.reserved_bytes)

    def release_vtcm(self, size: int, process: str = "") -> None:
        """Others give VTCM back."""
        self._log.write("vtcm_release", process=process, bytes=size, reserved_bytes=self.reserved_bytes - size)
        super().release_vtcm(size)

    def _end_starved_jobs(self) -> bool:
        """Fail jobs that wait for VTCM of others where nothing is left to happen that would give it back."""
        starved = [job for job in self._ready if not self._can_run(job)]
        for job in starved:
            error = DeviceError(
                Code.QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE,
                f"{job.name}: needs {job.vtcm_bytes:,} bytes of VTCM, of which others hold {self.reserved_bytes:,} of "
                f"{self.vtcm_bytes:,}, and nobody releases them",
            )
            self.withdraw(lambda other, job=job: other is job, error)  # type: ignore[misc]
        return bool(starved)

    def wake_us(self, core: Core, idle_us: float) -> float:
        """As deep as the votes let the core sleep."""
        return core_wake_us(idle_us, self._power.sleep_latency_us(core.number))

    def restore_shared_us(self, job: Job) -> float:
        """What graphs of one context share, such as the memory for adapters, is the job's when it goes on."""
        assert isinstance(job, CoreJob)
        return job.restore_shared_us()

    def inference(self, core: Core, job: Job) -> Inference:
        """The job under the votes of now."""
        assert isinstance(job, CoreJob)
        if job.version == self._power.version and job.inference is not None:
            return job.inference
        job.version = self._power.version
        clocks = self.clocks(core)
        again = job.time.inference(clocks, job.batch, job.cores)
        if job.inference is None or len(again.pieces_us) == len(job.inference.pieces_us):
            job.clocks = clocks
            return again
        return job.inference  # it would be cut otherwise for these clocks, and this one has begun

    def record(self, event: JobEvent, job: Job, core: Core | None, us: float = 0.0, to: Job | None = None) -> None:
        """Log it; at the end of a job its core's load is known, which DCVS follows."""
        if core is None:
            self._log.write("execute_end", job=job.number, graph=job.name, ok=False)
            return
        about = {"job": job.number, "graph": job.name, "core": core.number}
        if event is JobEvent.START:
            self._log.write(event.value, **about, queued_us=round(us, 3))
        elif event is JobEvent.WAKE:
            self._log.write(event.value, core=core.number, us=round(us, 3))
        elif event is JobEvent.END:
            self._log.write(event.value, **about, ok=True, yields=job.yields, accelerator_us=round(job.ran_us, 3))
            self._follow_load(core, job)
        elif to is not None:
            self._log.write(event.value, **about, to=to.name, saved=job.kept_on is None, us=round(us, 3))
        else:
            self._log.write(event.value, **about, us=round(us, 3))

    def _follow_load(self, core: Core, job: Job) -> None:
        assert isinstance(job, CoreJob)
        assert job.inference is not None
        job.energy_uj = job.inference.energy_uj
        elapsed = self.clock.now_us - max(core.idle_since_us, job.ready_us, 0.0)
        core.load = 0.5 * core.load + 0.5 * min(1.0, job.ran_us / elapsed if elapsed > 0 else 1.0)
