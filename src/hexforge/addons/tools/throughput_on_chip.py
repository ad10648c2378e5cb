# SPDX-License-Identifier: Apache-2.0
"""What the threads of a throughput test would do to each other on a chip: each a process of a simulated device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hexforge.backend import Backend, Program, TimedBackend
from hexforge.chips.power import Power

if TYPE_CHECKING:
    from hexforge.addons.device import Device
    from hexforge.addons.device.contexts.execution import ExecutionResult

INFERENCES = 10
"""Of each thread, that are simulated."""


@dataclass(frozen=True, slots=True)
class ChipThread:
    """A thread, with what decides its share of a chip."""

    name: str
    program: Program
    backend: Backend
    priority: str
    interval_us: float
    power: Power


def on_chips(threads: Sequence[ChipThread]) -> list[dict[str, Any]]:
    """What each thread takes with the others of its chip, simulated; threads of other backends are left out.

    Each drives the chip by its own power: clocks are the highest that somebody votes for at the moment.
    """
    from hexforge.addons.device import Device

    chips: dict[str, list[ChipThread]] = {}
    for thread in threads:
        if isinstance(thread.backend, TimedBackend):
            chips.setdefault(thread.backend.chip_name, []).append(thread)
    rows = []
    for chip, members in chips.items():
        cores = max(m.backend.graph_config.num_cores for m in members if isinstance(m.backend, TimedBackend))
        device = Device(chip, cores=cores)
        callers = [_Caller(device, member, number) for number, member in enumerate(members)]
        for caller in callers:
            device.clock.start(caller.calls())
        device.clock.run()
        rows += [caller.row(chip) for caller in callers]
    return rows


class _Caller:
    """A thread that calls its graph again and again, in a process of its own."""

    def __init__(self, device: Device, thread: ChipThread, number: int) -> None:
        from hexforge.addons.device import Binary, CreationConfig, GraphSpec, Qnn, SimulatedTime
        from hexforge.chips.priority import Priority
        from hexforge.chips.soc import require_chip

        backend = thread.backend
        assert isinstance(backend, TimedBackend)
        self._device, self._thread = device, thread
        self._qnn = Qnn(device.process(f"{number} {thread.name}", privileged=True))
        self._qnn.use_profile(thread.power.through("qnn_dlc"))
        config = backend.graph_config
        timed = SimulatedTime(thread.program.graph, require_chip(backend.chip_name), config)
        vtcm_bytes = timed.timeline().vtcm_bytes
        spec = GraphSpec(thread.program.graph.name, vtcm_bytes=vtcm_bytes, time=timed, num_cores=config.num_cores)
        priority = Priority.of(thread.priority)
        context = self._qnn.QnnContext_createFromBinary(
            Binary(thread.name, (spec,)), CreationConfig(priority=priority, graph_priorities={spec.name: priority})
        )
        self._graph = context.graphs[spec.name]
        self._results: list[ExecutionResult] = []
        self._latencies_us: list[float] = []
        self._first_us = self._last_us = 0.0

    def calls(self) -> Any:
        """One call after the other, each when it is wanted or when the one before has returned."""
        clock = self._device.clock
        self._first_us = clock.now_us
        for number in range(INFERENCES):
            wanted = self._first_us + number * self._thread.interval_us
            yield max(0.0, wanted - clock.now_us)
            began = wanted if self._thread.interval_us else clock.now_us
            self._results.append((yield self._qnn.QnnGraph_executeAsync(self._graph)))
            self._latencies_us.append(clock.now_us - began)
        self._last_us = clock.now_us

    def row(self, chip: str) -> dict[str, Any]:
        """What became of its calls."""
        return {
            "thread": self._thread.name,
            "chip": chip,
            "priority": self._thread.priority,
            "per_second": INFERENCES / (self._last_us - self._first_us) * 1e6,
            "mean_ms": sum(self._latencies_us) / INFERENCES / 1e3,
            "worst_ms": max(self._latencies_us) / 1e3,
            "yields": sum(done.yields for done in self._results),
            "energy_uj_assumed": sum(done.energy_uj for done in self._results) / INFERENCES,
        }
