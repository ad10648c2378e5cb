# SPDX-License-Identifier: Apache-2.0
"""The page of a sweep: models by chips, the fastest precision of each, and what changed since an earlier sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hexforge.addons.cluster.sweep_table import RowChange, Sweep, SweepRow
from hexforge.report.page import sections_page
from hexforge.report.section import Cell, Column, Figure, Figures, Plot, Section, Series, Table

MODEL, PRECISION, CHIP = Column("model"), Column("precision", choose=True), Column("chip", of="soc", choose=True)
ROWS = (
    MODEL, PRECISION, CHIP,
    Column("ms", "number", 3, of="latency_ms"),
    Column("low", "number", 3, of="low_ms"),
    Column("high", "number", 3, of="high_ms"),
    Column("nodes on CPU", "number", 0, of="nodes_on_cpu"),
    Column("weights", "bytes", of="weight_bytes"),
    Column("slowest op", of="slowest"),
    Column("advice"),
    Column("why not, or what is left out", of=lambda row: row.error or row.first_on_cpu),
)  # fmt: skip
CHANGES = (
    *(replace(column, of=f"row.{column.of or column.name}") for column in (MODEL, PRECISION, CHIP)),
    Column("was ms", "number", 3, of="before.latency_ms"),
    Column("is ms", "number", 3, of="after.latency_ms"),
    Column("ratio", "number", 3, of=lambda change: None if math.isnan(change.ratio) else change.ratio),
    Column("what", of=lambda change: str(change).partition(": ")[2]),
)


def sweep_page(sweep: Sweep, name: str, changes: Sequence[RowChange] | None = None) -> str:
    """The page; `changes` are against an earlier sweep, None where there is none."""
    sections = [_summary(sweep, changes)]
    if changes:
        sections.append(_changes(changes))
    precisions = tuple(dict.fromkeys(row.precision for row in sweep))
    sections += [_matrix(sweep, precision) for precision in precisions]
    sections += [_fronts(sweep), _rows(sweep)]
    return sections_page(name, sections)


def _summary(sweep: Sweep, changes: Sequence[RowChange] | None) -> Section:
    models, chips = {row.model for row in sweep}, {row.soc for row in sweep}
    failed = sum(row.latency_ms is None for row in sweep)
    left = len({row.model for row in sweep if row.nodes_on_cpu})
    figures = [
        Figure("models", f"{len(models):,}"),
        Figure("chips", f"{len(chips):,}"),
        Figure("rows", f"{len(sweep.rows):,}"),
        Figure("without a time", f"{failed:,}", "a chip or precision that does not take the model; the table says why"),
        Figure("models with nodes on the CPU", f"{left:,}", "their time is the NPU's part"),
    ]
    if changes is not None:
        figures.append(Figure("changed", f"{len(changes):,}", "rows that differ from the earlier sweep"))
    return Section("Sweep", [Figures(figures)])


def _changes(changes: Sequence[RowChange]) -> Section:
    return Section("Changed", [Table.of(CHANGES, changes)], note="Against the earlier sweep, what got slower first.")


def _matrix(sweep: Sweep, precision: str) -> Section:
    chosen = [row for row in sweep if row.precision == precision]
    chips = tuple(dict.fromkeys(row.soc for row in chosen))
    times = {(row.model, row.soc): row.latency_ms for row in chosen}
    columns = (Column("model"), *(Column(chip, "number", 3) for chip in chips))
    rows: list[list[Cell]] = [
        [model, *(times.get((model, chip)) for chip in chips)] for model in dict.fromkeys(row.model for row in chosen)
    ]
    return Section(f"Milliseconds at {precision}", [Table(columns, rows)], note="Empty where there is no time.")


def _fronts(sweep: Sweep) -> Section:
    series = [
        Series(soc, [(float(i + 1), row.latency_ms or 0.0) for i, row in enumerate(rows)], [_label(r) for r in rows])
        for soc, rows in sweep.fronts().items()
    ]
    plot = Plot("models, fastest first", "ms", series, "the fastest precision of each model", lines=True)
    return Section("Fronts", [plot], note="For each chip its models by their fastest precision.")


def _label(row: SweepRow) -> str:
    return f"{row.model} {row.precision}: {row.latency_ms} ms"


def _rows(sweep: Sweep) -> Section:
    return Section("All rows", [Table.of(ROWS, sweep)])
