# SPDX-License-Identifier: Apache-2.0
"""Script: a scenario as it is written, checked whole before anything is played."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from hexforge.addons.device.chip import PLATFORMS
from hexforge.addons.device.codes import Code
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig
from hexforge.addons.device.extensions import cores_of, creation_config, profile_of, uses_signed_domain
from hexforge.addons.device.graph_time import DeclaredTime
from hexforge.addons.device.power import PROFILES, PerfProfile
from hexforge.addons.device.scenario.steps import STEPS, MostSteps, taken_by
from hexforge.addons.device.simulated_device import Fault
from hexforge.chips.soc import DEFAULT_SOC, Soc, require_chip, require_cores
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config, load
from hexforge.formats.json_text import read_json
from hexforge.formats.validated import Amount, Count, OneOf, Positive, arguments, size_of, validated
from hexforge.options import did_you_mean
from hexforge.runtime.tool_config import chip_of

MOST_BYTES = 64 << 20
"""Of a script's file."""


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """Something a thread does."""

    do: str
    fields: dict[str, Any]
    """As they are written."""
    asked: dict[str, Any]
    """The same, checked: the arguments of the step's method."""
    where: str
    expect: str = ""
    """The code of the error that must come; empty where it must succeed."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProcessScript:
    """A process, and what its threads do."""

    name: str
    signed: bool
    privileged: bool
    profile: PerfProfile | None
    threads: tuple[tuple[ScriptStep, ...], ...]


@dataclass(frozen=True, slots=True)
class FaultScript:
    """A fault at a time."""

    at_us: Amount
    kind: Fault
    process: str = ""
    """The first of the script where it is left out."""
    session: Count = 0


@dataclass(frozen=True, slots=True)
class Script:
    """A whole scenario."""

    soc: Soc
    platform: str
    cores: int
    ram_bytes: int
    binaries: dict[str, Binary]
    processes: tuple[ProcessScript, ...]
    faults: tuple[FaultScript, ...] = field(default=())
    config: CreationConfig = field(default_factory=CreationConfig)
    """What contexts are created with unless a step says otherwise."""
    signed_image: bool = False
    """Whether a signed DSP image was pushed to the device."""


@dataclass(frozen=True, slots=True)
class _FileBinary:
    """A context that exists."""

    file: str
    embedded: bool = False
    numbers: bool = True
    vtcm_mb: Count = 0


@dataclass(frozen=True, slots=True)
class _DeclaredGraph:
    """A graph of figures."""

    name: str
    us: Amount = 1000.0
    tasks: MostSteps = 1
    rpc_us: Amount = 0.0
    io_us: Amount = 0.0
    energy_uj: Amount = 0.0
    num_cores: Positive = 1
    vtcm_bytes: Count | None = None
    vtcm_mb: Amount | None = None
    weights_bytes: Count | None = None
    weights_mb: Amount | None = None
    spill_fill_bytes: Count | None = None
    spill_fill_mb: Amount | None = None
    io_bytes: Count | None = None
    io_mb: Amount | None = None
    adapter_bytes: Count | None = None
    adapter_mb: Amount | None = None


@dataclass(frozen=True, slots=True)
class _DeclaredBinary:
    """A context of figures."""

    graphs: tuple[_DeclaredGraph, ...]
    shared_bytes: Count | None = None
    shared_mb: Amount | None = None
    embedded: bool = False
    udma64: bool = False
    secure: bool = False
    lora_weight_sharing: bool = False
    dlbc: bool = False


@dataclass(frozen=True, slots=True)
class _Process:
    threads: tuple[tuple[dict[str, Any], ...], ...]
    name: str = "app"
    signed: bool | None = None
    privileged: bool = False
    profile: Annotated[str, OneOf(("", *PROFILES))] = ""


@dataclass(frozen=True, slots=True)
class _ScriptFile:
    processes: tuple[_Process, ...]
    about: Any = ""
    config_file: str = ""
    """A config file of QNN's tools, from the script's own folder."""
    soc: str = ""
    platform: Annotated[str, OneOf(PLATFORMS)] = "android"
    cores: Positive | None = None
    ram_bytes: Count | None = None
    ram_mb: Amount | None = None
    signed_image: bool | None = None
    binaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: tuple[FaultScript, ...] = ()


@dataclass(frozen=True, slots=True)
class _StepFrame:
    """What every step may say."""

    do: Annotated[str, OneOf(STEPS)]
    expect: Annotated[str, OneOf(("", *(code.name for code in Code)))] = ""
    note: str = ""


def read_script(path: str | os.PathLike[str]) -> Script:
    """A scenario from its file; files that it names lie relative to it."""
    file = Path(path)
    return parse_script(read_json(file, MOST_BYTES), file.parent, str(file))


def parse_script(
    data: Any, folder: Path = Path(), where: str = "scenario", known: dict[str, Binary] | None = None
) -> Script:
    """A scenario from JSON data; `known` are further binaries, which it need not name."""
    given = validated(_ScriptFile, data, where)
    config = load(folder / given.config_file, folder) if given.config_file else Config()
    soc = require_chip(given.soc or chip_of(config) or DEFAULT_SOC)
    cores = given.cores or cores_of(config)
    require_cores(soc, cores, f"{where}: cores")
    binaries = dict(known or {})
    for name, item in given.binaries.items():
        binaries[name] = _binary(name, item, f"{where}: binaries.{name}", folder, soc)
    names = [process.name for process in given.processes]
    if not names or len(set(names)) != len(names):
        raise CallError(f"{where}: processes: give one or more, each with a name of its own")
    processes = tuple(
        _process(process, f"{where}: processes[{i}]", binaries, config) for i, process in enumerate(given.processes)
    )
    faults = tuple(_fault(fault, f"{where}: faults[{i}]", names) for i, fault in enumerate(given.faults))
    signed_image = uses_signed_domain(config) if given.signed_image is None else given.signed_image
    ram = size_of(given, "ram", 16 << 30)
    return Script(soc, given.platform, cores, ram, binaries, processes, faults, creation_config(config), signed_image)


def _binary(name: str, data: dict[str, Any], where: str, folder: Path, soc: Soc) -> Binary:
    if "file" in data:
        given = validated(_FileBinary, data, where)
        path = folder / given.file
        if given.vtcm_mb > soc.vtcm_mb:
            raise CallError(f"{where}: vtcm_mb is {given.vtcm_mb}; {soc.name} has {soc.vtcm_mb} MB")
        if not path.is_file():
            raise CallError(f"{where}: there is no file {path}")
        made = Binary.of(path, soc, name)
        made = made if given.numbers else made.without_numbers()
        made = made.with_vtcm(given.vtcm_mb) if given.vtcm_mb else made
        return made.embed() if given.embedded else made
    figures = validated(_DeclaredBinary, data, where)
    shared = size_of(figures, "shared")
    return Binary(
        name, tuple(map(_graph, figures.graphs)), shared, shared, figures.embedded, figures.udma64, figures.secure,
        figures.lora_weight_sharing, figures.dlbc,
    )  # fmt: skip


def _graph(given: _DeclaredGraph) -> GraphSpec:
    weights, spill_fill, io, vtcm = (size_of(given, size) for size in ("weights", "spill_fill", "io", "vtcm"))
    time = DeclaredTime(given.us, given.tasks, given.rpc_us, given.io_us, vtcm, given.energy_uj)
    return GraphSpec(given.name, weights, spill_fill, io, vtcm, time, given.num_cores, size_of(given, "adapter"))


def _process(given: _Process, where: str, binaries: dict[str, Binary], config: Config) -> ProcessScript:
    driven = any(device.cores for device in config.htp.devices)
    profile = profile_of(config, given.profile) if given.profile or driven else None
    threads = tuple(
        tuple(_step(step, f"{where}.threads[{i}][{k}]", binaries) for k, step in enumerate(steps))
        for i, steps in enumerate(given.threads)
    )
    signed = uses_signed_domain(config) if given.signed is None else given.signed
    return ProcessScript(given.name, signed, given.privileged, profile, threads)


def _step(data: dict[str, Any], where: str, binaries: dict[str, Binary]) -> ScriptStep:
    own = {key: data[key] for key in data if key in ("do", "expect", "note")}
    fields = {key: value for key, value in data.items() if key not in own}
    frame = validated(_StepFrame, own, where)
    asked = arguments(taken_by(frame.do), fields, where)
    named = [asked["binary"]] if "binary" in asked else [row.binary for row in asked.get("contexts", ())]
    for name in named:
        if name not in binaries:
            raise CallError(f"{where}: there is no binary {name!r}{did_you_mean(name, binaries)}")
    return ScriptStep(frame.do, fields, asked, where, frame.expect, frame.note)


def _fault(given: FaultScript, where: str, processes: list[str]) -> FaultScript:
    if given.process and given.process not in processes:
        hint = did_you_mean(given.process, processes)
        raise CallError(f"{where}: process is {given.process!r}; it is one of {', '.join(processes)}{hint}")
    return replace(given, process=given.process or processes[0])
