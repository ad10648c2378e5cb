# SPDX-License-Identifier: Apache-2.0
"""What the threads of a throughput test would do to each other on a chip: by the priorities of their contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hexforge.backend import Backend, Program, TimedBackend
from hexforge.chips.power import Power
from hexforge.scheduling.concurrent import Tenant, simulate_concurrent

AS_IS, RUNTIME = "as-is", "qnn_dlc"
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
    """What each thread takes with the others of its chip, simulated; threads of other backends are left out."""
    chips: dict[str, list[ChipThread]] = {}
    for thread in threads:
        if isinstance(thread.backend, TimedBackend):
            chips.setdefault(thread.backend.chip_name, []).append(thread)
    rows = []
    for chip, members in chips.items():
        backend = members[0].backend
        assert isinstance(backend, TimedBackend)
        tenants = [
            Tenant.of(
                m.name,
                backend.timing(m.program.graph, AS_IS, RUNTIME, power=members[0].power).timeline,
                m.priority,
                count=INFERENCES,
                period_us=m.interval_us,
            )
            for m in members
        ]
        shared = simulate_concurrent(tenants, backend.accelerator(), members[0].power)
        for member, outcome in zip(members, shared.jobs, strict=True):
            rows.append(
                {
                    "thread": member.name,
                    "chip": chip,
                    "priority": member.priority,
                    "per_second": outcome.per_second,
                    "mean_ms": outcome.mean_us / 1e3,
                    "worst_ms": outcome.worst_us / 1e3,
                    "yields": outcome.yields,
                }
            )
    return rows
