# SPDX-License-Identifier: Apache-2.0
"""Plans: small workloads, worked out by hand, get what they need; files prove it; limits are named."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.graph_time import DeclaredTime
from hexforge.addons.device.scenario.plan import naive_plan, prove
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.proposals import Aim
from hexforge.addons.device.scenario.script import parse_script
from hexforge.addons.device.scenario.search import PlanResult, search_plan
from hexforge.addons.device.scenario.workload import Limits, RatedGraph, Workload, read_workload
from hexforge.addons.device.scheduling.clock import VirtualClock
from hexforge.chips.priority import Priority
from hexforge.chips.soc import require_chip
from hexforge.cli import app
from hexforge.errors import HexforgeError
from hexforge.formats.backend_extensions import load
from tests.addons.device import tiny
from tests.addons.device.random_scripts import random_script

MB = 1 << 20
FREE = (Priority.LOW, Priority.NORMAL)
ALL = (Priority.LOW, Priority.NORMAL, Priority.NORMAL_HIGH, Priority.HIGH)


def graph(name: str, us: float, tasks: int = 20, weights_mb: int = 10, spill_mb: int = 0) -> GraphSpec:
    time = DeclaredTime(us, tasks, 20.0, 5.0, MB, us)
    return GraphSpec(name, weights_mb * MB, spill_mb * MB, 0, MB, time)


def load_of(
    name: str, us: float, period_us: float, deadline_us: float, *, priorities: tuple[Priority, ...] = ALL,
    weights_mb: int = 10, spill_mb: int = 0, tasks: int = 20, jitter_us: float = 0.0,
) -> RatedGraph:  # fmt: skip
    binary = Binary(name, (graph("g", us, tasks, weights_mb, spill_mb),))
    return RatedGraph(name, Path(f"{name}.bin"), binary, "g", period_us, deadline_us, jitter_us, priorities)


def workload(*models: RatedGraph, **more: object) -> Workload:
    base = Workload(
        require_chip("SM8650"), "android", True, models, Limits(8 << 30), ("burst", "balanced", "low_power_saver"), ()
    )
    return replace(base, **more)  # type: ignore[arg-type]


def found(work: Workload, aim: Aim = Aim.LATENCY, frames: int = 60) -> PlanResult:
    return search_plan(work, aim, frames)


CAMERA = (
    load_of("short", 400.0, 5_000.0, 1_500.0, jitter_us=900.0),
    load_of("long", 6_000.0, 40_000.0, 30_000.0, tasks=60),
)


def test_a_short_model_with_a_near_deadline_goes_first() -> None:
    result = found(workload(*CAMERA))
    assert result.best is not None
    assert result.best.plan.priorities["short"] > result.best.plan.priorities["long"]
    late = {row.name: row.late for row in result.naive.models}
    assert late["short"] > 0
    assert sum(row.late for row in result.best.models) == 0
    assert result.best.models[0].p99_us < result.naive.models[0].p99_us


def test_the_same_workload_gives_the_same_plan() -> None:
    first, again = found(workload(*CAMERA)), found(workload(*CAMERA))
    assert first.best is not None
    assert first.best == again.best
    assert first.tried == again.tried


def test_least_ram_shares_one_spill_fill_buffer_where_deadlines_allow() -> None:
    models = [load_of(n, 500.0, 50_000.0, 40_000.0, spill_mb=100) for n in ("a", "b", "c")]
    result = found(workload(*models), Aim.RAM)
    assert result.best is not None
    assert set(result.best.plan.group) == {"a", "b", "c"}
    assert result.naive.ram_bytes - result.best.ram_bytes >= 200 * MB


def test_ctrl_c_is_still_pythons_after_a_plan() -> None:
    """The solver would leave the system's own answer behind, which ends the process."""
    found(workload(*CAMERA))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_no_group_where_it_would_make_somebody_late() -> None:
    near = load_of("near", 300.0, 10_000.0, 1_200.0, spill_mb=100, jitter_us=5_000.0)
    long = load_of("long", 8_000.0, 40_000.0, 38_000.0, spill_mb=100, tasks=80)
    result = found(workload(near, long, profiles=("burst",)), Aim.RAM, 200)
    assert result.best is not None
    assert result.best.plan.group == ()


def test_a_deadline_that_only_the_highest_clocks_meet_takes_them() -> None:
    result = found(workload(load_of("m", 1_000.0, 100_000.0, 1_300.0)), Aim.ENERGY, 20)
    assert result.best is not None
    assert result.best.plan.profile == "burst"


def test_graphs_of_one_context_are_switched_for_least_ram() -> None:
    pair = Binary("pair", (graph("used", 500.0, weights_mb=50), graph("other", 500.0, weights_mb=300)))
    model = RatedGraph("pair", Path("pair.bin"), pair, "used", 50_000.0, 40_000.0, 0.0, ALL)
    result = found(workload(model), Aim.RAM, 20)
    assert result.best is not None
    assert result.best.plan.switched == ("pair",)
    assert result.naive.ram_bytes - result.best.ram_bytes == 300 * MB


def test_large_contexts_take_as_few_sessions_as_they_can() -> None:
    sizes = {"a": 2000, "b": 2000, "c": 1500, "d": 1500}
    models = [load_of(name, 500.0, 90_000.0, 80_000.0, weights_mb=size) for name, size in sizes.items()]
    result = found(workload(*models), Aim.SESSIONS, 5)
    assert result.best is not None
    assert result.best.sessions == 2


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (workload(load_of("m", 2_000.0, 5_000.0, 1_000.0)), "m within 1 ms"),
        (workload(load_of("m", 500.0, 5e3, 4e3, weights_mb=900), limits=Limits(500 * MB)), "RAM of at most 500.0 MB"),
        (workload(load_of("a", 900.0, 1e3, 1e6), load_of("b", 900.0, 1e3, 1e6)), "all runs in the time there is"),
        (workload(load_of("m", 500.0, 5e3, 4e3), limits=Limits(8 << 30, energy_mw=0.001)), "0.001 mW"),
        (
            workload(*(load_of(n, 5.0, 5e4, 4e4, weights_mb=3000) for n in "ab"), limits=Limits(8 << 30, 1)),
            "at most 1 sessions",
        ),
    ],
)
def test_what_cannot_be_says_which_limit(work: Workload, reason: str) -> None:
    result = found(work, frames=3)
    assert result.best is None
    assert any(reason in text for text in result.reasons), result.reasons
    assert len(result.reasons) == 1, "as few as it takes"


def test_restarts_are_recovered_from() -> None:
    work = workload(*CAMERA, restart_every_us=100_000.0)
    outcome, played = prove(work, naive_plan(work), 300)
    assert not outcome.failed
    assert len(played.device.log.of("fault")) >= 3
    assert outcome.models[0].worst_us > 400_000.0, "the subsystem is away that long"


def test_time_that_passes_without_events_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = tiny.binaries(tmp_path) | {"many": Binary("many", (graph("g", 900.0, 40), graph("h", 300.0, 7)))}
    scripts = [random_script(seed, known) for seed in range(12)]
    passed = []

    def events() -> list[list[dict[str, object]]]:
        logs = [play(parse_script(data, known=known)).device.log.entries for data in scripts]
        return [[{k: v for k, v in entry.items() if k != "fd"} for entry in log] for log in logs]

    pass_to = VirtualClock.pass_to
    monkeypatch.setattr(VirtualClock, "pass_to", lambda clock, us: (passed.append(us), pass_to(clock, us)))
    fast = events()
    assert len(passed) > 100
    monkeypatch.setattr(VirtualClock, "free_until_us", property(lambda clock: clock.now_us))
    assert fast == events()


def test_the_command_writes_what_proves_the_plan(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        hexforge.compile(tiny.dense(seed, 64), tmp_path / f"{name}.bin", "SM8650")
    work = tmp_path / "work.yaml"
    work.write_text("models:\n  one: {rate_hz: 500, deadline_ms: 1}\n  two: {period_ms: 10, vtcm_mb: 1}\n")
    contexts = [str(tmp_path / f"{name}.bin") for name in ("one", "two")]
    wrong = CliRunner().invoke(app, ["plan", *contexts, "--workload", str(work)])
    assert "models.two.vtcm_mb: unknown key" in str(wrong.exception)
    work.write_text("vtcm_mb: [1, 2]\nmodels:\n  one: {rate_hz: 500, deadline_ms: 1}\n  two: {period_ms: 10}\n")
    out = tmp_path / "plan"
    told = CliRunner().invoke(app, ["plan", *contexts, "--workload", str(work), "-o", str(out), "--frames", "50"])
    assert told.exit_code == 0, told.output
    assert "RAM" in told.output
    facts = json.loads((out / "plan.json").read_text())
    assert facts["plan"]["models"]["one"]["runs"] == 50
    assert "Gantt chart" in (out / "plan.html").read_text("utf-8")
    again = CliRunner().invoke(app, ["device", str(out / "scenario.json"), "--json"])
    assert again.exit_code == 0, again.output
    budget = tmp_path / "budget.yaml"
    budget.write_text("scenarios: [{scenario: plan/scenario.json, ram_mb: 1000, worst_ms: 5, p99_ms: {one: 1}}]")
    assert hexforge.gate(budget).passes
    budget.write_text("scenarios: [{scenario: plan/scenario.json, ram_mb: 0.001, worst_ms: 0.0001, energy_mw: 1e-9}]")
    failed = {check.what for check in hexforge.gate(budget).checks if check.fault}
    assert failed == {"ram_mb", "energy_mw (assumed)", "worst_ms of one", "worst_ms of two"}
    budget.write_text("scenarios: [{scenario: plan/none.json}]")
    with pytest.raises(hexforge.CallError, match=r"there is no plan/none\.json beside it"):
        hexforge.gate(budget)
    budget.write_text("scenarios: [{scenario: plan/scenario.json, p99_ms: {three: 1}}]")
    (fault,) = [check.fault for check in hexforge.gate(budget).checks if check.fault]
    assert "names 'three'" in fault
    for name in ("one", "two"):
        config = load(out / f"{name}.json", out)
        assert config.tool.context_configs.context_priority == facts["plan"]["priorities"][name].lower()
        assert config.htp.devices[0].cores[0].perf_profile == facts["plan"]["profile"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [", "no YAML"),
        ("models: {}", "1 to 16 models"),
        ("models: {m: {rate_hz: 30}}", "give its context file"),
        ("models: {m: {context: none.bin, rate_hz: 30}}", "there is no file"),
        ("models: {m: {context: m.bin}}", "give rate_hz or period_ms"),
        ("models: {m: {context: m.bin, rate_hz: -1}}", "rate_hz is -1"),
        ("models: {m: {context: m.bin, rate_hz: .nan}}", "rate_hz is nan"),
        ("models: {m: {context: m.bin, rate_hz: 30, priority: HIGH}}", "needs a privileged process"),
        ("models: {'a/b': {context: m.bin, rate_hz: 30}}", "letters, digits"),
        ("profiles: [fast]\nmodels: {m: {context: m.bin, rate_hz: 30}}", "'fast'"),
        ("vtcm_mb: [99]\nmodels: {m: {context: m.bin, rate_hz: 30}}", "1 to 8 MB"),
        ("raam: 3\nmodels: {m: {context: m.bin, rate_hz: 30}}", "raam: unknown key"),
    ],
)
def test_bad_workloads_say_where_and_what(text: str, said: str, tmp_path: Path) -> None:
    hexforge.compile(tiny.dense(1), tmp_path / "m.bin", "SM8650")
    (tmp_path / "work.yaml").write_text(text)
    with pytest.raises(HexforgeError) as told:
        read_workload(tmp_path / "work.yaml")
    assert said in str(told.value)
    assert "work.yaml" in str(told.value)


def test_without_the_solver_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(HexforgeError, match=r"hexforge\[plan\]"):
        found(workload(*CAMERA))
