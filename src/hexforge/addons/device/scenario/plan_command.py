# SPDX-License-Identifier: Apache-2.0
"""`hexforge plan`: how contexts that run together are best loaded and driven, proven on the simulated device."""

from __future__ import annotations

from pathlib import Path

import typer

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, spinner
from hexforge.cli.sections import print_sections
from hexforge.request_fields import argument, option, required


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
    from hexforge.addons.device.scenario.pages import plan_figures, plan_page
    from hexforge.addons.device.scenario.proposals import Aim
    from hexforge.addons.device.scenario.search import search_plan, write_plan
    from hexforge.addons.device.scenario.workload import read_workload
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
        written = write_plan(result, output, frames)
        written.append(output / "plan.html")
        write_atomically(written[-1], plan_page(result, workload.name).encode())
    if as_json:
        print_json(result.to_json())
    else:
        print_sections(console(), [plan_figures(result)], None)
        for path in written:
            console().print(f"{path}")
    if result.best is None:
        raise typer.Exit(1)
