# SPDX-License-Identifier: Apache-2.0
"""QnnOptions: the compile spec of a QnnBackend delegate, a flatbuffer of ExecuTorch's qc_compiler_spec.fbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hexforge.errors import FormatError
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable

KEY = "qnn_compile_spec"
BACKENDS = ("undefined", "gpu", "htp", "dsp", "lpai")
PERFORMANCE_MODES = (
    "default", "sustained_high_performance", "burst", "high_performance", "power_saver", "low_power_saver",
    "high_power_saver", "low_balanced", "balanced",
)  # fmt: skip
"""The HTP's performance modes by ExecuTorch's numbers."""
GPU_PRECISIONS = ("fp32", "fp16", "hybrid", "user_provided")
OP_PACKAGE_PLATFORMS = ("unknown", "x86_64", "aarch64_android")
_LEAST = 8


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """What is asked of the gpu backend."""

    precision: str = "fp32"
    use_memory_optimizations: bool = False
    use_node_optimizations: bool = False
    use_queue_recording: bool = False
    use_weight_sharing: bool = False


@dataclass(frozen=True, slots=True)
class OpPackageOption:
    """An op of a package, and where its implementation is."""

    package: str
    path: str
    interface_provider: str
    op_type: str
    """QNN's name of the op."""
    platform: str


@dataclass(frozen=True, slots=True)
class QnnOptions:
    """What a delegate was compiled with."""

    backend: str
    soc_model: int
    """QNN's number of the chip."""
    htp_arch: int = 0
    vtcm_mb: int = 0
    performance_mode: str = "default"
    use_fp16: bool = False
    use_conv_hmx: bool = False
    use_dlbc: bool = False
    use_fold_relu: bool = False
    use_multi_contexts: bool = False
    use_weight_sharing: bool = False
    use_slc_allocator: bool = False
    max_spill_fill_bytes: int = 0
    log_level: int = 0
    online_prepare: bool = False
    dump_intermediate_outputs: bool = False
    profile_level: int = 0
    shared_buffer: bool = False
    is_from_context_binary: bool = False
    saver_folder: str = ""
    """Where calls are recorded instead of compiled; empty where they are compiled."""
    gpu: GpuOptions | None = None
    op_packages: tuple[OpPackageOption, ...] = ()


def read_options(data: memoryview | bytes, where: str) -> QnnOptions:
    """Read the options; FormatError where the bytes are something else."""
    view = memoryview(data)
    if len(view) < _LEAST:
        raise FormatError(f"{where}: the compile spec is {len(view)} bytes, too few", len(view))
    root = Flatbuffer(view, f"{where}: the compile spec").root()
    soc, chosen = root.table(0), root.table(1)
    kind = _named(chosen, 0, BACKENDS, "backend")
    htp_info = soc.table(1) if soc is not None else None
    htp = chosen.table(1) if chosen is not None else None
    mode = htp.integer(1, "i") if htp is not None else 0
    return QnnOptions(
        kind,
        soc.integer(0, "i") if soc is not None else 0,
        htp_arch=htp_info.integer(0, "i") if htp_info is not None else 0,
        vtcm_mb=htp_info.integer(1, "I") if htp_info is not None else 0,
        performance_mode=PERFORMANCE_MODES[mode] if 0 <= mode < len(PERFORMANCE_MODES) else str(mode),
        use_fp16=htp is not None and htp.integer(2, "i") == 1,
        use_conv_hmx=htp is not None and htp.flag(4),
        use_dlbc=htp is not None and htp.flag(5),
        use_fold_relu=htp is not None and htp.flag(6),
        use_multi_contexts=htp is not None and htp.flag(7),
        use_weight_sharing=htp is not None and htp.flag(8),
        use_slc_allocator=htp is not None and htp.flag(9),
        max_spill_fill_bytes=htp.integer(0, "i") if htp is not None else 0,
        log_level=root.integer(3, "i"),
        online_prepare=root.flag(4),
        dump_intermediate_outputs=root.flag(5),
        profile_level=root.integer(6, "i"),
        shared_buffer=root.flag(7),
        is_from_context_binary=root.flag(8),
        saver_folder=(root.text(10) or "") if root.flag(9) else "",
        gpu=_gpu(chosen.table(2) if chosen is not None else None),
        op_packages=_op_packages(root.table(11)),
    )


def _gpu(table: FlatTable | None) -> GpuOptions | None:
    if table is None:
        return None
    return GpuOptions(_named(table, 1, GPU_PRECISIONS, "gpu precision"), *(table.flag(i) for i in range(2, 6)))


def _op_packages(table: FlatTable | None) -> tuple[OpPackageOption, ...]:
    if table is None:
        return ()
    return tuple(map(_op_package, table.tables(0)))


def _op_package(table: FlatTable) -> OpPackageOption:
    package, path, provider, op_type = (table.text(field) or "" for field in (0, 1, 2, 5))
    return OpPackageOption(package, path, provider, op_type, _named(table, 6, OP_PACKAGE_PLATFORMS, "platform"))


def _named(table: FlatTable | None, field: int, names: Sequence[str], what: str) -> str:
    """An enum by its name; the first one where it is absent."""
    number = table.integer(field, "i") if table is not None else 0
    if table is not None and not 0 <= number < len(names):
        raise table.fault(f"names {what} {number}; there are 0 to {len(names) - 1}")
    return names[number]
