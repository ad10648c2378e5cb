# SPDX-License-Identifier: Apache-2.0
"""Section: what a page shows below its timeline, as plain data; the page's script draws it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Cell = str | float | int | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, and how its cells read."""

    name: str
    kind: Literal["text", "number", "bytes", "share"] = "text"
    """A share is a part of one: shown in percent, with a bar."""
    digits: int = 1
    total: Literal["", "sum", "max"] = ""
    """What the last line says of the rows that are shown."""
    choose: bool = False
    """Whether the rows can be filtered by this column's values."""
    about: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it."""
        return {
            "name": self.name, "kind": self.kind, "digits": self.digits, "total": self.total, "choose": self.choose,
            "about": self.about,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to sort by any column and to filter."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    sort: int | None = None
    """The column the rows are first sorted by, largest first; as given where None."""
    narrow: bool = False
    """Whether something else may stand beside it."""

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it."""
        rows = [[_plain(cell) for cell in row] for row in self.rows]
        columns = [column.to_json() for column in self.columns]
        named = {"draw": "table", "title": self.title, "narrow": self.narrow}
        return named | {"columns": columns, "rows": rows, "sort": self.sort}


@dataclass(frozen=True, slots=True)
class Bars:
    """Amounts next to each other, with a range around each where one is known."""

    labels: Sequence[str]
    values: Sequence[float]
    unit: str = ""
    title: str = ""
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    mark: int | None = None
    """The bar to set apart from the others."""
    wide: bool = False
    """Whether it takes the whole width, with room for long labels, as more than ten bars do."""

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it."""
        ranges = {"low": [_plain(v) for v in self.low], "high": [_plain(v) for v in self.high]}
        values = [_plain(v) for v in self.values]
        named = {
            "draw": "bars",
            "title": self.title,
            "labels": list(self.labels),
            "unit": self.unit,
            "mark": self.mark,
            "wide": self.wide,
        }
        return named | ranges | {"values": values}


@dataclass(frozen=True, slots=True)
class Series:
    """The points of a plot that belong together."""

    name: str
    points: Sequence[tuple[float, float]]
    labels: Sequence[str] = ()
    """What each point is, to read on hover."""
    line: bool = False
    """Whether a line joins them, in a plot of dots."""
    large: bool = False
    """Whether its dots are to be seen first."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One amount over another, as dots or as lines."""

    x: str
    y: str
    series: Sequence[Series]
    title: str = ""
    lines: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it; points that are not finite have no place and are left out."""
        series = []
        for drawn in self.series:
            labels = [*drawn.labels, *[""] * (len(drawn.points) - len(drawn.labels))]
            points = [
                (x, y, label)
                for (x, y), label in zip(drawn.points, labels, strict=True)
                if math.isfinite(x) and math.isfinite(y)
            ]
            series.append(
                {"name": drawn.name, "points": points, "line": drawn.line or self.lines, "large": drawn.large}
            )
        return {
            "draw": "plot", "title": self.title, "x": self.x, "y": self.y, "lines": self.lines, "series": series,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """A number to be seen at once, and what it is."""

    label: str
    value: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers that a page is about, large and side by side."""

    figures: Sequence[Figure]
    verdict: str = ""
    """What follows from them, in a sentence."""

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it."""
        shown = [{"label": f.label, "value": f.value, "about": f.about} for f in self.figures]
        return {"draw": "figures", "figures": shown, "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do: what, what it gains, and why or how."""

    title: str
    gain: str = ""
    text: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """What to change, the most worthwhile first."""

    steps: Sequence[Step]
    title: str = ""
    nothing: str = "Nothing."
    """What is said where there are none."""

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it."""
        shown = [{"title": s.title, "gain": s.gain, "text": s.text, "where": s.where} for s in self.steps]
        return {"draw": "steps", "title": self.title, "steps": shown, "nothing": self.nothing}


class SectionPart(Protocol):
    """What a section is made of."""

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it; `draw` names the function that draws it."""
        ...


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a title: words, then charts and tables."""

    title: str
    parts: Sequence[SectionPart]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the page's script reads it."""
        return {"title": self.title, "note": self.note, "parts": [part.to_json() for part in self.parts]}


def _plain(value: Any) -> Cell:
    """A cell as JSON has it: NaN and infinities, which it has not, are nothing."""
    if isinstance(value, str | None):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else round(number, 6)
