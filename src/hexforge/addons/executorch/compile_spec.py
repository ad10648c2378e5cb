# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's compile specs as a backend of hexforge: which one, for which chip, with which options."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

from hexforge.addons.executorch.formats.qnn_options import GpuOptions, OpPackageOption, QnnOptions, read_options
from hexforge.backend import Backend
from hexforge.errors import UnsupportedError
from hexforge.ops.packages import register_op_package
from hexforge.runtime import registry

logger = logging.getLogger("hexforge.addons.executorch")


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
        """What a serialized compile spec asks for; equal specs share a backend."""
        spec = _spec(option)
        if spec.backend not in registry.QNN_BACKENDS:
            raise UnsupportedError(
                f"hexforge has no {spec.backend} backend: it computes and times what the HTP does; "
                "use generate_htp_compiler_spec"
            )
        for package in spec.op_packages:
            _register(package)
        return cls(
            _backend(option),
            weight_sharing=spec.use_weight_sharing or (spec.gpu is not None and spec.gpu.use_weight_sharing),
            tensor_dump=spec.dump_intermediate_outputs,
            online_prepare=spec.online_prepare,
            profile_level=spec.profile_level,
            saver_folder=spec.saver_folder,
        )


@functools.lru_cache(64)
def _spec(option: bytes) -> QnnOptions:
    return read_options(option, "QnnManager")


@functools.lru_cache(64)
def _backend(option: bytes) -> Backend:
    spec = _spec(option)
    return registry.backend(spec.backend, _settings(spec))


def _settings(spec: QnnOptions) -> dict[str, str]:
    """What a compile spec asks of its backend, by the backend's own keys: a field that is on, off, or says a word."""
    asked: QnnOptions | GpuOptions = spec if spec.gpu is None else spec.gpu
    made = {}
    for option in registry.config_class(spec.backend).table():
        if option.compile_spec:
            field = option.compile_spec.removeprefix("not ")
            value = getattr(asked, field)
            made[option.key] = option.write(value if field == option.compile_spec else not value)
    return made


def _register(package: OpPackageOption) -> None:
    """Let an op of a package be one of the table; implementations for phones stay with phones."""
    if package.platform == "aarch64_android":
        logger.info("[hexforge] op package %s: %s is for a phone", package.package, package.path)
        return
    register_op_package(f"{package.op_type}:{package.path}:{package.interface_provider}")
