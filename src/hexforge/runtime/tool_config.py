# SPDX-License-Identifier: Apache-2.0
"""Tool config: what a config file of QNN's tools means for the htp backend, and what each key does on a chip."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.chips.deployment import Deployment
from hexforge.chips.htp_config import HtpConfig
from hexforge.chips.power import CONTROL_LATENCY_US, SYSTEM_SETTINGS, Power
from hexforge.chips.soc import DEFAULT_SOC, SOCS, Soc
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config, load
from hexforge.formats.config_sections import PREPARE, ContextSection, GraphSection

if TYPE_CHECKING:
    from hexforge.formats.config_sections import CoreSection

DEFAULT_PROFILE = "high_performance"
"""What the tools ask for where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a key of a config file does."""

    key: str
    value: Any
    read_by: tuple[str, ...]
    effect: str


def htp_settings(config: Config, graphs: str | Sequence[str], tools: Collection[str], soc: str = "") -> dict[str, str]:
    """The backend's options for a graph, or several, as far as some tools read them; `soc` wins over the file's chip.

    Several graphs have settings that they may have each for itself (`graph_settings`), which are left out then.
    """
    names = [graphs] if isinstance(graphs, str) else list(graphs)
    own = config.common_section(names).settings(tools, per_graph=len(names) == 1)
    made = {**own, **config.htp.context.settings(tools)}
    if chip := soc or chip_of(config):
        made["soc_model"] = chip
    elif (arch := _architecture(config)) is not None:
        made["htp_arch"] = str(arch)
    return made


def graph_settings(section: GraphSection, given: Mapping[str, int]) -> dict[str, int]:
    """What a section says of a graph alone, by the names of a context's settings; what is given beside it wins."""
    rows = [(option.name, getattr(section, key.key)) for key, option in section.options if key.per_graph]
    settings = {name: given.get(name, value) for name, value in rows}
    return {name: value for name, value in settings.items() if value is not None}


def chip_of(config: Config) -> str:
    """The chip that the file names, as HtpConfig spells it; empty where it names none."""
    numbers = [device.soc_model or device.soc_id for device in config.htp.devices]
    known = [str(number) for number in numbers if number]
    for number in known:
        if int(number) not in {soc.soc_model for soc in SOCS}:
            raise CallError(f"{config.where}: soc_model {number} is no chip that is known; `hexforge socs` lists them")
    return known[0] if known else ""


def deployment_from_config(path: str | os.PathLike[str], graph: str = "", soc: str = "") -> Deployment:
    """The deployment that a config file of QNN's tools describes, for a graph by its name; `soc` wins over the file's.

    It is what estimates, profiles and contexts are for; a session takes the file by its option backend_extensions.
    """
    config = load(Path(path))
    chip = soc or chip_of(config)
    if not chip and (arch := _architecture(config)) is not None:
        chip = next((known.name for known in SOCS if known.htp_arch == arch), "")
    options = HtpConfig.parse(htp_settings(config, graph, PREPARE, chip))
    return Deployment(chip or DEFAULT_SOC, config=options.graph, power=power_of(config))


def power_of(config: Config, perf_profile: str = "") -> Power:
    """How the cores are driven; a profile of the command line wins. Polling is the mode's unless the file has it."""
    core = _core(config)
    profile = (perf_profile or (core.perf_profile if core is not None else DEFAULT_PROFILE)).lower()
    profile = DEFAULT_PROFILE if profile == "default" else profile
    power = Power("default" if profile == SYSTEM_SETTINGS else profile)
    if core is None:
        return replace(power, rpc_control_latency_us=CONTROL_LATENCY_US)
    power = replace(power, rpc_polling_us=core.rpc_polling_time)
    return replace(
        power,
        rpc_control_latency_us=core.rpc_control_latency,
        adaptive_polling_us=core.adaptive_polling_time if power.polling_us else 0,
        hold_us=core.hmx_timeout_us,
    )


def session_notes(config: Config, graph: str) -> list[str]:
    """The keys of a file that change nothing in a session, for the graph of this name."""
    notes = list(config.warnings)
    notes += [] if named_graphs(config) & {graph} else unmatched_graphs(config, [graph])
    for key, _, _ in config.set_keys():
        if (name := key.rpartition(".")[2]) in _NOT_A_SESSIONS:
            notes.append(f"{key} has no effect in a session: {_NOT_A_SESSIONS[name]}")
    return [f"backend_extensions={config.where}: {note}" for note in notes]


def named_graphs(config: Config) -> set[str]:
    """The graphs that sections of a file are for."""
    return {name for section in config.htp.graphs for name in section.graph_names or ()}


def unmatched_graphs(config: Config, graphs: Sequence[str]) -> list[str]:
    """The sections of a file that are for none of these graphs, so that what they ask for is lost."""
    notes = []
    for number, section in enumerate(config.htp.graphs):
        named = section.graph_names
        if named is not None and not set(named) & set(graphs):
            there, asked = " and ".join(map(repr, graphs)), " and ".join(map(repr, named)) or "none"
            notes.append(f"graphs[{number}] is for {asked}, and changes nothing: the graphs here are {there}")
    return notes


def effects(config: Config, soc: Soc) -> Iterator[Effect]:
    """What every key that is set does on a chip."""
    for key, value, read_by in config.set_keys():
        yield Effect(key, value, read_by, _effect(key, value, soc))


def _core(config: Config) -> CoreSection | None:
    cores = [core for device in config.htp.devices for core in device.cores]
    return cores[0] if cores else None


def _architecture(config: Config) -> int | None:
    given = [device.dsp_arch for device in config.htp.devices if device.dsp_arch.upper() != "NONE"]
    return int(given[0].lower().removeprefix("v")) if given else None


def _effect(key: str, value: Any, soc: Soc) -> str:
    """What one key does, in words."""
    name = key.rpartition(".")[2]
    for file, option in (*GraphSection.options, *ContextSection.options):
        if file.key == name:
            if option.on_chip is not None and value is not None:
                return option.on_chip(value, soc)
            able = not option.ability or getattr(soc, option.ability)
            return _ability(file.is_on(value), able, soc, option.doc) if option.kind == "flag" else option.doc
    match name:
        case "weight_sharing_enabled":
            return _ability(bool(value), soc.weight_sharing, soc, "common weights are stored once")
        case "soc_model" | "soc_id":
            chip = next((s.name for s in SOCS if s.soc_model == value), None)
            return "unknown chip" if chip is None else f"prepared for {chip}"
        case "use_client_context" | "fp16_relaxed_precision":
            return "nothing: no longer supported"
        case "perf_profile":
            return "clocks, sleep latency and polling of the simulated time; no number changes"
    return _WORDS.get(name, "taken as said")


def _ability(on: bool, able: bool, soc: Soc, does: str) -> str:
    if not on:
        return "off, as by default"
    return does if able else f"refused: {soc.name} (v{soc.htp_arch}) cannot"


_SWITCHED = "each graph of a session is a context of its own, and nothing is switched"
_NOT_A_SESSIONS = {
    "enable_graphs": "the model names the graphs that it runs",
    "graph_retention_order": _SWITCHED,
    "memory_limit_hint": _SWITCHED,
    "is_persistent_binary": _SWITCHED,
    "spill_fill_buffer": _SWITCHED,
    "weights_buffer": _SWITCHED,
    "profiling_level": "a session asks for it by its own option, profiling_level=linting",
    "cache_compatibility_mode": "a session says so by session.fail_on_suboptimal_compiled_model",
}
_WORDS = {
    "graph_names": "the graphs that the section is for",
    "device_id": "the simulated device",
    "core_id": "the simulated cores",
    "core_type": "the NSP",
    "dsp_arch": "the architecture, where no chip is named",
    "pd_session": "the process domain of the simulated device; signed: a signed image is taken as pushed",
    "profiling_level": "a linting report, with --profiling_level backend",
    "rpc_control_latency": "the wake-up of the simulated CPU",
    "rpc_polling_time": "polling of the simulated CPU",
    "adaptive_polling_time": "polling of the simulated CPU around the end",
    "hmx_timeout_us": "how long burst and sustained_high_performance hold their vote after an inference (assumed)",
    "max_spill_fill_buffer_for_group": "the buffer of the group; a graph that needs more is refused",
    "group_id": "contexts of a group share one spill-fill buffer",
    "file_read_memory_budget_in_mb": "contexts are read in pieces",
    "io_memory_estimation": "room for inputs and outputs is kept in the simulated session",
    "init_acceleration": "arrays are verified in several threads while programs are made",
    "share_resources": "contexts that are loaded together share buffers on the simulated device",
    "mem_type": "inputs and outputs lie in shared buffers of the simulated device, which saves the host's copies",
    "shared_library_path": "names the backend; no library is loaded",
    "config_file_path": "the backend's own file, read",
    "context_priority": "priority on the simulated device",
    "graph_priority": "priority on the simulated device",
    "is_persistent_binary": "the binary stays mapped, for graph switching",
    "memory_limit_hint": "graph switching, with is_persistent_binary",
    "enable_graphs": "only these graphs are loaded, the first at once",
    "graph_retention_order": "these graphs stay loaded",
    "cache_compatibility_mode": "strict: a context that is not optimal for the chip is refused",
}
