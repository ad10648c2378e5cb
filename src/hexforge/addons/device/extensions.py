# SPDX-License-Identifier: Apache-2.0
"""Extensions: what a config file of QNN's tools means for a device: its cores, process domains, power and contexts."""

from __future__ import annotations

from hexforge.addons.device.contexts.configs import CreationConfig, GroupRegistration
from hexforge.addons.device.power import PROFILES, PerfProfile
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.formats.config_sections import GENERATOR
from hexforge.options import did_you_mean
from hexforge.runtime.tool_config import power_of


def cores_of(config: Config) -> int:
    """How many NSP cores the device must have for what the file names."""
    named = [core for device in config.htp.devices for core in device.core_id]
    named += [core.core_id for device in config.htp.devices for core in device.cores]
    together = [GraphConfig.parse(section.settings((GENERATOR,))).num_cores for section in config.htp.graphs]
    return max((*(core + 1 for core in named), *together, 1))


def uses_signed_domain(config: Config) -> bool:
    """Whether processes run in a signed process domain."""
    return any(device.pd_session == "signed" for device in config.htp.devices)


def profile_of(config: Config, perf_profile: str = "") -> PerfProfile:
    """The performance profile of the first core, as the file changes it; a profile of the command line wins."""
    if perf_profile and (name := perf_profile.lower()) not in (*PROFILES, "default"):
        raise CallError(f"performance profile {name!r}: one of {', '.join(PROFILES)}{did_you_mean(name, PROFILES)}")
    return PerfProfile.of(power_of(config, perf_profile))


def creation_config(config: Config) -> CreationConfig:
    """What a context is created with; whether its graphs share adapters is of how it was prepared."""
    tool, own = config.tool.context_configs, config.htp.context
    group = None
    if own.max_spill_fill_buffer_for_group is not None:
        group = GroupRegistration(None, own.max_spill_fill_buffer_for_group)
    return CreationConfig(
        priority=Priority[(tool.context_priority or "normal").upper()],
        register_multi_contexts=group,
        io_mem_estimation=own.io_memory_estimation,
        file_read_memory_budget_in_mb=own.file_read_memory_budget_in_mb,
        init_acceleration=own.init_acceleration,
        is_persistent_binary=tool.is_persistent_binary,
        memory_limit_hint=tool.memory_limit_hint,
        enable_graphs=None if tool.enable_graphs is None else tuple(tool.enable_graphs),
        graph_retention_order=tuple(tool.graph_retention_order),
        spill_fill_buffer=tool.spill_fill_buffer,
        weights_buffer=tool.weights_buffer,
        binary_compatibility=tool.cache_compatibility_mode,
        graph_priorities={
            row.graph_name: Priority[row.graph_priority.upper()]
            for row in config.tool.graph_configs
            if row.graph_priority is not None
        },
    )
