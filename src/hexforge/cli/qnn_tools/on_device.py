# SPDX-License-Identifier: Apache-2.0
"""Contexts on a simulated device: what a config file says of contexts, groups, process domains and power acts there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.backend import Program
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.ir import Array, Graph
from hexforge.options import did_you_mean

if TYPE_CHECKING:
    from hexforge.device import CreationConfig, Qnn
    from hexforge.device.contexts.handles import DeviceGraph


class DeviceProgram:
    """A graph of a context that lies on a device: it computes what its program does, and takes the device's time."""

    def __init__(self, program: Program, qnn: Qnn, handle: DeviceGraph) -> None:
        self._program, self._qnn, self._handle = program, qnn, handle
        self.latencies_us: list[float] = []
        """Of each run, as the application sees it."""

    @property
    def graph(self) -> Graph:
        """The graph that it computes."""
        return self._program.graph

    @property
    def program(self) -> Program:
        """What computes it."""
        return self._program

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One execution."""
        done = self._qnn.QnnGraph_execute(self._handle, feeds)
        self.latencies_us.append(done.latency_us)
        return dict(done.outputs)


def on_device(
    source: Path | bytes, programs: Mapping[str, Program], chip: str, config: Config, perf_profile: str = ""
) -> dict[str, Program]:
    """The programs of a context, placed on a device as the config file says; DeviceError with QNN's code otherwise."""
    from hexforge.device import Binary, Device, Qnn
    from hexforge.device.power.profiles import PROFILES

    devices = config.htp.devices
    cores = max((max(device.core_id) + 1 for device in devices), default=1)
    signed = any(device.pd_session == "signed" for device in devices)
    device = Device(chip, cores=cores)
    qnn = Qnn(device.process("qnn-net-run", signed=signed, privileged=True))
    given = [core for one in devices for core in one.cores]
    name = perf_profile or (given[0].perf_profile if given else "high_performance")
    if name not in PROFILES:
        raise CallError(f"--perf_profile {name!r}: one of {', '.join(PROFILES)}{did_you_mean(name, PROFILES)}")
    profile = PROFILES[name]
    if given:
        profile = replace(
            profile,
            control_latency_us=given[0].rpc_control_latency,
            adaptive_polling_us=given[0].adaptive_polling_time,
            polling_us=given[0].rpc_polling_time,
        )
    qnn.use_profile(profile)
    context = qnn.QnnContext_createFromBinary(Binary.of(source, device.soc), creation_config(config))
    return {name: DeviceProgram(program, qnn, context.graphs[name]) for name, program in programs.items()}


def creation_config(config: Config) -> CreationConfig:
    """What a context is created with, as the config files say."""
    from hexforge.backends.htp.time.concurrent import Priority
    from hexforge.device import CreationConfig
    from hexforge.device.contexts.configs import GroupRegistration

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
