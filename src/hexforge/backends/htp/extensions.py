# SPDX-License-Identifier: Apache-2.0
"""Extensions: what a config file of QNN's tools means for the htp backend, and what each of its keys does on a chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hexforge.backends.htp.chip.power import Power
from hexforge.backends.htp.chip.soc import SOCS, Soc
from hexforge.backends.htp.config import HtpConfig
from hexforge.errors import CallError

if TYPE_CHECKING:
    from hexforge.formats.backend_extensions import Config
    from hexforge.formats.backend_extensions.sections import CoreSection

_POLLS = ("burst", "high_performance", "sustained_high_performance")
"""Profiles that poll unless told otherwise: "9999 us for burst, high_performance & sustained_high_performance"."""
_SPELLED = {"hvx_threads": "num_hvx_threads", "O": "htp_graph_finalization_optimization_mode"}
"""Keys of a graph's section that the backend's own options spell otherwise."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a key of a config file does."""

    key: str
    value: Any
    read_by: tuple[str, ...]
    effect: str


def htp_settings(config: Config, graph: str, tool: str, soc: str = "") -> dict[str, str]:
    """The backend's options for a graph, as far as a tool reads them; `soc` wins over the file's chip."""
    section, own = config.graph(graph), {option.key for option in HtpConfig.table()}
    made: dict[str, str] = {"htp_graph_finalization_optimization_mode": str(int(section.O))}
    for name in section.model_fields_set - {"graph_names", "fp16_relaxed_precision", "O"}:
        extra: Any = type(section).model_fields[name].json_schema_extra
        key, value = _SPELLED.get(name, name), getattr(section, name)
        if value is not None and tool in extra["readBy"] and key in own:
            made[key] = str(int(value >= 1 if isinstance(value, float) else value))
    if chip := soc or chip_of(config):
        made["soc_model"] = chip
    elif (arch := _architecture(config)) is not None:
        made["htp_arch"] = str(arch)
    return made


def unheeded(config: Config) -> list[str]:
    """Keys of graphs that are set and that the backend does not heed."""
    own = {option.key for option in HtpConfig.table()} | {"graph_names", "fp16_relaxed_precision"}
    return [
        f"graphs[{index}].{name}"
        for index, section in enumerate(config.htp.graphs)
        for name in sorted(section.model_fields_set)
        if _SPELLED.get(name, name) not in own
    ]


def chip_of(config: Config) -> str:
    """The chip that the file names, as HtpConfig spells it; empty where it names none."""
    numbers = [device.soc_model or device.soc_id for device in config.htp.devices]
    known = [str(number) for number in numbers if number]
    for number in known:
        if int(number) not in {soc.soc_model for soc in SOCS}:
            raise CallError(f"{config.where}: soc_model {number} is no chip that is known; `hexforge socs` lists them")
    return known[0] if known else ""


def power_of(config: Config, perf_profile: str = "") -> Power:
    """How the cores are driven; a profile of the command line wins."""
    core = _core(config)
    profile = perf_profile or (core.perf_profile if core is not None else "high_performance")
    power = Power("default" if profile == "system_settings" else profile)
    polling = 9999 if profile in _POLLS else 0
    if core is None:
        return replace(power, rpc_polling_us=polling, rpc_control_latency_us=100)
    polling = polling if core.rpc_polling_time is None else core.rpc_polling_time
    adaptive = core.adaptive_polling_time if polling else 0
    return replace(
        power,
        rpc_polling_us=polling,
        rpc_control_latency_us=core.rpc_control_latency,
        adaptive_polling_us=adaptive,
    )


def effects(config: Config, soc: Soc) -> Iterator[Effect]:
    """What every key that is set does on a chip."""
    for key, value, read_by in config.given():
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
    match name:
        case "vtcm_mb":
            if not value:
                return f"all {soc.vtcm_mb} MB of {soc.name}"
            fits = f"{value} of the {soc.vtcm_mb} MB of {soc.name}"
            return fits if value <= soc.vtcm_mb else f"refused: {soc.name} has {soc.vtcm_mb} MB"
        case "vtcm_size":
            return f"{value:,} bytes" if soc.htp_arch >= 81 else f"refused: needs v81, {soc.name} is v{soc.htp_arch}"
        case "hvx_threads":
            fits = f"{value} of the {soc.hvx_threads} threads of {soc.name}"
            return fits if value <= soc.hvx_threads else f"refused: {soc.name} has {soc.hvx_threads} threads"
        case "slc_alloc_enable":
            return _ability(value >= 1, soc.slc, soc, "spills stay in the system level cache")
        case "dlbc" | "dlbc_weights":
            return _ability(value >= 1, soc.dlbc, soc, "what goes to DRAM is compressed")
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


_WORDS = {
    "graph_names": "the graphs that the section is for",
    "O": "how far graphs are fused; no number changes",
    "weights_packing": "8-bit weights of 4-bit range take half the space",
    "num_cores": "the simulated time of several cores",
    "fold_relu_activation_into_conv_off": "activations are ops of their own",
    "short_depth_conv_on_hmx_off": "short depth convolutions are timed on HVX",
    "device_id": "the simulated device",
    "core_id": "the simulated cores",
    "core_type": "the NSP",
    "dsp_arch": "the architecture, where no chip is named",
    "pd_session": "the process domain of the simulated device",
    "profiling_level": "a linting report, with --profiling_level backend",
    "rpc_control_latency": "the wake-up of the simulated CPU",
    "rpc_polling_time": "polling of the simulated CPU",
    "adaptive_polling_time": "polling of the simulated CPU around the end",
    "hmx_timeout_us": "nothing: the simulated HMX is never given up by a timeout",
    "max_spill_fill_buffer_for_group": "the buffer of the group; a graph that needs more is refused",
    "group_id": "contexts of a group share one spill-fill buffer",
    "file_read_memory_budget_in_mb": "contexts are read in pieces",
    "io_memory_estimation": "room for inputs and outputs is kept in the simulated session",
    "init_acceleration": "arrays are verified while programs are made",
    "lora_weight_sharing": "nothing: adapters share what graphs have in common by themselves",
    "share_resources": "nothing here: `hexforge device` plays lists of contexts",
    "mem_type": "nothing: graphs read this process's memory without a copy",
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
