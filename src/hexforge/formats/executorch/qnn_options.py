# SPDX-License-Identifier: Apache-2.0
"""QnnOptions: the compile spec of a QnnBackend delegate, a flatbuffer of ExecuTorch's qc_compiler_spec.fbs."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.errors import FormatError
from hexforge.formats.executorch.flatbuffer import Flatbuffer

KEY = "qnn_compile_spec"
BACKENDS = ("undefined", "gpu", "htp", "dsp", "lpai")
PERFORMANCE_MODES = (
    "default", "sustained_high_performance", "burst", "high_performance", "power_saver", "low_power_saver",
    "high_power_saver", "low_balanced", "balanced",
)  # fmt: skip
"""The HTP's performance modes by ExecuTorch's numbers."""
_LEAST = 8


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
    use_dlbc: bool = False
    use_fold_relu: bool = False
    use_multi_contexts: bool = False
    use_weight_sharing: bool = False
    max_spill_fill_bytes: int = 0
    log_level: int = 0
    online_prepare: bool = False
    dump_intermediate_outputs: bool = False
    profile_level: int = 0
    shared_buffer: bool = False
    is_from_context_binary: bool = False


def read_options(data: memoryview | bytes, where: str) -> QnnOptions:
    """Read the options; FormatError where the bytes are something else."""
    view = memoryview(data)
    if len(view) < _LEAST:
        raise FormatError(f"{where}: the compile spec is {len(view)} bytes, too few", len(view))
    root = Flatbuffer(view, f"{where}: the compile spec").root()
    soc, chosen = root.table(0), root.table(1)
    kind = chosen.integer(0, "i") if chosen is not None else 0
    if not 0 <= kind < len(BACKENDS):
        raise FormatError(f"{where}: the compile spec names backend {kind}; there are 0 to {len(BACKENDS) - 1}")
    htp_info = soc.table(1) if soc is not None else None
    htp = chosen.table(1) if chosen is not None else None
    mode = htp.integer(1, "i") if htp is not None else 0
    return QnnOptions(
        BACKENDS[kind],
        soc.integer(0, "i") if soc is not None else 0,
        htp_arch=htp_info.integer(0, "i") if htp_info is not None else 0,
        vtcm_mb=htp_info.integer(1, "I") if htp_info is not None else 0,
        performance_mode=PERFORMANCE_MODES[mode] if 0 <= mode < len(PERFORMANCE_MODES) else str(mode),
        use_fp16=htp is not None and htp.integer(2, "i") == 1,
        use_dlbc=htp is not None and htp.flag(5),
        use_fold_relu=htp is not None and htp.flag(6),
        use_multi_contexts=htp is not None and htp.flag(7),
        use_weight_sharing=htp is not None and htp.flag(8),
        max_spill_fill_bytes=htp.integer(0, "i") if htp is not None else 0,
        log_level=root.integer(3, "i"),
        online_prepare=root.flag(4),
        dump_intermediate_outputs=root.flag(5),
        profile_level=root.integer(6, "i"),
        shared_buffer=root.flag(7),
        is_from_context_binary=root.flag(8),
    )
