# SPDX-License-Identifier: Apache-2.0
"""The backends by name, imported on use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from hexforge.backend import Backend, BackendClass, Deploys
from hexforge.errors import CallError, UnsupportedError
from hexforge.options import did_you_mean

DEFAULT = "htp"
"""The backend that runs where none is named, as in the QNN execution provider."""
QNN_BACKENDS = (DEFAULT, "cpu", "gpu", "saver", "ir", "genie")
"""The backends that QNN has."""
BUILT: dict[str, str] = {
    "htp": "hexforge.backends.htp.backend:HtpBackend",
    "cpu": "hexforge.backends.cpu.backend:CpuBackend",
    "gpu": "hexforge.backends.gpu.backend:GpuBackend",
    "ir": "hexforge.backends.ir.backend:IrBackend",
}
"""name -> "module:Class" of every backend that is built; the class is called with its own Config and threads."""
SAVER = "hexforge.backends.saver.backend:SaverBackend"
"""What records the calls of another backend; `saver` alone records those of the default one."""
DEPLOYMENT = "hexforge.backends.htp.deployment:Deployment"
"""What a chip's name stands for."""


def backend(name: str = DEFAULT, settings: Mapping[str, str] | None = None, threads: int = 0) -> Backend:
    """A backend, made with options as its own Config spells them; 0 threads: as many as there are processors."""
    backend_type = backend_class(name)
    opened = backend_type(backend_type.Config.parse(settings or {}), threads)
    return recorded(opened) if name == "saver" else opened


def recorded(inner: Backend) -> Backend:
    """A backend that does what another does, and records it."""
    return cast(Backend, _imported(SAVER)(inner))


def deployed(deployment: Deploys | Backend | str | None = None) -> Backend:
    """The backend for a deployment: one that names it, a chip or several by name, a backend by name, or itself."""
    if isinstance(deployment, str) and deployment in QNN_BACKENDS:
        return backend(deployment)
    if deployment is None or isinstance(deployment, str):
        named = _imported(DEPLOYMENT)
        deployment = cast(Deploys, named() if deployment is None else named(deployment))
    return deployment.backend() if isinstance(deployment, Deploys) else deployment


def running(name: str) -> str:
    """The backend that computes where one is named: `saver` alone records the default one."""
    return DEFAULT if name == "saver" else name


def backend_class(name: str) -> BackendClass:
    """The class of the backend `name`; UnsupportedError for one that QNN has and hexforge does not have yet."""
    name = running(name)  # the options of what is recorded are the options
    if name in BUILT:
        return cast(BackendClass, _imported(BUILT[name]))
    if name in QNN_BACKENDS:
        built = " or ".join(f"backend_type={b}" for b in (*BUILT, "saver"))
        raise UnsupportedError(f"backend {name!r} is not built yet; use {built}")
    raise CallError(f"no backend {name!r}; expected one of {', '.join(QNN_BACKENDS)}{did_you_mean(name, QNN_BACKENDS)}")


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
