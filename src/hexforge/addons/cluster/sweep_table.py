# SPDX-License-Identifier: Apache-2.0
"""The table of a sweep: a row for each model, precision and chip, and how it differs from an earlier one."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hexforge.errors import CallError, FormatError
from hexforge.results import Result

SAME = 0.005
"""A latency that differs by less than this part is the same."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that spreadsheets compute."""
_NO_FORMULA = "'"
"""Put before such a text, and before one that begins with it itself."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One model at one precision on one chip."""

    model: str
    precision: str
    soc: str
    latency_ms: float | None = None
    """None where there is none, and `error` says why."""
    low_ms: float | None = None
    high_ms: float | None = None
    nodes_on_cpu: int = 0
    """Nodes that the NPU does not take; the latency is without them."""
    first_on_cpu: str = ""
    """One of them, and why."""
    weight_bytes: int = 0
    memory_bytes: int = 0
    energy_uj_assumed: float | None = None
    slowest: str = ""
    """The op that takes longest, and its part of the time."""
    advice: str = ""
    """What would gain most, where advice was asked for."""
    error: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is a row of."""
        return self.model, self.precision, self.soc


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that is not what it was."""

    before: SweepRow | None
    after: SweepRow | None

    @property
    def row(self) -> SweepRow:
        """The row as it is, or as it was where it is no more."""
        row = self.after or self.before
        assert row is not None
        return row

    @property
    def ratio(self) -> float:
        """New latency over old; NaN where one of them has none."""
        if self.before is None or self.after is None or not self.before.latency_ms or self.after.latency_ms is None:
            return math.nan
        return self.after.latency_ms / self.before.latency_ms

    def __str__(self) -> str:
        name = " ".join(self.row.key)
        if self.before is None:
            return f"{name}: is new"
        if self.after is None:
            return f"{name}: is gone"
        if self.after.latency_ms is None:
            return f"{name}: {self.before.latency_ms} ms, now {self.after.error}"
        if self.before.latency_ms is None:
            return f"{name}: now {self.after.latency_ms} ms, was {self.before.error}"
        told = f"{name}: {self.before.latency_ms} ms, now {self.after.latency_ms} ({self.ratio - 1:+.1%})"
        moved = self.after.nodes_on_cpu - self.before.nodes_on_cpu
        return f"{told}, {abs(moved)} nodes {'more' if moved > 0 else 'fewer'} on the CPU" if moved else told


@dataclass(frozen=True, slots=True)
class Sweep(Result):
    """All rows, model by model."""

    rows: tuple[SweepRow, ...]
    reused: int = 0
    """Models whose rows were there from an earlier run of the same job."""
    set_aside: tuple[str, ...] = ()
    """Models that killed their worker twice."""
    unread: tuple[str, ...] = ()
    """Models that could not be read, or were set aside: all of their rows say why."""

    def __iter__(self) -> Iterator[SweepRow]:
        return iter(self.rows)

    def fronts(self) -> dict[str, list[SweepRow]]:
        """For each chip the fastest row of each model, fastest first."""
        best: dict[tuple[str, str], SweepRow] = {}
        for row in self.rows:
            known = best.get((row.soc, row.model))
            if row.latency_ms is not None and (known is None or row.latency_ms < (known.latency_ms or math.inf)):
                best[row.soc, row.model] = row
        fronts: dict[str, list[SweepRow]] = {}
        for (soc, _), row in best.items():
            fronts.setdefault(soc, []).append(row)
        return {soc: sorted(rows, key=lambda r: r.latency_ms or 0) for soc, rows in fronts.items()}

    def changes(self, before: Sweep) -> list[RowChange]:
        """Rows that are not what they were: those that got slower most first."""
        old, new = {row.key: row for row in before}, {row.key: row for row in self}
        changed = [RowChange(old.get(key), new.get(key)) for key in dict.fromkeys([*new, *old])]
        return sorted(filter(_differs, changed), key=lambda c: (*_slower_first(c.ratio), c.row.key))

    def to_csv(self) -> str:
        """The rows as CSV, which `read_sweep` reads."""
        text = io.StringIO()
        writer = csv.DictWriter(text, [f.name for f in fields(SweepRow)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in asdict(row).items()} for row in self.rows)
        return text.getvalue()

    def to_parquet(self) -> bytes:
        """The rows as a Parquet file; an error where pyarrow is not installed."""
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise CallError("Parquet needs pyarrow: pip install 'hexforge[cluster]', or write CSV") from None
        types = {"float": pa.float64(), "int": pa.int64(), "str": pa.string()}
        schema = pa.schema([(f.name, types[str(f.type).split(" ")[0]]) for f in fields(SweepRow)])
        stream = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist([asdict(row) for row in self.rows], schema), stream)
        return stream.getvalue()


def _cell(value: Any) -> Any:
    formula = isinstance(value, str) and value.startswith((*_FORMULA, _NO_FORMULA))
    return _NO_FORMULA + value if formula else value


def _slower_first(ratio: float) -> tuple[bool, float]:
    return (False, 0.0) if math.isnan(ratio) else (True, -ratio)


def _differs(change: RowChange) -> bool:
    before, after = change.before, change.after
    if before is None or after is None or (before.latency_ms is None) != (after.latency_ms is None):
        return True
    return before.nodes_on_cpu != after.nodes_on_cpu or abs(change.ratio - 1) > SAME


def read_sweep(path: Path) -> Sweep:
    """A sweep that was written as CSV."""
    try:
        lines = csv.DictReader(io.StringIO(path.read_text("utf-8")), strict=True)
        if list(lines.fieldnames or ()) != (expected := [f.name for f in fields(SweepRow)]):
            raise ValueError(f"its first line is not {','.join(expected)}")
        return Sweep(tuple(_row(line) for line in lines))
    except (UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: is no table of a sweep as CSV: {error}") from None


def _row(line: dict[str, str]) -> SweepRow:
    values: dict[str, Any] = {}
    for f in fields(SweepRow):
        text, kind = line[f.name], str(f.type)
        if kind.startswith("float"):
            values[f.name] = float(text) if text else None
        else:
            values[f.name] = int(text) if kind == "int" else text.removeprefix(_NO_FORMULA)
    return SweepRow(**values)
