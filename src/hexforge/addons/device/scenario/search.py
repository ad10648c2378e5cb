# SPDX-License-Identifier: Apache-2.0
"""Search: the best plan of a workload: proposed by bounds, judged by playing, proven by playing longer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.device.scenario.plan import DevicePlan, PlanOutcome, loaded_us, naive_plan, prove, scenario
from hexforge.addons.device.scenario.play import PlayedScenario
from hexforge.addons.device.scenario.proposals import Aim, Infeasible, PlanProblem
from hexforge.addons.device.scenario.workload import RatedGraph, Workload
from hexforge.formats.files import write_atomically
from hexforge.results import Key, Result

PROPOSALS = 12
"""Plans that are played before one is chosen."""
TRIAL_FRAMES = 500
"""Runs of the most frequent model in a trial."""
FRAMES = 10_000
"""And in the proof."""


@dataclass(frozen=True, slots=True)
class PlanResult(Result):
    """What a search found."""

    workload: Workload
    aim: Aim
    naive: PlanOutcome
    best: PlanOutcome | None
    """None where no plan keeps every deadline and limit."""
    tried: tuple[PlanOutcome, ...]
    reasons: tuple[str, ...] = ()
    """Why there is none."""
    played: PlayedScenario | None = None
    """The best plan's proof."""

    described = (
        Key("soc", of="workload.soc.name"),
        Key("for", of="aim"),
        Key("plan", of="best"),
        "reasons",
        Key("without_plan", of="naive"),
        "tried",
    )


def search_plan(
    workload: Workload, aim: Aim = Aim.LATENCY, frames: int = FRAMES, tell: Callable[[str], None] = lambda _: None
) -> PlanResult:
    """The plan that is best at something among those that keep every deadline and limit."""
    tell("playing what one gets without a plan")
    naive, _ = prove(workload, naive_plan(workload), frames)
    tell("asking the solver")
    problem = PlanProblem(workload, aim)
    impossible = problem.infeasible()
    if isinstance(impossible, Infeasible):
        return PlanResult(workload, aim, naive, None, (), impossible.reasons)
    tried: list[PlanOutcome] = []
    for plan in problem.proposals(PROPOSALS):
        tell(f"playing proposal {len(tried) + 1} of {PROPOSALS}")
        tried.append(prove(workload, plan, min(frames, TRIAL_FRAMES))[0])
    kept = [outcome for outcome in tried if not outcome.broken(workload)]
    for outcome in sorted(kept, key=lambda o: _worth(aim, o)):
        tell(f"proving the best with {frames:,} frames")
        proven, played = prove(workload, outcome.plan, frames)
        if not proven.broken(workload):
            return PlanResult(workload, aim, naive, proven, tuple(tried), (), played)
    nearest = min(tried, key=lambda o: (len(o.broken(workload)), o.slack))
    return PlanResult(workload, aim, naive, None, tuple(tried), tuple(nearest.broken(workload)))


def _worth(aim: Aim, outcome: PlanOutcome) -> tuple[float, ...]:
    """What comes first is better."""
    slack, ram, energy = outcome.slack, float(outcome.ram_bytes), outcome.energy_mw
    first = {Aim.LATENCY: (slack,), Aim.RAM: (ram,), Aim.ENERGY: (energy,), Aim.SESSIONS: (float(outcome.sessions),)}
    return (*first[aim], slack, ram, energy)


def write_plan(result: PlanResult, folder: Path, frames: int) -> list[Path]:
    """Write the config files of QNN's tools for each context, the scenario that proves the plan, and its figures."""
    assert result.best is not None
    plan, workload = result.best.plan, result.workload
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []

    def write(name: str, data: Any) -> None:
        path = folder / name
        write_atomically(path, (json.dumps(data, indent=2) + "\n").encode())
        made.append(path)

    for model in workload.models:
        write(f"{model.name}_htp.json", _htp_file(workload, plan, model))
        write(f"{model.name}.json", _tool_file(plan, model))
    named = {model.name: str(model.file.resolve()) for model in workload.models}
    write("scenario.json", scenario(workload, plan, frames, loaded_us(workload, plan), named))
    write("plan.json", result.to_json())
    return made


def _htp_file(workload: Workload, plan: DevicePlan, model: RatedGraph) -> dict[str, Any]:
    name = model.name
    made: dict[str, Any] = {
        "devices": [{"soc_model": workload.soc.soc_model, "cores": [{"core_id": 0, "perf_profile": plan.profile}]}]
    }
    if name in plan.vtcm_mb:
        made["graphs"] = [{"graph_names": [s.name for s in model.binary.graphs], "vtcm_mb": plan.vtcm_mb[name]}]
    if name in plan.group and not plan.concurrent:
        spill = max(sum(s.spill_fill_bytes for s in m.binary.graphs) for m in workload.models if m.name in plan.group)
        made["context"] = {"max_spill_fill_buffer_for_group": max(spill, 1)}
    if plan.group and plan.concurrent:
        made["groupContext"] = {"share_resources": True}
    return made


def _tool_file(plan: DevicePlan, model: RatedGraph) -> dict[str, Any]:
    name = model.name
    context: dict[str, Any] = {"context_priority": plan.priorities[name].name.lower()}
    if name in plan.switched:
        context |= {"is_persistent_binary": True, "memory_limit_hint": 1, "graph_retention_order": [model.graph]}
    library = "libQnnHtpNetRunExtensions.so"
    return {
        "backend_extensions": {"shared_library_path": library, "config_file_path": f"{name}_htp.json"},
        "context_configs": context,
    }
