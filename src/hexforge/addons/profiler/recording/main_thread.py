# SPDX-License-Identifier: Apache-2.0
"""The main thread of a timeline, op by op: cycles, waits, and what went on beside them that nobody waited for.

The main thread executes one task after the other, without a gap. What it executes of a task is shared out among the
nodes that run as that task; its waits are the first node's. Work in the background is a transfer that no task waits
for, or a unit at work beside the one that takes longer. A transfer that is waited for is no background work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hexforge.addons.profiler.record import MOST_NAMES, OpCost
from hexforge.addons.profiler.recording.graph_json import GraphOps
from hexforge.timeline import Event, Row, Timeline

Window = tuple[float, float]
LEAST_VECTOR_SHARE = 0.02
"""A smaller part of a task's vector work is what starting it takes."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """A step of the main thread, and what the units do for it."""

    row: int
    start_us: float
    ready_us: float
    end_us: float
    transfer: Event | None
    hmx: Event | None
    hvx: Event | None

    @property
    def waits(self) -> bool:
        """Whether the main thread waits for its transfer."""
        return self.end_us > self.ready_us + 1e-9


@dataclass(frozen=True, slots=True)
class Member:
    """A node's part of a task: the place of its op, and how much of what the task executes is its own."""

    place: int
    share: float


def steps_of(line: Timeline) -> list[StepWork]:
    """The steps with the events that are theirs: events lie in the order of the steps."""
    steps: list[StepWork] = []
    at = 0
    for step in line.steps:
        row = line.rows[step.row]
        events: dict[str, Event] = {}
        units = [("DMA", step.transfer >= 0), ("HMX", row.hmx_us > 0), ("HVX", row.hvx_us > 0)]
        for unit, there in units:
            if there:
                events[unit] = line.events[at]
                assert events[unit].unit == unit
                at += 1
        steps.append(
            StepWork(step.row, step.start_us, step.ready_us, step.end_us, events.get("DMA"), events.get("HMX"),
                     events.get("HVX"))
        )  # fmt: skip
    return steps


def with_border(line: Timeline, ops: GraphOps) -> GraphOps:
    """The ops of a graph whose inputs and outputs are seen through what no task is of, such as a Transpose at them."""
    timed = {ops.places[name] for row in line.rows for name in row.ops}
    writers, readers = set(ops.writers), set(ops.readers)
    last = len(ops.ops) - 1
    for place in reversed(range(2, last)):
        if place in writers and place not in timed:
            writers.update(read for read in ops.ops[place].reads if read > 1)
    for place in range(2, last):
        if any(read in readers and read not in timed for read in ops.ops[place].reads):
            readers.add(place)
    return replace(ops, writers=frozenset(writers), readers=frozenset(readers))


def task_members(row: Row, executed_us: float, ops: GraphOps) -> list[Member]:
    """The nodes of a task with their shares; packing belongs to none and counts to the graph's output or input."""
    places = [ops.places[name] for name in row.ops]
    parts = list(row.parts_us) or [executed_us, *[0.0] * (len(places) - 1)]
    nodes = [Member(place, us / executed_us if executed_us else 0.0) for place, us in zip(places, parts, strict=True)]
    left = 1.0 - sum(member.share for member in nodes)
    if left > 1e-9:
        if ops.writers & set(places):
            nodes.append(Member(ops.output, left))
        elif ops.readers & set(places):
            nodes.insert(0, Member(ops.input, left))
        else:
            nodes[0] = Member(nodes[0].place, nodes[0].share + left)
    return nodes


def vector_shares(parts: Sequence[Member], hmx_us: float, hvx_us: float) -> list[Member]:
    """Each node's share of a task's vector work; the first node's share excludes what the matrix unit does."""
    first = next((m for m in parts if m.place > 1), parts[0])
    vector_us = [
        Member(m.place, max(0.0, m.share * (hmx_us + hvx_us) - (hmx_us if m is first else 0.0))) for m in parts
    ]
    whole = sum(m.share for m in vector_us)
    large_enough = [Member(m.place, m.share / whole) for m in vector_us if m.share > LEAST_VECTOR_SHARE * whole]
    return large_enough or [Member(first.place, 1.0)]


def main_thread(line: Timeline, ops: GraphOps) -> list[OpCost]:
    """What each op takes of the main thread; all cycles and waits together are the accelerator's time."""
    steps, ops = steps_of(line), with_border(line, ops)
    executed = [0.0] * len(line.rows)
    for step in steps:
        executed[step.row] += step.ready_us - step.start_us
    parts = [task_members(row, executed[i], ops) for i, row in enumerate(line.rows)]
    busy, waiting = _windows(steps, executed, parts)
    background = _Background(steps, parts)
    resources = _resources(line, parts, steps)
    costs = []
    for place in range(len(ops.ops)):
        cycles, wait = (_cycles(windows[place], line.core_mhz) for windows in (busy, waiting))
        overlap, beside = background.at_work_during(busy[place])
        overlap_wait, beside_wait = background.at_work_during(waiting[place])
        costs.append(
            OpCost(
                cycles, wait, min(cycles, round(overlap * line.core_mhz)),
                min(wait, round(overlap_wait * line.core_mhz)), beside, beside_wait, resources[place],
            )
        )  # fmt: skip
    return costs


def _cycles(windows: Sequence[Window], mhz: float) -> int:
    return round(sum(b - a for a, b in windows) * mhz)


def _windows(
    steps: Sequence[StepWork], executed: Sequence[float], parts: Sequence[Sequence[Member]]
) -> tuple[dict[int, list[Window]], dict[int, list[Window]]]:
    """When the main thread executes each op, and when it waits for it."""
    busy, waiting = defaultdict[int, list[Window]](list), defaultdict[int, list[Window]](list)
    done = [0.0] * len(executed)
    for step in steps:
        i, a, b = step.row, step.start_us, step.ready_us
        before = 0.0
        for member in parts[i]:  # one after the other, over all steps of the task
            until = before + member.share * executed[i]
            low, high = max(a, a + before - done[i]), min(b, a + until - done[i])
            if high > low:
                busy[member.place].append((low, high))
            before = until
        done[i] += b - a
        if step.waits:
            first = next((m.place for m in parts[i] if m.place > 1), parts[i][0].place)
            waiting[first].append((step.ready_us, step.end_us))
    return busy, waiting


class _Background:
    """What is at work that nobody waits for, in the order of time."""

    def __init__(self, steps: Sequence[StepWork], parts: Sequence[Sequence[Member]]) -> None:
        transfers: list[tuple[float, float, int]] = []
        beside: list[tuple[float, float, int]] = []
        for step in steps:
            mine = [m.place for m in parts[step.row]]
            if step.transfer is not None and not step.waits:
                transfers.append((step.transfer.start_us, step.transfer.end_us, mine[0]))
            if step.hmx is not None and step.hvx is not None:
                low, high = max(step.hmx.start_us, step.hvx.start_us), min(step.hmx.end_us, step.hvx.end_us)
                if high > low:
                    longer = step.hmx.end_us - step.hmx.start_us >= step.hvx.end_us - step.hvx.start_us
                    beside.append((low, high, mine[-1] if longer else mine[0]))
        self._lanes = [sorted(transfers), sorted(beside)]

    def at_work_during(self, windows: Sequence[Window]) -> tuple[float, tuple[int, ...]]:
        """How long something is at work in the background of windows, and the ops it is for, longest first."""
        whole, by_op = 0.0, defaultdict[int, float](float)
        at = [0, 0]
        for low, high in windows:
            pieces: list[Window] = []
            for lane, events in enumerate(self._lanes):
                while at[lane] < len(events) and events[at[lane]][1] <= low:
                    at[lane] += 1
                k = at[lane]
                while k < len(events) and events[k][0] < high:
                    a, b = max(low, events[k][0]), min(high, events[k][1])
                    pieces.append((a, b))
                    by_op[events[k][2]] += b - a
                    k += 1
            whole += covered_us(pieces)
        names = sorted(by_op, key=lambda place: (-by_op[place], place))
        return whole, tuple(names[:MOST_NAMES])


def covered_us(pieces: Sequence[Window]) -> float:
    """How long one or more of the pieces last."""
    return sum(b - a for a, b in merge_windows(pieces))


def merge_windows(pieces: Sequence[Window]) -> Iterator[Window]:
    """The pieces, those that touch or overlap as one."""
    open_piece: Window | None = None
    for a, b in sorted(pieces):
        if open_piece is None:
            open_piece = (a, b)
        elif a <= open_piece[1]:
            open_piece = (open_piece[0], max(open_piece[1], b))
        else:
            yield open_piece
            open_piece = (a, b)
    if open_piece is not None:
        yield open_piece


def _resources(
    line: Timeline, parts: Sequence[Sequence[Member]], steps: Sequence[StepWork]
) -> dict[int, tuple[str, ...]]:
    """What each op uses: the matrix unit and transfers are the first node's, vector work is whose part it is."""
    used = defaultdict[int, set[str]](set)
    moved = {step.row for step in steps if step.transfer is not None}
    for i, row in enumerate(line.rows):
        nodes = [m for m in parts[i] if m.place > 1]
        if not nodes:
            continue
        first = nodes[0]
        if row.hmx_us > 0:
            used[first.place].add("HMX")
        if i in moved:
            used[first.place].add("DMA")
        if row.hvx_us > 0:
            for member in vector_shares(parts[i], row.hmx_us, row.hvx_us):
                used[member.place].add("HVX")
    order = ("HVX", "HMX", "DMA")
    return defaultdict(tuple, {place: tuple(u for u in order if u in units) for place, units in used.items()})
