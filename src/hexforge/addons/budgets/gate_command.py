# SPDX-License-Identifier: Apache-2.0
"""`hexforge gate`: models against a budget, for CI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from hexforge.analysis.requests import JUDGED_BY
from hexforge.cli.arguments import ClusterArguments, Jobs, Json
from hexforge.cli.request_options import typed
from hexforge.cli.screen import console, print_json, result_table, spinner
from hexforge.request_fields import argument, option
from hexforge.results import Column, select

_VERDICT = Column("", text=lambda check: Text("fails", "bold red") if check.fault else Text("ok", "green"))


def gate(
    budget: Path = argument("The budget file.", exists=True, dir_okay=False, show_default=False),
    baseline: Path | None = option(None, "Figures of an earlier run.", exists=True, dir_okay=False),
    save_baseline: Path | None = option(None, "Write the figures of this run.", dir_okay=False),
    junit: Path | None = option(None, "Write JUnit XML.", dir_okay=False),
    markdown: Path | None = option(None, "Write a comment with what changed.", dir_okay=False),
    metric: Annotated[str, typed(JUDGED_BY)] = "",
    jobs: Jobs = 1,
    *,
    cluster: ClusterArguments,
    as_json: Json = False,
) -> None:
    """Check models against a budget of latency, placement, quality and size; exit code 1 where one is over it.

    A model that is not there is exit code 2; one that only the baseline or only the budget names is said.
    """
    from hexforge.addons.budgets import views
    from hexforge.addons.budgets.gate import GateCheck
    from hexforge.addons.budgets.gate import gate as checked
    from hexforge.analysis.workers import Workers
    from hexforge.formats.files import require_writable, write_atomically

    require_writable(save_baseline, junit, markdown)
    with spinner("measuring") as status:
        workers = Workers(jobs, cluster.address)
        result = checked(budget, baseline, lambda model: status.update(f"measuring {model}"), metric, workers)
    if save_baseline is not None:
        write_atomically(save_baseline, json.dumps({"figures": result.figures()}, indent=2).encode() + b"\n")
    if junit is not None:
        write_atomically(junit, views.junit(result))
    if markdown is not None:
        write_atomically(markdown, views.markdown(result).encode())
    if as_json:
        checks = [check.to_json() for check in result.checks]
        print_json({"passes": result.passes, "checks": checks, "notes": list(result.notes)})
    else:
        screen, failing_first = console(), sorted(result.checks, key=lambda check: not check.fault)
        screen.print(result_table("", (_VERDICT, *select(GateCheck.described)), failing_first))
        for check in result.checks:
            if check.fault:
                screen.print(Text(f"{check.key}: {check.fault}", "red"))
        for note in result.notes:
            screen.print(Text(note, "yellow"))
    if not result.passes:
        raise typer.Exit(1)
