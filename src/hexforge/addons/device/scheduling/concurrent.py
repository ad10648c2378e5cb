# SPDX-License-Identifier: Apache-2.0
"""Concurrent: models that are called again and again on one accelerator, on the scheduler that the device has, too.

The host's part of a call overlaps with the accelerator at work for another thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hexforge.addons.device.scheduling.clock import VirtualClock, Waits
from hexforge.addons.device.scheduling.scheduler import Core, Inference, Job, JobEvent, Scheduler
from hexforge.chips.power import BURST, Power
from hexforge.chips.priority import Priority
from hexforge.chrome_trace import ChromeTrace
from hexforge.errors import CallError
from hexforge.runtime.registry import timed_backend
from hexforge.timeline import Accelerator, Timeline

if TYPE_CHECKING:
    from hexforge.analysis.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Tenant:
    """A model that shares the accelerator with others and is called again and again."""

    name: str
    inference: Inference
    priority: Priority = Priority.NORMAL
    vtcm_bytes: int = 0
    """What it reserves while it runs."""
    count: int = 1
    """Inferences in all, over its threads."""
    threads: int = 1
    """Threads of the application that call it, each one call at a time."""
    start_us: float = 0.0
    period_us: float = 0.0
    """From one inference being wanted to the next; 0: a thread calls again when its call returns."""

    def __post_init__(self) -> None:
        asked = self.inference
        figures = (*asked.pieces_us, asked.rpc_us, asked.io_us, self.start_us, self.period_us)
        if not all(math.isfinite(us) and us >= 0 for us in figures):
            raise CallError(f"{self.name}: times are finite and not below 0")
        if not asked.accelerator_us > 0:
            raise CallError(f"{self.name}: asks nothing of the accelerator; a model has tasks that take some time")
        if self.count < 1 or self.threads < 1 or self.vtcm_bytes < 0:
            raise CallError(f"{self.name}: count and threads are at least 1, vtcm_bytes at least 0")

    @classmethod
    def of(
        cls, name: str, line: Timeline, priority: str, count: int, threads: int = 1, period_us: float = 0.0
    ) -> Tenant:
        """A model as its timeline has it, with a priority by QNN's name."""
        inference, rank = Inference.of(line), Priority.of(priority)
        return cls(name, inference, rank, line.vtcm_bytes, count, threads, period_us=period_us)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work done for a model, from start to end."""

    unit: str
    """HTP or host."""
    name: str
    """The model."""
    kind: str
    """run (a task), yield (VTCM is saved, unless it can stay), save (later than that), restore, wake, or host."""
    inference: int
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class TenantOutcome:
    """The latencies of one model and how often it gave way."""

    name: str
    latencies_us: tuple[float, ...]
    """Of each inference: from when it was wanted (with a period) or called, to its return."""
    yields: int
    moved_us: float
    """Spent saving and restoring its VTCM."""
    first_us: float
    last_us: float
    """When its first inference was wanted and its last returned."""

    @property
    def mean_us(self) -> float:
        """Mean latency."""
        return sum(self.latencies_us) / len(self.latencies_us)

    @property
    def worst_us(self) -> float:
        """Longest latency."""
        return max(self.latencies_us)

    @property
    def per_second(self) -> float:
        """Inferences per second while it had any."""
        return len(self.latencies_us) / (self.last_us - self.first_us) * 1e6


@dataclass(frozen=True, slots=True)
class ConcurrentRun:
    """Models on one accelerator."""

    jobs: tuple[TenantOutcome, ...]
    """In the order they were given."""
    spans: tuple[Span, ...]
    """In the order they start on each unit."""

    @property
    def end_us(self) -> float:
        """When the last inference returned."""
        return max(job.last_us for job in self.jobs)

    def draw(self, trace: ChromeTrace, pid: int) -> None:
        """What the accelerator and the host do for each model, as a process of a trace."""
        trace.name_process(pid, "co-running models")
        lanes: dict[tuple[str, str], int] = {}
        for span in self.spans:
            lane = lanes.setdefault((span.name, span.unit), len(lanes))
            name = f"{span.kind} {span.inference}"
            trace.span(pid, lane, name, span.start_us, span.end_us, {"inference": span.inference})
        for (name, unit), lane in lanes.items():
            trace.name_thread(pid, lane, f"{name} {unit}")


def simulate_concurrent(tenants: Sequence[Tenant], accelerator: Accelerator, power: Power = BURST) -> ConcurrentRun:
    """Several models on one accelerator, which is driven as one power setting says."""
    if not tenants:
        raise CallError("there is no model to share the accelerator; give one or more")
    if not (math.isfinite(accelerator.us_per_mb) and accelerator.us_per_mb >= 0):
        raise CallError(f"us_per_mb {accelerator.us_per_mb} is not a time of 0 or more")
    for tenant in tenants:
        if tenant.vtcm_bytes > accelerator.vtcm_bytes:
            raise CallError(f"{tenant.name}: reserves {tenant.vtcm_bytes} bytes of VTCM of {accelerator.vtcm_bytes}")
    scheduler = _CalledScheduler(accelerator, power)
    names = [tenant.name for tenant in tenants]
    calls = [
        _Calls(tenant, tenant.name if names.count(tenant.name) == 1 else f"{tenant.name} #{i}")
        for i, tenant in enumerate(tenants)
    ]
    for each in calls:
        for _ in range(each.tenant.threads):
            scheduler.clock.start(scheduler.thread(each))
    scheduler.clock.run()
    spans = sorted(scheduler.spans, key=lambda s: (s.start_us, s.end_us))
    return ConcurrentRun(tuple(each.outcome() for each in calls), tuple(spans))


def simulate_estimates(
    estimates: Sequence[Estimate], priorities: Sequence[str] = (), *, count: int = 10
) -> ConcurrentRun:
    """Several models on one chip at the same time: by priority, yielding between pieces, `count` inferences of each.

    One whose power has an interval is called that often, others again when they return. The scheduler is that of the
    simulated device, so that the same calls take the same time there.
    """
    if len({e.soc for e in estimates}) != 1:
        raise CallError("models run together on one chip; estimate them for the same one")
    powers = {replace(e.deployment.driven, interval_us=0.0) for e in estimates}
    if len(powers) != 1:
        raise CallError("models on one chip share its clocks; estimate them with the same power, intervals aside")
    tenants = [
        Tenant.of(
            e.model,
            e.timeline,
            priorities[i] if i < len(priorities) else "normal",
            count,
            e.threads,
            e.deployment.power.interval_us,
        )
        for i, e in enumerate(estimates)
    ]
    accelerator = timed_backend(estimates[0].deployment).accelerator()
    return simulate_concurrent(tenants, accelerator, powers.pop())


@dataclass(slots=True)
class _Calls:
    """The calls of one model, made and returned."""

    tenant: Tenant
    name: str
    issued: int = 0
    latencies_us: dict[int, float] = field(default_factory=dict)
    yields: int = 0
    moved_us: float = 0.0
    last_us: float = 0.0

    def outcome(self) -> TenantOutcome:
        latencies = tuple(us for _, us in sorted(self.latencies_us.items()))
        return TenantOutcome(self.name, latencies, self.yields, self.moved_us, self.tenant.start_us, self.last_us)


class _Call(Job):
    """One inference on its way."""

    __slots__ = ("inference_number",)

    def __init__(self, calls: _Calls, number: int) -> None:
        tenant = calls.tenant
        super().__init__(calls.name, tenant.priority, tenant.vtcm_bytes, inference=tenant.inference)
        self.inference_number = number


class _CalledScheduler(Scheduler):
    """The accelerator, the threads that call it, and what each was busy with."""

    def __init__(self, accelerator: Accelerator, power: Power) -> None:
        super().__init__(VirtualClock(), accelerator)
        self._power = power
        self.spans: list[Span] = []
        self._free_us = 0.0

    def wake_us(self, core: Core, idle_us: float) -> float:
        """As deep as the performance mode lets the core sleep."""
        return self._power.core_wake_us(idle_us)

    def record(self, event: JobEvent, job: Job, core: Core | None, us: float = 0.0, to: Job | None = None) -> None:
        """A span of the accelerator; what begins at once with another follows it."""
        if event in (JobEvent.START, JobEvent.END):
            return
        assert isinstance(job, _Call)
        start = max(self.clock.now_us, self._free_us)
        self._free_us = start + us
        self.spans.append(Span("HTP", job.name, event.value, job.inference_number, start, self._free_us))

    def thread(self, calls: _Calls) -> Waits:
        """A thread makes one call after the other, as long as there are any."""
        tenant, inference, clock = calls.tenant, calls.tenant.inference, self.clock
        host_us = (inference.rpc_us + inference.io_us) / 2
        yield tenant.start_us
        while calls.issued < tenant.count:
            number = calls.issued
            calls.issued += 1
            wanted = tenant.start_us + number * tenant.period_us
            if wanted > clock.now_us:
                yield wanted - clock.now_us
            began = clock.now_us
            yield self._power.vote_us
            yield host_us
            self._host_span(calls, number, began)
            job = _Call(calls, number)
            if number < tenant.threads:  # it was called before: this is a part of what goes on and on
                job.worked_us = began - self._power.return_us(inference.accelerator_us, 2 * host_us)
            yield self.submit(job)
            returned = clock.now_us
            yield host_us + self._power.cpu_wake_us(job.ran_us)
            yield self._power.vote_us
            self._host_span(calls, number, returned)
            calls.latencies_us[number] = clock.now_us - (wanted if tenant.period_us else began)
            calls.yields += job.yields
            calls.moved_us += job.moved_us
            calls.last_us = clock.now_us

    def _host_span(self, calls: _Calls, number: int, start_us: float) -> None:
        if self.clock.now_us > start_us:
            self.spans.append(Span("host", calls.name, "host", number, start_us, self.clock.now_us))
