# SPDX-License-Identifier: Apache-2.0
"""`hexforge history`: how the figures of models moved over commits, as a table or a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from hexforge.analysis.figure_store import StoredFigure
from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, result_table, spinner
from hexforge.errors import CallError
from hexforge.formats.files import require_writable, write_atomically
from hexforge.report.section import Plot, Section, Series, Table
from hexforge.request_fields import argument, option
from hexforge.results import Column, Result, length, select


@dataclass(frozen=True, slots=True)
class FigureHistory(Result):
    """One figure of a model over its runs, the oldest first."""

    model: str
    what: str
    runs: tuple[StoredFigure, ...]

    described = (
        Column("model"),
        Column("what"),
        Column("runs", "number", 0, of=length("runs")),
        Column("first", "significant", 4, of=lambda row: row.runs[0].value),
        Column("last", "significant", 4, of=lambda row: row.runs[-1].value),
        Column("change", key="change_percent", rounded=2, text=lambda row: row.change_text()),
        Column(
            "moved at", key="moved_at", text=lambda row: row.moved_at[:12], about="The commit of the largest change"
        ),
    )

    @property
    def change_percent(self) -> float | None:
        """How much more the last is than the first; None of nothing."""
        first, last = self.runs[0].value, self.runs[-1].value
        return 100 * (last - first) / abs(first) if first else None

    def change_text(self) -> str:
        """The same in percent."""
        return "-" if self.change_percent is None else f"{self.change_percent:+.1f} %"

    @property
    def moved_at(self) -> str:
        """The commit of the run that differs most from the one before; empty where none does."""
        steps = [(abs(b.value - a.value), b.commit) for a, b in zip(self.runs, self.runs[1:], strict=False)]
        size, commit = max(steps, default=(0.0, ""))
        return commit if size else ""


def histories(figures: Sequence[StoredFigure], model: str = "", last: int = 0) -> list[FigureHistory]:
    """The figures by model and kind, those that moved most first; of one model, and of the last runs, where asked."""
    rows: dict[tuple[str, str], list[StoredFigure]] = {}
    for figure in figures:
        if not model or figure.model == model:
            rows.setdefault((figure.model, figure.what), []).append(figure)
    made = [FigureHistory(*key, tuple(runs[-last:])) for key, runs in rows.items()]
    return sorted(made, key=lambda row: -abs(row.change_percent or 0))


def history_page(rows: Sequence[FigureHistory]) -> str:
    """A page with a plot of each figure over its runs."""
    from hexforge.report.page import sections_page

    sections = [Section("History", [Table.of(select(FigureHistory.described), rows)])]
    for row in rows:
        points = [(float(number), figure.value) for number, figure in enumerate(row.runs, 1)]
        labels = [f"{figure.when} {figure.commit[:12]}" for figure in row.runs]
        plot = Plot("run", row.what, [Series(row.what, points, labels)], lines=True)
        sections.append(Section(f"{row.model}: {row.what}", [plot]))
    return sections_page("history", sections)


def history(
    store: str = argument(
        "The folder, or the URL, that `gate --store` and `sweep --store` add to.", show_default=False
    ),
    model: str = option("", "This model alone.", show_default=False),
    last: int = option(0, "The last runs of each figure; 0: all.", min=0),
    report: Path | None = option(None, "Write a page to look at, as HTML.", dir_okay=False),
    as_json: Json = False,
) -> None:
    """Say how latency, size and quality of models moved over commits, out of a store of gates and sweeps."""
    from hexforge.analysis.figure_store import stored_figures

    require_writable(report)
    with spinner(f"reading {store}"):
        rows = histories(stored_figures(store), model, last)
    if not rows:
        raise CallError(f"{store}: has no figure{f' of {model!r}' if model else ''}")
    if report is not None:
        write_atomically(report, history_page(rows).encode())
    if as_json:
        print_json([row.to_json() | {"figures": [figure.to_json() for figure in row.runs]} for row in rows])
        return
    screen = console()
    screen.print(result_table("", select(FigureHistory.described), rows))
    if report is not None:
        screen.print(Text(f"wrote {report}"))
