# SPDX-License-Identifier: Apache-2.0
"""ProviderOptions: the options of QNNExecutionProvider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config, load
from hexforge.formats.json_text import read_json
from hexforge.options import Option, OptionTable, choice, did_you_mean, flag, integer, text, texts
from hexforge.ort.options.config import PERFORMANCE_MODES
from hexforge.ort.options.requested_dumps import RequestedDumps
from hexforge.runtime import registry

_LIBRARY = re.compile(r"(?:lib)?(?:qnn)?(cpu|htp|gpu|saver|ir|genie)(?:\.so(?:\.\d+)*|\.dll|\.dylib)?", re.IGNORECASE)

_SPLIT = "the HTP splits graphs while it creates a context, of which nothing is published that could be simulated"
_DEVICE = "it concerns memory or files of a Snapdragon device, which this computer does not have"
NO_LPAI = (
    "the LPAI backend is for the eNPU of the low-power island, which runs models of its own kind beside microphones "
    "and sensors: the QNN EP cannot choose it (backend_type is cpu, gpu, htp, saver, ir or genie), no figures of it "
    "are published, and hexforge has none; use backend_type=htp"
)
_GENIE = "the genie path exists only on Windows on Snapdragon"


def _with_options_of_backends(table: type[OptionTable]) -> type[OptionTable]:
    """The class with a field for each option of a backend that the provider has, too."""
    for backend in registry.backend_options():
        for option in registry.config_class(backend).table():
            if option.provider:
                default = option.default if option.unset is None else option.unset
                pattern = option.provider_pattern or option.pattern
                row = {"option": {**option.spec(), "backend": backend, "pattern": pattern}}
                table.__annotations__[option.key] = type(default).__name__
                setattr(table, option.key, field(default=default, metadata=row))
    return table


@dataclass(frozen=True, slots=True)
@_with_options_of_backends
class ProviderOptions(OptionTable):
    """The provider options of QNNExecutionProvider: its own, then those that its backends declare."""

    backend_type: str = choice(
        " ".join(registry.QNN_BACKENDS), "which backend runs the graphs", more_choices=registry.added_backends
    )
    backend_path: str = text("the backend by its library, e.g. libQnnCpu.so or QnnHtp.dll; excludes backend_type")
    profiling_level: str = choice(
        "off basic detailed linting optrace",
        "how much is profiled: the call, each op, what goes on beside it, every activity on the chip",
    )
    profiling_file_path: str = text(
        "csv file the profile is written to, with <stem>_qnn.log beside it", needs="profiling_level"
    )
    rpc_control_latency: int = integer(
        0, "RPC control latency in µs: how long the CPU may take to wake for a result", backend="htp"
    )
    enable_vtcm_backup_buffer_sharing: bool = flag(
        False, "share the spill-fill and VTCM backup buffers between contexts on the device", backend="htp"
    )
    htp_share_resource_optimization: str = choice(
        "1", "share resources between contexts on the device; only 1 can be given", default="", backend="htp"
    )
    htp_performance_mode: str = choice(PERFORMANCE_MODES, "clocks and sleep of the HTP", backend="htp")
    qnn_saver_path: str = text(
        "library of the Saver backend, e.g. libQnnSaver.so: the calls are recorded into ./saver_output as well"
    )
    qnn_context_priority: str = choice(
        "normal low normal_high high normal_low high_plus critical critical_plus",
        "priority of the context on the device",
        backend="htp",
    )
    backend_extensions: str = text(
        "config file of QNN's tools (or the HTP's own, which it names): its keys act as in qnn-net-run and "
        "qnn-context-binary-generator; options that are given beside it win",
        backend="htp",
    )
    device_id: int = integer(
        0,
        "the device: sessions of one chip with the same id share a simulated one, its memory and its time",
        backend="htp",
    )
    enable_htp_fp16_precision: bool = flag(
        True,
        "compute float32 models in float16",
        "HTP has no float32 math: the htp backend always computes them in float16, as QNN SDK 2.35 and newer do",
    )
    enable_htp_matmul_lut: bool = flag(
        True, "allow the look-up-table MatMul kernel", "a MatMul has the same result here by whatever kernel"
    )
    offload_graph_io_quantization: bool = flag(
        True, "leave Quantize of graph inputs and Dequantize of graph outputs to the CPU; 0 where fallback is disabled"
    )
    enable_htp_shared_memory_allocator: bool = flag(
        False, "let values lie in memory that CPU and HTP share (QnnHtpShared): no copy on the way", backend="htp"
    )
    enable_dx12_shared_memory_allocator: bool = flag(False, "buffers shared with Direct3D 12", _DEVICE)
    op_packages: tuple[str, ...] = texts(
        (),
        r"[^:,]+:(?:[A-Za-z]:[\\/])?[^:,]+:[^:,]+(?::[^:,]+)?",
        "a comma list of <OpType>:<PackagePath>:<InterfaceSymbol>[:<Target>]",
        "op packages to register: a Python file and its OpPackage, or a library built against hexforge_op_package.h",
    )
    dump_json_qnn_graph: bool = flag(False, "write each QNN graph as <graph>.json and <graph>_tensor_log.json")
    json_qnn_graph_dir: str = text(
        "folder for dump_json_qnn_graph; the current one where it is empty", needs="dump_json_qnn_graph"
    )
    dump_qnn_ir_dlc: bool = flag(
        False,
        "write each QNN graph, weights included, as <graph>.qnn: a text that qnn-net-run --model takes; DLC is a "
        "format of Qualcomm's own, which hexforge does not write",
    )
    dump_qnn_ir_dlc_dir: str = text(
        "folder for dump_qnn_ir_dlc; the current one where it is empty", needs="dump_qnn_ir_dlc"
    )
    qnn_ir_backend_path: str = text(
        "library of the ir backend, libQnnIr.so or QnnIr.dll: its name is checked, no library is loaded",
        needs="dump_qnn_ir_dlc",
    )
    skip_backend_op_validation: bool = flag(
        False, "with dump_qnn_ir_dlc: nodes are placed by what QNN has, not by the backend; the session only writes"
    )
    enable_framework_op_trace: bool = flag(False, "write which model node became which QNN op (qnn_op_trace.json)")
    framework_op_trace_dir: str = text(
        "folder for enable_framework_op_trace; the current one where it is empty", needs="enable_framework_op_trace"
    )
    dump_qnn_ep_input_graph: bool = flag(False, "write the graph the provider is asked about")
    dump_qnn_ep_input_graph_dir: str = text(
        "folder for dump_qnn_ep_input_graph; the current one where it is empty", needs="dump_qnn_ep_input_graph"
    )
    skip_qnn_version_check: bool = flag(False, "accept other QNN API versions", "no QNN library is loaded here")
    num_graph_prepare_threads: int | None = integer(
        None, "threads preparing graphs; unset: at most 8", "only used on Windows on Snapdragon", low=1
    )
    disable_file_mapped_weights: bool = flag(
        False, "read the files of context models into memory instead of mapping them"
    )
    enable_htp_prepare_only: bool = flag(
        False, "prepare a context and never run it; needs ep.context_enable", backend="htp"
    )
    enable_htp_prepare_and_load: bool = flag(False, "prepare, serialize and load again in one session", backend="htp")
    enable_htp_graph_splitting: bool = flag(False, "let the HTP split graphs at context creation", _SPLIT)
    htp_graph_splitting_num_prepare_threads: int = integer(
        0xFFFFFFFF, "threads preparing split graphs; the default leaves it to the backend", _SPLIT, high=0xFFFFFFFF
    )
    htp_reused_io_limit_mb: int = integer(
        0, "the most of inputs and outputs, in MB, that a context keeps mapped between runs; 0: all", backend="htp"
    )
    op_affinity: str = text('JSON file that pins op types to a backend: {"op_type": {"Gelu": "CPU"}}')
    enable_htp_cross_device_prepare: bool = flag(
        False,
        "prepare for another device",
        "every context here is prepared for the chip that soc_model names, whatever runs it",
    )
    log_severity_level: int | None = integer(
        None, "the least severe of what the provider logs: 0 (verbose) to 4 (fatal); unset: as logging has it", high=4
    )
    genie_log_level: str = choice("error warn info verbose", "log level of Genie", _GENIE)

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "provider option"

    @classmethod
    def parse(cls, pairs: Mapping[str, str]) -> Self:
        """The options written as key-values; CallError listing every fault at once."""
        if pairs.get("backend_type", "").strip().lower() == "lpai":
            raise CallError(NO_LPAI)
        if pairs.get("backend_type") and pairs.get("backend_path"):
            rest = {k: v for k, v in pairs.items() if k != "backend_type"}
            faults = ["Only one of 'backend_type' and 'backend_path' can be given; leave one out"]
            try:
                cls.parse(rest)
            except CallError as error:
                faults.append(str(error))
            raise CallError("\n".join(faults))
        return super(ProviderOptions, cls).parse(pairs)

    def notes(self, backend: str = "") -> tuple[str, ...]:
        """One line for each option that was set and changes nothing: the backend is the one that they name."""
        return OptionTable.notes(self, backend or registry.effective_backend(self.backend))

    def _effect(self, option: Option) -> str | None:
        idle = option.needs and getattr(self, option.needs) in (False, "off") and self.backend != "ir"
        return option.effect or (f"it is for {option.needs}, which is off" if idle else None)

    def acts(self, name: str) -> bool:
        """True where an option is set and the backend that runs is the one it is for."""
        option = next(o for o in self.table() if o.key == name)
        return bool(getattr(self, name)) and option.backend in ("", registry.effective_backend(self.backend))

    def extensions(self) -> Config | None:
        """The config file that the options name, where the backend that it is for runs; read anew."""
        return load(Path(self.backend_extensions)) if self.acts("backend_extensions") else None

    def affinity(self) -> dict[str, str]:
        """The backend that each op type of the op_affinity file is pinned to, in small letters."""
        if not self.op_affinity:
            return {}
        path = Path(self.op_affinity)
        data = read_json(path)
        rows = data.get("op_type") if isinstance(data, dict) and set(data) == {"op_type"} else None
        if not isinstance(rows, dict) or not all(isinstance(name, str) for name in rows.values()):
            raise CallError(f'op_affinity: {path}: expected {{"op_type": {{"<OpType>": "HTP"}}}}')
        for op, name in rows.items():
            if name.lower() not in registry.QNN_BACKENDS:
                near = did_you_mean(name, [backend.upper() for backend in registry.QNN_BACKENDS])
                raise CallError(f"op_affinity: {path}: {op} is pinned to {name!r}, which is no backend{near}")
        return {op: name.lower() for op, name in rows.items()}

    def settings(self) -> dict[str, str]:
        """The options that the backend itself has, by name, which it is made with."""
        own = {option.key for option in registry.config_class(self.backend).table()}
        return {key: value for key, value in self.pairs().items() if key in own}

    @property
    def dumps(self) -> RequestedDumps:
        """What is to be written of the graphs, and where."""

        def folder(wanted: bool, name: str) -> Path | None:
            return Path(name or ".") if wanted else None

        return RequestedDumps(
            folder(self.dump_json_qnn_graph, self.json_qnn_graph_dir),
            folder(self.enable_framework_op_trace, self.framework_op_trace_dir),
            folder(self.dump_qnn_ep_input_graph, self.dump_qnn_ep_input_graph_dir),
            folder(self.dump_qnn_ir_dlc or self.backend == "ir", self.dump_qnn_ir_dlc_dir),
        )

    @property
    def backend(self) -> str:
        """The backend that backend_path or backend_type names; one that only writes where the target is not asked."""
        if self.dump_qnn_ir_dlc and self.skip_backend_op_validation:
            return "ir"
        return backend_of_library(self.backend_path) if self.backend_path else self.backend_type

    @classmethod
    def _hint(cls, key: str) -> str:
        if key.startswith(("session.", "ep.")):
            return "; it is a session config key: SessionOptions.add_session_config_entry"
        if key.startswith("qnn."):
            return "; it is a run option: RunOptions.add_run_config_entry"
        if key.startswith("log_") and key != "log_severity_level":
            return "; it is an attribute of SessionOptions"
        return ""

    def _conflicts(self) -> list[str]:
        faults = []
        if self.qnn_saver_path and backend_of_library(self.qnn_saver_path, "qnn_saver_path") != "saver":
            faults.append(f"qnn_saver_path is {self.qnn_saver_path!r}: expected libQnnSaver.so or QnnSaver.dll")
        if self.qnn_ir_backend_path and backend_of_library(self.qnn_ir_backend_path, "qnn_ir_backend_path") != "ir":
            faults.append(f"qnn_ir_backend_path is {self.qnn_ir_backend_path!r}: expected libQnnIr.so or QnnIr.dll")
        if self.skip_backend_op_validation and not self.dump_qnn_ir_dlc:
            faults.append("skip_backend_op_validation=1 is for dump_qnn_ir_dlc=1; a session that runs asks its backend")
        if self.profiling_level != "off" and not self.profiling_file_path:
            faults.append(f"profiling_level={self.profiling_level} needs profiling_file_path, the csv file to write")
        try:
            backend = self.backend
            if backend in registry.backends():
                registry.config_class(backend).parse(self.settings())
        except CallError as error:
            return [*faults, str(error)]
        if self.acts("enable_htp_prepare_only") and self.acts("enable_htp_prepare_and_load"):
            faults.append("only one of enable_htp_prepare_only and enable_htp_prepare_and_load can be 1")
        return faults


def backend_of_library(path: str, option: str = "backend_path") -> str:
    """The backend a library file belongs to, by its name on any platform; CallError if none does."""
    file = re.split(r"[\\/]", path)[-1]
    if re.match(r"(?:lib)?qnnlpai", file, re.IGNORECASE):
        raise CallError(NO_LPAI)
    match = _LIBRARY.fullmatch(file)
    if match is None or not re.search(r"qnn|genie", file, re.IGNORECASE):
        names = [b.capitalize() for b in registry.QNN_BACKENDS[:-1]]
        known = [text.format(name) for name in names for text in ("libQnn{}.so", "Qnn{}.dll")]
        raise CallError(
            f"provider option {option!r} is {path!r}: no QNN backend library has that name; expected libQnn<X>.so "
            f"or Qnn<X>.dll with X one of Cpu, Htp, Gpu, Saver, Ir{did_you_mean(file, known)}"
        )
    return match[1].lower()
