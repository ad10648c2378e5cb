# SPDX-License-Identifier: Apache-2.0
"""Section: what a page shows below its timeline, as plain data; the page's script draws it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hexforge.results import Cell as Cell
from hexforge.results import Column as Column
from hexforge.results import Key, Result, record

DRAWN_AS: Mapping[str, str] = {"decibels": "number", "significant": "number"}
"""Kinds of columns that the page's script draws as another."""
_COLUMN = ("name", Key("kind", of=lambda column: DRAWN_AS.get(column.kind, column.kind)), "digits total choose about")


class SectionPart(Result):
    """What a section is made of; `draw` names the function of the page's script that draws it."""

    __slots__ = ()
    draw: ClassVar[str] = ""
    decimals = 6


@dataclass(frozen=True, slots=True)
class Table(SectionPart):
    """Rows to sort by any column and to filter."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    sort: int | None = None
    """The column the rows are first sorted by, largest first; as given where None."""
    narrow: bool = False
    """Whether something else may stand beside it."""

    draw = "table"
    described = (
        "draw title narrow",
        Key("columns", of=lambda table: [record(column, _COLUMN) for column in table.columns]),
        "rows sort",
    )

    @classmethod
    def of(cls, columns: Sequence[Column], results: Iterable[Any], title: str = "", **how: Any) -> Table:
        """Results as rows, by the columns that describe them."""
        shown = tuple(columns)
        return cls(shown, [[column.value(result) for column in shown] for result in results], title, **how)


@dataclass(frozen=True, slots=True)
class Bars(SectionPart):
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

    draw = "bars"
    described = ("draw title labels unit mark wide low high values",)


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
class Plot(SectionPart):
    """One amount over another, as dots or as lines."""

    x: str
    y: str
    series: Sequence[Series]
    title: str = ""
    lines: bool = False

    draw = "plot"
    described = (
        "draw title x y lines",
        Key("series", of=lambda plot: [_points(series, plot.lines) for series in plot.series]),
    )


@dataclass(frozen=True, slots=True)
class Figure(Result):
    """A number to be seen at once, and what it is."""

    label: str
    value: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Figures(SectionPart):
    """The numbers that a page is about, large and side by side."""

    figures: Sequence[Figure]
    verdict: str = ""
    """What follows from them, in a sentence."""

    draw = "figures"
    described = ("draw figures verdict",)


@dataclass(frozen=True, slots=True)
class Step(Result):
    """Something to do: what, what it gains, and why or how."""

    title: str
    gain: str = ""
    text: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Steps(SectionPart):
    """What to change, the most worthwhile first."""

    steps: Sequence[Step]
    title: str = ""
    nothing: str = "Nothing."
    """What is said where there are none."""

    draw = "steps"
    described = ("draw title steps nothing",)


@dataclass(frozen=True, slots=True)
class Section(SectionPart):
    """A part of the page with a title: words, then charts and tables."""

    title: str
    parts: Sequence[SectionPart]
    note: str = ""

    described = ("title note parts",)


def _points(series: Series, joined: bool) -> dict[str, Any]:
    """Points that are not finite have no place in a plot and are left out."""
    labels = [*series.labels, *[""] * (len(series.points) - len(series.labels))]
    points = [(*at, label) for at, label in zip(series.points, labels, strict=True) if all(map(math.isfinite, at))]
    return {"name": series.name, "points": points, "line": series.line or joined, "large": series.large}
