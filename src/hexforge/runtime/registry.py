"""The backends by name, imported on use."""

from __future__ import annotations

import importlib
from typing import cast

from hexforge.backend import Backend, BackendFactory
from hexforge.errors import CallError, UnsupportedError
from hexforge.options import BACKENDS, ProviderOptions, did_you_mean

BUILT: dict[str, str] = {
    "htp": "hexforge.backends.htp.backend:HtpBackend",
    "cpu": "hexforge.backends.cpu.backend:CpuBackend",
}
"""name -> "module:Class" of every backend that is built; the class is called with the ProviderOptions."""


def backend(options: ProviderOptions, threads: int = 0) -> Backend:
    """The backend that the options name; 0 threads: as many as the process has processors."""
    return factory(options.backend)(options, threads)


def factory(name: str) -> BackendFactory:
    """What makes the backend `name`; UnsupportedError for one that QNN has and hexforge does not have yet."""
    if name in BUILT:
        module, _, attribute = BUILT[name].partition(":")
        return cast(BackendFactory, getattr(importlib.import_module(module), attribute))
    if name in BACKENDS:
        built = " or ".join(f"backend_type={b}" for b in BUILT)
        raise UnsupportedError(f"backend {name!r} is not built yet; use {built}")
    raise CallError(f"no backend {name!r}; expected one of {', '.join(BACKENDS)}{did_you_mean(name, BACKENDS)}")
