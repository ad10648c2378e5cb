# SPDX-License-Identifier: Apache-2.0
"""Workload: what runs when on a device: models with rates, deadlines and priorities, and what all may take."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hexforge.addons.device.chip import PLATFORMS
from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.configs import RESTRICTED, THREAD_PRIORITIES
from hexforge.addons.device.power.profiles import PROFILES
from hexforge.addons.device.scenario.fields import Fields
from hexforge.chips.priority import Priority
from hexforge.chips.soc import DEFAULT_SOC, Soc, require_chip
from hexforge.errors import CallError, FormatError

MOST_MODELS = 16
"""More than anybody runs on one phone; the search is not made for more."""
MOST_BYTES = 1 << 20
"""Of a workload's file."""
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelLoad:
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
    models: tuple[ModelLoad, ...]
    limits: Limits
    profiles: tuple[str, ...]
    """Performance profiles that may be chosen."""
    vtcm_mb: tuple[int, ...]
    """Sizes of VTCM that a graph may be prepared for beside its own; empty: only as it was prepared."""
    restart_every_us: float = 0.0
    """The subsystem restarts so often (SSR); 0: never."""

    @property
    def frame_us(self) -> float:
        """The period of the model that runs most often."""
        return min(model.period_us for model in self.models)


def read_workload(path: str | os.PathLike[str], contexts: tuple[Path, ...] = (), soc: str | None = None) -> Workload:
    """A workload from its YAML file; contexts are files that it names, or those given, by the stem of their names."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise FormatError(f"{file}: is larger than {MOST_BYTES >> 20} MB, which no workload is")
        data = yaml.safe_load(file.read_text("utf-8"))
    except FileNotFoundError:
        raise CallError(f"{file}: there is no such file") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise FormatError(f"{file}: is no YAML that can be read: {reason}") from None
    return parse_workload(data, file.parent, str(file), contexts, soc)


def parse_workload(
    data: Any, folder: Path, where: str, contexts: tuple[Path, ...] = (), soc: str | None = None
) -> Workload:
    """A workload from plain data."""
    top = Fields(data, where)
    chip = require_chip(soc or top.text("soc", DEFAULT_SOC))
    top.any("soc", "")
    platform, privileged = top.text("platform", "android", PLATFORMS), top.flag("privileged")
    limits = Fields(top.any("limits", {}), f"{where}: limits")
    ram = top.bytes("ram", 8 << 30)
    sessions = limits.count("sessions", 0, 0) or None
    energy = limits.number("energy_mw", 0.0) or None
    made = Limits(min(ram, limits.bytes("ram", ram)), sessions, energy)
    limits.done()
    profiles = top.names("profiles", list(PROFILES)[:-1])
    for name in profiles:
        Fields({"profiles": name}, where).text("profiles", choices=tuple(PROFILES))
    sizes = top.list("vtcm_mb", [])
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= chip.vtcm_mb:
            raise CallError(f"{where}: vtcm_mb has {size!r}; {chip.name} has 1 to {chip.vtcm_mb} MB")
    restart = top.number("restart_every_s", 0.0) * 1e6
    rows = top.any("models")
    if not isinstance(rows, dict) or not 1 <= len(rows) <= MOST_MODELS:
        raise CallError(f"{where}: models is an object of 1 to {MOST_MODELS} models, each by its name")
    top.done()
    files = {file.stem: file for file in contexts}
    models = tuple(
        _model(str(name), Fields(row, f"{where}: models.{name}"), folder, files, chip, privileged)
        for name, row in rows.items()
    )
    if not profiles:
        raise CallError(f"{where}: profiles names none")
    return Workload(chip, platform, privileged, models, made, profiles, tuple(sorted(set(sizes))), restart)


def _model(name: str, fields: Fields, folder: Path, files: dict[str, Path], soc: Soc, privileged: bool) -> ModelLoad:
    if not re.fullmatch(r"[\w.-]+", name):
        raise CallError(f"{fields.where}: a model's name has letters, digits, '_', '-' and '.' only")
    given = fields.text("context", "")
    path = folder / given if given else files.get(name)
    if path is None:
        known = f"; given are {', '.join(sorted(files))}" if files else ""
        raise CallError(f"{fields.where}: give its context file (context), or one called {name}{known}")
    if not path.is_file():
        raise CallError(f"{fields.where}: there is no file {path}")
    binary = Binary.of(path, soc, name).without_numbers()
    graph = fields.text("graph", binary.graphs[0].name if len(binary.graphs) == 1 else "")
    if graph not in {spec.name for spec in binary.graphs}:
        names = ", ".join(spec.name for spec in binary.graphs)
        raise CallError(f"{fields.where}: graph is one of {names}")
    if fields.has("rate_hz") == fields.has("period_ms"):
        raise CallError(f"{fields.where}: give rate_hz or period_ms, one of them")
    period = (
        1e6 / fields.number("rate_hz", low=1e-3)
        if fields.has("rate_hz")
        else 1e3 * fields.number("period_ms", low=1e-3)
    )
    fields.any("rate_hz", None)
    fields.any("period_ms", None)
    deadline = 1e3 * fields.number("deadline_ms", period / 1e3, low=1e-3)
    jitter = 1e3 * fields.number("jitter_ms", 0.0)
    may = [p for p in Priority if privileged or p not in RESTRICTED]
    published = [p for p in THREAD_PRIORITIES if p in may]
    chosen = fields.any("priority", None)
    wanted = [chosen] if isinstance(chosen, str) else ([p.name for p in published] if chosen is None else chosen)
    if not isinstance(wanted, list) or not wanted or any(p not in Priority.__members__ for p in wanted):
        raise CallError(f"{fields.where}: priority is one of {', '.join(p.name for p in Priority)}, or a list of them")
    priorities = tuple(Priority[p] for p in wanted)
    refused = [p.name for p in priorities if p not in may]
    if refused:
        raise CallError(f"{fields.where}: priority {refused[0]} needs a privileged process; say privileged: true")
    fields.done()
    return ModelLoad(name, path, binary, graph, period, deadline, jitter, priorities)
