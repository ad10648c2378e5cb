# SPDX-License-Identifier: Apache-2.0
"""Chrometrace: a run for Perfetto's or Chrome's trace viewer. HTP ops lie below QNN ops, one process for each core."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from hexforge.errors import CallError
from hexforge.formats.profile.record import (
    CHECKPOINT_SET,
    DMA,
    HMX,
    HVX,
    SERVICE,
    Activity,
    GraphProfile,
    Profile,
    ProfiledRun,
)
from hexforge.options import did_you_mean

_LANES = {"QNN ops": 1, HMX: 2, HVX: 3, DMA: 4, SERVICE: 5, CHECKPOINT_SET: 6, "CPU": 7, "GPU": 8}
_TITLES = {SERVICE: "System services", CHECKPOINT_SET: "DMA checkpoints"}
_SPANS = 10
"""The first thread of runs and yields."""


@dataclass(frozen=True, slots=True)
class ViewerFeatures:
    """What the viewer's config file switches on and off, by its own names."""

    enable_input_output_flow_events: bool = False
    enable_sequencer_flow_events: bool = False
    htp_json: bool = True
    runtrace: bool = True
    memory_info: bool = True
    traceback: bool = True
    qhas_schema: bool = False
    qhas_json: bool = False
    gzip: bool = False

    @classmethod
    def parse(cls, config: Any, where: str = "config") -> ViewerFeatures:
        """The features of a config file's content; CallError naming what is none."""
        if not isinstance(config, Mapping) or not isinstance(config.get("features", {}), Mapping):
            raise CallError(f'{where}: expected {{"features": {{…}}}}')
        if strange := [key for key in config if key != "features"]:
            raise CallError(f"{where}: has no key {strange[0]!r}{did_you_mean(str(strange[0]), ['features'])}")
        known = [field.name for field in fields(cls)]
        chosen = dict(config.get("features", {}))
        for name, value in chosen.items():
            if name not in known:
                raise CallError(f"{where}: has no feature {name!r}{did_you_mean(str(name), known)}; it has {known}")
            if not isinstance(value, bool):
                raise CallError(f"{where}: {name} is {value!r}; it is true or false")
        return cls(**chosen)


def chrometrace(profile: Profile, features: ViewerFeatures = ViewerFeatures()) -> dict[str, Any]:  # noqa: B008
    """The trace of all graphs' runs, one after the other."""
    events: list[dict[str, Any]] = []
    named: set[tuple[int, int]] = set()
    at, flow, lanes = 0.0, 0, _span_lanes(profile)
    for graph in profile.graphs:
        for run in graph.runs:
            drawn = _Run(graph, run, at, features, lanes, flow)
            events += drawn.events()
            named |= drawn.lanes
            at += run.netrun_us
            flow = drawn.flow
    return {"traceEvents": [*_names(profile, named), *events], "displayTimeUnit": "ns"}


def _names(profile: Profile, named: set[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    chips = ", ".join(dict.fromkeys(graph.chip for graph in profile.graphs))
    titles = {number: _TITLES.get(name, name) for name, number in _LANES.items()}
    titles |= {number: title for title, number in _span_lanes(profile).items()}
    for pid in sorted({pid for pid, _ in named}):
        name = "Host" if pid == 0 else f"Core {pid - 1} ({chips})"
        yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    for pid, tid in sorted(named):
        title = "Calls" if pid == 0 else titles[tid]
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": title}}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _span_lanes(profile: Profile) -> dict[str, int]:
    """Runs and yields of each graph have a lane of their own, by the titles that QNN's guide gives them."""
    lanes: dict[str, int] = {}
    for graph in profile.graphs:
        for run in graph.runs:
            for span in run.spans:
                lanes.setdefault(f"{span.graph} {span.lane}", _SPANS + len(lanes))
    return lanes


def _lane(a: Activity) -> int:
    """A thread for each unit, one for what the main thread waits for, one for checkpoints, which are set meanwhile."""
    return _LANES[CHECKPOINT_SET] if a.name == CHECKPOINT_SET else _LANES.get(a.unit, _LANES[SERVICE])


class _Run:
    """One run on the trace's clock."""

    def __init__(
        self,
        graph: GraphProfile,
        run: ProfiledRun,
        at: float,
        features: ViewerFeatures,
        span_lanes: Mapping[str, int],
        flow: int,
    ) -> None:
        self.graph, self.run, self.features, self.flow = graph, run, features, flow
        self.span_lanes = span_lanes
        before = min((s.start_us for s in run.spans), default=0.0)
        self.host = at
        self.start = at + max((run.netrun_us - run.accelerator_us) / 2, -before)
        self.lanes: set[tuple[int, int]] = set()

    def events(self) -> list[dict[str, Any]]:
        run = self.run
        events = [self.span(0, 1, "NetRun", self.host, self.host + run.netrun_us, graph=self.graph.name)]
        rpc = self.host + (run.netrun_us - run.rpc_us) / 2
        events.append(self.span(0, 1, "RPC (execute)", rpc, rpc + run.rpc_us))
        events += self.qnn_ops()
        for a in run.activities:
            events.append(self.activity(a))
        if self.features.memory_info:
            events += self.counters()
        if self.features.runtrace:
            for s in run.spans:
                lane = self.span_lanes[f"{s.graph} {s.lane}"]
                events.append(self.span(s.core + 1, lane, s.name, self.start + s.start_us, self.start + s.end_us))
        if self.features.enable_input_output_flow_events:
            events += self.input_output()
        if self.features.enable_sequencer_flow_events:
            events += self.sequencer()
        return events

    def span(self, pid: int, tid: int, name: str, start: float, end: float, **args: Any) -> dict[str, Any]:
        self.lanes.add((pid, tid))
        ts, until = round(start, 4), round(end, 4)
        return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": ts, "dur": round(until - ts, 4), "args": args}

    def qnn_ops(self) -> Iterator[dict[str, Any]]:
        """Ops on the main thread, each after what it waited for."""
        first: dict[int, float] = {}
        for a in self.run.activities:
            if a.unit != DMA:
                first.setdefault(a.op, a.start_us)
        order = sorted(range(len(self.run.costs)), key=lambda i: (first.get(i, float("inf")), i))
        at = self.start
        mhz = self.graph.clock_mhz or 1.0
        for i in order:
            op, cost = self.graph.ops[i], self.run.costs[i]
            begin, end = at + cost.wait / mhz, at + (cost.wait + cost.cycles) / mhz
            if cost.cycles:
                args = {"type": op.type, "cycles": cost.cycles, "wait": cost.wait, "overlap": cost.overlap}
                yield self.span(1, _LANES["QNN ops"], op.label, begin, end, **args, **self.traceback(i))
            at = end

    def traceback(self, op: int) -> dict[str, Any]:
        if op < 0 or not self.features.traceback:
            return {}
        sources = self.graph.ops[op].sources
        return {"framework_ops": list(sources)} if sources else {}

    def activity(self, a: Activity) -> dict[str, Any]:
        args: dict[str, Any] = {"qnn_op": self.graph.ops[a.op].label} if a.op >= 0 else {}
        if a.bytes:
            args["bytes"] = a.bytes
        lane = _lane(a)
        start, end = self.start + a.start_us, self.start + a.end_us
        return self.span(a.core + 1, lane, a.name, start, end, **args, **self.traceback(a.op))

    def counters(self) -> Iterator[dict[str, Any]]:
        for track in self.run.counters:
            for at, value in zip(track.at_us, track.values, strict=True):
                ts = round(self.start + at, 4)
                args = {track.unit: round(value, 4)}
                yield {"ph": "C", "pid": track.core + 1, "tid": 0, "name": track.name, "ts": ts, "args": args}

    def _by_op(self) -> dict[int, list[Activity]]:
        by_op: dict[int, list[Activity]] = defaultdict(list)
        for a in self.run.activities:
            if a.op >= 0 and a.unit not in (DMA, SERVICE):
                by_op[a.op].append(a)
        return by_op

    def input_output(self) -> Iterator[dict[str, Any]]:
        """From where an op's result is made to where it is first read."""
        of = self._by_op()
        for i, op in enumerate(self.graph.ops):
            for source in op.reads:
                if of.get(i) and of.get(source):
                    yield from self.flow_event("input-output", of[source][-1], of[i][0])

    def sequencer(self) -> Iterator[dict[str, Any]]:
        """From a transfer to the op that it is for, and from each op on a unit to the next one there."""
        last: dict[tuple[str, int], Activity] = {}
        moved: dict[int, Activity] = {}
        for a in self.run.activities:
            if a.unit == SERVICE:
                continue
            if a.unit == DMA:
                moved.setdefault(a.op, a)
            elif a.op in moved and moved[a.op].end_us <= a.start_us:
                yield from self.flow_event("sequencer", moved.pop(a.op), a)
            if (a.unit, a.core) in last:
                yield from self.flow_event("sequencer", last[a.unit, a.core], a)
            last[a.unit, a.core] = a

    def flow_event(self, name: str, source: Activity, target: Activity) -> Iterator[dict[str, Any]]:
        begin = max(source.start_us, min(source.end_us - 1e-3, target.end_us))
        if begin > target.end_us:  # an op of a later tile: nothing leads back in time
            return
        self.flow += 1
        for phase, a, at in (("s", source, begin), ("f", target, max(begin, target.start_us))):
            lane, more = _lane(a), {"bp": "e"} if phase == "f" else {}
            ts = round(self.start + at, 4)
            yield {"ph": phase, "pid": a.core + 1, "tid": lane, "name": name, "cat": name, "id": self.flow, "ts": ts,
                   **more}  # fmt: skip
