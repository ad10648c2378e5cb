# SPDX-License-Identifier: Apache-2.0
"""Memory of the process that runs a model, estimated beside measured: `python -m benchmarks.latency.memory`.

The rows of measured.csv have the memory of the process, mem_min_mb and mem_max_mb. Printed is the error of the peak
that is estimated against mem_max_mb, for families whose rows the constants of `chips/application_memory.py` were chosen
by, and for families kept aside by a hash. Rows of the QCS8550 (Proxy), a device that stands for several, are left out.
`--precision` takes one precision alone (float is the quickest), `--models N` the N smallest models.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import hexforge
from hexforge.addons.latency.measurements import DATA, MEASURED_PRECISIONS, read_families
from hexforge.chips.application_memory import PEAKS, ModelSizes, platform_of
from hexforge.chips.soc import require_chip
from hexforge.errors import HexforgeError

MB = 1 << 20
PROXY = "Proxy"


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """What a process took, measured and estimated."""

    model: str
    platform: str
    runtime: str
    measured_mb: float
    estimated_mb: float
    aside: bool


def is_aside(family: str) -> bool:
    """Whether a family was kept aside: one of four, by a hash."""
    return hashlib.sha256(f"memory {family}".encode()).digest()[0] % 4 == 0


def memory_rows(precisions: tuple[str, ...], most: int = 0) -> Iterator[MemoryRow]:
    """Every measured row of some precisions beside its estimate."""
    families = read_families()
    with (DATA / "measured.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["precision"] in precisions and row["mem_max_mb"]]
    names = sorted({row["model"] for row in rows}, key=lambda name: _path(name).stat().st_size)
    wanted = set(names[: most or len(names)])
    sizes: dict[tuple[str, str], ModelSizes | None] = {}
    for row in rows:
        key = row["model"], row["precision"]
        platform, runtime = platform_of(require_chip(row["soc_model"]).name), row["runtime"]
        if PROXY in row["device"] or row["model"] not in wanted or (platform, runtime) not in PEAKS:
            continue
        if key not in sizes:
            sizes[key] = _sizes(*key)
        if (known := sizes[key]) is None:
            continue
        estimated = PEAKS[platform, runtime].bytes(known) / MB
        aside = is_aside(families[row["model"]].name)
        yield MemoryRow(row["model"], platform, runtime, float(row["mem_max_mb"]), estimated, aside)


def _path(model: str) -> Path:
    return DATA / "topologies" / f"{model}.onnx"


def _sizes(model: str, precision: str) -> ModelSizes | None:
    try:
        return hexforge.estimate(_path(model), hexforge.Deployment("SM8650", precision), cpu_part=False).sizes
    except HexforgeError:
        return None


def main() -> None:
    """Print the errors by platform and runtime."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=MEASURED_PRECISIONS, help="one precision alone")
    parser.add_argument("--models", type=int, default=0, help="the smallest so many models; 0: all")
    given = parser.parse_args()
    precisions = (given.precision,) if given.precision else MEASURED_PRECISIONS
    groups: dict[tuple[str, str, bool], list[MemoryRow]] = defaultdict(list)
    for row in memory_rows(precisions, given.models):
        groups[row.platform, row.runtime, row.aside].append(row)
    table = Table("host", "runtime", "families", "rows", "median error", "mean", "MB off, median", "measured, median")
    for (platform, runtime, aside), rows in sorted(groups.items()):
        off = np.array([abs(row.estimated_mb - row.measured_mb) for row in rows])
        measured = np.array([row.measured_mb for row in rows])
        error = 100 * off / np.maximum(measured, 1.0)
        errors = (f"{np.median(error):.0f} %", f"{error.mean():.0f} %", f"{np.median(off):.1f}")
        families = "kept aside" if aside else "chosen by"
        table.add_row(platform, runtime, families, str(len(rows)), *errors, f"{np.median(measured):.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
