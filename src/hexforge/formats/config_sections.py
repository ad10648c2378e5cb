# SPDX-License-Identifier: Apache-2.0
"""The keys of the HTP's config file and of the tools' own: type, default, what each does and which tool reads it.

Names, defaults and readers are published: "QNN HTP Backend Extensions" and "qnn-net-run" in the vendor's documentation.
Keys that are options of the htp backend are declared there (`chips/graph_config.py`); sections take them over.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.htp_config import HtpConfig
from hexforge.options import FileOptions

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
    options: ClassVar[FileOptions] = ()
    """The keys of the section that are options of the htp backend."""

    @classmethod
    def readers(cls, key: str) -> tuple[str, ...]:
        """The tools that read a key."""
        extra: Any = cls.model_fields[key].json_schema_extra
        return tuple(extra["readBy"])

    def settings(self, tools: Collection[str], *, per_graph: bool = True) -> dict[str, str]:
        """What the section asks of the htp backend, as far as some tools read it, by the backend's own keys.

        Without `per_graph` what graphs of one context may have each for itself is left out.
        """
        made = {}
        for key, option in self.options:
            value = getattr(self, key.key)
            silent = value is None or (key.key not in self.model_fields_set and value == option.default)
            if not silent and (per_graph or not key.per_graph) and set(tools) & set(self.readers(key.key)):
                made[option.key] = option.write(key.is_on(value) if option.kind == "flag" else int(value))
        return made


def _derived(options: FileOptions) -> dict[str, Any]:
    """The keys of a section that are options of the htp backend, as the backend declares them."""
    made: dict[str, Any] = {}
    for key, option in options:
        kind = float if key.is_number else bool if option.kind == "flag" else int
        low = 0 if option.kind == "flag" else option.low if option.least is None else option.least
        bounds = {} if kind is bool else {"ge": low, "le": option.high, "multiple_of": key.multiple_of}
        limits = {name: bound for name, bound in bounds.items() if bound is not None}
        readers = (GENERATOR,) if key.offline else PREPARE
        annotation = kind if key.default is not None else kind | None
        sentence = option.sentence_without_zero
        if option.kind == "flag" and key.is_number:
            sentence += " 1 or more is on."
        made[key.key] = annotation, _key(sentence, readers, key.default, key.decides or None, **limits)
    return made


if TYPE_CHECKING:

    class _Options(ConfigSection):
        def __getattr__(self, key: str) -> Any: ...

    _GraphOptions = _Options
    _ContextOptions = _Options
else:
    _GraphOptions = create_model("_GraphOptions", __base__=ConfigSection, **_derived(GraphConfig.in_file("graphs")))
    _ContextOptions = create_model("_ContextOptions", __base__=ConfigSection, **_derived(HtpConfig.in_file("context")))


class GraphSection(_GraphOptions):
    """How graphs are prepared: the options of a graph, and what else the file says of it."""

    options: ClassVar[FileOptions] = GraphConfig.in_file("graphs")
    graph_names: list[str] | None = _key("The graphs this is for; all where it is left out.", PREPARE)
    fp16_relaxed_precision: int | None = _key("Deprecated since 2.35: the chip decides.", PREPARE)


class CoreSection(ConfigSection):
    """How a core is driven."""

    core_id: int = _key("The core.", (NET_RUN,), 0, ge=0)
    perf_profile: PerfProfile = _key(
        "Performance profile; --perf_profile of the command line wins.", (NET_RUN,), "high_performance"
    )
    rpc_control_latency: int = _key("RPC control latency in µs.", (NET_RUN,), 100, ge=0)
    rpc_polling_time: int | None = _key("RPC polling in µs.", (NET_RUN,), shown="9999 for burst, else 0", ge=0, le=9999)
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


class ContextSection(_ContextOptions):
    """How contexts are made and loaded."""

    options: ClassVar[FileOptions] = HtpConfig.in_file("context")
    weight_sharing_enabled: bool = _key("Graphs store common weights once.", (GENERATOR,), False)
    max_spill_fill_buffer_for_group: int | None = _key(
        "Bytes of the spill-fill buffer that a group shares; group_id is 0 then.", LOAD, ge=1
    )
    group_id: int | None = _key("The group whose contexts share buffers.", LOAD, ge=0)
    file_read_memory_budget_in_mb: int = _key("Read a context in pieces of so many MB; 0: whole.", LOAD, 0, ge=0)
    io_memory_estimation: bool = _key("Room for inputs and outputs is kept when a context is loaded.", LOAD, False)
    init_acceleration: bool = _key("Contexts load faster, with more threads.", LOAD, False)


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
