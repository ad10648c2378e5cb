# SPDX-License-Identifier: Apache-2.0
"""Single activities of a run, and memory over time: HTP ops on their units, system services by QNN's seven names.

Services are read off the timeline. A transfer is DramToTcm or TcmToDram by its direction, and sets a checkpoint when it
ends. The main thread waits for that checkpoint, then synchronizes. What it does before a task's units start is
SystemService. BlockZapOp pads results whose depth is no multiple of 32; its time is assumed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hexforge.addons.profiler.record import (
    CHECKPOINT_SET,
    CHECKPOINT_WAIT,
    DMA,
    HMX,
    HVX,
    READ,
    SERVICE,
    SYNC,
    SYSTEM,
    WRITE,
    ZAP,
    Activity,
    CounterTrack,
    ProfiledOp,
)
from hexforge.addons.profiler.recording.graph_json import GraphOps
from hexforge.addons.profiler.recording.main_thread import (
    Member,
    StepWork,
    merge_windows,
    steps_of,
    task_members,
    vector_shares,
    with_border,
)
from hexforge.timeline import Timeline

BLOCK = 32
"""Elements of depth in a block of VTCM."""
STORED_A_CYCLE = 4 * 128
"""Bytes that four HVX threads store a clock."""
SET_US = 0.02
"""Assumed: setting a checkpoint, beside what the main thread does."""


def activities(line: Timeline, ops: GraphOps) -> list[Activity]:
    """Everything that was at work, in the order of its start; units and waits together leave no gap."""
    steps, ops = steps_of(line), with_border(line, ops)
    executed = defaultdict[int, float](float)
    for step in steps:
        executed[step.row] += step.ready_us - step.start_us
    parts = {i: task_members(line.rows[i], us, ops) for i, us in executed.items()}
    listed: list[Activity] = []
    last: int | None = None
    for step in steps:
        for a in _step(step, parts[step.row], ops, line):
            if a.name == CHECKPOINT_SET:  # the next transfer's may come before it is done
                if last is not None and listed[last].end_us > a.start_us:
                    listed[last] = replace(listed[last], end_us=a.start_us)
                last = len(listed)
            listed.append(a)
    return sorted((a for a in listed if a.us > 0 or a.name == CHECKPOINT_SET), key=lambda a: (a.start_us, a.unit))


def _step(step: StepWork, parts: Sequence[Member], ops: GraphOps, line: Timeline) -> Iterator[Activity]:
    first = next((m.place for m in parts if m.place > 1), parts[0].place)
    covered: list[tuple[float, float]] = []
    if step.hmx is not None:
        covered.append((step.hmx.start_us, step.hmx.end_us))
        yield Activity(HMX, ops.ops[first].type, first, *covered[-1])
    if step.hvx is not None:
        covered.append((step.hvx.start_us, step.hvx.end_us))
        row = line.rows[step.row]
        yield from _vector(*covered[-1], vector_shares(parts, row.hmx_us, row.hvx_us), ops, line.core_mhz)
    at = step.start_us
    for a, b in (*merge_windows(covered), (step.ready_us, step.ready_us)):
        if a - at > 1e-9:
            yield Activity(SERVICE, SYSTEM, -1, at, min(a, step.ready_us))
        at = max(at, b)
    event = step.transfer
    if event is None:
        return
    place, written = first, event.written_bytes
    middle = event.end_us - (event.end_us - event.start_us) * (written / event.bytes if event.bytes else 0)
    if event.bytes > written:
        yield Activity(DMA, READ, place, event.start_us, middle, event.bytes - written)
    if written:
        yield Activity(DMA, WRITE, place, middle, event.end_us, written)
    if step.waits:
        arrived = max(step.ready_us, event.end_us)
        yield Activity(SERVICE, CHECKPOINT_WAIT, place, step.ready_us, arrived)
        yield Activity(SERVICE, SYNC, place, arrived, step.end_us)
    set_us = min(event.end_us + SET_US, max(event.end_us, line.accelerator_us))
    yield Activity(SERVICE, CHECKPOINT_SET, place, event.end_us, set_us)


def _vector(start: float, end: float, nodes: Sequence[Member], ops: GraphOps, mhz: float) -> Iterator[Activity]:
    """The time of the vector units, split by the node that they work for."""
    at = start
    for n, member in enumerate(nodes):
        until = end if n == len(nodes) - 1 else at + (end - start) * member.share
        padding = _padding_bytes(ops.ops[member.place])
        zap = min((until - at) / 2, padding / STORED_A_CYCLE / mhz if mhz else 0.0)
        if zap > 0:
            yield Activity(HVX, ZAP, member.place, at, at + zap, padding)
        yield Activity(HVX, ops.ops[member.place].type, member.place, at + zap, until)
        at = until


def _padding_bytes(op: ProfiledOp) -> int:
    """Bytes of a result's blocks that hold nothing of it."""
    if len(op.shape) != 4 or not op.shape[-1] or op.shape[-1] % BLOCK == 0:
        return 0
    return op.result_bytes // op.shape[-1] * (-op.shape[-1] % BLOCK)


def counters(line: Timeline, ops: GraphOps, done: Iterable[Activity], cores: int = 1) -> list[CounterTrack]:
    """Bandwidths to and from DRAM and VTCM, and the VTCM that is allocated, over time, of each core.

    Several cores work on a graph together: each has an equal part of its tensors in a VTCM of its own (assumed).
    """
    moved: dict[str, list[tuple[float, float, float]]] = {READ: [], WRITE: []}
    for a in done:
        if a.name in moved and a.us > 0:
            moved[a.name].append((a.start_us, a.end_us, a.bytes / a.us / 1e3))
    read: list[tuple[float, float, float]] = list(moved[WRITE])
    written: list[tuple[float, float, float]] = list(moved[READ])
    sizes = [op.result_bytes for op in ops.ops]
    for row in line.rows:
        if row.us <= 0:
            continue
        end = row.start_us + row.us
        places = [ops.places[name] for name in row.ops]
        mine = set(places)
        ins = sum(sizes[r] for p in places for r in ops.ops[p].reads if r not in mine) + row.weight_bytes
        read.append((row.start_us, end, ins / row.us / 1e3))
        written.append((row.start_us, end, sizes[places[-1]] / row.us / 1e3))
    allocated = line.vtcm()
    tracks = [
        CounterTrack("DRAM read", "GB/s", *_sum_of_rates(moved[READ])),
        CounterTrack("DRAM write", "GB/s", *_sum_of_rates(moved[WRITE])),
        CounterTrack("VTCM read", "GB/s", *_sum_of_rates(read)),
        CounterTrack("VTCM write", "GB/s", *_sum_of_rates(written)),
        CounterTrack("VTCM alloc", "bytes", tuple(at for at, _ in allocated), tuple(float(n) for _, n in allocated)),
    ]
    return [
        replace(track, values=tuple(value / cores for value in track.values), core=core)
        for core in range(cores)
        for track in tracks
    ]


def _sum_of_rates(pieces: Sequence[tuple[float, float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Rates that may overlap as one that changes at times."""
    change = defaultdict[float, float](float, {0.0: 0.0})
    for start, end, rate in pieces:
        change[start] += rate
        change[end] -= rate
    at, values, now = [], [], 0.0
    for time in sorted(change):
        now += change[time]
        at.append(time)
        values.append(round(max(0.0, now), 6))
    return tuple(at), tuple(values)
