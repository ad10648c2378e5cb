# SPDX-License-Identifier: Apache-2.0
"""The dominant path: at each moment the activity that QNN's list of priorities puts first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hexforge.addons.profiler.record import (
    CHECKPOINT_SET,
    CHECKPOINT_WAIT,
    HMX,
    HVX,
    READ,
    SYNC,
    SYSTEM,
    WRITE,
    Activity,
)

PRIORITIES = ("HMX", "HVX", "DMA read", "DMA write", "checkpoint", "sync", "system", "kernel")
"""First to last; what the list of QNN's guide does not have comes last."""
_BY_NAME = {READ: 2, WRITE: 3, CHECKPOINT_SET: 4, CHECKPOINT_WAIT: 4, SYNC: 5, SYSTEM: 6}


@dataclass(frozen=True, slots=True)
class DominantPiece:
    """A time in which one activity comes first."""

    activity: int
    """Its place among the run's activities."""
    priority: str
    start_us: float
    end_us: float

    @property
    def us(self) -> float:
        """How long."""
        return self.end_us - self.start_us


def priority(activity: Activity) -> int:
    """Where an activity is in the list."""
    if activity.name in _BY_NAME:
        return _BY_NAME[activity.name]
    return {HMX: 0, HVX: 1}.get(activity.unit, len(PRIORITIES) - 1)


def dominant_path(activities: Sequence[Activity]) -> list[DominantPiece]:
    """Pieces that do not overlap and cover every moment at which anything is at work."""
    edges: list[tuple[float, int, int]] = []
    for i, a in enumerate(activities):
        if a.end_us > a.start_us:
            edges += [(a.start_us, 1, i), (a.end_us, 0, i)]
    edges.sort()
    active: list[dict[int, None]] = [{} for _ in PRIORITIES]
    pieces: list[DominantPiece] = []
    before = 0.0
    for at, starts, i in edges:
        if at > before:
            first = next((lane for lane in active if lane), None)
            if first is not None:
                chosen = next(iter(first))
                last = pieces[-1] if pieces else None
                if last and last.activity == chosen and last.end_us == before:
                    pieces[-1] = replace(last, end_us=at)
                else:
                    name = PRIORITIES[priority(activities[chosen])]
                    pieces.append(DominantPiece(chosen, name, before, at))
            before = at
        lane = active[priority(activities[i])]
        if starts:
            lane[i] = None
        else:
            lane.pop(i, None)
    return pieces
