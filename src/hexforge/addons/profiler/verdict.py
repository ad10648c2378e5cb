# SPDX-License-Identifier: Apache-2.0
"""Verdict: what bounds a profiled graph, in sentences; and the activity that comes first at each moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hexforge.addons.profiler.record import (
    CHECKPOINT_SET,
    CHECKPOINT_WAIT,
    FIRST_NODE,
    HMX,
    HVX,
    MEASURED,
    READ,
    SYNC,
    SYSTEM,
    WRITE,
    Activity,
    GraphProfile,
    OpCost,
    Profile,
    ProfiledRun,
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


LEAST_SHARE = 0.05
"""A smaller share of the time is not reported as a reason."""
LOW_OVERLAP = 0.25
SHORT_US = 2.0
"""Ops below this take about as long to start as to run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why a graph takes its time."""

    title: str
    share: float
    """The part of the call, or of the accelerator's time, that it explains."""
    text: str
    try_this: str
    ops: tuple[int, ...] = ()
    """Places of the ops that it speaks of, those that matter most first."""


_BY_PRIORITY = {
    "HMX": ("The matrix unit is what most of the time goes to", "Fewer channels, a smaller image or 8-bit weights and "
            "activations make it less; depths that are multiples of 32 waste none of it."),
    "HVX": ("The vector units are what most of the time goes to", "Ops that fold into a convolution (ReLU, batch "
            "normalization), multiplications for divisions, and 8 instead of 16 bits make it less."),
    "DMA read": ("Nothing works but transfers from DRAM", "Smaller weights (8 or 4 bits) and activations that fit "
                 "VTCM need fewer; tiles of a smaller image leave VTCM room to fetch ahead."),
    "DMA write": ("Nothing works but transfers to DRAM", "Activations that fit VTCM are not written out: a smaller "
                  "image or fewer channels where the picture is still large."),
    "checkpoint": ("The main thread waits for transfers", "Smaller weights or activations, or more VTCM "
                   "(`--vtcm-mb`), let transfers end before they are needed."),
    "system": ("Starting ops takes the time", "Fewer, larger ops: fuse, or run several samples in a batch."),
    "kernel": ("Kernels on this computer take the time", "This is what the model takes here, and says nothing of a "
               "chip; profile it on the htp backend."),
}  # fmt: skip


def bottlenecks(graph: GraphProfile, run: ProfiledRun) -> list[int]:
    """Places of the network's own ops by what they take of the main thread, longest first."""
    nodes = [i for i, op in enumerate(graph.ops) if op.id >= FIRST_NODE and run.costs and run.costs[i].cycles]
    return sorted(nodes, key=lambda i: -run.costs[i].cycles)


def findings(profile: Profile, graph: GraphProfile, run: ProfiledRun) -> list[Finding]:
    """Why a run takes as long as it does."""
    all_findings = [*_units(run), *_longest(graph, run), *_background(graph, run), *_short(graph, run)]
    all_findings += _gaps(graph, run) if profile.source == MEASURED else _memory(graph, run)
    host = run.netrun_us - run.accelerator_us
    if profile.source != MEASURED and run.netrun_us and host / run.netrun_us > 0.3:
        text = f"{host:.0f} of {run.netrun_us:.0f} µs are the call to the chip and its inputs and outputs."
        hint = "Batches and several threads share that cost; burst mode polls instead of sleeping."
        all_findings.append(Finding("The call itself weighs", host / run.netrun_us, text, hint))
    if run.yields:
        text = f"It gave way {run.yields} times to a model of higher priority."
        all_findings.append(
            Finding("It is interrupted", 1.0, text, "Give it a higher priority, or run the others at other times.")
        )
    return sorted((f for f in all_findings if f.share >= LEAST_SHARE), key=lambda f: -f.share)


def _units(run: ProfiledRun) -> list[Finding]:
    times: dict[str, float] = defaultdict(float)
    for piece in dominant_path(run.activities):
        times[piece.priority] += piece.us
    whole = sum(times.values())
    if not whole:
        return []
    most = max((name for name in times if name in _BY_PRIORITY), key=lambda name: times[name], default="")
    if not most:
        return []
    title, hint = _BY_PRIORITY[most]
    text = ", ".join(
        f"{name} {100 * us / whole:.0f} %"
        for name, us in sorted(times.items(), key=lambda t: -t[1])
        if us >= 0.005 * whole
    )
    return [Finding(title, times[most] / whole, f"What comes first, moment by moment: {text}.", hint)]


def _longest(graph: GraphProfile, run: ProfiledRun) -> list[Finding]:
    order = bottlenecks(graph, run)
    if not order:
        return []
    first = order[0]
    op, cost = graph.ops[first], run.costs[first]
    share = cost.cycles / run.critical_cycles
    same = [i for i in order if graph.ops[i].type == op.type]
    together = sum(run.costs[i].cycles for i in same) / run.critical_cycles
    beside = f"; for {100 * cost.overlap / max(cost.cycles, 1):.0f} % of it something else is at work beside it"
    text = f"{op.name} ({op.type}) takes {100 * share:.0f} % of the critical path, {cost.cycles:,} cycles{beside}."
    if len(same) > 1:
        text += f" All {len(same)} {op.type} together take {100 * together:.0f} %."
    hint = "`hexforge advise` tries rewrites of it and says what each gains."
    return [Finding(f"{op.type} is the bottleneck", max(share, together), text, hint, tuple(same[:5]))]


def _background(graph: GraphProfile, run: ProfiledRun) -> list[Finding]:
    """Ops that take long while nothing else is at work."""
    lone = [i for i in bottlenecks(graph, run) if run.costs[i].resources and _overlap(run.costs[i]) < LOW_OVERLAP]
    share = sum(run.costs[i].cycles for i in lone) / run.critical_cycles if run.critical_cycles else 0.0
    if not lone or share < LEAST_SHARE:
        return []
    text = f"{len(lone)} ops, {100 * share:.0f} % of the critical path, have next to nothing at work beside them."
    hint = "They are worth shortening first: nothing else hides behind them."
    return [Finding("Little goes on in the background", share / 3, text, hint, tuple(lone[:5]))]


def _overlap(cost: OpCost) -> float:
    return cost.overlap / cost.cycles if cost.cycles else 1.0


def _memory(graph: GraphProfile, run: ProfiledRun) -> list[Finding]:
    waits = sum(c.wait for c in run.costs)
    share = waits / run.critical_cycles if run.critical_cycles else 0.0
    if share < LEAST_SHARE:
        return []
    order = sorted((i for i, c in enumerate(run.costs) if c.wait), key=lambda i: -run.costs[i].wait)
    moved = sum(a.bytes for a in run.activities if a.name in (READ, WRITE))
    op = graph.ops[order[0]]
    text = (
        f"Waits for transfers take {100 * share:.0f} % of the critical path"
        + (f", {moved / 2**20:.1f} MiB are moved" if moved else "")
        + f"; {op.name or 'the start'} waits longest."
    )
    hint = "Weights of 8 or 4 bits, a smaller image, or a larger VTCM budget leave less to wait for."
    return [Finding("It waits for memory", share, text, hint, tuple(order[:5]))]


def _gaps(graph: GraphProfile, run: ProfiledRun) -> list[Finding]:
    waits = sum(c.wait for c in run.costs)
    share = waits / run.critical_cycles if run.critical_cycles else 0.0
    order = sorted((i for i, c in enumerate(run.costs) if c.wait), key=lambda i: -run.costs[i].wait)
    if not order:
        return []
    text = f"Between kernels {100 * share:.0f} % of the time passes, most of it before {graph.ops[order[0]].name}."
    hint = "Larger ops, or fewer of them, leave less time between two."
    return [Finding("It waits between kernels", share, text, hint, tuple(order[:5]))]


def _short(graph: GraphProfile, run: ProfiledRun) -> list[Finding]:
    least = SHORT_US * graph.clock_mhz
    small = [i for i in bottlenecks(graph, run) if run.costs[i].cycles < least]
    share = sum(run.costs[i].cycles for i in small) / run.critical_cycles if run.critical_cycles else 0.0
    if len(small) < 20:
        return []
    text = f"{len(small)} ops of less than {SHORT_US:.0f} µs each take {100 * share:.0f} % of the critical path."
    return [
        Finding("Many small ops", share, text, "Fuse them, or let one op do the work of several.", tuple(small[:5]))
    ]
