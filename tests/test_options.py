# SPDX-License-Identifier: Apache-2.0
"""Options: parse and pairs are inverses, every fault is reported, every option of the provider is known."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.addon import addons
from hexforge.chips.htp_config import HtpConfig
from hexforge.errors import CallError
from hexforge.options import Option, OptionTable
from hexforge.ort.options.config import (
    ORT_RUN_KEYS,
    ORT_SESSION_KEYS,
    DynamicOptions,
    RunConfig,
    SessionConfig,
    sort_entries,
    sort_run_entries,
)
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.runtime import registry
from hexforge.runtime.registry import QNN_BACKENDS
from tests import ROOT

TABLES: tuple[type[OptionTable], ...] = (ProviderOptions, SessionConfig, RunConfig, DynamicOptions)
PROVIDER_KEYS = """
backend_type backend_path profiling_level profiling_file_path rpc_control_latency vtcm_mb
enable_vtcm_backup_buffer_sharing htp_share_resource_optimization htp_performance_mode qnn_saver_path
qnn_context_priority htp_graph_finalization_optimization_mode soc_model htp_arch device_id enable_htp_fp16_precision
enable_htp_monolithic_lstm enable_htp_fp16_clamp_overflow enable_htp_matmul_lut enable_htp_spill_fill_buffer
offload_graph_io_quantization enable_block_quant_weight_optimization enable_htp_shared_memory_allocator
enable_dx12_shared_memory_allocator extended_udma op_packages dump_json_qnn_graph json_qnn_graph_dir dump_qnn_ir_dlc
dump_qnn_ir_dlc_dir qnn_ir_backend_path skip_backend_op_validation enable_framework_op_trace framework_op_trace_dir
dump_qnn_ep_input_graph dump_qnn_ep_input_graph_dir skip_qnn_version_check htp_bf16_enable num_graph_prepare_threads
disable_file_mapped_weights enable_htp_prepare_only enable_htp_prepare_and_load enable_htp_graph_splitting
htp_graph_splitting_num_prepare_threads htp_reused_io_limit_mb op_affinity enable_htp_cross_device_prepare htp_num_cores
backend_extensions genie_log_level log_severity_level
""".split()
KEYS_OF_ADDONS = {
    "gpu": """
gpu_device gpu_ops gpu_precision gpu_tuning gpu_use_memory_optimizations gpu_use_node_optimizations
gpu_use_queue_recording gpu_use_weight_sharing
""".split()
}


def test_every_provider_option_is_known() -> None:
    installed = {addon.name for addon in addons()}
    of_addons = [key for name, keys in KEYS_OF_ADDONS.items() if name in installed for key in keys]
    assert sorted(o.key for o in ProviderOptions.table()) == sorted(PROVIDER_KEYS + of_addons)


@pytest.mark.parametrize("table", TABLES)
def test_every_option_says_what_it_does(table: type[OptionTable]) -> None:
    for option in table.table():
        assert option.doc
        assert option.effect is None or len(option.effect) > 15
        assert option.expects
        if option.default not in (None, "", ()):
            assert option.read(option.write(option.default)) == option.default


def values(option: Option) -> st.SearchStrategy[Any]:
    """Values an option can have."""
    if option.kind == "flag":
        return st.booleans()
    if option.kind == "choice":
        return st.sampled_from(option.choices)
    if option.kind == "integer":
        return st.integers(option.low or 0, option.high if option.high is not None else 1 << 40)
    if option.kind == "numbers":
        single = st.sampled_from(list(map(int, option.choices))) if option.choices else st.integers(0, 64)
        return st.lists(single, min_size=2, max_size=2).map(tuple)
    if option.kind == "texts":
        item = "SM8750" if option.key == "soc_model" else "Op:/lib/x.so:Symbol:HTP"
        return st.just((item, item))
    return st.text(st.characters(codec="ascii", exclude_characters="\x00"), min_size=1).map(str.strip)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(TABLES))
def test_parse_inverts_pairs(data: st.DataObject, table: type[OptionTable]) -> None:
    # bound to each other, tested below
    free = {"backend_path", "backend_type", "profiling_level", "qnn_saver_path", "qnn_ir_backend_path",
            "skip_backend_op_validation"}  # fmt: skip
    fields = [f for f in dataclasses.fields(table) if f.name not in free]
    chosen = data.draw(st.lists(st.sampled_from(fields), unique_by=lambda f: f.name))
    options = {o.key: o for o in table.table()}
    keys = {f.name: o for f, o in zip(dataclasses.fields(table), table.table(), strict=True)}
    made = table(**{f.name: data.draw(values(keys[f.name])) for f in chosen})
    if isinstance(made, ProviderOptions):
        made = dataclasses.replace(made, backend_type="cpu")
    assert table.parse(made.pairs()) == made
    assert set(made.pairs()) <= options.keys()
    told = [key for key in made.pairs() if made._effect(options[key]) is not None]
    idle = {*told, *(key for key in made.pairs() if options[key].backend not in ("", "cpu"))}
    assert len(made.notes("cpu")) == len(idle)


@pytest.mark.parametrize(
    ("path", "backend"),
    [
        ("libQnnCpu.so", "cpu"),
        ("QnnCpu.dll", "cpu"),
        ("libQnnHtp.so", "htp"),
        ("QnnHtp.dll", "htp"),
        ("QnnGpu.dll", "gpu"),
        ("libQnnGpu.so", "gpu"),
        ("libQnnSaver.so", "saver"),
        ("QnnSaver.dll", "saver"),
        ("QnnIr.dll", "ir"),
        ("libQnnIr.so", "ir"),
        ("QnnSaver", "saver"),
        (r"C:\Program Files\QNN\lib\QNNCPU.DLL", "cpu"),
        ("/opt/qairt/lib/x86_64-linux-clang/libqnncpu.so", "cpu"),
        (r"..\lib/libQnnGpu.so", "gpu"),
    ],
)
def test_backend_by_library(path: str, backend: str) -> None:
    assert ProviderOptions.parse({"backend_path": path}).backend == backend


def test_notes_know_the_backend() -> None:
    given = {"soc_model": "SM8650", "htp_performance_mode": "burst", "htp_graph_finalization_optimization_mode": "2"}
    assert ProviderOptions.parse(given).notes() == ()
    on_cpu = ProviderOptions.parse({**given, "backend_type": "cpu"}).notes()
    assert len(on_cpu) == 3
    assert any("soc_model=SM8650 has no effect: it configures the htp backend" in note for note in on_cpu)


def test_nothing_says_that_htp_is_not_built() -> None:
    for table in TABLES:
        for option in table.table():
            assert "htp backend, which is not built" not in (option.effect or "")


def test_backend_by_type() -> None:
    assert ProviderOptions().backend == "htp"
    assert [ProviderOptions.parse({"backend_type": b}).backend for b in QNN_BACKENDS] == list(QNN_BACKENDS)
    assert ProviderOptions.parse({"backend_type": "CPU"}).backend == "cpu"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"backend_type": "cpu", "backend_path": "QnnCpu.dll"}, "Only one of 'backend_type' and 'backend_path'"),
        ({"backend_path": "libQnnHpt.so"}, "did you mean 'libQnnHtp.so'"),
        ({"backend_path": "libcpu.so"}, "no QNN backend library has that name"),
        ({"backend_path": "/some/folder/"}, "no QNN backend library has that name"),
        ({"backend_type": "npu"}, "expected one of htp, cpu, gpu"),
        ({"htp_perfomance_mode": "burst"}, "did you mean 'htp_performance_mode'"),
        ({"htp_performance_mode": "bursts"}, "did you mean 'burst'"),
        ({"vtcm_mb": "-1"}, "an integer of at least 0"),
        ({"vtcm_mb": "eight"}, "an integer"),
        ({"htp_graph_finalization_optimization_mode": "4"}, "from 0 to 3"),
        ({"enable_htp_fp16_precision": "True"}, "expected 0 or 1"),
        ({"htp_share_resource_optimization": "0"}, "expected 1"),
        ({"htp_arch": "70"}, "68, 69, 73, 75, 79, 81, 85"),
        ({"soc_model": "8 Gen 3"}, "a chip name such as SM8750"),
        ({"op_packages": "Op:lib.so"}, "<OpType>:<PackagePath>:<InterfaceSymbol>"),
        ({"session.disable_cpu_ep_fallback": "1"}, "session config key"),
        ({"qnn.htp_perf_mode": "burst"}, "run option"),
        ({"log_verbosity_level": "0"}, "attribute of SessionOptions"),
        ({"profiling_level": "basic"}, "needs profiling_file_path"),
        ({"htp_bf16_enable": "1"}, "soc_model 88"),
        ({"htp_bf16_enable": "1", "soc_model": "60"}, "soc_model 88"),
        ({"enable_htp_prepare_only": "1", "enable_htp_prepare_and_load": "1"}, "only one of"),
        ({"soc_model": "SM8750,SM8650", "htp_arch": "73,75,79"}, "different numbers of SoCs"),
    ],
)
def test_faults(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(CallError, match=message.replace("(", r"\(")):
        ProviderOptions.parse(pairs)


def test_htp_rules_hold_only_on_htp() -> None:
    both = {"enable_htp_fp16_precision": "1", "htp_bf16_enable": "1"}
    assert ProviderOptions.parse({**both, "backend_type": "cpu"}).enable_htp_fp16_precision
    assert ProviderOptions.parse({**both, "soc_model": "SM8850"}).htp_bf16_enable  # type: ignore[attr-defined]


def test_all_faults_at_once() -> None:
    with pytest.raises(CallError) as caught:
        ProviderOptions.parse(
            {"backend_type": "cpu", "backend_path": "QnnCpu.dll", "vtcm_mb": "x", "typo": "1", "profiling_level": "all"}
        )
    assert len(str(caught.value).splitlines()) == 4


def test_session_keys_by_reader() -> None:
    entries = sort_entries(
        {
            "session.disable_cpu_ep_fallback": "1",
            "session.set_denormal_as_zero": "1",
            "ep.qnnexecutionprovider.backend_type": "cpu",
        }
    )
    assert entries.config.disable_cpu_ep_fallback
    assert entries.onnxruntime == {"session.set_denormal_as_zero": "1"}
    assert entries.provider == {"backend_type": "cpu"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("session.disable_cpu_fallback", "1", "did you mean 'session.disable_cpu_ep_fallback'"),
        ("session.disable_cpu_ep_fallback", "yes", "expected 0 or 1"),
        ("session.set_denormal_as_zeros", "1", "did you mean 'session.set_denormal_as_zero'"),
        ("my.key", "1", "`hexforge options` lists them"),
    ],
)
def test_session_key_faults(key: str, value: str, message: str) -> None:
    with pytest.raises(CallError, match=message):
        sort_entries({key: value})


def test_run_and_dynamic_options() -> None:
    config, core = sort_run_entries({"qnn.htp_perf_mode": "burst", "memory.enable_memory_arena_shrinkage": "cpu:0"})
    assert config.htp_perf_mode == "burst"
    assert list(core) == ["memory.enable_memory_arena_shrinkage"]
    ignored, _ = sort_run_entries({"qnn.perf_mode": "burst", "kvcache_rewind": "3"})
    assert [note.split("=")[0] for note in ignored.notes()] == [
        "run config key qnn.perf_mode",
        "run config key kvcache_rewind",
    ]
    options = DynamicOptions().updated({"ep.dynamic.workload_type": "efficient"})
    options = options.updated({"ep.dynamic.qnn_htp_performance_mode": "burst"})
    assert (options.workload_type, options.qnn_htp_performance_mode) == ("Efficient", "burst")
    with pytest.raises(CallError, match="unknown dynamic option"):
        DynamicOptions().updated({"ep.dynamic.workload": "Default"})


def test_no_key_is_in_two_tables() -> None:
    keys = [o.key for table in TABLES[:3] for o in table.table()]
    assert len(keys) == len(set(keys))
    assert not set(keys) & (ORT_SESSION_KEYS | ORT_RUN_KEYS)


@pytest.mark.parametrize("name", registry.backends())
def test_options_of_a_backend_are_known_without_it(name: str) -> None:
    assert registry.config_class(name) is registry.backend_class(name).Config


@pytest.mark.parametrize("name", registry.backend_options())
def test_the_provider_has_a_backends_options_as_the_backend_declares_them(name: str) -> None:
    rows = {option.key: option for option in ProviderOptions.table()}
    for option in registry.config_class(name).table():
        assert option.provider == (option.key in rows)
        if option.provider:
            row = rows[option.key]
            assert (row.kind, row.expects, row.doc, row.backend) == (option.kind, option.expects, option.doc, name)
            assert option.read(row.write(row.default)) == option.default


def test_a_table_inside_is_read_and_written_whole() -> None:
    given = {"dlbc": "1", "htp_num_cores": "3", "vtcm_mb": "2,4", "soc_model": "SM8650,SM8750"}
    config = HtpConfig.parse(given)
    assert (config.graph.dlbc, config.graph.num_cores, config.graph.vtcm_mb) == (True, 3, 2)
    assert config.pairs() == given
    assert config.for_chip(1).graph.vtcm_mb == 4
    assert HtpConfig.parse({"htp_num_cores": "0"}) == HtpConfig()
    assert HtpConfig.of("SM8750", config.for_chip(1).graph) == config.for_chip(1)


WORDS_OF_CHIPS = {"soc_model", "htp_arch", "vtcm_mb", "dlbc", "num_hvx_threads", "lora_weight_sharing"}
"""Keys that are also facts of a chip, settings of a context or keys of the simulated device."""


@pytest.mark.parametrize("key", [o.key for o in HtpConfig.table() if o.key not in WORDS_OF_CHIPS])
def test_an_option_is_named_where_it_is_declared_and_where_it_acts(key: str) -> None:
    texts = ((path, path.read_text("utf-8")) for path in sorted((ROOT / "src").rglob("*.py")))
    places = [path.name for path, text in texts if re.search(rf"\b{key}\b", text)]
    assert len(places) <= 3, f"{key} is named in {', '.join(places)}; let the faces derive from its declaration"
