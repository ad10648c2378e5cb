# SPDX-License-Identifier: Apache-2.0
"""`hexforge plan`: how contexts that run together are best loaded and driven, proven on the simulated device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.request_fields import argument, option, required

if TYPE_CHECKING:
    from hexforge.addons.device.plan.search import PlanResult


def plan(
    workload: Path = required("What runs when, as YAML.", exists=True, dir_okay=False, show_default=False),
    contexts: list[Path] | None = argument(
        "Context files; models have their names.", default=None, exists=True, dir_okay=False, show_default=False
    ),
    soc: str | None = option(None, "The chip, if not the workload's."),
    aim: str = option("latency", "Best at: latency, ram, energy or sessions.", "--for"),
    frames: int = option(10_000, "Runs of the most frequent model in the proof.", min=1, max=1_000_000),
    output: Path | None = option(None, "Write config files, scenario and page into this folder.", "--output", "-o"),
    as_json: Json = False,
) -> None:
    """Find how contexts that run together are best loaded, shared and driven on a chip, and prove it by playing.

    Profile, priorities, load order, the group that shares spill-fill, switching and VTCM are chosen so that every
    deadline and limit of the workload is kept; docs/plan.md has its fields. The exit status is 1 where no plan does.
    """
    from hexforge.addons.device.plan.proposals import Aim
    from hexforge.addons.device.plan.search import result_facts, search_plan, write_plan
    from hexforge.addons.device.plan.workload import read_workload
    from hexforge.errors import CallError
    from hexforge.formats.files import write_atomically
    from hexforge.options import did_you_mean

    names = tuple(kind.value for kind in Aim)
    if aim not in names:
        raise CallError(f"--for {aim!r}: one of {', '.join(names)}{did_you_mean(aim, names)}")
    with spinner(f"reading {workload.name}"):
        work = read_workload(workload, tuple(contexts or ()), soc)
    with spinner("searching a plan") as shown:
        result = search_plan(work, Aim(aim), frames, shown.update)
    written: list[Path] = []
    if output is not None and result.best is not None:
        from hexforge.addons.device.pages import plan_page

        written = write_plan(result, output, frames)
        written.append(output / "plan.html")
        write_atomically(written[-1], plan_page(result, workload.name).encode())
    if as_json:
        print_json(result_facts(result))
    else:
        _show(result)
        for path in written:
            console().print(f"{path}")
    if result.best is None:
        raise typer.Exit(1)


def _show(result: PlanResult) -> None:
    screen, naive, best = console(), result.naive, result.best
    planned = {m.name: m for m in best.models} if best else {}
    rows = []
    for row in naive.models:
        own = planned.get(row.name)
        rows.append(
            (row.name, f"{row.deadline_us / 1e3:g}", f"{own.p99_us / 1e3:.3f}" if own else "",
             f"{row.p99_us / 1e3:.3f}", f"{own.worst_us / 1e3:.3f}" if own else "",
             f"{own.late} of {own.runs}" if own else "",
             f"{row.late} of {row.runs}", best.plan.priorities[row.name].name if best else "",
             str(best.plan.vtcm_mb.get(row.name, "")) if best else "")
        )  # fmt: skip
    titles = ("model", "deadline", "p99 ms", "without", "worst ms", "late", "without", "priority", "VTCM MB")
    screen.print(table(f"plan for {result.aim} on {result.workload.soc.name}", titles, rows, optional=("VTCM MB",)))
    if best is None:
        screen.print("no plan keeps all of: " + "; ".join(result.reasons))
        return
    plan_, mb = best.plan, 1 << 20
    screen.print(
        f"profile {plan_.profile}; load in the order {', '.join(plan_.order)}"
        + (f"; one spill-fill buffer for {', '.join(plan_.group)}" if plan_.group else "")
        + (f"; graphs of {', '.join(plan_.switched)} are loaded when they are to run" if plan_.switched else "")
    )
    screen.print(
        f"RAM {best.ram_bytes / mb:,.1f} MB ({naive.ram_bytes / mb:,.1f} without a plan), {best.sessions} sessions "
        f"({naive.sessions}), {best.energy_mw:,.1f} mW assumed ({naive.energy_mw:,.1f})"
    )
    if plan_.vtcm_mb:
        screen.print("compile these again with the VTCM that the plan gives: " + ", ".join(plan_.vtcm_mb))
