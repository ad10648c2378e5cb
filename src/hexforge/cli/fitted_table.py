# SPDX-License-Identifier: Apache-2.0
"""Tables that fit the screen: names are shortened in the middle, words wrap, columns that matter least are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from hexforge.terminal_text import visible

ELLIPSIS = "…"
WIDE = 200
"""From so many columns on nothing is shortened: that is a file or a pipe, where names are searched for."""
NARROWEST_NAME = 20
NARROWEST_WORDS = 22
NARROWEST = 6
LONGEST_WORD = 24
"""A word of more letters is shortened or broken where there is no room."""
GAP = 2


def shorten_middle(text: str, width: int) -> str:
    """The text with its middle left out where it is longer: the ends of a path tell most, its last end above all."""
    if cell_len(text) <= width:
        return text
    if width <= 4:
        return text[: max(width - 1, 0)] + ELLIPSIS
    head = (width - 1) // 3
    return text[:head] + ELLIPSIS + text[head + 1 - width :]


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table of plain text that is laid out when it is printed, for the width that there is."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Text, ...], ...]
    optional: tuple[str, ...] = ()
    """Columns to leave out where there is no room, the last of them first."""
    whole: bool = False
    """True where the first column is never shortened: keys that people type."""

    def __post_init__(self) -> None:
        # widths are found out with what is shown, so names become visible before
        object.__setattr__(self, "rows", tuple(tuple(map(_visible, row)) for row in self.rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        kept = self._kept(width)
        widths = self._widths(kept, width)
        if self.title:
            yield Text(self.title, "italic")  # not the table's own, which wraps at the width of the table
        laid = Table(
            box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, show_header=any(self.columns)
        )
        for k in kept:
            numbers = all(_is_number(_plain(row[k])) for row in self.rows) and bool(self.rows)
            laid.add_column(
                self.columns[k], overflow="fold", justify="right" if numbers else "left", max_width=widths[k]
            )
        for row in self.rows:
            laid.add_row(*(self._cell(row[k], widths[k], first=k == 0, cut=width < WIDE) for k in kept))
        yield laid
        yield ""

    def _cell(self, cell: str | Text, width: int, *, first: bool, cut: bool) -> Text:
        text = cell if isinstance(cell, Text) else Text(cell)
        if cut and (first or " " not in text.plain) and cell_len(text.plain) > width:
            return Text(shorten_middle(text.plain, width), text.style)
        return text

    def _natural(self, k: int) -> int:
        cells = (_plain(row[k]) for row in self.rows)
        return max((cell_len(line) for cell in (self.columns[k], *cells) for line in cell.split("\n")), default=0)

    def _least(self, k: int) -> int:
        """As narrow as a column may get: the first is a name, words wrap, anything else stays whole."""
        natural = self._natural(k)
        if k == 0:
            return natural if self.whole else min(natural, NARROWEST_NAME)
        words = [word for row in self.rows for word in _plain(row[k]).split()]
        longest = max(map(cell_len, words), default=0)
        return natural if natural <= LONGEST_WORD else max(NARROWEST_WORDS, min(longest, LONGEST_WORD))

    def _kept(self, width: int) -> list[int]:
        kept = list(range(len(self.columns)))
        for name in reversed(self.optional):
            if sum(map(self._least, kept)) + GAP * (len(kept) - 1) <= width:
                break
            kept = [k for k in kept if self.columns[k] != name]
        return kept

    def _widths(self, kept: Sequence[int], width: int) -> dict[int, int]:
        """The widest column gives way first, as far as it may."""
        widths = {k: self._natural(k) for k in kept}
        least = {k: self._least(k) for k in kept}
        over = sum(widths.values()) + GAP * (len(kept) - 1) - width
        while over > 0:
            giving = [k for k in kept if widths[k] > least[k]] or [k for k in kept if widths[k] > NARROWEST]
            if not giving:
                break
            widest = max(giving, key=lambda k: widths[k])
            widths[widest] -= 1
            over -= 1
        return widths


def _visible(cell: str | Text) -> str | Text:
    if isinstance(cell, str):
        return visible(cell)
    return cell if (plain := visible(cell.plain)) == cell.plain else Text(plain, cell.style)


def _plain(cell: str | Text) -> str:
    return cell.plain if isinstance(cell, Text) else cell


def _is_number(text: str) -> bool:
    return text in ("", "-") or text.removesuffix("%").strip(" +-").replace(",", "").replace(".", "", 1).isdecimal()
