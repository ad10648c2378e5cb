# SPDX-License-Identifier: Apache-2.0
"""`hexforge sweep`: how long many models take on many chips at several precisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hexforge.addons.cluster.sweep_request import SweepRequest
from hexforge.cli.arguments import ClusterArguments, Dims, Json, dims
from hexforge.cli.say import say
from hexforge.cli.screen import TOP, bar, console, interruptible, print_json, rows_left_out, table
from hexforge.formats.files import require_writable, write_atomically
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.cluster.sweep_table import RowChange, Sweep


@dataclass(frozen=True, slots=True)
class SweepFiles:
    """What a sweep reads of an earlier one, and where its rows are written."""

    since: Path | None = option(None, "An earlier CSV: say what changed.", exists=True, dir_okay=False)
    csv: Path | None = option(None, "Write the rows as CSV.")
    parquet: Path | None = option(None, "Write the rows as Parquet.")
    report: Path | None = option(None, "Write a page to look at, as HTML.")
    store: str = option("", "Add the latencies to this folder, or URL, for `hexforge history`.", show_default=False)

    def write(self, result: Sweep, changes: list[RowChange] | None) -> None:
        """Write the files that are named."""
        if self.csv is not None:
            write_atomically(self.csv, result.to_csv().encode())
        if self.parquet is not None:
            write_atomically(self.parquet, result.to_parquet())
        if self.report is not None:
            from hexforge.addons.cluster.sweep_page import sweep_page

            write_atomically(self.report, sweep_page(result, "sweep", changes).encode())
        if self.store:
            from hexforge.analysis.figure_store import new_figures, store_figures

            timed = ((row, row.latency_ms) for row in result if row.latency_ms is not None)
            figures = [(row.model, f"latency_ms on {row.soc} at {row.precision}", ms) for row, ms in timed]
            store_figures(self.store, new_figures(figures, "sweep", Path()))


def sweep(
    models: list[str] = argument(
        "Files, patterns, folders, lists (.txt) or manifests (.json, .yaml).", show_default=False
    ),
    *,
    request: SweepRequest,
    dim: Dims = None,
    jobs: int = option(0, "Processes; 0: one for each processor.", "--jobs", "-j", min=0),
    cluster: ClusterArguments,
    finished: Path | None = option(None, "Keeps what is done: an interrupted sweep goes on.", "--state"),
    files: SweepFiles,
    rows: int = option(TOP, "Rows of the table; 0 for all.", min=0),
    as_json: Json = False,
) -> None:
    """Say how long many models take on many chips at several precisions, and what changed since the last time.

    The exit code is 1 where a model cannot be read.
    """
    from hexforge.addons.cluster.sweep_run import sweep as swept
    from hexforge.addons.cluster.sweep_table import read_sweep
    from hexforge.analysis.workers import Workers
    from hexforge.backend import processors

    require_writable(finished, files.csv, files.parquet, files.report)
    before = None if files.since is None else read_sweep(files.since)
    lost = "nothing was written; with --state FILE a sweep goes on"
    states = [] if finished is None else [finished]
    workers = Workers(jobs or processors(), cluster.address)
    with interruptible(lost, *states), bar("timing models") as progress:
        result = swept(models, request, dims=dims(dim), workers=workers, finished=finished, progress=progress)
    changes = None if before is None else result.changes(before)
    files.write(result, changes)
    if as_json:
        print_json(result.to_json() | ({} if changes is None else {"changes": [str(c) for c in changes]}))
    else:
        _print(result, changes, rows)
    if result.unread:
        raise typer.Exit(1)


def _print(result: Sweep, changes: list[RowChange] | None, most: int) -> None:
    screen = console()
    chips = tuple(dict.fromkeys(row.soc for row in result))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in result:
        text = "-" if row.latency_ms is None else f"{row.latency_ms:.3f}{'*' if row.nodes_on_cpu else ''}"
        cells.setdefault((row.model, row.precision), {})[row.soc] = text
    shown = list(cells.items())[: most or None]
    lines = [(model, precision, *(times.get(chip, "") for chip in chips)) for (model, precision), times in shown]
    title = f"{len({row.model for row in result})} models, milliseconds"
    screen.print(table(title, ("model", "precision", *chips), lines, optional=chips[1:]))
    screen.print(rows_left_out(len(shown), len(cells), "rows", "--rows 0"))
    if any(row.nodes_on_cpu for row in result):
        screen.print("* the NPU's part: some nodes stay with the CPU")
    reasons = dict.fromkeys(f"{row.model}: {row.error}" for row in result if row.error)
    for reason in list(reasons)[: most or None]:
        screen.print(reason)
    screen.print(rows_left_out(min(len(reasons), most or len(reasons)), len(reasons), "reasons", "--rows 0"))
    for name in result.set_aside:
        say(f"{name}: killed its worker twice and was set aside", colour="red", err=True)
    if result.reused:
        screen.print(f"{result.reused} models were done already")
    if changes is not None:
        screen.print(f"{len(changes)} rows changed")
        for change in changes[: most or None]:
            screen.print(str(change))
