# SPDX-License-Identifier: Apache-2.0
"""Profiles that tools write: the level that their flags and the config file ask for, and the log."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.options import did_you_mean

if TYPE_CHECKING:
    from hexforge.addons.device.placed_contexts import DeviceProgram
    from hexforge.addons.profiler.record import GraphProfile, Profile, ProfiledRun
    from hexforge.chips.power import Power

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


def write_log(profile: Profile, folder: Path, number: int) -> Path:
    """Write the log of a graph's runs, as the vendor's tools name it."""
    from hexforge.addons.profiler import log

    names = [f"qnn-profiling-data_{number}.log"]
    if profile.level == "optrace" and not number:  # its documentation has the one name, ExecuTorch's QnnTool the other
        names.append("qnn-profiling-data.log")
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        log.write(folder / name, profile)
    return folder / names[0]


def device_profile(program: DeviceProgram, level: str, power: Power) -> Profile:
    """What the runs of a graph on a simulated device, driven as `power` says, did there: each in its own time."""
    from hexforge.addons.device import SimulatedTime
    from hexforge.addons.profiler.recording.simulated import graph_profile, profile_of_graphs

    began = time.monotonic_ns()
    handle, timed = program.handle, program.handle.time
    assert isinstance(timed, SimulatedTime)  # the tools run contexts that exist
    made: dict[Any, GraphProfile] = {}
    runs: list[ProfiledRun] = []
    for done in program.results:
        line = timed.timeline(done.clocks, done.batch, done.cores)
        if (key := (done.clocks, done.batch)) not in made:
            waits = power.wait_us(line.accelerator_us, line.rpc_us + line.io_us)
            deployment = replace(timed.deployment(done.clocks, done.cores), power=power)
            made[key] = graph_profile(program.graph, replace(line, wait_us=waits), level, deployment)
        run = made[key].runs[0]
        rpc_us = line.rpc_us + done.accelerator_us + done.moved_us + done.waited_us + done.wake_us
        runs.append(
            replace(
                run, netrun_us=done.latency_us, rpc_us=min(rpc_us, done.latency_us), power_us=done.waited_us,
                yields=done.yields,
            )
        )  # fmt: skip
    whole = replace(next(iter(made.values())), name=handle.name, runs=tuple(runs))
    return profile_of_graphs(program.graph.name, level, [whole], (time.monotonic_ns() - began) // 1000)
