"""What commands print with: a console that does not cut columns in a pipe, tables, a spinner, a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_COLUMNS = 200


def console() -> Console:
    """Standard output, wide where it is not a terminal."""
    found = Console(highlight=False)
    if not found.is_terminal:
        found.width = PIPE_COLUMNS
    return found


def waiting(message: str) -> AbstractContextManager[Any]:
    """A spinner on standard error while something long goes on; nothing where that is not a terminal."""
    return Console(stderr=True).status(message)


@contextmanager
def bar(message: str) -> Iterator[Callable[[int, int], None]]:
    """Gives what says (done, of all): a bar with the time left on standard error, nothing where that is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as shown:
        task = shown.add_task(message, total=None)
        yield lambda done, of: shown.update(task, completed=done, total=of)


@contextmanager
def stoppable(otherwise: str, *states: Path) -> Iterator[None]:
    """Ctrl-C ends what is done in here with words: which file has what was done, or what is true otherwise."""
    try:
        yield
    except KeyboardInterrupt:
        kept = next((path for path in states if path.exists()), None)
        said = otherwise if kept is None else f"{kept} has what was done so far; the same command goes on from there"
        Console(stderr=True, soft_wrap=True).print(f"hexforge: stopped; {said}", style="red", markup=False)
        raise SystemExit(130) from None


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table whose cells are plain text (no markup is read out of model names)."""
    made = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


def print_json(data: Any) -> None:
    """`data` as JSON, plain, for other programs."""
    json.dump(data, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
