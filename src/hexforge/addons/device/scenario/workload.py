# SPDX-License-Identifier: Apache-2.0
"""Workload: what runs when on a device: models with rates, deadlines and priorities, and what all may take."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hexforge.addons.device.chip import PLATFORMS
from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.configs import RESTRICTED, THREAD_PRIORITIES
from hexforge.addons.device.power import PROFILES
from hexforge.chips.priority import Priority
from hexforge.chips.soc import DEFAULT_SOC, Soc, require_chip
from hexforge.errors import CallError
from hexforge.formats.json_text import read_yaml
from hexforge.formats.validated import Amount, ByName, Count, OneOf, OneOrMore, Positive, Within, size_of, validated

MOST_MODELS = 16
"""More than anybody runs on one phone; the search is not made for more."""
MOST_BYTES = 1 << 20
"""Of a workload's file."""
MB = 1 << 20
Rate = Annotated[float, Within(1e-3, 1e15)]


@dataclass(frozen=True, slots=True)
class RatedGraph:
    """One graph that runs at a rate."""

    name: str
    file: Path
    """Its context."""
    binary: Binary
    graph: str
    period_us: float
    deadline_us: float
    """From the moment it is due; 99 of 100 runs must end before."""
    jitter_us: float
    """Each run is due up to this much after its period."""
    priorities: tuple[Priority, ...]
    """What may be chosen: by default the published four, of which an unprivileged process has two."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What all models may take together; None where nothing is said."""

    ram_bytes: int
    """The device's RAM, or the part of it that contexts may take."""
    sessions: int | None = None
    energy_mw: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Models that run together on one device."""

    soc: Soc
    platform: str
    privileged: bool
    models: tuple[RatedGraph, ...]
    limits: Limits
    profiles: tuple[str, ...]
    """Performance profiles that may be chosen."""
    vtcm_mb: tuple[int, ...]
    """Sizes of VTCM that a graph may be prepared for besides its own; empty: only as it was prepared."""
    restart_every_us: float = 0.0
    """The subsystem restarts so often (SSR); 0: never."""

    @property
    def frame_us(self) -> float:
        """The period of the model that runs most often."""
        return min(model.period_us for model in self.models)


@dataclass(frozen=True, slots=True)
class _RatedRow:
    """A model of the file; its graph runs at a rate or with a period."""

    context: str = ""
    graph: str = ""
    rate_hz: Rate | None = None
    period_ms: Rate | None = None
    deadline_ms: Rate | None = None
    jitter_ms: Amount = 0.0
    priority: Annotated[tuple[Annotated[Priority, ByName()], ...], Within(1), OneOrMore()] | None = None


@dataclass(frozen=True, slots=True)
class _LimitsRow:
    ram_bytes: Count | None = None
    ram_mb: Amount | None = None
    sessions: Count = 0
    energy_mw: Amount = 0.0


@dataclass(frozen=True, slots=True)
class _WorkloadFile:
    models: dict[str, _RatedRow]
    soc: str = DEFAULT_SOC
    platform: Annotated[str, OneOf(PLATFORMS)] = "android"
    privileged: bool = False
    ram_bytes: Count | None = None
    ram_mb: Amount | None = None
    limits: _LimitsRow = _LimitsRow()
    profiles: Annotated[tuple[Annotated[str, OneOf(tuple(PROFILES))], ...], Within(1)] = tuple(PROFILES)[:-1]
    vtcm_mb: tuple[Positive, ...] = ()
    restart_every_s: Amount = 0.0


def read_workload(path: str | os.PathLike[str], contexts: tuple[Path, ...] = (), soc: str | None = None) -> Workload:
    """A workload from its YAML file; contexts are files that it names, or those given, by the stem of their names."""
    file = Path(path)
    return parse_workload(read_yaml(file, MOST_BYTES), file.parent, str(file), contexts, soc)


def parse_workload(
    data: Any, folder: Path, where: str, contexts: tuple[Path, ...] = (), soc: str | None = None
) -> Workload:
    """A workload from plain data."""
    given = validated(_WorkloadFile, data, where)
    chip, ram = require_chip(soc or given.soc), size_of(given, "ram", 8 << 30)
    limits = Limits(
        min(ram, size_of(given.limits, "ram", ram)), given.limits.sessions or None, given.limits.energy_mw or None
    )
    if refused := [size for size in given.vtcm_mb if size > chip.vtcm_mb]:
        raise CallError(f"{where}: vtcm_mb has {refused[0]}; {chip.name} has 1 to {chip.vtcm_mb} MB")
    if not 1 <= len(given.models) <= MOST_MODELS:
        raise CallError(f"{where}: models is an object of 1 to {MOST_MODELS} models, each by its name")
    files = {file.stem: file for file in contexts}
    models = tuple(
        _model(name, row, f"{where}: models.{name}", folder, files, chip, given.privileged)
        for name, row in given.models.items()
    )
    sizes = tuple(sorted(set(given.vtcm_mb)))
    restart_us = given.restart_every_s * 1e6
    return Workload(chip, given.platform, given.privileged, models, limits, given.profiles, sizes, restart_us)


def _model(
    name: str, row: _RatedRow, where: str, folder: Path, files: dict[str, Path], soc: Soc, privileged: bool
) -> RatedGraph:
    if not re.fullmatch(r"[\w.-]+", name):
        raise CallError(f"{where}: a model's name has letters, digits, '_', '-' and '.' only")
    path = folder / row.context if row.context else files.get(name)
    if path is None:
        known = f"; given are {', '.join(sorted(files))}" if files else ""
        raise CallError(f"{where}: give its context file (context), or one called {name}{known}")
    if not path.is_file():
        raise CallError(f"{where}: there is no file {path}")
    binary = Binary.of(path, soc, name).without_numbers()
    graph = row.graph or (binary.graphs[0].name if len(binary.graphs) == 1 else "")
    if graph not in {spec.name for spec in binary.graphs}:
        raise CallError(f"{where}: graph is one of {', '.join(spec.name for spec in binary.graphs)}")
    if (row.rate_hz is None) == (row.period_ms is None):
        raise CallError(f"{where}: give rate_hz or period_ms, one of them")
    period_us = 1e6 / row.rate_hz if row.rate_hz is not None else 1e3 * (row.period_ms or 0.0)
    deadline_us = period_us if row.deadline_ms is None else 1e3 * row.deadline_ms
    may = [p for p in Priority if privileged or p not in RESTRICTED]
    priorities = row.priority or tuple(p for p in THREAD_PRIORITIES if p in may)
    if refused := [p.name for p in priorities if p not in may]:
        raise CallError(f"{where}: priority {refused[0]} needs a privileged process; say privileged: true")
    return RatedGraph(name, path, binary, graph, period_us, deadline_us, 1e3 * row.jitter_ms, priorities)
