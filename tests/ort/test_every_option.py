# SPDX-License-Identifier: Apache-2.0
"""Every option of every table acts (file, numbers, time, placement, log or error), or says in the log that it does not.

A session with the option and one without are looked at from all sides; an option that is taken in silence and changes
nothing of it fails here, and so does one that has no row.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.errors import HexforgeError
from hexforge.ort.options.config import DynamicOptions, RunConfig, SessionConfig
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.runtime.contexts import share
from hexforge.runtime.cpu_part import CpuPart
from tests.addons.device import tiny
from tests.backends.htp.test_block_weights import model as block_model
from tests.ort.models import FLOAT, ahead, model, node

QNN = "QNNExecutionProvider"
DEVICES = itertools.count(1000)
"""A device of its own for each session, so that none sees another's state."""


# -- models -----------------------------------------------------------------------------------------------------------


def wide() -> bytes:
    """Products whose weights are larger than a small VTCM."""
    weights = np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["m"], name="a"), node("MatMul", ["m", "w"], ["y"], name="b")]
    return model(nodes, {"x": (FLOAT, [512, 1024])}, {"y": (FLOAT, [512, 1024])}, {"w": weights})


def two_graphs() -> bytes:
    """Two graphs with a node between them that QNN does not take."""
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("Det", ["a"], ["b"], name="det"),
        node("Neg", ["b"], ["y"], name="neg"),
    ]
    return model(nodes, {"x": (FLOAT, [2, 3, 3])}, {"y": (FLOAT, [2])})


def overflowing() -> bytes:
    """A float convolution whose sums are beyond float16."""
    weights = np.full((2, 3, 1, 1), 60000.0, np.float32)
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv")]
    return model(nodes, {"x": (FLOAT, [1, 3, 4, 4])}, {"y": (FLOAT, [1, 2, 4, 4])}, {"w": weights})


def recurrent() -> bytes:
    """An LSTM of 16 time steps."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.standard_normal((1, 32, 8)).astype(np.float32),
        "r": random.standard_normal((1, 32, 8)).astype(np.float32),
    }
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], name="lstm", hidden_size=8)]
    return model(nodes, {"x": (FLOAT, [16, 1, 8])}, {"y": (FLOAT, [16, 1, 1, 8])}, constants)


def large_io() -> bytes:
    """Inputs and outputs of some MB."""
    nodes = [node("Neg", ["x"], ["y"], name="neg")]
    return model(nodes, {"x": (FLOAT, [1, 3, 512, 512])}, {"y": (FLOAT, [1, 3, 512, 512])})


def refused_by_the_ep() -> bytes:
    """A node that the chip could run and the EP refuses."""
    nodes = [node("LpNormalization", ["x"], ["y"], name="norm", p=1)]
    return model(nodes, {"x": (FLOAT, [2, 8])}, {"y": (FLOAT, [2, 8])})


def blocks() -> tuple[np.ndarray, np.ndarray, int]:
    """4-bit codes and scales of blocks that LPBQ is near to."""
    random = np.random.default_rng(4)
    return random.integers(-8, 8, (64, 32)), random.uniform(0.01, 0.1, (2, 32)).astype(np.float32), 32


MODELS: dict[str, Callable[[], bytes]] = {
    "conv": tiny.conv, "dense": lambda: tiny.dense(1), "wide": wide, "ahead": ahead, "two": two_graphs,
    "overflow": overflowing, "blocks": lambda: block_model(*blocks()), "lstm": recurrent, "io": large_io,
    "refused": refused_by_the_ep,
}  # fmt: skip


# -- what is seen of a session ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A value of an option, and beside what it is given."""

    value: str = "1"
    model: str = "conv"
    base: Mapping[str, str] = field(default_factory=dict)
    """Provider options."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Session config entries."""
    context: str = ""
    """The model is a context model, made for this chip."""


def look(source: Any, folder: Path, options: Mapping[str, str], entries: Mapping[str, str],
         run: Mapping[str, str], dynamic: Mapping[str, str]) -> dict[str, Any]:  # fmt: skip
    """What can be seen of a session, its runs and its files."""
    seen: dict[str, Any] = {}
    folder.mkdir()
    share.end()
    share.close()
    before = Path.cwd()
    os.chdir(folder)
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hexforge").addHandler(handler)
    try:
        chosen = hexforge.SessionOptions()
        for key, value in entries.items():
            chosen.add_session_config_entry(key, value)
        given = {"soc_model": "SM8650", "device_id": str(next(DEVICES)), **options}
        session = hexforge.InferenceSession(source, chosen, [(QNN, {k: v for k, v in given.items() if v})])
        seen |= _of_session(session)
        _run(session, seen, run, dynamic)
        seen["notes"] = session.notes
        del session
    except HexforgeError as error:
        seen["error"] = str(error)
    finally:
        os.chdir(before)
        logging.getLogger("hexforge").removeHandler(handler)
    seen["logged"] = records
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    seen["files"] = [
        (str(path.relative_to(folder)), path.stat().st_size if path.suffix in (".onnx", ".bin") else 0)
        for path in files
    ]
    contexts = [hexforge.Context(path).info for path in files if path.name.endswith("_qnn.bin")]
    seen["contexts"] = [(info.options, [graph.spill_fill_bytes for graph in info.graphs]) for info in contexts]
    return seen


def _of_session(session: Any) -> dict[str, Any]:
    maps = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""
    parts = [stage.runner for stage in session.stages if isinstance(stage.runner, CpuPart)]
    keys = [o.key for o in SessionConfig.table()]
    found: dict[str, Any] = {
        "runners": [type(stage.runner).__name__ for stage in session.stages],
        "placements": [str((row.node, row.where, row.reason)) for row in session.placements],
        "mapped": ".bin" in maps,
        "memory": [info.name for info in session.get_input_memory_infos()],
        "constants": [sum(v.data is not None for v in graph.values.values()) for graph in session.graphs],
        "in parts": [
            {key: entry for key in keys if (entry := _entry(part._session.get_session_options(), key))}
            for part in parts
            if part.conversions is None
        ],
    }
    try:
        found["assignment"] = len(session.get_provider_graph_assignment_info())
    except HexforgeError as error:
        found["assignment"] = str(error)
    return found


def _entry(options: Any, key: str) -> str:
    try:
        return str(options.get_session_config_entry(key))
    except Exception:
        return ""


def _run(session: Any, seen: dict[str, Any], run: Mapping[str, str], dynamic: Mapping[str, str]) -> None:
    options = hexforge.RunOptions() if run else None
    for key, value in run.items():
        options.add_run_config_entry(key, value)
    if dynamic:
        session.set_ep_dynamic_options(dict(dynamic))
    random = np.random.default_rng(3)
    feeds = {
        a.name: random.standard_normal([n if isinstance(n, int) else 1 for n in a.shape]).astype(np.float32)
        for a in session.get_inputs()
    }
    outputs = session.run(None, feeds, options)
    seen["outputs"] = [np.asarray(o).tobytes() for o in outputs]
    try:
        device = session.simulated.device
    except HexforgeError as error:
        seen["simulated"] = str(error)
        return
    session.run(None, feeds, options)
    session.run(None, feeds)
    seen["device"] = [
        {k: v for k, v in event.items() if k not in ("graph", "context", "process")}
        for event in map(json.loads, device.log.lines())
    ]
    seen["threads"] = [graph.hmx_thread for graph in session.simulated._graphs]
    seen["times"] = [(r.latency_us, r.accelerator_us, r.energy_uj, r.mode) for r in session.simulated.runs]


def differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """From which sides two sessions are not the same."""
    return [key for key in sorted({*one, *other}) if one.get(key) != other.get(key)]


# -- the tables -------------------------------------------------------------------------------------------------------

WRITES = {"ep.context_enable": "1", "ep.context_file_path": "c.onnx"}
PROVIDER: dict[str, Case] = {
    "backend_type": Case("cpu"),
    "backend_path": Case("libQnnCpu.so"),
    "profiling_level": Case("basic", base={"profiling_file_path": "p.csv"}),
    "profiling_file_path": Case("q.csv", base={"profiling_level": "basic"}),
    "rpc_control_latency": Case("20"),
    "vtcm_mb": Case("1", "wide"),
    "enable_vtcm_backup_buffer_sharing": Case(model="two"),
    "htp_share_resource_optimization": Case(model="two"),
    "htp_performance_mode": Case("burst"),
    "qnn_saver_path": Case("libQnnSaver.so"),
    "qnn_context_priority": Case("low"),
    "htp_graph_finalization_optimization_mode": Case("1", "ahead"),
    "soc_model": Case("SM8550"),
    "htp_arch": Case("68", "dense", {"soc_model": ""}, WRITES),
    "device_id": Case("77"),
    "enable_htp_monolithic_lstm": Case(model="lstm"),
    "enable_htp_fp16_clamp_overflow": Case("1", "overflow", {"soc_model": "SM8750"}),
    "enable_htp_spill_fill_buffer": Case("1", "wide", {"vtcm_mb": "1"}, WRITES),
    "offload_graph_io_quantization": Case("0"),
    "enable_htp_shared_memory_allocator": Case(),
    "extended_udma": Case("1", "conv", {"soc_model": "SM8850"}, WRITES),
    "op_packages": Case("MyOp:missing.py:Package"),
    "dump_json_qnn_graph": Case(),
    "json_qnn_graph_dir": Case("there", base={"dump_json_qnn_graph": "1"}),
    "enable_framework_op_trace": Case(),
    "framework_op_trace_dir": Case("there", base={"enable_framework_op_trace": "1"}),
    "dump_qnn_ep_input_graph": Case(),
    "dump_qnn_ep_input_graph_dir": Case("there", base={"dump_qnn_ep_input_graph": "1"}),
    "enable_block_quant_weight_optimization": Case(model="blocks"),
    "dump_qnn_ir_dlc": Case(),
    "dump_qnn_ir_dlc_dir": Case("there", base={"dump_qnn_ir_dlc": "1"}),
    "qnn_ir_backend_path": Case("libQnnCpu.so", base={"dump_qnn_ir_dlc": "1"}),
    "skip_backend_op_validation": Case(base={"dump_qnn_ir_dlc": "1"}),
    "htp_bf16_enable": Case("1", "dense", {"soc_model": "SM8850"}),
    "disable_file_mapped_weights": Case(context="SM8650"),
    "enable_htp_prepare_only": Case(entries=WRITES),
    "enable_htp_prepare_and_load": Case(),
    "htp_reused_io_limit_mb": Case("1", "io"),
    "op_affinity": Case("../pins.json", "dense"),
    "htp_num_cores": Case("2", base={"soc_model": "SA8775P"}),
    "backend_extensions": Case("missing.json"),
    "log_severity_level": Case("4", base={"skip_qnn_version_check": "1"}),
}
"""The options that act; what is not here says that it does not."""
SESSION: dict[str, Case] = {
    "session.disable_cpu_ep_fallback": Case(model="two"),
    "hexforge.obey_ep_limits": Case(model="refused"),
    "hexforge.compatibility": Case("ep", "refused"),
    "session.record_ep_graph_assignment_info": Case(),
    "session.load_model_format": Case("ORT"),
    "ep.context_enable": Case(entries={"ep.context_file_path": "c.onnx"}),
    "ep.context_file_path": Case("other.onnx", entries={"ep.context_enable": "1", "ep.context_file_path": "c.onnx"}),
    "ep.context_embed_mode": Case(entries=WRITES),
    "ep.context_node_name_prefix": Case("long_prefix_", entries=WRITES),
    "ep.share_ep_contexts": Case(entries=WRITES),
    "ep.stop_share_ep_contexts": Case(entries={**WRITES, "ep.share_ep_contexts": "1"}),
    "ep.context_model_external_initializers_file_name": Case(
        "c.data", "dense", {"op_affinity": "../pins.json"}, WRITES
    ),
    "session.disable_model_compile": Case(),
    "session.fail_on_suboptimal_compiled_model": Case(context="SM8550"),
    "session.compile_only": Case(),
    "session.disable_quant_qdq": Case(model="two"),
    "session.disable_qdq_constant_folding": Case(model="two"),
    "session.disable_double_qdq_remover": Case(model="two"),
    "session.enable_quant_qdq_cleanup": Case(model="two"),
    "session.qdqisint8allowed": Case(model="two"),
}
RUN: dict[str, Case] = {
    "qnn.htp_perf_mode": Case("burst"),
    "qnn.htp_perf_mode_post_run": Case("low_power_saver"),
    "qnn.rpc_control_latency": Case("20"),
    "qnn.lora_config": Case("adapters.txt"),
}
DYNAMIC: dict[str, Case] = {
    "ep.dynamic.workload_type": Case("Efficient"),
    "ep.dynamic.qnn_htp_performance_mode": Case("burst"),
}


def source_of(case: Case, folder: Path) -> Any:
    """The model of a case: bytes, or the path of a context model."""
    data = MODELS[case.model]()
    (folder / "pins.json").write_text(json.dumps({"op_type": {"MatMul": "CPU"}}))
    if not case.context:
        return data
    (folder / "m.onnx").write_bytes(data)
    chosen = hexforge.SessionOptions()
    for key, value in {"ep.context_enable": "1", "ep.context_file_path": str(folder / "c.onnx")}.items():
        chosen.add_session_config_entry(key, value)
    hexforge.InferenceSession(str(folder / "m.onnx"), chosen, [(QNN, {"soc_model": case.context})])
    return str(folder / "c.onnx")


@pytest.fixture(autouse=True)
def everything_is_logged() -> Iterator[None]:
    log = logging.getLogger("hexforge")
    before = log.level
    log.setLevel(logging.DEBUG)
    yield
    log.setLevel(before)


def _compared(case: Case, tmp_path: Path, with_it: Callable[[Any, Path], dict[str, Any]],
              without: Callable[[Any, Path], dict[str, Any]]) -> list[str]:  # fmt: skip
    source = source_of(case, tmp_path)
    plain = without(source, tmp_path / "plain")
    again = without(source, tmp_path / "again")
    assert differs(plain, again) == []  # what is seen of one session twice is the same
    return differs(plain, with_it(source, tmp_path / "changed"))


@pytest.mark.feature("Precision option", guide="464-470, 980-982, 1390")
@pytest.mark.parametrize("key", [o.key for o in ProviderOptions.table()])
def test_every_provider_option_acts_or_says_that_it_does_not(key: str, tmp_path: Path) -> None:
    option = next(o for o in ProviderOptions.table() if o.key == key)
    case = PROVIDER.get(key)
    if case is None:
        _says_so(key, option, tmp_path)
        return
    assert option.effect is None, "it acts, and must not say otherwise"
    value = case.value

    def look_with(source: Any, folder: Path) -> dict[str, Any]:
        extra = {"backend_type": ""} if key == "backend_path" else {}
        return look(source, folder, {**case.base, **extra, key: value}, case.entries, {}, {})

    def look_without(source: Any, folder: Path) -> dict[str, Any]:
        base = dict(case.base)
        if key == "profiling_file_path":
            base |= {key: "p.csv"}
        return look(source, folder, base, case.entries, {}, {})

    changed = _compared(case, tmp_path, look_with, look_without)
    if key == "device_id":
        first, second = (
            hexforge.InferenceSession(tiny.conv(), providers=[(QNN, {"soc_model": "SM8650", key: n})])
            for n in ("5", "5")
        )
        other = hexforge.InferenceSession(tiny.conv(), providers=[(QNN, {"soc_model": "SM8650", key: "6"})])
        assert first.simulated.device is second.simulated.device is not other.simulated.device
        return
    assert changed, f"{key}={value} changes nothing, and nothing says so"


def _says_so(key: str, option: Any, tmp_path: Path) -> None:
    """An option without a row says in its note that it has no effect, and why."""
    value = {"flag": "0" if option.default else "1", "integer": "3", "text": "x", "choice": "?"}[option.kind]
    if option.kind == "choice":
        value = next(c for c in option.choices if c != option.default)
    elif key == "qnn_ir_backend_path":
        value = "libQnnIr.so"
    elif option.default == 0xFFFFFFFF:
        value = "2"
    seen = look(tiny.conv(), tmp_path / "said", {key: value}, {}, {}, {})
    said = [note for note in seen["notes"] if key in note and "no effect" in note]
    assert said or seen["files"], f"{key}={value} has no row here, and nothing says that it does nothing"
    assert option.effect is not None or option.backend not in ("", "htp") or seen["files"]


@pytest.mark.parametrize("key", [o.key for o in SessionConfig.table()])
def test_every_session_key_acts_or_says_that_it_does_not(key: str, tmp_path: Path) -> None:
    option = next(o for o in SessionConfig.table() if o.key == key)
    case = SESSION.get(key)
    if case is None:
        value = "1" if option.kind == "flag" else "model.onnx"
        seen = look(tiny.conv(), tmp_path / "said", {}, {key: value}, {}, {})
        assert any(key in note and "no effect" in note for note in seen["notes"])
        return
    assert option.effect is None, "it acts, and must not say otherwise"
    entries = {k: v for k, v in case.entries.items() if k != key} if key != "ep.context_file_path" else case.entries
    changed = _compared(
        case,
        tmp_path,
        lambda source, folder: look(source, folder, case.base, {**entries, key: case.value}, {}, {}),
        lambda source, folder: look(source, folder, case.base, entries, {}, {}),
    )
    assert changed, f"{key}={case.value} changes nothing, and nothing says so"


@pytest.mark.parametrize("key", [o.key for o in RunConfig.table()])
def test_every_run_key_acts_or_says_that_it_does_not(key: str, tmp_path: Path) -> None:
    case = RUN.get(key)
    if case is None:
        seen = look(tiny.conv(), tmp_path / "said", {}, {}, {key: "1"}, {})
        assert any(key in note and "no effect" in note for note in seen["notes"])
        return
    changed = _compared(
        case,
        tmp_path,
        lambda source, folder: look(source, folder, {}, {}, {key: case.value}, {}),
        lambda source, folder: look(source, folder, {}, {}, {}, {}),
    )
    assert changed


@pytest.mark.parametrize("key", [o.key for o in DynamicOptions.table()])
def test_every_dynamic_option_acts_or_says_that_it_does_not(key: str, tmp_path: Path) -> None:
    case = DYNAMIC.get(key)
    if case is None:
        seen = look(tiny.conv(), tmp_path / "said", {}, {}, {}, {key: "1"})
        assert any(key in note and "no effect" in note for note in seen["notes"])
        return
    changed = _compared(
        case,
        tmp_path,
        lambda source, folder: look(source, folder, {}, {}, {}, {key: case.value}),
        lambda source, folder: look(source, folder, {}, {}, {}, {}),
    )
    assert changed
