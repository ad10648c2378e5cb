# SPDX-License-Identifier: Apache-2.0
"""Plan: how the models of a workload are loaded and driven, as a scenario that is played to prove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.configs import SharingType
from hexforge.addons.device.scenario.play import PlayedScenario, play
from hexforge.addons.device.scenario.script import parse_script
from hexforge.addons.device.scenario.workload import Workload
from hexforge.chips.graph_config import MB
from hexforge.chips.priority import Priority
from hexforge.results import Key, Result

NAIVE_PROFILE = "high_performance"
"""What QNN's tools take unless told otherwise."""
LOADED_US = 1e5
"""Runs begin this long after the last context is loaded."""


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """How the models of a workload are loaded and driven."""

    order: tuple[str, ...]
    """Contexts in the order in which they are created."""
    priorities: Mapping[str, Priority]
    profile: str = NAIVE_PROFILE
    group: tuple[str, ...] = ()
    """Contexts that share one spill-fill buffer and run one after the other."""
    concurrent: bool = False
    """Whether they share it while they run at the same time instead (a list with CONCURRENT_OPTIMIZATION, v81)."""
    vtcm_mb: Mapping[str, int] = field(default_factory=dict)
    """Models that are prepared again for so much VTCM."""
    switched: tuple[str, ...] = ()
    """Contexts whose other graphs are loaded only when they are to run."""

    def text(self) -> str:
        """How the models are loaded, in words."""
        parts = [f"profile {self.profile}; load in the order {', '.join(self.order)}"]
        if self.group:
            parts.append(f"one spill-fill buffer for {', '.join(self.group)}")
        if self.switched:
            parts.append(f"graphs of {', '.join(self.switched)} are loaded when they are to run")
        if self.vtcm_mb:
            parts.append(f"compile these again with the VTCM that the plan gives: {', '.join(self.vtcm_mb)}")
        return "; ".join(parts)


def naive_plan(workload: Workload) -> DevicePlan:
    """What one gets without a plan: the order of the file, one priority, the tools' profile, nothing shared."""
    return DevicePlan(
        tuple(model.name for model in workload.models),
        {m.name: Priority.NORMAL if Priority.NORMAL in m.priorities else m.priorities[0] for m in workload.models},
    )


@dataclass(frozen=True, slots=True)
class PlannedRuns(Result):
    """How the runs of one model went."""

    name: str
    runs: int
    p50_us: float
    p99_us: float
    worst_us: float
    late: int
    """Runs that ended after the deadline."""
    deadline_us: float

    described = (
        "runs",
        Key("p50_us", rounded=3),
        Key("p99_us", rounded=3),
        Key("worst_us", rounded=3),
        "late deadline_us",
    )

    @property
    def in_time(self) -> bool:
        """Whether 99 of 100 runs ended before the deadline."""
        return self.p99_us <= self.deadline_us


@dataclass(frozen=True, slots=True)
class PlanOutcome(Result):
    """A plan that was played."""

    plan: DevicePlan
    models: tuple[PlannedRuns, ...]
    ram_bytes: int
    """The most that sessions had in use."""
    sessions: int
    energy_mw: float
    """Assumed: nothing of it is measured."""
    failed: str = ""
    """The first step that went wrong."""

    described = (
        Key("order", of="plan.order"),
        Key("priorities", of=lambda outcome: {name: level.name for name, level in outcome.plan.priorities.items()}),
        *(Key(name, of=f"plan.{name}") for name in ("profile", "group", "concurrent", "vtcm_mb", "switched")),
        "ram_bytes sessions",
        Key("energy_mw_assumed", of="energy_mw", rounded=3),
        Key("models", of=lambda outcome: {runs.name: runs for runs in outcome.models}),
    )

    @property
    def slack(self) -> float:
        """The largest share of its deadline that a model's 99th percentile takes: below 1 all are in time."""
        return max(model.p99_us / model.deadline_us for model in self.models) if self.models else float("inf")

    def broken(self, workload: Workload) -> list[str]:
        """What of the workload's deadlines and limits it does not keep."""
        limits, wrong = workload.limits, [self.failed] if self.failed else []
        wrong += [
            f"{m.name}: 99 of 100 runs take {m.p99_us / 1e3:.3f} ms, its deadline is {m.deadline_us / 1e3:g} ms"
            for m in self.models
            if not m.in_time
        ]
        if self.ram_bytes > limits.ram_bytes:
            wrong.append(f"RAM: {self.ram_bytes / MB:,.1f} MB, the limit is {limits.ram_bytes / MB:,.1f} MB")
        if limits.sessions is not None and self.sessions > limits.sessions:
            wrong.append(f"sessions: {self.sessions}, the limit is {limits.sessions}")
        if limits.energy_mw is not None and self.energy_mw > limits.energy_mw:
            wrong.append(f"energy: {self.energy_mw:.1f} mW (assumed), the limit is {limits.energy_mw:g} mW")
        return wrong


def binary_of(workload: Workload, plan: DevicePlan, name: str) -> Binary:
    """A model's binary, its graph prepared for the VTCM that the plan gives it."""
    model = next(m for m in workload.models if m.name == name)
    size = plan.vtcm_mb.get(name)
    if size is None:
        return model.binary
    return model.binary.with_vtcm(size)


def scenario(
    workload: Workload, plan: DevicePlan, frames: int, begin_us: float, files: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The plan as the data of a scenario, which `hexforge device` plays; `files` are context files to name in it."""
    by_name = {model.name: model for model in workload.models}
    loader: list[dict[str, Any]] = []
    grouped = [name for name in plan.order if name in plan.group]
    size = max((_spill_bytes(by_name[n].binary) for n in grouped), default=0)
    if plan.concurrent and grouped:
        contexts = [{"context": n, "binary": n, "config": _config(workload, plan, n)} for n in grouped]
        loader.append(
            {"do": "create_list", "contexts": contexts, "share_resources": True,
             "optimization_type": SharingType.CONCURRENT_OPTIMIZATION.value}
        )  # fmt: skip
    for name in plan.order:
        if plan.concurrent and name in grouped:
            continue
        config = _config(workload, plan, name)
        if name in grouped:
            group: dict[str, Any] = {"max_spill_fill_bytes": max(size, 1)}
            config["register_multi_contexts"] = group if name == grouped[0] else {"first": grouped[0], **group}
        loader.append({"do": "create", "context": name, "binary": name, "config": config})
    span_us = frames * workload.frame_us
    threads = [loader]
    for number, model in enumerate(workload.models):
        runs = max(1, int(span_us // model.period_us))
        execute = {
            "do": "execute", "graph": f"{model.name}/{model.graph}", "times": runs, "period_us": model.period_us,
            "recover": True, "seed": number,
        }  # fmt: skip
        if model.jitter_us:
            execute["jitter_us"] = model.jitter_us
        threads.append([{"do": "sleep", "us": begin_us}, execute])
    process = {"name": "app", "privileged": workload.privileged, "profile": plan.profile, "threads": threads}
    made: dict[str, Any] = {
        "about": "a plan, made by hexforge plan", "soc": workload.soc.name, "platform": workload.platform,
        "ram_bytes": workload.limits.ram_bytes, "processes": [process],
    }  # fmt: skip
    if workload.restart_every_us:
        count = int(span_us // workload.restart_every_us)
        made["faults"] = [
            {"at_us": begin_us + (k + 1) * workload.restart_every_us, "kind": "ssr"} for k in range(count)
        ]
    if files is not None:
        made["binaries"] = {
            name: {"file": file, "numbers": False} | ({"vtcm_mb": plan.vtcm_mb[name]} if name in plan.vtcm_mb else {})
            for name, file in files.items()
        }
    return made


def _config(workload: Workload, plan: DevicePlan, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {"priority": plan.priorities[name].name}
    if name in plan.switched:
        model = next(m for m in workload.models if m.name == name)
        made |= {"is_persistent_binary": True, "memory_limit_hint": 1, "graph_retention_order": [model.graph]}
    return made


def _spill_bytes(binary: Binary) -> int:
    return sum(spec.spill_fill_bytes for spec in binary.graphs)


def loaded_us(workload: Workload, plan: DevicePlan) -> float:
    """When the last context is there, and runs may begin."""
    data = scenario(workload, plan, 1, 0.0)
    data["processes"][0]["threads"] = data["processes"][0]["threads"][:1]
    data.pop("faults", None)
    return _played(workload, plan, data).device.clock.now_us + LOADED_US


def prove(workload: Workload, plan: DevicePlan, frames: int) -> tuple[PlanOutcome, PlayedScenario]:
    """Play so many runs of the most frequent model, and of the others as many as fall into the same time."""
    begin = loaded_us(workload, plan)
    played = _played(workload, plan, scenario(workload, plan, frames, begin))
    rows, responses = [], played.responses_by_context()
    for model in workload.models:
        times = responses.get(model.name, [])
        if times:
            p50, p99 = np.percentile(times, [50, 99])
            late = sum(us > model.deadline_us for us in times)
            rows.append(
                PlannedRuns(model.name, len(times), float(p50), float(p99), max(times), late, model.deadline_us)
            )
    failed = next((f"{s.step.where}: {s.message}" for s in played.unexpected), "")
    device = played.device
    opened = {e["session"] for e in device.log.of("session_open") if e["at_us"] <= begin}
    power = device.energy_uj / 1e3 / (max(device.clock.now_us - begin, 1.0) / 1e6)
    return PlanOutcome(plan, tuple(rows), device.log.peak_bytes, len(opened), power, failed), played


def _played(workload: Workload, plan: DevicePlan, data: dict[str, Any]) -> PlayedScenario:
    known = {model.name: binary_of(workload, plan, model.name) for model in workload.models}
    return play(parse_script(data, where="plan", known=known))
