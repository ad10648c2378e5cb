# SPDX-License-Identifier: Apache-2.0
"""Session config keys, run config keys and dynamic options: what each is, and which have no effect here.

Keys that configure onnxruntime itself (`ORT_SESSION_KEYS`, `ORT_RUN_KEYS`) are handed to the onnxruntime session of the
CPU parts as they are. Any other key is an error: onnxruntime would take it in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from hexforge.backend import Spinning
from hexforge.errors import CallError
from hexforge.options import Option, OptionTable, choice, flag, integer, text

MOST_SPIN_US = 1_000_000
PROVIDER_PREFIX = "ep.qnnexecutionprovider."
"""Session config keys under this prefix are provider options, as in the plugin execution provider."""

KEY = "hexforge.compatibility"
LIKE_THE_EP = "ep"
"""The key that lets a session take options and open shapes as the EP does, and its value for that."""

_WEIGHTLESS = "onnxruntime-qnn 2.7 does not read it, and a context here always has its weights"
_IN_PARTS = "in the parts that stay with onnxruntime's CPU provider"
PERFORMANCE_MODES = (
    "default burst balanced high_performance high_power_saver low_balanced low_power_saver power_saver "
    "extreme_power_saver sustained_high_performance"
)

ORT_SESSION_KEYS = frozenset(
    [
        "ep.cuda.fpa_intb_gemm",
        "ep.cuda.fpa_intb_profile_m",
        "ep.cuda.gqa_workspace_max_total_sequence_length",
        "mlas.disable_kleidiai",
        "mlas.enable_gemm_fastmath_arm64_bfloat16",
        "mlas.kleidiai.conv_igemm_max_work",
        "mlas.nchwc_depthwise_sliding",
        "mlas.nchwc_pointwise_conv_max_input_channel_batch",
        "mlas.use_lut_gemm",
        "optimization.constant_folding_max_output_size_in_bytes",
        "optimization.disable_specified_optimizers",
        "optimization.enable_cast_chain_elimination",
        "optimization.enable_gelu_approximation",
        "optimization.minimal_build_optimizations",
        "session.allow_released_opsets_only",
        "session.collect_node_memory_stats_to_file",
        "session.debug_layout_transformation",
        "session.disable_aot_function_inlining",
        "session.disable_prepacking",
        "session.dynamic_block_base",
        "session.enable_dq_matmulnbits_fusion",
        "session.enable_moe_expert_counting",
        "session.enable_moe_expert_statistics",
        "session.force_spinning_stop",
        "session.function_expansion_byte_limit",
        "session.function_expansion_node_limit",
        "session.gqa_value_layout",
        "session.graph_optimizations_loop_level",
        "session.inter_op.allow_spinning",
        "session.inter_op.spin_backoff_max",
        "session.inter_op.spin_duration_us",
        "session.intra_op.allow_spinning",
        "session.intra_op.spin_backoff_max",
        "session.intra_op.spin_duration_us",
        "session.intra_op_thread_affinities",
        "session.layer_assignment_settings",
        "session.max_shape_override",
        "session.model_external_initializers_file_folder_path",
        "session.moe_expert_counter_alpha",
        "session.moe_expert_counter_beta",
        "session.moe_expert_counter_state_file",
        "session.name_based_layer_assignment",
        "session.node_partition_config_file",
        "session.optimized_model_external_initializers_file_name",
        "session.optimized_model_external_initializers_min_size_in_bytes",
        "session.prepack.enable_parallel",
        "session.qdq_matmulnbits_accuracy_level",
        "session.qdq_matmulnbits_block_size",
        "session.resource_cuda_partitioning_settings",
        "session.save_external_prepacked_constant_initializers",
        "session.save_model_format",
        "session.set_denormal_as_zero",
        "session.strict_shape_type_inference",
        "session.strict_workspace_verification",
        "session.use_device_allocator_for_initializers",
        "session.use_env_allocators",
        "session.use_external_initializer_file_buffers_directly",
        "session.use_ort_model_bytes_directly",
        "session.use_ort_model_bytes_for_initializers",
    ]
)
"""Keys of onnxruntime 1.31 that its CPU sessions read or ignore by themselves."""

ORT_RUN_KEYS = frozenset(
    [
        "memory.enable_memory_arena_shrinkage",
        "disable_synchronize_execution_providers",
        "gpu_graph_id",
        "ep.dynamic.workload_type",
    ]
)
"""Run config keys of onnxruntime itself, handed to its CPU sessions."""


@dataclass(frozen=True, slots=True)
class SessionConfig(OptionTable):
    """The session config keys that mean something to QNNExecutionProvider or to how its session is made."""

    disable_cpu_ep_fallback: bool = flag(
        False,
        "error with every refused node instead of running it on the CPU",
        key="session.disable_cpu_ep_fallback",
        whole_model=True,
    )
    obey_ep_limits: bool = flag(
        False,
        "leave to the CPU what the QNN EP refuses, though the chip could run it",
        key="hexforge.obey_ep_limits",
        whole_model=True,
    )
    compatibility: str = choice(
        f"strict {LIKE_THE_EP}",
        "strict: unknown options, bad values and open shapes are errors; ep: they are warnings, and nodes of open "
        "shapes run on the CPU, as with the QNN EP, whose limits are obeyed, too",
        key=KEY,
        whole_model=True,
    )
    record_ep_graph_assignment_info: bool = flag(
        False, "keep what get_provider_graph_assignment_info returns", key="session.record_ep_graph_assignment_info"
    )
    load_model_format: str = choice(
        "ONNX ORT", "format of the model; QNNExecutionProvider reads ONNX", key="session.load_model_format"
    )
    context_enable: bool = flag(
        False, "write a context model when the session is made", key="ep.context_enable", whole_model=True
    )
    context_file_path: str = text(
        "where the context model is written, <model>_ctx.onnx unless given; of one read as bytes: where it would lie",
        key="ep.context_file_path",
    )
    context_embed_mode: bool = flag(
        False,
        "context binary inside the context model, else in <context model>_qnn.bin",
        key="ep.context_embed_mode",
        needs="context_enable",
    )
    context_node_name_prefix: str = text(
        "put before the names of EPContext nodes and their graphs",
        key="ep.context_node_name_prefix",
        needs="context_enable",
    )
    share_ep_contexts: bool = flag(
        False, "have one context with other sessions", key="ep.share_ep_contexts", whole_model=True
    )
    stop_share_ep_contexts: bool = flag(
        False, "the last session that shares; it writes the context", key="ep.stop_share_ep_contexts", whole_model=True
    )
    context_model_external_initializers_file_name: str = text(
        "file beside a context model for the constants of its CPU nodes",
        key="ep.context_model_external_initializers_file_name",
        needs="context_enable",
    )
    enable_weightless: bool = flag(False, "context models without weights", _WEIGHTLESS, "ep.enable_weightless")
    context_source_model_path: str = text("model a context was made of", _WEIGHTLESS, "ep.context_source_model_path")
    enable_weightless_ep_context_nodes: bool = flag(
        False, "EPContext nodes without weights", _WEIGHTLESS, "ep.enable_weightless_ep_context_nodes"
    )
    disable_model_compile: bool = flag(
        False,
        "error where the model would have to be compiled first",
        key="session.disable_model_compile",
        whole_model=True,
    )
    fail_on_suboptimal_compiled_model: bool = flag(
        False,
        "error where a context model does not use all the chip has",
        key="session.fail_on_suboptimal_compiled_model",
    )
    compile_only: bool = flag(
        False, "compile the model, and never run it", key="session.compile_only", whole_model=True
    )
    disable_quant_qdq: bool = flag(False, f"do not look for QDQ groups {_IN_PARTS}", key="session.disable_quant_qdq")
    disable_qdq_constant_folding: bool = flag(
        False, f"do not fold QDQ of constants {_IN_PARTS}", key="session.disable_qdq_constant_folding"
    )
    disable_double_qdq_remover: bool = flag(
        False, f"keep QDQ pairs that follow each other {_IN_PARTS}", key="session.disable_double_qdq_remover"
    )
    enable_quant_qdq_cleanup: bool = flag(
        False, f"remove QDQ that is left over {_IN_PARTS}", key="session.enable_quant_qdq_cleanup"
    )
    qdqisint8allowed: bool = flag(False, f"int8 QDQ groups {_IN_PARTS}", key="session.qdqisint8allowed")

    def _effect(self, option: Option) -> str | None:
        idle = option.needs and not getattr(self, option.needs)
        return option.effect or ("it needs ep.context_enable=1" if idle else None)

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "session config key"

    @classmethod
    def _neighbours(cls) -> Iterable[str]:
        return ORT_SESSION_KEYS


def _rewind() -> Any:
    """The option of a run, and of a session as it goes on."""
    return integer(
        None, "tokens to rewind the KV cache by", "Genie exists only on Windows on Snapdragon", "kvcache_rewind"
    )


@dataclass(frozen=True, slots=True)
class RunConfig(OptionTable):
    """The run config keys of QNNExecutionProvider."""

    htp_perf_mode: str = choice(
        PERFORMANCE_MODES, "performance mode from this run on", key="qnn.htp_perf_mode", default="", backend="htp"
    )
    htp_perf_mode_post_run: str = choice(
        PERFORMANCE_MODES, "performance mode after the run", key="qnn.htp_perf_mode_post_run", default="", backend="htp"
    )
    rpc_control_latency: int | None = integer(
        None, "RPC control latency in µs, from this run on; 0: no vote", key="qnn.rpc_control_latency", backend="htp"
    )
    lora_config: str = text(
        "file of lines <graph>;<adapter file>: LoRA adapters for a context model, from this run on",
        key="qnn.lora_config",
    )
    perf_mode: str = text(
        "another name that documents have for the performance mode",
        "onnxruntime's provider ignores it; qnn.htp_perf_mode is the one that acts",
        key="qnn.perf_mode",
    )
    kvcache_rewind: int | None = _rewind()

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "run config key"

    @classmethod
    def _neighbours(cls) -> Iterable[str]:
        return ORT_RUN_KEYS


@dataclass(frozen=True, slots=True)
class DynamicOptions(OptionTable):
    """What set_ep_dynamic_options takes."""

    workload_type: str = choice(
        "Default Efficient",
        "priority of the work on the device: Efficient is low",
        key="ep.dynamic.workload_type",
        backend="htp",
    )
    qnn_htp_performance_mode: str = choice(
        PERFORMANCE_MODES, "performance mode from now on", key="ep.dynamic.qnn_htp_performance_mode", backend="htp"
    )
    kvcache_rewind: int | None = _rewind()

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "dynamic option"

    def updated(self, pairs: Mapping[str, str]) -> Self:
        """These options with some of them set anew."""
        return self.parse({**self.pairs(), **pairs})


@dataclass(frozen=True, slots=True)
class Entries:
    """Session config entries, sorted by who reads them."""

    config: SessionConfig
    provider: Mapping[str, str]
    onnxruntime: Mapping[str, str]


def sort_entries(entries: Mapping[str, str]) -> Entries:
    """Sort session config entries by reader; CallError listing every unknown key and bad value."""
    provider = {k.removeprefix(PROVIDER_PREFIX): v for k, v in entries.items() if k.startswith(PROVIDER_PREFIX)}
    core = {k: v for k, v in entries.items() if k in ORT_SESSION_KEYS}
    rest = {k: v for k, v in entries.items() if k not in core and not k.startswith(PROVIDER_PREFIX)}
    return Entries(SessionConfig.parse(rest), provider, core)


def sort_run_entries(entries: Mapping[str, str]) -> tuple[RunConfig, dict[str, str]]:
    """The provider's run config, and the entries that are onnxruntime's own."""
    core = {k: v for k, v in entries.items() if k in ORT_RUN_KEYS}
    return RunConfig.parse({k: v for k, v in entries.items() if k not in core}), core


def spinning_of(entries: Mapping[str, str]) -> Spinning:
    """How onnxruntime's keys let threads wait; CallError for a duration that is no number."""
    plain = Spinning()
    if entries.get("session.intra_op.allow_spinning", "1") == "0":
        return Spinning(0, 0)
    duration = entries.get("session.intra_op.spin_duration_us", str(plain.during_us))
    if not duration.isascii() or not duration.isdigit():
        raise CallError(f"session.intra_op.spin_duration_us is {duration!r}: expected microseconds, 0 or more")
    during = min(int(duration), MOST_SPIN_US)
    stop = entries.get("session.force_spinning_stop", "0") == "1"
    return Spinning(during, 0 if stop else min(during, plain.after_us))
