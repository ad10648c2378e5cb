# SPDX-License-Identifier: Apache-2.0
"""Sections of a page as a terminal shows them: figures as lines, tables that fit, steps as sentences; no drawings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hexforge.cli.screen import TOP, bold_start, rows_left_out, table
from hexforge.results import NOTHING, figure_text

if TYPE_CHECKING:
    from hexforge.report.section import Bars, Figures, Section, Steps, Table


def print_sections(screen: Console, sections: Iterable[Section], most: int | None = TOP, flag: str = "--all") -> None:
    """What a page says, with so many rows of each table; `flag` is the option that shows all of them."""
    from hexforge.report.section import Bars, Figures, Steps, Table

    for section in sections:
        screen.print(Text(section.title, "bold"))
        has_table = any(isinstance(part, Table) for part in section.parts)
        for part in section.parts:
            if isinstance(part, Figures):
                _print_figures(screen, part)
            elif isinstance(part, Steps):
                _print_steps(screen, part)
            elif isinstance(part, Table) and part.rows:
                print_table(screen, part, most, flag)
            elif isinstance(part, Bars) and not has_table:  # what a table says need not be said again
                _print_bars(screen, part)
        if section.note:
            screen.print(Text(section.note, "dim"))


def print_table(screen: Console, shown: Table, most: int | None = TOP, flag: str = "--all") -> None:
    """A page's table, its first rows."""
    rows = [
        [figure_text(cell, column.kind, column.digits) for column, cell in zip(shown.columns, row, strict=True)]
        for row in shown.rows[: most or None]
    ]
    names = [column.name for column in shown.columns]
    leaving = sorted((column for column in shown.columns if column.leaves), key=lambda column: -column.leaves)
    screen.print(table(shown.title, names, rows, [column.name for column in leaving]))
    if len(rows) < len(shown.rows):
        screen.print(rows_left_out(len(rows), len(shown.rows), "rows", flag))


def _print_figures(screen: Console, part: Figures) -> None:
    width = max((len(figure.label) for figure in part.figures), default=0)
    for figure in part.figures:
        about = f" ({figure.about})" if figure.about else ""
        screen.print(bold_start(f"{figure.label.ljust(width)} ", f"{figure.value}{about}"))
    if part.verdict:
        screen.print(Text(part.verdict))


def _print_steps(screen: Console, part: Steps) -> None:
    if part.title:
        screen.print(Text(part.title, "italic"))
    for step in part.steps:
        screen.print(Text(f"{step.title}: {step.gain}" if step.gain else step.title))
        for words in filter(None, (step.text, step.where)):
            screen.print(Padding(Text(words), (0, 0, 0, 2)))
    if not part.steps and part.nothing:
        screen.print(Text(part.nothing))


def _print_bars(screen: Console, part: Bars) -> None:
    ranges: Sequence[str] = [f"{low:,.1f} to {high:,.1f}" for low, high in zip(part.low, part.high, strict=True)]
    amounts = [NOTHING if value is None else f"{value:,.2f}" for value in part.values]
    if ranges:
        screen.print(table(part.title, ("", part.unit, "range"), zip(part.labels, amounts, ranges, strict=True)))
    else:
        screen.print(table(part.title, ("", part.unit), zip(part.labels, amounts, strict=True)))
