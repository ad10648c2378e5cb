# SPDX-License-Identifier: Apache-2.0
"""Schematic: the ops of a graph as a chip runs them, without any run; qnn-profile-viewer reads it beside a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hexforge.addons.profiler import log
from hexforge.addons.profiler.record import Profile
from hexforge.addons.profiler.recording.simulated import profile
from hexforge.backend import Backend, Program, TimedBackend
from hexforge.chips.deployment import Deployment
from hexforge.chips.power import BURST, Power
from hexforge.errors import CallError


def simulated_profile(program: Program, backend: Backend, power: Power, level: str, runs: int) -> Profile:
    """What runs of a graph that lies on no device would do on the backend's chip."""
    if not isinstance(backend, TimedBackend):
        raise CallError(f"--profiling_level: the {backend.name} backend has no clock here; use libQnnHtp.so")
    deployment = Deployment(backend.chip_name, config=backend.graph_config, power=power, backend=backend.name)
    return profile(program, deployment, level=level, runs=runs)


def write_schematic(program: Program, backend: Backend, stem: str, folder: Path, power: Power = BURST) -> Path:
    """Write the schematic of a graph, its ops without any run, into the file that `stem` names."""
    whole = simulated_profile(program, backend, power, "optrace", 1)
    bare = replace(whole, graphs=tuple(replace(graph, runs=()) for graph in whole.graphs))
    log.write(folder / f"{stem}_schematic.bin", bare)
    return folder / f"{stem}_schematic.bin"
