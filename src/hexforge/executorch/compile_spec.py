# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's compile specs as a backend of hexforge: which one, for which chip, with which options."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from hexforge.backend import Backend
from hexforge.errors import UnsupportedError
from hexforge.ops.packages import register_op_package
from hexforge.runtime import registry

logger = logging.getLogger("hexforge.executorch")
_GPU_PRECISIONS = ("fp32", "fp16", "hybrid", "user_provided")
"""What ExecuTorch numbers as QnnExecuTorchGpuPrecision."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What a compile spec asks for."""

    backend: Backend
    weight_sharing: bool = False
    tensor_dump: bool = False
    online_prepare: bool = False
    profile_level: int = 0
    saver_folder: str = ""
    """Where the graphs are recorded instead of compiled; empty where they are compiled."""

    @classmethod
    def read(cls, option: bytes) -> CompileRequest:
        """What a serialized compile spec asks for."""
        from executorch.backends.qualcomm.serialization.qc_schema_serialize import flatbuffer_to_option

        spec = flatbuffer_to_option(option)
        chosen = spec.backend_options
        kind = str(chosen.backend_type)
        if chosen.lpai_options is not None or kind not in registry.QNN_BACKENDS:
            raise UnsupportedError(
                f"hexforge has no {kind} backend: it computes and times what the HTP does; "
                "use generate_htp_compiler_spec"
            )
        options, own, gpu = {}, chosen.htp_options, chosen.gpu_options
        if gpu is not None:
            options = {
                "gpu_precision": _GPU_PRECISIONS[int(gpu.precision)],
                "gpu_use_memory_optimizations": str(int(gpu.use_memory_optimizations)),
                "gpu_use_node_optimizations": str(int(gpu.use_node_optimizations)),
                "gpu_use_queue_recording": str(int(gpu.use_queue_recording)),
                "gpu_use_weight_sharing": str(int(gpu.use_weight_sharing)),
            }
        elif own is not None:
            options = {
                "soc_model": str(int(spec.soc_info.soc_model)),
                "fold_relu_activation_into_conv_off": str(int(not own.use_fold_relu)),
                "exact_relu": "1",
                "dlbc": str(int(own.use_dlbc)),
                "slc_alloc_enable": str(int(own.use_slc_allocator)),
            }
        sharing: Any = own if own is not None else gpu
        for info in spec.op_package_options.op_package_infos:
            _register(info)
        return cls(
            registry.backend(kind, options),
            weight_sharing=bool(sharing is not None and sharing.use_weight_sharing),
            tensor_dump=spec.dump_intermediate_outputs,
            online_prepare=spec.online_prepare,
            profile_level=int(spec.profile_level),
            saver_folder=spec.saver_output_dir if spec.saver else "",
        )


def _register(info: Any) -> None:
    """Let an op of a package be one of the table; implementations for phones stay with phones."""
    if info.platform.name == "AARCH64_ANDROID":
        logger.info("[hexforge] op package %s: %s is for a phone", info.op_package_name, info.op_package_path)
        return
    register_op_package(f"{info.qnn_op_type_name}:{info.op_package_path}:{info.interface_provider}")
