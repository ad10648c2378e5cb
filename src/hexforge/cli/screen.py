# SPDX-License-Identifier: Apache-2.0
"""What commands print with: a console as wide as the screen, tables that fit it, a spinner, a progress bar."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from hexforge.cli.fitted_table import WIDE, FittedTable
from hexforge.cli.progress_lines import ProgressEvents, ProgressLines, wants_events
from hexforge.results import Column
from hexforge.terminal_text import visible, visible_json

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

read_by_program: ContextVar[bool] = ContextVar("read_by_program", default=False)
"""True where --json is given."""
TOP = 10
"""Rows of a table that are shown unless all are asked for."""


class Screen(Console):
    """A console that obeys no text: only its own controls and styles reach the terminal as such, and no markup is read.

    `bold_start` makes a line that begins in bold.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is printed, in pieces."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)


def bold_start(start: str, rest: str) -> Text:
    """A line whose start is bold."""
    return Text.assemble((start, "bold"), rest)


def console() -> Screen:
    """Standard output: as wide as the terminal, or as COLUMNS says; wide in a pipe, where nothing is to be cut."""
    made = Screen()
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        made.width = WIDE
    return made


def _watched_terminal() -> Screen | None:
    """Standard error where it is a terminal and --json is not given; else None, because nobody watches it."""
    screen = Screen(stderr=True)
    return screen if screen.is_terminal and not read_by_program.get() else None


def spinner(message: str) -> AbstractContextManager[Any]:
    """A spinner on standard error while something long goes on; nothing where nobody looks at it."""
    screen = None if wants_events() else _watched_terminal()
    if screen is not None:
        return screen.status(Text(message))
    hidden = HiddenSpinner()
    hidden.update(message)
    return nullcontext(hidden)


class HiddenSpinner:
    """Stands for a spinner that is not shown; a program that asked for progress is told."""

    def update(self, message: str) -> None:
        """Say what goes on now."""
        if wants_events():
            ProgressEvents().update(message, 0, 0)


def _progress(screen: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=screen, transient=True)


@contextmanager
def bar(message: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that moves a progress bar on standard error, as `bars` does."""
    with bars() as show:
        show(message, 0, 0)
        yield lambda done, of: show(message, done, of)


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function of (what, done, total) that moves one bar each on standard error.

    A thing is done when the next begins, so its bar is full then. Where there is no terminal, a line now and then says
    it; with --json nothing does.
    """
    if wants_events():
        yield ProgressEvents().update
        return
    screen = _watched_terminal()
    if screen is None:
        lines = ProgressLines()
        yield (lambda what, done, of: None) if read_by_program.get() else lines.update
        return
    tasks: dict[str, tuple[TaskID, int]] = {}
    with _progress(screen) as shown:

        def show(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for task, whole in tasks.values():
                    shown.update(task, completed=whole, total=whole)
                tasks[what] = shown.add_task(what, total=None), of
            tasks[what] = tasks[what][0], of
            shown.update(tasks[what][0], completed=done, total=of or None)

        yield show


@contextmanager
def interruptible(otherwise: str, *states: Path) -> Iterator[None]:
    """On Ctrl-C print the first state file that exists, or the message `otherwise`, and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        kept = next((path for path in states if path.exists()), None)
        said = otherwise if kept is None else f"{kept} has what was done so far; the same command goes on from there"
        Screen(stderr=True, soft_wrap=True).print(f"hexforge: stopped; {said}", style="red")
        raise SystemExit(130) from None


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    optional: Sequence[str] = (),
    whole: bool = False,
) -> FittedTable:
    """A table whose cells are plain text (no markup is read out of model names), made to fit when it is printed.

    `optional` names the columns that a narrow screen does without, the last of them first; `whole` keeps the first
    column as it is, where its texts are to be typed.
    """
    return FittedTable(title, tuple(columns), tuple(tuple(row) for row in rows), tuple(optional), whole)


def result_table(title: str, columns: Iterable[Column], results: Iterable[Any], whole: bool = False) -> FittedTable:
    """A table of results by the columns that describe them, which also say which leave a narrow screen first."""
    shown = tuple(columns)
    leaving = [column.name for column in sorted(shown, key=lambda column: -column.leaves) if column.leaves]
    rows = ([column.cell(result) for column in shown] for result in results)
    return table(title, [column.name for column in shown], rows, leaving, whole)


def rows_left_out(shown: int, of: int, what: str, flag: str = "--all") -> Text:
    """The line under a table that does not show everything."""
    return Text(f"{of - shown} more {what}: {flag}", "dim") if of > shown else Text("")


def print_json(data: Any) -> None:
    """`data` as JSON, plain, for other programs."""
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False)
    for part in encoder.iterencode(data):
        sys.stdout.write(visible_json(part))
    sys.stdout.write("\n")
