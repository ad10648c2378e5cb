# SPDX-License-Identifier: Apache-2.0
"""Estimates with known figures, of any number of tasks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hexforge.analysis.estimate import Estimate, estimate
from hexforge.chips.deployment import Deployment
from hexforge.timeline import Event, Row, Timeline
from tests.digits import MODEL

OPS = ("Conv2d", "Softmax", "ElementWiseAdd")
BOUNDS = ("HMX", "HVX", "DMA", "overhead")


@cache
def demo() -> Estimate:
    """The built-in model's."""
    return estimate(MODEL, Deployment("SM8650", "float"))


def made(count: int, model: str = "made", name: str = "task") -> Estimate:
    """An estimate of so many tasks, each with an event on every unit."""
    rows, events, critical, at = [], [], [], 0.0
    for i in range(count):
        us, task = 1.0 + i % 7, f"/{name}/{i}"
        wait = 0.25 if BOUNDS[i % 4] == "DMA" else 0.0
        rows.append(
            Row(
                task, OPS[i % 3], (task, f"{task}_fused"), at, us, round(1000 * us), us / 2, us / 4, us / 8, wait,
                us / 8, BOUNDS[i % 4], 1000 * i, 10, 4096 + i % 5,
            )
        )  # fmt: skip
        events += [Event("DMA", task, at, at + us / 8, 1000 * i + 10), Event("HMX", task, at, at + us / 2)]
        events.append(Event("HVX", task, at + us / 2, at + us * 3 / 4))
        critical.append(Event("HMX", task, at, at + us))
        at += us
    line = Timeline(
        tuple(rows), tuple(events), tuple(critical), at, 50.0, 4.0, 2.0, 1.0, 1000.0, 1 << 20, 5000, 12345,
        10 * count, 9999,
    )  # fmt: skip
    return replace(demo(), model=model, timeline=line)
