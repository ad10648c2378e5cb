# SPDX-License-Identifier: Apache-2.0
"""Simulate: tasks on a timeline of the matrix unit, the vector units, DMA and the host. Deterministic."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hexforge.backends.htp.time.cost import Costs
from hexforge.backends.htp.time.schedule import schedule
from hexforge.backends.htp.time.settings import Settings
from hexforge.backends.htp.time.task_sequence import TaskSequence
from hexforge.backends.htp.time.tile import Precision, Spills, Task
from hexforge.chips.energy import UnitTimes, accelerator_uj
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import Power
from hexforge.ir import Graph, ScaleOffset
from hexforge.timeline import Event, MainStep, Row, Timeline, overlaps, scaled_timeline

SYNC_US = 0.1
"""From the end of a transfer to the first use of what it brought."""
EQUAL = 1e-12
"""Times that differ by less than this part are the same: sums of the same terms, rounded in another order."""
OP_BYTES = 40
"""Of a context, for each piece an op is cut into (the QNN SDK's own example)."""


def simulate(
    graph: Graph,
    costs: Costs,
    precision: Precision | None,
    runtime: str = "qnn_dlc",
    config: GraphConfig | None = None,
    power: Power | None = None,
    batch: int = 1,
) -> Timeline:
    """The timeline of one inference; without a precision, a node's types decide its precision."""
    return timeline_of(graph, Settings.of(costs, config or GraphConfig(), power or Power()), precision, runtime, batch)


def timeline_of(
    graph: Graph, settings: Settings, precision: Precision | None, runtime: str, batch: int = 1
) -> Timeline:
    """The timeline of one inference under settings."""
    tasks = tasks_of(graph, settings, precision, runtime)
    return fastest_timeline(tasks, settings, io_elements(graph), runtime, batch)


def tasks_of(graph: Graph, settings: Settings, precision: Precision | None, runtime: str) -> TaskSequence:
    """The tasks of a graph, which chips of as much VTCM share under the same options."""
    tasks = schedule(graph, precision, runtime, settings.costs.vtcm_bytes, settings.config)
    if settings.config.weights_packing:
        _pack(graph, tasks)
    return TaskSequence(tasks)


def io_elements(graph: Graph) -> int:
    """Elements of a graph's inputs and outputs."""
    return sum(v.type.size for v in (*graph.inputs, *graph.outputs))


def fastest_timeline(tasks: TaskSequence, settings: Settings, elements: int, runtime: str, batch: int = 1) -> Timeline:
    """The timeline of tasks in their order, with the use of VTCM that is fastest; `elements` are those of a sample."""
    best = _fastest(tasks.batched(batch) if batch > 1 else tasks, settings)
    if batch > 1:  # one sample after the other may keep more in VTCM, but fetches the weights each time
        alone = _fastest(tasks, settings)
        if alone.end_us * batch < best.end_us:
            again = TaskSequence([_shifted_task(t, k * len(tasks.tasks)) for k in range(batch) for t in tasks.tasks])
            spills = Spills(
                alone.spills.moved_bytes * batch, alone.spills.written_bytes * batch, alone.spills.waits * batch
            )
            best = _Placed(_Work(again, settings), alone.vtcm_bytes, spills)
    return best.timeline(tasks, elements * batch, runtime, batch)


def _fastest(tasks: TaskSequence, settings: Settings) -> _Placed:
    work = _Work(tasks, settings)
    least = settings.budgets[0]
    if tasks.fits(least):  # more of it would change nothing
        return _Placed(work, least)
    placed = [_Placed(work, size) for size in settings.budgets]
    fastest = min(order.end_us for order in placed)
    # transfers may hide behind work whatever VTCM there is: of equal times the one that moves least is taken
    equal = (order for order in placed if order.end_us <= fastest * (1 + EQUAL))
    return min(equal, key=lambda order: (sum(order.spills.moved_bytes), order.vtcm_bytes))


class _Work:
    """The time that each task takes on each unit, which does not depend on its placement."""

    def __init__(self, sequence: TaskSequence, settings: Settings) -> None:
        costs, tasks = settings.costs, sequence.tasks
        self.sequence, self.settings = sequence, settings
        self.hmx = [costs.hmx_us(t) for t in tasks]
        self.hvx = [costs.hvx_us(t) for t in tasks]
        serial, self.fixed = min(1.0, costs.values["serial"]), costs.values["task"]
        self.us = [max(m, v) + serial * min(m, v) + self.fixed for m, v in zip(self.hmx, self.hvx, strict=True)]
        self.weights_left = [settings.weights_left(t) for t in tasks]


class _Placed:
    """Tasks placed in a given amount of VTCM, and the time when each tile ends."""

    def __init__(self, work: _Work, vtcm_bytes: int, spills: Spills | None = None) -> None:
        self.settings, self.vtcm_bytes = work.settings, vtcm_bytes
        self.sequence, self.tasks = work.sequence, work.sequence.tasks
        self.hmx, self.hvx, self.fixed = work.hmx, work.hvx, work.fixed
        self.spills = self.sequence.spills(vtcm_bytes) if spills is None else spills
        self.tiles = self.sequence.tiles(vtcm_bytes, self.settings.ahead_eighths)
        left, times, dram = work.weights_left, work.us, self.settings.costs.values["dram"]
        spill_left = self.settings.spill_left
        through = [size * spill_left for size in self.spills.moved_bytes]
        alone = self._alone_us()
        self.ends, self.ready, self.fetches = ends, ready_at, fetches = [0.0], [0.0], [(0.0, 0.0, 0.0)]
        self.alone_us = [0.0]
        """Of each tile, what it waits for a transfer that nothing hides."""
        now = fetched = 0.0
        for i, share, weight_bytes, free_after in self.tiles:
            ready = end = now + times[i] * share
            start, size = fetched, weight_bytes * left[i] + through[i] * share
            if size:
                free = ends[free_after]
                if free > fetched:
                    start = free
                fetched = start + dram * size / 1e6  # as Costs.dram_us has it
                if fetched + SYNC_US > ready:
                    end = fetched + SYNC_US
            self.alone_us.append(alone[i] * share)
            end += alone[i] * share
            fetches.append((start, fetched, size))
            ready_at.append(ready)
            ends.append(end)
            now = end

    def _alone_us(self) -> list[float]:
        """What each task waits for because its graph was given less VTCM than the chip has.

        What moves for want of it does so piece by piece, and nothing hides the first one. Of what moves with all of
        VTCM the costs have that already, as they were measured with it.
        """
        settings = self.settings
        if settings.vtcm_bytes >= settings.costs.vtcm_bytes:
            return [0.0] * len(self.tasks)
        least, piece = self.sequence.spills(settings.costs.vtcm_bytes).moved_bytes, self.vtcm_bytes // 8
        us_per_byte = settings.costs.values["dram"] * settings.spill_left / 1e6
        more = (size - with_all for size, with_all in zip(self.spills.moved_bytes, least, strict=True))
        return [us_per_byte * min(max(0, size), piece) for size in more]

    @property
    def end_us(self) -> float:
        return self.ends[-1]

    def timeline(self, once: TaskSequence, elements: int, runtime: str, batch: int) -> Timeline:
        costs, tasks = self.settings.costs, self.tasks
        count = len(tasks)
        starts, total, waited, moved = [math.inf] * count, [0.0] * count, [0.0] * count, [0.0] * count
        events: list[Event] = []
        steps: list[MainStep] = []
        for n, tile in enumerate(self.tiles, 1):
            i, begin, ready, end = tile.task, self.ends[n - 1], self.ready[n], self.ends[n]
            fetch, fetched, size = self.fetches[n]
            steps.append(MainStep(i, begin, ready, end, len(events) if fetched > fetch else -1))
            if fetched > fetch:
                written = round(self.spills.written_bytes[i] * self.settings.spill_left * tile.share)
                events.append(Event("DMA", tasks[i].name, fetch, fetched, round(size), min(written, round(size))))
                moved[i] += fetched - fetch
            if self.hmx[i]:
                events.append(Event("HMX", tasks[i].name, begin, begin + self.hmx[i] * tile.share))
            if self.hvx[i]:
                events.append(Event("HVX", tasks[i].name, max(begin, ready - self.hvx[i] * tile.share), ready))
            starts[i] = min(starts[i], begin)
            total[i] += end - begin
            waited[i] += end - ready
        overlap = overlaps(events, [(starts[i], starts[i] + total[i]) for i in range(count)])
        vtcm = self.sequence.vtcm_in_use(self.vtcm_bytes, self.settings.ahead_eighths)
        critical, on_path = self._critical()
        rows = tuple(
            Row(
                t.name, t.op, tuple(t.ops), starts[i], total[i], round(total[i] * self.settings.core_mhz), self.hmx[i],
                self.hvx[i], moved[i], waited[i], overlap[i], self._bound(i, waited[i]), t.weight_bytes,
                self.spills.moved_bytes[i], vtcm[i], tuple(t.kinds), self._parts(i, total[i] - waited[i]),
                _pieces(t, self.vtcm_bytes),
            )
            for i, t in enumerate(tasks)
        )  # fmt: skip
        call = costs.host_us(elements, runtime)
        line = Timeline(
            rows=rows,
            events=tuple(events),
            critical=critical,
            accelerator_us=self.end_us,
            rpc_us=costs.host_us(0, runtime),
            io_us=call - costs.host_us(0, runtime),
            wait_us=0.0,
            factor=1.0,
            core_mhz=self.settings.core_mhz,
            vtcm_bytes=self.vtcm_bytes,
            vtcm_peak_bytes=max(vtcm, default=0),
            weight_bytes=sum(t.weight_bytes for t in once.tasks),
            spill_bytes=sum(self.spills.moved_bytes),
            context_bytes=_context_bytes(once.tasks, self.vtcm_bytes),
            batch=batch,
            spill_fill_bytes=once.spill_fill_bytes(self.vtcm_bytes),
            work_us=self._work_us(critical, on_path, costs.host_us(0, runtime), call),
            steps=tuple(steps),
            hvx_threads=self.settings.hvx_threads,
        )
        line = replace(scaled_timeline(line, costs.runtime(runtime)), energy_uj=self._energy_uj(line))
        return replace(line, wait_us=self.settings.power.wait_us(line.accelerator_us, line.rpc_us + line.io_us))

    def _energy_uj(self, line: Timeline) -> float:
        """What the units take for the tasks, and their transfers."""
        by_rate = defaultdict[str, float](float)
        for i, task in enumerate(self.tasks):
            by_rate[task.precision.rate] += self.hmx[i]
        threads = line.hvx_threads / self.settings.costs.soc.hvx_threads  # the others take nothing
        times = UnitTimes(
            by_rate, threads * sum(self.hvx), self.fixed * len(self.tasks), line.accelerator_us, line.dram_bytes
        )
        return accelerator_uj(times, self.settings.power, self.settings.config.num_cores)

    def _work_us(
        self, critical: Sequence[Event], on_path: Sequence[float], rpc_us: float, call_us: float
    ) -> tuple[tuple[str, str, float], ...]:
        """The time that the end waited for, by matrix rate and kind of work."""
        costs, serial = self.settings.costs, min(1.0, self.settings.costs.values["serial"])
        rate = self.tasks[0].precision.rate if self.tasks else "float"
        times = defaultdict[tuple[str, str], float](float)
        times[rate, "host.call"], times[rate, "host.io"] = rpc_us, call_us - rpc_us
        for i, part in enumerate(on_path):
            if not part:
                continue
            task, rate = self.tasks[i], self.tasks[i].precision.rate
            longer = self.hmx[i] >= self.hvx[i]
            for work, weight in ((task.hmx, 1.0 if longer else serial), (task.hvx, serial if longer else 1.0)):
                for kind, amount in work.items():
                    times[rate, kind] += costs.unit_us(kind, rate) * amount * weight * part
            times[rate, "task"] += self.fixed * part
        by_rate = defaultdict[str, float](float)
        for (rate, _), us in times.items():
            by_rate[rate] += us
        rate = max(by_rate, key=lambda name: by_rate[name])  # transfers are of the tasks that the model mostly is
        times[rate, "dram"] += sum(e.end_us - e.start_us for e in critical if e.unit == "DMA")
        return tuple((*key, us) for key, us in times.items())

    def _parts(self, i: int, executed_us: float) -> tuple[float, ...]:
        """The time of a task by its members: HMX works for the first, vector work is what each asks for."""
        task, costs = self.tasks[i], self.settings.costs
        by_member = [0.0] * len(task.ops)
        by_member[0] = self.hmx[i] + self.fixed
        whole = by_member[0] + self.hvx[i]
        for kind, amount, asked, parts in self.sequence.asked(i):
            us = costs.unit_us(kind, task.precision.rate) * amount
            for k, part in parts:
                by_member[k] += us * part / asked
        return tuple(us * executed_us / whole for us in by_member)

    def _bound(self, i: int, wait: float) -> str:
        named = {"DMA": wait, "HMX": self.hmx[i], "HVX": self.hvx[i], "overhead": self.fixed}
        return max(named, key=lambda unit: named[unit])

    def _critical(self) -> tuple[tuple[Event, ...], list[float]]:
        """What the end waited for, back to the start, and the part of each task's own work that is among it."""
        path: list[Event] = []
        on_path = [0.0] * len(self.tasks)
        n = len(self.tiles)
        while n > 0:
            tile = self.tiles[n - 1]
            name, end = self.tasks[tile.task].name, self.ends[n] - self.alone_us[n]
            if self.alone_us[n]:
                path.append(Event("DMA", name, end, self.ends[n]))
            if end <= self.ready[n] + 1e-12:
                unit = "HMX" if self.hmx[tile.task] >= self.hvx[tile.task] else "HVX"
                path.append(Event(unit, name, self.ends[n - 1], end))
                on_path[tile.task] += tile.share
                n -= 1
                continue
            start = self.fetches[n][0]
            # transfers queue: back to the one that did not wait for another
            while n > 1 and start > 0 and self.fetches[n - 1][1] == start and self.ends[tile.free_after] < start:
                path.append(Event("DMA", name, start, end, round(tile.weight_bytes)))
                n, end = n - 1, start
                tile = self.tiles[n - 1]
                name, start = self.tasks[tile.task].name, self.fetches[n][0]
            path.append(Event("DMA", name, start, end, round(tile.weight_bytes)))
            n = tile.free_after if start > 0 else 0
        return tuple(reversed(path)), on_path


def _pack(graph: Graph, tasks: Sequence[Task]) -> None:
    """Set what is left of each task's weights where 8-bit values within 4 bits lie packed."""
    nodes = {node.name: node for node in graph}
    for task in tasks:
        whole = left = 0
        for value in (v for name in task.ops for v in nodes[name].inputs):
            if value is None or value.data is None or value.dtype.bits != 8 or len(value.shape) < 2:
                continue
            low = -value.encoding.offset - 8 if isinstance(value.encoding, ScaleOffset) else -8
            small = bool(value.data.size) and low <= int(value.data.min()) and int(value.data.max()) <= low + 15
            whole += value.type.size
            left += value.type.size // 2 if small else value.type.size
        task.packed = left / whole if whole else 1.0


def _shifted_task(task: Task, shift: int) -> Task:
    """The task of a later sample: its sources are `shift` tasks further on."""
    return replace(task, reads=[(source + shift if source >= 0 else source, size) for source, size in task.reads])


def _pieces(task: Task, vtcm_bytes: int) -> int:
    """Into how many pieces it is cut: none has more than an eighth of VTCM of its weights, result or operands."""
    largest = max(task.weight_bytes, task.out_bytes, *(size for _, size in task.reads), 1)
    return -(-largest // (vtcm_bytes // 8))


def _context_bytes(tasks: Sequence[Task], vtcm_bytes: int) -> int:
    """Weights, and a record for each piece the ops are cut into."""
    eighth = vtcm_bytes // 8
    pieces = sum(-(-t.weight_bytes // eighth) + -(-t.out_bytes // eighth) for t in tasks)
    return sum(t.weight_bytes for t in tasks) + OP_BYTES * pieces
