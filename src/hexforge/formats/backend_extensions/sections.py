# SPDX-License-Identifier: Apache-2.0
"""The keys of the HTP's config file and of the tools' own: type, default, what each does and which tool reads it.

Names, defaults and readers are published: "QNN HTP Backend Extensions" and "qnn-net-run" in the vendor's documentation.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

NET_RUN, THROUGHPUT, GENERATOR = "qnn-net-run", "qnn-throughput-net-run", "qnn-context-binary-generator"
PerfProfile = Literal[
    "low_balanced", "balanced", "high_performance", "sustained_high_performance", "burst", "low_power_saver",
    "power_saver", "high_power_saver", "extreme_power_saver", "system_settings", "default",
]  # fmt: skip
Priority = Literal["low", "normal", "normal_high", "high"]
PREPARE = (NET_RUN, GENERATOR)
"""Who prepares graphs: online and offline."""
LOAD = (NET_RUN, THROUGHPUT)
"""Who loads contexts."""


def _key(doc: str, read_by: tuple[str, ...], default: Any = None, shown: Any = None, **limits: Any) -> Any:
    """A key: `default` is what an absent one counts as, or None where the tool decides as `shown` says."""
    extra: dict[str, Any] = {"readBy": list(read_by)}
    if shown is not None:
        extra["defaultHere"] = shown
    return Field(default=default, description=doc, json_schema_extra=extra, **limits)


class ConfigSection(BaseModel):
    """A JSON object whose keys are known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GraphSection(ConfigSection):
    """How graphs are prepared."""

    graph_names: list[str] | None = _key("The graphs this is for; all where it is left out.", PREPARE)
    vtcm_mb: int | None = _key("VTCM of the graph in MB; 0 is all of the chip's.", PREPARE, ge=0)
    vtcm_size: int | None = _key("The same in bytes (v81 and newer), a multiple of 65536.", PREPARE, ge=0)
    hvx_threads: int | None = _key("HVX threads of the graph.", PREPARE, shown="4 offline, all online", ge=1)
    O: float = _key("Optimization level, 1 to 3.", PREPARE, 2, ge=1, le=3, multiple_of=1)  # noqa: E741 - its name
    dlbc: float = _key("Activations are compressed on their way to DRAM where it is 1 or more.", PREPARE, 0, ge=0)
    dlbc_weights: float = _key("Weights are compressed in DRAM where it is 1 or more.", (GENERATOR,), 0, ge=0)
    weights_packing: bool = _key("8-bit weights of 4-bit range lie packed.", PREPARE, False)
    num_cores: int = _key("NSP cores that run the graph.", (GENERATOR,), 1, ge=1)
    short_depth_conv_on_hmx_off: bool = _key("Short depth convolutions run on HVX.", PREPARE, False)
    fold_relu_activation_into_conv_off: bool = _key("Activations stay ops of their own.", PREPARE, False)
    slc_alloc_enable: float = _key("Spills stay in the system level cache where it is 1.", (GENERATOR,), 0, ge=0)
    fp16_relaxed_precision: int | None = _key("Deprecated since 2.35: the chip decides.", PREPARE)


class CoreSection(ConfigSection):
    """How a core is driven."""

    core_id: int = _key("The core.", (NET_RUN,), 0, ge=0)
    perf_profile: PerfProfile = _key(
        "Performance profile; --perf_profile of the command line wins.", (NET_RUN,), "high_performance"
    )
    rpc_control_latency: int = _key("RPC control latency in µs.", (NET_RUN,), 100, ge=0)
    rpc_polling_time: int | None = _key(
        "RPC polling in µs.", (NET_RUN,), shown="9999 for burst, high_performance and sustained, else 0", ge=0, le=9999
    )
    hmx_timeout_us: int = _key("How long burst and sustained profiles hold on, in µs.", (NET_RUN,), 300_000, ge=0)
    adaptive_polling_time: int = _key("Adaptive polling in µs; needs polling.", (NET_RUN,), 0, ge=0)


class DeviceSection(ConfigSection):
    """The chip, and how its cores are driven."""

    device_id: int = _key("The device.", (NET_RUN,), 0, ge=0)
    core_id: list[int] = _key("The cores of the device that are used.", (NET_RUN,), [0], min_length=1)
    core_type: Literal[0, 1] = _key("0: NSP, 1: HPASS.", (NET_RUN,), 0)
    soc_id: int = _key("The chip by number; deprecated, use soc_model.", PREPARE, 0, ge=0)
    soc_model: int = _key("The chip by its soc_model number; 0 is unknown.", PREPARE, 0, ge=0)
    dsp_arch: str = _key("Hexagon architecture, v68 to v81; a known chip wins.", PREPARE, "NONE")
    pd_session: Literal["unsigned", "signed"] = _key("The process domain.", PREPARE, "unsigned")
    profiling_level: Literal["linting"] | None = _key("linting, together with --profiling_level backend.", PREPARE)
    use_client_context: bool | None = _key("A power context of its own; not supported from v68 on.", (NET_RUN,))
    cores: list[CoreSection] = _key("How each core is driven.", (NET_RUN,), [])


class ContextSection(ConfigSection):
    """How contexts are made and loaded."""

    weight_sharing_enabled: bool = _key("Graphs store common weights once.", (GENERATOR,), False)
    max_spill_fill_buffer_for_group: int | None = _key(
        "Bytes of the spill-fill buffer that a group shares; group_id is 0 then.", LOAD, ge=1
    )
    group_id: int | None = _key("The group whose contexts share buffers.", LOAD, ge=0)
    file_read_memory_budget_in_mb: int = _key("Read a context in pieces of so many MB; 0: whole.", LOAD, 0, ge=0)
    io_memory_estimation: bool = _key("Room for inputs and outputs is kept when a context is loaded.", LOAD, False)
    init_acceleration: bool = _key("Contexts load faster, with more threads.", LOAD, False)
    lora_weight_sharing: bool = _key("Graphs of a context share one adapter's weights.", (GENERATOR,), False)


class GroupContextSection(ConfigSection):
    """What contexts that are loaded together share."""

    share_resources: bool = _key("Contexts of a list share resources.", LOAD, False)


class MemorySection(ConfigSection):
    """Where inputs and outputs lie."""

    mem_type: Literal["shared_buffer"] | None = _key("Inputs and outputs lie in shared buffers.", LOAD)


class HtpFile(ConfigSection):
    """The HTP's config file, which backend_extensions.config_file_path names."""

    graphs: list[GraphSection] = _key("How graphs are prepared.", PREPARE, [])
    devices: list[DeviceSection] = _key("The chips.", PREPARE, [])
    context: ContextSection = _key("Contexts.", (*LOAD, GENERATOR), ContextSection())
    groupContext: GroupContextSection = _key("Contexts loaded together.", LOAD, GroupContextSection())  # noqa: N815
    memory: MemorySection = _key("Inputs and outputs.", LOAD, MemorySection())

    @field_validator("graphs", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        """Older releases of the SDK have one object in the place of the list."""
        return [given] if isinstance(given, dict) else given


class ExtensionsSection(ConfigSection):
    """The library of the backend's extensions, and its config file."""

    shared_library_path: str = _key(
        "e.g. libQnnHtpNetRunExtensions.so; it names the backend, no file is loaded.", PREPARE, ""
    )
    config_file_path: str = _key("The backend's config file, from the folder the tool runs in.", PREPARE, "")


class ContextConfigs(ConfigSection):
    """How a context is made, whatever the backend."""

    context_priority: Priority | None = _key("Priority of the context.", (*LOAD, GENERATOR))
    async_execute_queue_depth: int | None = _key("Executions that may be queued.", LOAD, ge=1)
    is_persistent_binary: bool = _key("The binary stays in memory, for graph switching.", LOAD, False)
    spill_fill_buffer: int = _key("Bytes of a client's spill-fill buffer; 0 none, -1 as QNN says.", LOAD, 0, ge=-1)
    weights_buffer: int = _key("Bytes of a client's weights buffer; 0 none, -1 as QNN says.", LOAD, 0, ge=-1)
    memory_limit_hint: int = _key("Any number but 0 turns graph switching on.", LOAD, 0, ge=0)
    enable_graphs: list[str] | None = _key("The graphs that are used; all where it is left out.", LOAD)
    graph_retention_order: list[str] = _key("Graphs that stay loaded, the most important first.", LOAD, [])
    cache_compatibility_mode: Literal["permissive", "strict"] = _key(
        "Whether a context must be optimal for the chip.", LOAD, "permissive"
    )


class GraphConfigs(ConfigSection):
    """How one graph is run."""

    graph_name: str = _key("The graph.", LOAD, ...)
    graph_priority: Priority | None = _key("Its priority.", LOAD)
    graph_profiling_start_delay: float | None = _key("Seconds before it is profiled.", LOAD, ge=0)
    graph_profiling_num_executions: int | None = _key("Executions that are profiled.", LOAD, ge=1)


class ToolFile(ConfigSection):
    """The tools' config file, which --config_file names."""

    backend_extensions: ExtensionsSection = _key("The backend's own config file.", PREPARE, ExtensionsSection())
    context_configs: ContextConfigs = _key("The context.", (*LOAD, GENERATOR), ContextConfigs())
    graph_configs: list[GraphConfigs] = _key("The graphs.", LOAD, [])
