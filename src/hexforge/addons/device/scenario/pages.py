# SPDX-License-Identifier: Apache-2.0
"""Pages: a played scenario with its memory and cores over time, executions, steps; and a plan with its proof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean

from hexforge.addons.device.scenario.plan import PlanOutcome
from hexforge.addons.device.scenario.play import PlayedScenario, StepOutcome
from hexforge.addons.device.scenario.search import PlanResult
from hexforge.report.page import sections_page
from hexforge.report.section import Bars, Column, Figure, Figures, Plot, Section, Series, Table

MB, GB = 1 << 20, 1 << 30
MOST_STEPS = 2000
LANES_MS = 200.0
"""What of a plan a Gantt chart shows."""
POINTS = 1500
"""The most points of a line; more cannot be told apart."""


_STEPS = (
    Column("from ms", "number", 3, of=lambda step: step.start_us / 1e3),
    Column("took ms", "number", 3, of=lambda step: (step.end_us - step.start_us) / 1e3, leaves=2),
    Column("process", choose=True),
    Column("thread", "number", 0),
    Column("step", choose=True, of="step.do"),
    Column("code", choose=True, of=lambda step: step.code or "ok"),
    Column("as the script says", choose=True, of=lambda step: "yes" if step.as_expected else "UNEXPECTED"),
    Column("what", of=lambda step: step.message or step.step.note, leaves=1),
)


def device_page(played: PlayedScenario, name: str) -> str:
    """The page."""
    summary, *runs = played_sections(played, played.steps[:MOST_STEPS])
    return sections_page(name, [summary, _memory(played), _occupancy(played), *runs])


def played_sections(played: PlayedScenario, steps: Sequence[StepOutcome]) -> list[Section]:
    """What came of a scenario in figures, its executions, and some of its steps."""
    return [_summary(played), _executions(played), Section("Steps", [Table.of(_STEPS, steps)])]


def plan_page(result: PlanResult, name: str) -> str:
    """A plan: what it gives compared with what one gets without, the plans that were tried, and the first frames."""
    return sections_page(name, [plan_figures(result), _tried_plans(result), *_first_frames(result)])


def plan_figures(result: PlanResult) -> Section:
    """What a plan gives, model by model and in all, compared with what one gets without."""
    best, naive = result.best, result.naive
    shown = best or naive
    planned = {m.name: m for m in shown.models}
    columns = (
        Column("model"), Column("deadline ms", "number", 3), Column("p99 ms", "number", 3),
        Column("p99 ms, without", "number", 3), Column("worst ms", "number", 3),
        Column("worst ms, without", "number", 3), Column("late", "number", 0), Column("late, without", "number", 0),
        Column("priority"), Column("VTCM MB"),
    )  # fmt: skip
    rows = [
        (row.name, row.deadline_us / 1e3, planned[row.name].p99_us / 1e3, row.p99_us / 1e3,
         planned[row.name].worst_us / 1e3, row.worst_us / 1e3, planned[row.name].late, row.late,
         shown.plan.priorities[row.name].name, str(shown.plan.vtcm_mb.get(row.name, "as prepared")))
        for row in naive.models
    ]  # fmt: skip
    figures = [
        Figure("RAM", f"{shown.ram_bytes / MB:,.1f} MB", f"{naive.ram_bytes / MB:,.1f} without"),
        Figure("sessions", str(shown.sessions), f"{naive.sessions} without"),
        Figure("energy (assumed)", f"{shown.energy_mw:,.1f} mW", f"{naive.energy_mw:,.1f} without"),
        Figure("profile", shown.plan.profile, f"{naive.plan.profile} without"),
    ]
    verdict = "Every deadline and limit is kept." if best else "No plan: " + "; ".join(result.reasons)
    title = f"The plan for {result.aim} on {result.workload.soc.name}"
    return Section(title, [Figures(figures, verdict), Table(columns, rows)], best.plan.text() if best else "")


def _tried_plans(result: PlanResult) -> Section:
    kinds = {"tried": result.tried, "without a plan": (result.naive,)}
    if result.best is not None:
        kinds["chosen"] = (result.best,)
    y = "p99, % of the deadline (largest)"

    def against(name: str, title: str, value: Callable[[PlanOutcome], float]) -> Plot:
        series = [
            Series(
                kind,
                [(value(o), 100 * o.slack) for o in outcomes],
                [o.plan.profile for o in outcomes],
                large=kind == "chosen",
            )
            for kind, outcomes in kinds.items()
        ]
        return Plot(name, y, series, title)

    ram = against("RAM MB", "RAM and latency", lambda o: o.ram_bytes / MB)
    energy = against("mW (assumed)", "Energy and latency", lambda o: o.energy_mw)
    return Section("Plans that were played", [ram, energy])


def _first_frames(result: PlanResult) -> list[Section]:
    """A Gantt chart of the first runs: a lane for each model."""
    if result.played is None:
        return []
    names = [model.name for model in result.workload.models]
    lanes: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    begun: float | None = None
    for entry in result.played.device.log.of("execute_start", "restore", "yield", "execute_end"):
        at = entry["at_us"] / 1e3
        begun = at if begun is None else begun
        if at > begun + LANES_MS:
            break
        name = entry["graph"].partition("#")[0]
        lane, on = names.index(name) + 1, entry["event"] in ("execute_start", "restore")
        lanes[name] += [(at, lane - 0.4), (at, lane)] if on else [(at, lane), (at, lane - 0.4)]
    series = [Series(name, points) for name, points in lanes.items()]
    lane_names = ", ".join(f"{k} {name}" for k, name in enumerate(names, 1))
    drawn = Plot("ms", "model at work", series, f"The first {LANES_MS:g} ms: lane {lane_names}", lines=True)
    return [Section("Gantt chart", [drawn])]


def _summary(played: PlayedScenario) -> Section:
    device = played.device
    runs = sum(map(len, played.executed.values()))
    peak = device.log.peak_bytes
    sessions = device.memory.sessions.values()
    held = ", ".join(f"{s.process}/{s.index} {s.used_bytes / MB:.1f} MB" for s in sessions)
    wrong = len(played.unexpected)
    figures = [
        Figure("simulated", f"{device.clock.now_us / 1e3:,.1f} ms", f"{len(device.log.entries):,} events"),
        Figure("executions", f"{runs:,}", f"{len(device.log.of('yield')):,} yields"),
        Figure("memory, most", f"{peak / GB:.2f} GB", f"at the end {held or 'no session'}"),
        Figure("faults", f"{len(device.log.of('fault')):,}", f"{len(device.log.of('recovered')):,} contexts recovered"),
        Figure("energy (assumed)", f"{device.energy_uj / 1e3:,.2f} mJ", "no figure of it is measured"),
    ]
    verdict = "every step went as the script says" if not wrong else f"{wrong} steps did not go as the script says"
    return Section(f"On {device.soc.name}", [Figures(figures, verdict)])


def _memory(played: PlayedScenario) -> Section:
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    used: dict[int, tuple[str, int]] = {}
    for entry in played.device.log.entries:
        kind = entry["event"]
        if kind == "session_open":
            used[entry["session"]] = f"{entry['process']} session {entry['index']}", 0
        elif kind in ("allocate", "release", "session_close"):
            label = used[entry["session"]][0]
            before = lines[label][-1][1] if lines[label] else 0.0
            now = 0.0 if kind == "session_close" else entry["used_bytes"] / GB
            lines[label] += [(entry["at_us"] / 1e3, before), (entry["at_us"] / 1e3, now)]
    end = played.device.clock.now_us / 1e3
    series = [Series(label, [*_thin_points(points), (end, points[-1][1])]) for label, points in lines.items()]
    kinds: dict[str, int] = defaultdict(int)
    for entry in played.device.log.of("allocate"):
        kinds[entry["what"]] += entry["bytes"]
    parts: list[Plot | Bars] = [Plot("ms", "GB", series, "Addresses in use, by session", lines=True)]
    if kinds:
        top = sorted(kinds, key=lambda k: -kinds[k])
        parts.append(Bars(top, [kinds[k] / GB for k in top], "GB", "Allocated in all, by what for"))
    return Section("Memory", parts, "A session has 3.75 GB.")


def _occupancy(played: PlayedScenario) -> Section:
    log = played.device.log
    running: dict[int, tuple[int, float]] = {}
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def mark(core: int, at: float, on: int) -> None:
        busy[f"core {core}"] += [(at, 1 - on), (at, on)]

    for entry in log.of("execute_start", "execute_end", "yield", "restore"):
        kind, at = entry["event"], entry["at_us"] / 1e3
        if kind in ("execute_start", "restore"):
            if entry["job"] not in running:
                running[entry["job"]] = entry["core"], at
                mark(entry["core"], at, 1)
        elif entry["job"] in running:
            core, _ = running.pop(entry["job"])
            mark(core, at, 0)
    votes = [(e["at_us"] / 1e3, e["process"], e["state"]) for e in log.of("power_state")]
    columns = (Column("ms", "number", 3), Column("process"), Column("power state", choose=True))
    parts: list[Plot | Table] = [
        Plot("ms", "busy", [Series(n, _thin_points(p)) for n, p in sorted(busy.items())], "Cores at work", lines=True)
    ]
    if votes:
        parts.append(Table(columns, votes[:MOST_STEPS], "Votes"))
    return Section("Occupancy", parts)


def _executions(played: PlayedScenario) -> Section:
    rows = []
    for name, runs in played.executed.items():
        times = [run.latency_us for run in runs]
        process, _, graph = name.partition(" ")
        rows.append(
            (
                process, graph, len(runs), mean(times) / 1e3, max(times) / 1e3, sum(r.yields for r in runs),
                sum(r.moved_us for r in runs) / 1e3, sum(r.loaded for r in runs), mean(r.energy_uj for r in runs),
            )
        )  # fmt: skip
    columns = (
        Column("process", choose=True), Column("graph"), Column("runs", "number", 0, "sum"),
        Column("mean ms", "number", 3), Column("longest ms", "number", 3, "max"), Column("yields", "number", 0, "sum"),
        Column("VTCM moved ms", "number", 3, "sum"), Column("loads", "number", 0, "sum"),
        Column("µJ (assumed)", "number", 1),
    )  # fmt: skip
    return Section("Executions", [Table(columns, rows)])


def _thin_points(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A line with so many points that a screen shows."""
    step = -(-len(points) // POINTS)
    return points[::step]
