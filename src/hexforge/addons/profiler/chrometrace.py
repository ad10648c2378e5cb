# SPDX-License-Identifier: Apache-2.0
"""Chrometrace: a run for Perfetto's or Chrome's trace viewer. HTP ops lie below QNN ops, one process for each core."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hexforge.addons.profiler.record import (
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
from hexforge.chrome_trace import ChromeTrace
from hexforge.formats.validated import validated

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
        """The features that a config file sets; CallError that names every unknown one."""
        return validated(_ViewerConfig, config, where).features


@dataclass(frozen=True, slots=True)
class _ViewerConfig:
    features: ViewerFeatures = ViewerFeatures()


def chrometrace(profile: Profile, features: ViewerFeatures = ViewerFeatures()) -> dict[str, Any]:  # noqa: B008
    """The trace of all graphs' runs, one after the other."""
    trace, at, lanes = ChromeTrace(), 0.0, _span_lanes(profile)
    for graph in profile.graphs:
        for run in graph.runs:
            _Run(trace, graph, run, at, features, lanes).draw()
            at += run.netrun_us
    _name_lanes(trace, profile)
    return trace.to_json("ns")


def _name_lanes(trace: ChromeTrace, profile: Profile) -> None:
    chips = ", ".join(dict.fromkeys(graph.chip for graph in profile.graphs))
    titles = {number: _TITLES.get(name, name) for name, number in _LANES.items()}
    titles |= {number: title for title, number in _span_lanes(profile).items()}
    lanes = sorted({(event["pid"], event["tid"]) for event in trace.events if event["ph"] == "X"})
    for pid in sorted({event["pid"] for event in trace.events}):
        trace.name_process(pid, "Host" if pid == 0 else f"Core {pid - 1} ({chips})")
    for pid, tid in lanes:
        trace.name_thread(pid, tid, "Calls" if pid == 0 else titles[tid])


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
        trace: ChromeTrace,
        graph: GraphProfile,
        run: ProfiledRun,
        at: float,
        features: ViewerFeatures,
        span_lanes: Mapping[str, int],
    ) -> None:
        self.trace, self.graph, self.run, self.features, self.span_lanes = trace, graph, run, features, span_lanes
        self.cores = sorted({0, *(track.core for track in run.counters)})
        before = min((s.start_us for s in run.spans), default=0.0)
        self.host = at
        self.start = at + max((run.netrun_us - run.accelerator_us) / 2, -before)

    def draw(self) -> None:
        run = self.run
        self.trace.span(0, 1, "NetRun", self.host, self.host + run.netrun_us, {"graph": self.graph.name})
        rpc = self.host + (run.netrun_us - run.rpc_us) / 2
        self.trace.span(0, 1, "RPC (execute)", rpc, rpc + run.rpc_us)
        self.qnn_ops()
        for a in run.activities:
            self.activity(a)
        if self.features.memory_info:
            for track in run.counters:
                for at, value in zip(track.at_us, track.values, strict=True):
                    self.trace.counter(track.core + 1, track.name, self.start + at, track.unit, value)
        if self.features.runtrace:
            for s in run.spans:
                lane = self.span_lanes[f"{s.graph} {s.lane}"]
                self.trace.span(s.core + 1, lane, s.name, self.start + s.start_us, self.start + s.end_us)
        if self.features.enable_input_output_flow_events:
            self.input_output()
        if self.features.enable_sequencer_flow_events:
            self.sequencer()

    def qnn_ops(self) -> None:
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
                self.trace.span(1, _LANES["QNN ops"], op.label, begin, end, args | self.traceback(i))
            at = end

    def traceback(self, op: int) -> dict[str, Any]:
        if op < 0 or not self.features.traceback:
            return {}
        sources = self.graph.ops[op].sources
        return {"framework_ops": list(sources)} if sources else {}

    def activity(self, a: Activity) -> None:
        args: dict[str, Any] = {"qnn_op": self.graph.ops[a.op].label} if a.op >= 0 else {}
        if a.bytes:
            args["bytes"] = a.bytes
        start, end = self.start + a.start_us, self.start + a.end_us
        for core in self.cores if a.core == 0 else (a.core,):  # cores that run a graph together do the same at once
            self.trace.span(core + 1, _lane(a), a.name, start, end, args | self.traceback(a.op))

    def _by_op(self) -> dict[int, list[Activity]]:
        by_op: dict[int, list[Activity]] = defaultdict(list)
        for a in self.run.activities:
            if a.op >= 0 and a.unit not in (DMA, SERVICE):
                by_op[a.op].append(a)
        return by_op

    def input_output(self) -> None:
        """From where an op's result is made to where it is first read."""
        of = self._by_op()
        for i, op in enumerate(self.graph.ops):
            for source in op.reads:
                if of.get(i) and of.get(source):
                    self.flow_event("input-output", of[source][-1], of[i][0])

    def sequencer(self) -> None:
        """From a transfer to the op that it is for, and from each op on a unit to the next one there."""
        last: dict[tuple[str, int], Activity] = {}
        moved: dict[int, Activity] = {}
        for a in self.run.activities:
            if a.unit == SERVICE:
                continue
            if a.unit == DMA:
                moved.setdefault(a.op, a)
            elif a.op in moved and moved[a.op].end_us <= a.start_us:
                self.flow_event("sequencer", moved.pop(a.op), a)
            if (a.unit, a.core) in last:
                self.flow_event("sequencer", last[a.unit, a.core], a)
            last[a.unit, a.core] = a

    def flow_event(self, name: str, source: Activity, target: Activity) -> None:
        begin = max(source.start_us, min(source.end_us - 1e-3, target.end_us))
        if begin > target.end_us:  # an op of a later tile: nothing leads back in time
            return
        end = max(begin, target.start_us)
        self.trace.flow(
            name,
            (source.core + 1, _lane(source), self.start + begin),
            (target.core + 1, _lane(target), self.start + end),
        )
