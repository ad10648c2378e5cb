# SPDX-License-Identifier: Apache-2.0
"""A store of figures: what gates and sweeps measured, run by run, in a folder of Parquet files or behind a URL.

Each run adds one file, so runs on several machines never write into one another; no file is ever changed.
"""

from __future__ import annotations

import io
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from hexforge.errors import CallError, FormatError
from hexforge.formats.files import write_atomically
from hexforge.quant.data.data_sets import file_system, opened
from hexforge.results import Column, Result

_COMMIT_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT")
_MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class StoredFigure(Result):
    """One figure of one run."""

    when: str
    """In UTC, as 2026-01-31T23:59:59Z."""
    commit: str
    model: str
    what: str
    """latency_ms on SM8650, refused_nodes, …"""
    value: float
    source: str
    """The command that measured it."""
    hexforge: str

    described = (
        Column("when"),
        Column("commit", text=lambda figure: figure.commit[:12]),
        Column("model"),
        Column("what"),
        Column("value", "significant", 4),
        Column("source", leaves=1),
        Column("hexforge", leaves=2),
    )


def new_figures(values: Iterable[tuple[str, str, float]], source: str, folder: Path) -> list[StoredFigure]:
    """Figures (model, what, value) of a run that ends now, of the commit that CI names or that the folder is at."""
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    figure = StoredFigure(when, _commit(folder), "", "", 0.0, source, version("hexforge"))
    return [replace(figure, model=model, what=what, value=float(value)) for model, what, value in values]


def store_figures(store: str, figures: Sequence[StoredFigure]) -> str:
    """Add a run to a store, and give the name of its file; CallError where it cannot be written."""
    if not figures:
        raise CallError(f"{store}: the run has no figure to keep")
    pa, parquet = _arrow(store)
    types = {"float": pa.float64(), "str": pa.string()}
    schema = pa.schema([(f.name, types[str(f.type)]) for f in fields(StoredFigure)])
    stream = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([asdict(figure) for figure in figures], schema), stream)
    # runs of one second stay in their order
    name = f"{figures[0].when.replace(':', '')}-{time.time_ns()}-{uuid4().hex[:12]}.parquet"
    if "://" not in store:
        Path(store).mkdir(parents=True, exist_ok=True)
        write_atomically(Path(store) / name, stream.getvalue())
        return str(Path(store) / name)
    system, path = file_system(store)
    try:
        system.makedirs(path, exist_ok=True)
        system.pipe_file(f"{path.rstrip('/')}/{name}", stream.getvalue())
    except Exception as error:  # of whichever package is behind the URL
        raise CallError(f"{store}: cannot be written: {error}") from None
    return f"{store.rstrip('/')}/{name}"


def stored_figures(store: str) -> list[StoredFigure]:
    """Every figure of a store, the oldest first; FormatError for a file that is no run."""
    _, parquet = _arrow(store)
    figures: list[StoredFigure] = []
    wanted = [f.name for f in fields(StoredFigure)]
    for name in _files(store):
        with opened(name) as file:
            try:
                rows = parquet.read_table(file, columns=wanted).to_pylist()
                figures += [StoredFigure(**{**row, "value": float(row["value"])}) for row in rows]
            except Exception as error:  # pyarrow has many classes for what a file can be
                said = str(error).strip().splitlines() or [type(error).__name__]
                raise FormatError(
                    f"{name}: is no run of `hexforge gate --store` or `sweep --store`: {said[0]}"
                ) from None
    return sorted(figures, key=lambda figure: figure.when)


def _files(store: str) -> list[str]:
    if "://" not in store:
        if not Path(store).is_dir():
            raise CallError(f"{store}: is no folder; `hexforge gate --store` makes it")
        return [str(path) for path in sorted(Path(store).glob("*.parquet"))[-_MOST_FILES:]]
    system, path = file_system(store)
    try:
        names = sorted(system.glob(f"{path.rstrip('/')}/*.parquet"))
    except Exception as error:  # of whichever package is behind the URL
        raise CallError(f"{store}: cannot be read: {error}") from None
    return [system.unstrip_protocol(name) for name in names[-_MOST_FILES:]]


def _arrow(store: str) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise CallError(f"{store}: a store needs pyarrow: pip install 'hexforge[cluster]'") from None
    return pa, parquet


def _commit(folder: Path) -> str:
    for name in _COMMIT_VARIABLES:
        if given := os.environ.get(name):
            return given
    try:
        asked = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
