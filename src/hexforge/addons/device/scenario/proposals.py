# SPDX-License-Identifier: Apache-2.0
"""Proposals: plans worth playing, found by a solver from bounds on latency, memory, sessions and energy.

The solver (OR-tools' CP-SAT) chooses profile, priorities, VTCM, the group and what is switched. Its bound of a model's
latency adds what the others may put before it: each run of a higher priority that falls into its deadline, one run of
each of its own priority, and the longest task of a lower one. It is an upper bound of one core without restarts, so it
ranks plans and refuses none; what no plan can keep (work above the time there is, a model alone above its deadline,
memory, sessions, energy) is refused before anything is played, by name.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hexforge.addons.device.chip import CONCURRENT_ARCH
from hexforge.addons.device.graph_time import Clocks
from hexforge.addons.device.power import PROFILES
from hexforge.addons.device.scenario.plan import DevicePlan
from hexforge.addons.device.scenario.workload import RatedGraph, Workload
from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import MB
from hexforge.chips.priority import Priority
from hexforge.chips.soc import SESSION_BYTES
from hexforge.errors import CallError
from hexforge.runtime.registry import timed_backend

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


KB = 1 << 10
SECONDS = 8.0
"""What the solver may take for one proposal."""


class Aim(StrEnum):
    """What a plan is to be best at, among those that keep every deadline and limit."""

    LATENCY = "latency"
    RAM = "ram"
    ENERGY = "energy"
    SESSIONS = "sessions"


@dataclass(frozen=True, slots=True)
class RunCost:
    """One run of a model under a profile, in whole microseconds and microjoules."""

    accelerator_us: int
    host_us: int
    task_us: int
    """Its longest task: what a higher priority waits for."""
    move_us: int
    """Its VTCM saved or restored."""
    energy_uj: int


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No plan keeps all of these together."""

    reasons: tuple[str, ...]


def require_solver() -> None:
    """CallError where OR-tools is not installed."""
    if importlib.util.find_spec("ortools") is None:
        raise CallError("plans are searched with OR-tools, which is not installed; pip install 'hexforge[plan]'")


def run_cost(workload: Workload, model: RatedGraph, profile: str, vtcm_mb: int | None) -> RunCost:
    """What one run costs under a profile's clocks."""
    binary = model.binary if vtcm_mb is None else model.binary.with_vtcm(vtcm_mb)
    row = PROFILES[profile]
    inference = binary.graph(model.graph).time.inference(Clocks(row.target, row.target, row.target))
    us_per_mb = timed_backend(Deployment(workload.soc.name)).accelerator().us_per_mb
    return RunCost(
        math.ceil(inference.accelerator_us),
        math.ceil(inference.rpc_us + inference.io_us),
        math.ceil(max(inference.pieces_us)),
        math.ceil(inference.vtcm_bytes / MB * us_per_mb),
        math.ceil(inference.energy_uj),
    )


class PlanProblem:
    """The solver's model of a workload."""

    def __init__(self, workload: Workload, aim: Aim) -> None:
        require_solver()
        from ortools.sat.python import cp_model

        self.workload, self.aim, self._cp = workload, aim, cp_model
        self._model = model = cp_model.CpModel()
        models = workload.models
        self._sizes: dict[str, list[int | None]] = {
            m.name: [None, *(s for s in workload.vtcm_mb if s * MB != m.binary.graph(m.graph).vtcm_bytes)]
            for m in models
        }
        self._costs = {
            (m.name, p, k): run_cost(workload, m, profile, size)
            for m in models
            for p, profile in enumerate(workload.profiles)
            for k, size in enumerate(self._sizes[m.name])
        }
        self._profile = model.new_int_var(0, len(workload.profiles) - 1, "profile")
        self._size = {m.name: model.new_int_var(0, len(self._sizes[m.name]) - 1, f"vtcm {m.name}") for m in models}
        self._rank = {
            m.name: model.new_int_var_from_domain(
                cp_model.Domain.from_values([int(p) for p in m.priorities]), f"priority {m.name}"
            )
            for m in models
        }
        self._in_group = {m.name: model.new_bool_var(f"group {m.name}") for m in models}
        self._switched = {m.name: model.new_bool_var(f"switched {m.name}") for m in models}
        self._session = {m.name: model.new_int_var(0, len(models) - 1, f"session {m.name}") for m in models}
        self._concurrent = model.new_bool_var("concurrent")
        self._kept: list[tuple[cp_model.IntVar, str]] = []
        self._cost = {m.name: self._cost_of(m) for m in models}
        self._group_rules()
        self._limits()
        bounds = {m.name: self._bound(m) for m in models}
        self._minimise(bounds)

    # -- what is asked for --------------------------------------------------------------------------------------------

    def proposals(self, most: int) -> Iterator[DevicePlan]:
        """The best plans by their bounds, each different from those before."""
        for _ in range(most):
            solver = self._solver()
            status = solver.solve(self._model)
            if solver.status_name(status) not in ("OPTIMAL", "FEASIBLE"):
                return
            yield self._plan(solver)
            self._forbid(solver)

    def infeasible(self) -> Infeasible | None:
        """What no plan can keep together, and could without any one of it; None where there are plans."""
        named = list(self._kept)
        if self._possible(named):
            for kept, _ in self._kept:
                self._model.add(kept == 1)
            return None
        for limit in self._kept:
            rest = [other for other in named if other is not limit]
            if not self._possible(rest):
                named = rest
        return Infeasible(tuple(text for _, text in named))

    def _possible(self, limits: list[tuple[cp_model.IntVar, str]]) -> bool:
        """Whether some plan keeps these limits."""
        solver = self._solver()
        solver.parameters.stop_after_first_solution = True
        self._model.add_assumptions([kept for kept, _ in limits])
        status = solver.status_name(solver.solve(self._model))
        self._model.clear_assumptions()
        return status != "INFEASIBLE"

    # -- the model ----------------------------------------------------------------------------------------------------

    def _cost_of(self, load: RatedGraph) -> dict[str, Any]:
        """A run's figures as variables: a row of a table by profile and VTCM."""
        fields = ("accelerator_us", "host_us", "task_us", "move_us", "energy_uj")
        rows = {(p, k): self._costs[load.name, p, k] for name, p, k in self._costs if name == load.name}
        made = {
            f: self._model.new_int_var(
                min(getattr(r, f) for r in rows.values()), max(getattr(r, f) for r in rows.values()), f"{f} {load.name}"
            )
            for f in fields
        }
        self._model.add_allowed_assignments(
            [self._profile, self._size[load.name], *made.values()],
            [(p, k, *(getattr(r, f) for f in fields)) for (p, k), r in rows.items()],
        )
        return made

    def _keep(self, text: str) -> cp_model.IntVar:
        """A limit that may turn out to be impossible, with the words for it."""
        kept = self._model.new_bool_var(text)
        self._kept.append((kept, text))
        return kept

    def _group_rules(self) -> None:
        """Who may share what; several graphs of one context are switched, and then not in a group."""
        workload, model = self.workload, self._model
        if workload.soc.htp_arch < CONCURRENT_ARCH or workload.platform != "android":
            model.add(self._concurrent == 0)
        for load in workload.models:
            name, binary = load.name, load.binary
            if binary.dlbc or not any(spec.spill_fill_bytes for spec in binary.graphs):
                model.add(self._in_group[name] == 0)  # it may not, or has nothing to share
            if len(binary.graphs) < 2:
                model.add(self._switched[name] == 0)
            model.add_bool_or([self._in_group[name].negated(), self._switched[name].negated()])
            for other in workload.models:
                if other is not load:  # contexts of one priority share while they run at the same time
                    model.add(self._rank[name] == self._rank[other.name]).only_enforce_if(
                        [self._concurrent, self._in_group[name], self._in_group[other.name]]
                    )

    def _limits(self) -> None:
        """Memory and sessions, time and energy, as far as no plan gets around them."""
        workload, model = self.workload, self._model
        self._ram = self._memory()
        limits = workload.limits
        model.add(self._ram <= limits.ram_bytes // KB).only_enforce_if(
            self._keep(f"RAM of at most {limits.ram_bytes / MB:,.1f} MB")
        )
        self._last_session = model.new_int_var(0, len(workload.models) - 1, "sessions")
        for load in workload.models:
            model.add(self._last_session >= self._session[load.name])
        if limits.sessions is not None:
            kept = self._keep(f"at most {limits.sessions} sessions of {SESSION_BYTES / MB:,.0f} MB")
            model.add(self._last_session < limits.sessions).only_enforce_if(kept)
        scale = 1000.0
        work = sum(round(scale * 1e6 / m.period_us) * self._cost[m.name]["accelerator_us"] for m in workload.models)
        busy = self._keep("all runs in the time there is on one core")
        model.add(work <= int(scale * 1e6)).only_enforce_if(busy)
        self._power = sum(round(scale * 1e6 / m.period_us) * self._cost[m.name]["energy_uj"] for m in workload.models)
        if limits.energy_mw is not None:
            kept = self._keep(f"at most {limits.energy_mw:g} mW (assumed)")
            model.add(self._power <= int(limits.energy_mw * 1e3 * scale)).only_enforce_if(kept)
        for load in workload.models:
            cost = self._cost[load.name]
            alone = self._keep(f"{load.name} within {load.deadline_us / 1e3:g} ms, with nothing else on the chip")
            model.add(cost["accelerator_us"] + cost["host_us"] <= int(load.deadline_us)).only_enforce_if(alone)

    def _memory(self) -> Any:
        """Kilobytes in use, and sessions that hold them: a context lies in one as a whole."""
        model, models = self._model, self.workload.models
        spill = {m.name: -(-sum(s.spill_fill_bytes for s in m.binary.graphs) // KB) for m in models}
        shared = model.new_int_var(0, max(spill.values(), default=0), "spill-fill of the group")
        for load in models:
            model.add(shared >= spill[load.name]).only_enforce_if(self._in_group[load.name])
        total: Any = shared
        held: dict[str, Any] = {}
        for load in models:
            binary = load.binary
            io = -(-max(s.io_bytes for s in binary.graphs) // KB)
            whole = -(-binary.weights_bytes // KB) + io
            own = -(-(binary.graph(load.graph).weights_bytes + binary.shared_bytes) // KB) + io
            backup = model.new_int_var(0, self.workload.soc.vtcm_mb * KB, f"backup {load.name}")
            sizes = [
                max(s.vtcm_bytes for s in binary.graphs) // KB if k is None else k * KB for k in self._sizes[load.name]
            ]
            model.add_element(self._size[load.name], sizes, backup)
            alone = self._in_group[load.name].negated()
            held[load.name] = whole + (own - whole) * self._switched[load.name] + spill[load.name] * alone + backup
            total = total + held[load.name]
        for session in range(len(models)):
            inside = []
            for load in models:
                here = model.new_bool_var(f"{load.name} in {session}")
                model.add(self._session[load.name] == session).only_enforce_if(here)
                model.add(self._session[load.name] != session).only_enforce_if(here.negated())
                taken = model.new_int_var(0, 1 << 40, f"{load.name} takes of {session}")
                model.add(taken >= held[load.name]).only_enforce_if(here)
                inside.append(taken)
            model.add(sum(inside) + shared <= SESSION_BYTES // KB)
        return total

    def _bound(self, load: RatedGraph) -> Any:
        """An upper bound of a model's latency, in microseconds."""
        model, own = self._model, self._cost[load.name]
        most = 1 << 40
        bound: Any = own["accelerator_us"] + own["host_us"]
        blocked = model.new_int_var(0, most, f"blocked {load.name}")
        for other in self.workload.models:
            if other is load:
                continue
            theirs = self._cost[other.name]
            higher, equal, lower = (model.new_bool_var(f"{kind} {other.name} {load.name}") for kind in "hel")
            model.add_exactly_one(higher, equal, lower)
            mine, rank = self._rank[load.name], self._rank[other.name]
            model.add(rank > mine).only_enforce_if(higher)
            model.add(rank == mine).only_enforce_if(equal)
            model.add(rank < mine).only_enforce_if(lower)
            runs = math.ceil(load.deadline_us / other.period_us)
            put_before = model.new_int_var(0, most, f"{other.name} before {load.name}")
            model.add(put_before >= runs * (theirs["accelerator_us"] + 2 * own["move_us"])).only_enforce_if(higher)
            model.add(put_before >= theirs["accelerator_us"]).only_enforce_if(equal)
            bound = bound + put_before
            model.add(blocked >= theirs["task_us"] + theirs["move_us"]).only_enforce_if(lower)
            together: list[Any] = [
                lower,
                self._in_group[load.name],
                self._in_group[other.name],
                self._concurrent.negated(),
            ]
            model.add(blocked >= theirs["accelerator_us"]).only_enforce_if(together)
        return bound + blocked

    def _minimise(self, bounds: dict[str, Any]) -> None:
        """Deadlines first, then the aim, then everybody's latency."""
        model = self._model
        worst = model.new_int_var(0, 1 << 40, "worst")
        shares = []
        for load in self.workload.models:
            share = model.new_int_var(0, 1 << 40, f"share {load.name}")  # in thousandths of the deadline
            model.add(share * int(load.deadline_us) >= 1000 * bounds[load.name])
            model.add(worst >= share)
            shares.append(share)
        late = model.new_int_var(0, 1 << 40, "late")
        model.add(late >= worst - 1000)
        aims: dict[Aim, Any] = {
            Aim.LATENCY: 1000 * worst,
            Aim.RAM: 10 * self._ram,
            Aim.SESSIONS: 10**7 * self._last_session + self._ram,
        }
        if self.aim is Aim.ENERGY:
            power = model.new_int_var(0, 1 << 50, "power")
            model.add(1000 * power >= self._power)
            aims[Aim.ENERGY] = 10 * power
        model.minimize(10**6 * late + aims[self.aim] + sum(shares))

    # -- answers ------------------------------------------------------------------------------------------------------

    def _solver(self) -> cp_model.CpSolver:
        solver = self._cp.CpSolver()
        solver.parameters.num_workers = 1  # the same plan each time
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = SECONDS
        solver.parameters.catch_sigint_signal = False  # it would take Ctrl-C from Python for good
        return solver

    def _plan(self, solver: cp_model.CpSolver) -> DevicePlan:
        models = self.workload.models
        session = {m.name: solver.value(self._session[m.name]) for m in models}
        group = tuple(m.name for m in models if solver.value(self._in_group[m.name]))
        first = {m.name: (session[m.name], m.name not in group, -m.binary.weights_bytes, m.name) for m in models}
        sizes = {m.name: self._sizes[m.name][solver.value(self._size[m.name])] for m in models}
        return DevicePlan(
            tuple(sorted(first, key=lambda name: first[name])),
            {m.name: Priority(solver.value(self._rank[m.name])) for m in models},
            self.workload.profiles[solver.value(self._profile)],
            group if len(group) > 1 else (),
            bool(solver.value(self._concurrent)) and len(group) > 1,
            {name: size for name, size in sizes.items() if size is not None},
            tuple(m.name for m in models if solver.value(self._switched[m.name])),
        )

    def _forbid(self, solver: cp_model.CpSolver) -> None:
        """The next answer differs in what is decided."""
        decided = [self._profile, *self._size.values(), *self._rank.values()]
        decided += [*self._in_group.values(), *self._switched.values(), self._concurrent]
        other = []
        for variable in decided:
            differs = self._model.new_bool_var("")
            self._model.add(variable != solver.value(variable)).only_enforce_if(differs)
            other.append(differs)
        self._model.add_bool_or(other)
