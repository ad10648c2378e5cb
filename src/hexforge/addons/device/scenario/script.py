# SPDX-License-Identifier: Apache-2.0
"""Script: a scenario as it is written, checked whole before anything is played."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexforge.addons.device.chip import PLATFORMS
from hexforge.addons.device.codes import Code
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig, SharingType
from hexforge.addons.device.extensions import cores_of, creation_config, profile_of, uses_signed_domain
from hexforge.addons.device.graph_time import DeclaredTime
from hexforge.addons.device.power.profiles import PROFILES, PerfProfile
from hexforge.addons.device.scenario.fields import MOST_STEPS, Fields
from hexforge.chips.priority import Priority
from hexforge.chips.soc import DEFAULT_SOC, Soc, require_chip, require_cores
from hexforge.errors import CallError, FormatError
from hexforge.formats.backend_extensions import Config, load
from hexforge.options import did_you_mean
from hexforge.runtime.tool_config import chip_of

MOST_BYTES = 64 << 20
"""Of a script's file."""
FAULTS = ("ssr", "pd", "kill")
STEPS: dict[str, tuple[str, ...]] = {
    "create": ("context", "binary", "config", "timeout_us", "abort_us"),
    "create_list": ("contexts", "share_resources", "optimization_type"),
    "execute": (
        "graph",
        "times",
        "batch",
        "seed",
        "recover",
        "timeout_us",
        "abort_us",
        "shared",
        "period_us",
        "jitter_us",
        "deadline_us",
    ),
    "recover": ("context",),
    "free": ("context",),
    "priority": ("context", "graph", "priority"),
    "register": ("context", "graph", "buffer", "size_bytes", "size_mb"),
    "deregister": ("buffer",),
    "apply": ("graph", "adapter"),
    "profile": ("profile",),
    "reserve_vtcm": ("size_bytes", "size_mb"),
    "release_vtcm": ("size_bytes", "size_mb"),
    "sleep": ("us",),
    "fault": ("kind", "process", "session"),
}
"""What threads can do, and the fields that each takes beside `do`, `expect` and `note`."""


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """Something a thread does."""

    do: str
    fields: dict[str, Any]
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

    at_us: float
    kind: str
    process: str = ""
    session: int = 0


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


def read_script(path: str | os.PathLike[str]) -> Script:
    """A scenario from its file; files that it names lie relative to it."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise FormatError(f"{file}: is larger than {MOST_BYTES >> 20} MB, which no scenario is")
        data = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise CallError(f"{file}: there is no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{file}: is no JSON that can be read: {error}") from None
    return parse_script(data, file.parent, str(file))


def parse_script(
    data: Any, folder: Path = Path(), where: str = "scenario", known: dict[str, Binary] | None = None
) -> Script:
    """A scenario from JSON data; `known` are binaries beside those that it names."""
    top = Fields(data, where)
    top.any("about", "")
    config = _config_file(top, folder)
    soc = require_chip(top.text("soc", chip_of(config) or DEFAULT_SOC))
    platform = top.text("platform", "android", PLATFORMS)
    cores, ram = top.count("cores", cores_of(config), 1), top.bytes("ram", 16 << 30)
    require_cores(soc, cores, f"{where}: cores")
    signed_image = top.flag("signed_image", uses_signed_domain(config))
    binaries = dict(known or {})
    for name, item in _object(top, "binaries").items():
        binaries[name] = _binary(name, Fields(item, f"{where}: binaries.{name}"), folder, soc)
    processes = tuple(
        _process(Fields(item, f"{where}: processes[{i}]"), binaries, config)
        for i, item in enumerate(top.list("processes"))
    )
    names = [process.name for process in processes]
    if not names or len(set(names)) != len(names):
        raise CallError(f"{where}: processes: give one or more, each with a name of its own")
    faults = tuple(
        _fault(Fields(item, f"{where}: faults[{i}]"), names) for i, item in enumerate(top.list("faults", []))
    )
    top.done()
    return Script(soc, platform, cores, ram, binaries, processes, faults, creation_config(config), signed_image)


def _config_file(top: Fields, folder: Path) -> Config:
    """The config file of QNN's tools that the scenario names, from its own folder."""
    name = top.text("config_file", "")
    return load(folder / name, folder) if name else Config()


def _object(fields: Fields, key: str) -> dict[str, Any]:
    value = fields.any(key, {})
    if not isinstance(value, dict):
        raise CallError(f"{fields.where}: {key} is not an object")
    return value


def _binary(name: str, fields: Fields, folder: Path, soc: Soc) -> Binary:
    if fields.has("file"):
        path = folder / fields.text("file")
        embedded, numbers = fields.flag("embedded"), fields.flag("numbers", True)
        vtcm_mb = fields.count("vtcm_mb", 0, 0, soc.vtcm_mb)
        fields.done()
        if not path.is_file():
            raise CallError(f"{fields.where}: there is no file {path}")
        made = Binary.of(path, soc, name)
        made = made if numbers else made.without_numbers()
        made = made.with_vtcm(vtcm_mb) if vtcm_mb else made
        return made.embed() if embedded else made
    graphs = tuple(_graph(Fields(item, f"{fields.where}.graphs[{i}]")) for i, item in enumerate(fields.list("graphs")))
    shared = fields.bytes("shared")
    made = Binary(
        name, graphs, shared, shared, fields.flag("embedded"), fields.flag("udma64"), fields.flag("secure"),
        fields.flag("lora_weight_sharing"), fields.flag("dlbc"),
    )  # fmt: skip
    fields.done()
    return made


def _graph(fields: Fields) -> GraphSpec:
    vtcm = fields.bytes("vtcm")
    time = DeclaredTime(
        fields.number("us", 1000.0), fields.count("tasks", 1, 1, MOST_STEPS), fields.number("rpc_us", 0.0),
        fields.number("io_us", 0.0), vtcm, fields.number("energy_uj", 0.0),
    )  # fmt: skip
    made = GraphSpec(
        fields.text("name"), fields.bytes("weights"), fields.bytes("spill_fill"), fields.bytes("io"), vtcm, time,
        fields.count("num_cores", 1, 1), fields.bytes("adapter"),
    )  # fmt: skip
    fields.done()
    return made


def _process(fields: Fields, binaries: dict[str, Binary], config: Config) -> ProcessScript:
    name = fields.text("name", "app")
    secured, privileged = fields.flag("signed", uses_signed_domain(config)), fields.flag("privileged")
    chosen = fields.text("profile", "", ("", *PROFILES))
    driven = any(device.cores for device in config.htp.devices)
    profile = profile_of(config, chosen) if chosen or driven else None
    threads = []
    for i, steps in enumerate(fields.list("threads")):
        if not isinstance(steps, list):
            raise CallError(f"{fields.where}: threads[{i}] is not a list of steps")
        threads.append(
            tuple(_step(Fields(s, f"{fields.where}.threads[{i}][{k}]"), binaries) for k, s in enumerate(steps))
        )
    fields.done()
    return ProcessScript(name, secured, privileged, profile, tuple(threads))


def _step(fields: Fields, binaries: dict[str, Binary]) -> ScriptStep:
    do = fields.text("do", choices=tuple(STEPS))
    expect = fields.text("expect", "", ("", *(code.name for code in Code)))
    note = fields.text("note", "")
    given = {key: fields.any(key) for key in STEPS[do] if fields.has(key)}
    for key in STEPS[do]:
        fields.any(key, None)
    fields.done()
    named_binaries = [given["binary"]] if "binary" in given else []
    if do == "create_list":
        items = Fields({"contexts": given.get("contexts")}, fields.where).list("contexts")
        for i, item in enumerate(items):
            row = Fields(item, f"{fields.where}.contexts[{i}]")
            named_binaries.append(row.text("binary"))
            row.text("context")
            row.any("config", {})
            row.done()
        Fields(given, fields.where).text("optimization_type", next(iter(SharingType)), tuple(SharingType))
    for name in named_binaries:
        if name not in binaries:
            raise CallError(f"{fields.where}: there is no binary {name!r}{did_you_mean(str(name), binaries)}")
    if do == "priority":
        Fields(given, fields.where).text("priority", choices=tuple(p.name for p in Priority))
    if do == "profile":
        Fields(given, fields.where).text("profile", choices=tuple(PROFILES))
    if do == "fault":
        Fields(given, fields.where).text("kind", choices=FAULTS)
    return ScriptStep(do, given, fields.where, expect, note)


def _fault(fields: Fields, processes: list[str]) -> FaultScript:
    kind = fields.text("kind", choices=FAULTS)
    made = FaultScript(
        fields.number("at_us"), kind, fields.text("process", processes[0], processes), fields.count("session", 0)
    )
    fields.done()
    return made
