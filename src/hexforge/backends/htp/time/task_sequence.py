# SPDX-License-Identifier: Apache-2.0
"""Task sequence: tasks in the order they run, cut and placed in an amount of VTCM. No cost is in it, so that chips
share it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hexforge.backends.htp.time.cost import ONCE
from hexforge.backends.htp.time.tile import Spills, Task, Tensor, spills, tensors_between, tiled_together


class Tile(NamedTuple):
    """A part of a task: as many of its weights as are fetched at once."""

    task: int
    share: float
    weight_bytes: float
    free_after: int
    """How many tiles must have ended before there is room to fetch its weights."""


def tiles(
    tasks: Sequence[Task], vtcm_bytes: int, ahead_eighths: int = 3, waits: Sequence[bool] | None = None
) -> list[Tile]:
    """The tasks cut by weights into eighths of VTCM; some eighths hold weights that are fetched ahead.

    What is fetched for tasks that wait for a result to pass through DRAM is not; those placed last say which.
    """
    piece, ahead = int(vtcm_bytes / 8), vtcm_bytes * ahead_eighths / 8
    cut: list[Tile] = []
    before = [0.0]
    last, oldest = 0.0, 0
    for index, task in enumerate(tasks):
        weight_bytes = task.weight_bytes
        count = max(1, -(-weight_bytes // piece))
        share, size = 1 / count, weight_bytes / count
        for _ in range(count):
            last += size
            before.append(last)
            while before[oldest] < last - ahead:
                oldest += 1
            late = task.spilled if waits is None else waits[index]
            cut.append(Tile(index, share, size, len(cut) if late else min(oldest, len(cut))))
    return cut


class TaskSequence:
    """Tasks in the order they run; what an amount of VTCM makes of them is worked out once."""

    def __init__(self, tasks: Sequence[Task], tensors: Sequence[Tensor] | None = None) -> None:
        self.tasks = tasks
        self._tensors = tensors_between(tasks) if tensors is None else tensors
        self._spills: dict[int, Spills] = {}
        self._tiles: dict[tuple[int, int], list[Tile]] = {}
        self._in_use: dict[tuple[int, int], list[int]] = {}
        self._spill_fill: dict[int, int] = {}
        self._batched: dict[int, TaskSequence] = {}
        self._asked: dict[int, list[tuple[str, float, float, list[tuple[int, float]]]]] = {}

    def fits(self, vtcm_bytes: int) -> bool:
        """True where no tensor and no weights are cut, moved out or waited for for want of VTCM."""
        weights = sum(t.weight_bytes for t in self.tasks)
        largest = max((size for t in self.tasks for _, size in t.reads), default=0)
        return weights <= vtcm_bytes // 8 and largest <= vtcm_bytes // 2

    def spills(self, vtcm_bytes: int) -> Spills:
        """What passes through DRAM for want of VTCM."""
        known = self._spills.get(vtcm_bytes)
        if known is None:
            known = self._spills[vtcm_bytes] = spills(self.tasks, vtcm_bytes, self._tensors)
        return known

    def tiles(self, vtcm_bytes: int, ahead_eighths: int) -> list[Tile]:
        """The tasks cut by weights."""
        known = self._tiles.get((vtcm_bytes, ahead_eighths))
        if known is None:
            known = self._tiles[vtcm_bytes, ahead_eighths] = tiles(
                self.tasks, vtcm_bytes, ahead_eighths, self.spills(vtcm_bytes).waits
            )
        return known

    def vtcm_in_use(self, vtcm_bytes: int, ahead_eighths: int) -> list[int]:
        """Bytes of VTCM in use while each task runs: its tensors, those kept for later, weights fetched ahead."""
        known = self._in_use.get((vtcm_bytes, ahead_eighths))
        if known is None:
            known = self._in_use[vtcm_bytes, ahead_eighths] = _vtcm_in_use(self.tasks, vtcm_bytes, ahead_eighths)
        return known

    def spill_fill_bytes(self, vtcm_bytes: int) -> int:
        """Bytes of the DRAM buffer that holds what `spills` moved out, at the moment when that is most."""
        known = self._spill_fill.get(vtcm_bytes)
        if known is None:
            known = self._spill_fill[vtcm_bytes] = _spill_fill_bytes(self.tasks, vtcm_bytes, self._tensors)
        return known

    def asked(self, index: int) -> list[tuple[str, float, float, list[tuple[int, float]]]]:
        """The vector work of a task: its kind, its amount, what its members asked for in all and each."""
        known = self._asked.get(index)
        if known is None:
            known = self._asked[index] = _asked(self.tasks[index])
        return known

    def batched(self, batch: int) -> TaskSequence:
        """The tasks for several samples at once: their weights are fetched once."""
        known = self._batched.get(batch)
        if known is None:
            known = self._batched[batch] = TaskSequence([_batched_task(task, batch) for task in self.tasks])
        return known


def _asked(task: Task) -> list[tuple[str, float, float, list[tuple[int, float]]]]:
    asked = []
    for kind, amount in task.hvx.items():
        if kind == "pack":  # a graph's inputs and outputs into tiles and out of them: no node's own work
            continue
        parts = [member.get(kind, 0.0) for member in task.members]
        whole = sum(parts)
        members = [(k, part) for k, part in enumerate(parts) if part] if whole else [(0, 1.0)]
        asked.append((kind, amount, whole or 1.0, members))
    return asked


def _batched_task(task: Task, batch: int) -> Task:
    once = ONCE
    return replace(
        task,
        hmx={kind: n * batch for kind, n in task.hmx.items()},
        hvx={kind: n if kind in once else n * batch for kind, n in task.hvx.items()},
        reads=[(source, size * batch) for source, size in task.reads],
        out_bytes=task.out_bytes * batch,
    )


def _spill_fill_bytes(tasks: Sequence[Task], vtcm_bytes: int, tensors: Sequence[Tensor]) -> int:
    group, half = tiled_together(tasks, vtcm_bytes), vtcm_bytes // 2
    change = [0] * (len(tasks) + 1)
    for source, size, readers in tensors:
        if source >= 0 and size > half and any(group[r] != group[source] for r in readers):
            change[source] += size
            change[max(readers) + 1] -= size
    return max(itertools.accumulate(change), default=0)


def _vtcm_in_use(tasks: Sequence[Task], vtcm_bytes: int, ahead_eighths: int) -> list[int]:
    half = vtcm_bytes // 2
    last = list(range(len(tasks)))
    for i, task in enumerate(tasks):
        for source, _ in task.reads:
            if source >= 0:
                last[source] = max(last[source], i)
    change = [0] * (len(tasks) + 1)
    for i, task in enumerate(tasks):
        kept = min(task.out_bytes, half)
        change[i] += kept
        change[min(last[i] + 1, len(tasks))] -= kept
    ahead = vtcm_bytes * ahead_eighths // 8
    used, held = [], 0
    upcoming = [t.weight_bytes for t in tasks]
    for i in range(len(tasks)):
        held += change[i]
        weights, k = 0, i
        while k < len(tasks) and weights < ahead and k < i + 8:
            weights += upcoming[k]
            k += 1
        used.append(min(vtcm_bytes, held + min(weights, ahead)))
    return used
