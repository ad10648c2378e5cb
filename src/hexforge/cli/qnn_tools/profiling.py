# SPDX-License-Identifier: Apache-2.0
"""Profiles that tools write: the level that their flags and the config file ask for, the log and the schematic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.options import did_you_mean

if TYPE_CHECKING:
    from hexforge.backend import Backend, Program
    from hexforge.chips.graph_config import GraphConfig
    from hexforge.chips.power import Power
    from hexforge.formats.profile.record import HostEvent, Profile

LEVELS = ("basic", "detailed", "backend", "client")
"""What --profiling_level takes: backend is as the backend's own config says."""


def level_of(profiling_level: str, profiling_option: str, config: Config) -> str:
    """The level of the record, empty where nothing is profiled; CallError for what is no level."""
    if profiling_option and profiling_option != "optrace":
        raise CallError(f"--profiling_option {profiling_option!r}: expected optrace")
    if not profiling_level:
        if profiling_option:
            raise CallError("--profiling_option optrace: needs --profiling_level detailed")
        return ""
    if profiling_level not in LEVELS:
        listed = ", ".join(LEVELS)
        raise CallError(
            f"--profiling_level {profiling_level!r}: expected one of {listed}{did_you_mean(profiling_level, LEVELS)}"
        )
    if profiling_option:
        return "optrace"
    if profiling_level == "backend":
        linted = any(device.profiling_level == "linting" for device in config.htp.devices)
        return "linting" if linted else "detailed"
    return "basic" if profiling_level == "client" else profiling_level


def write_profile(
    program: Program,
    backend: Backend,
    power: Power,
    level: str,
    runs: int,
    folder: Path,
    number: int,
    *,
    config: GraphConfig | None = None,
    events: Sequence[HostEvent] = (),
) -> Path:
    """Write the log of a graph's runs, as the vendor's tools name it.

    `config` is how the graph was prepared, where that is not as the backend prepares; `events` are figures beside runs.
    """
    from hexforge.formats.profile import log

    name = "qnn-profiling-data.log" if level == "optrace" and not number else f"qnn-profiling-data_{number}.log"
    folder.mkdir(parents=True, exist_ok=True)
    profile = _profile(program, backend, power, level, max(runs, 1), config)
    log.write(folder / name, replace(profile, events=(*profile.events, *events)))
    return folder / name


def write_schematic(program: Program, backend: Backend, power: Power, stem: str, folder: Path) -> Path:
    """Write the schematic of a graph, its ops without any run, into the file that `stem` names."""
    from hexforge.formats.profile import log

    profile = _profile(program, backend, power, "optrace", 1)
    bare = replace(profile, graphs=tuple(replace(graph, runs=()) for graph in profile.graphs))
    log.write(folder / f"{stem}_schematic.bin", bare)
    return folder / f"{stem}_schematic.bin"


def _profile(
    program: Program, backend: Backend, power: Power, level: str, runs: int, config: GraphConfig | None = None
) -> Profile:
    from hexforge.analysis.profile.simulated import profile
    from hexforge.backend import TimedBackend
    from hexforge.chips.deployment import Deployment

    if not isinstance(backend, TimedBackend):
        raise CallError(f"--profiling_level: the {backend.name} backend has no clock here; use libQnnHtp.so")
    prepared = config or backend.graph_config
    deployment = Deployment(backend.chip_name, config=prepared, power=power, backend=backend.name)
    return profile(program, deployment, level=level, runs=runs)
