# SPDX-License-Identifier: Apache-2.0
"""The backends by name, imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from hexforge.addon import Hook, addons, hook, import_target
from hexforge.backend import Backend, TimedBackend
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, UnsupportedError
from hexforge.options import OptionTable, did_you_mean

DEFAULT = "htp"
"""The backend that runs where none is named, as in the QNN execution provider."""
QNN_BACKENDS = (DEFAULT, "cpu", "gpu", "saver", "ir", "genie")
"""The backends that QNN has."""
_CORE: dict[str, str | type[Backend]] = {
    "htp": "hexforge.backends.htp.backend:HtpBackend",
    "cpu": "hexforge.backends.cpu:CpuBackend",
    "ir": "hexforge.backends.ir:IrBackend",
}
_REGISTERED: dict[str, str | type[Backend]] = {}
_CORE_OPTIONS = {"htp": "hexforge.chips.htp_config:HtpConfig"}


def backends() -> dict[str, str | type[Backend]]:
    """Name -> "module:Class" of every backend: the core's, those of add-ons, and those that this program registered.

    The class is called with its own Config and threads.
    """
    added = {name: target for addon in addons() for name, target in addon.backends.items()}
    return _CORE | added | _REGISTERED


def backend_options() -> dict[str, str]:
    """Name -> "module:Class" of the options of every backend that has some, which are read without the backend."""
    return _CORE_OPTIONS | {name: target for addon in addons() for name, target in addon.backend_options.items()}


def backend(name: str = DEFAULT, settings: Mapping[str, str] | None = None, threads: int = 0) -> Backend:
    """A backend, made with options as its own Config spells them; 0 threads: as many as there are processors."""
    backend_type = backend_class(name)
    opened = backend_type(backend_type.Config.parse(settings or {}), threads)
    return with_recorder(opened) if name == "saver" else opened


def with_recorder(inner: Backend, folder: Path | None = None) -> Backend:
    """A backend that does what another does, and records it: in a folder, or where its environment says."""
    return cast(Backend, hook(Hook.RECORD_CALLS)(inner, folder))


def backend_for(deployment: Deployment | Backend | str | None = None, threads: int = 0) -> Backend:
    """The backend for a deployment: one that describes it, a chip or several by name, a backend by name, or itself."""
    if isinstance(deployment, str) and deployment in (*QNN_BACKENDS, *added_backends()):
        return backend(deployment, threads=threads)
    if deployment is None or isinstance(deployment, str):
        deployment = Deployment() if deployment is None else Deployment(deployment)
    if not isinstance(deployment, Deployment):
        return deployment
    return backend_class(deployment.backend).for_deployment(deployment, threads)


def timed_backend(deployment: Deployment) -> TimedBackend:
    """The backend for a deployment to one known chip, which times."""
    made = backend_for(deployment)
    if not isinstance(made, TimedBackend):
        raise UnsupportedError(f"the {made.name} backend does not say how long a graph takes; use {DEFAULT}")
    made.require_chip(deployment.soc)
    return made


def register_backend(name: str, backend: type[Backend]) -> None:
    """Let sessions, contexts, deployments and commands have a backend of one's own by a name that no other has."""
    if name in (*QNN_BACKENDS, *added_backends()):
        raise CallError(f"there is a backend {name!r} already; give this one another name")
    _REGISTERED[name] = backend


def added_backends() -> tuple[str, ...]:
    """The backends that QNN does not have: of add-ons, and registered ones."""
    return tuple(name for name in backends() if name not in QNN_BACKENDS)


def effective_backend(name: str) -> str:
    """The backend that computes where one is named: `saver` alone records the default one."""
    return DEFAULT if name == "saver" else name


def backend_class(name: str) -> type[Backend]:
    """The class of the backend `name`; UnsupportedError for one that QNN has and hexforge does not have yet."""
    name = effective_backend(name)  # the options of what is recorded are the options
    if known := backends().get(name):
        return cast(type[Backend], import_target(known)) if isinstance(known, str) else known
    if name in QNN_BACKENDS:
        built = " or ".join(f"backend_type={b}" for b in (*backends(), "saver"))
        raise UnsupportedError(f"backend {name!r} is not built yet; use {built}")
    names = (*QNN_BACKENDS, *added_backends())
    raise CallError(f"no backend {name!r}; expected one of {', '.join(names)}{did_you_mean(name, names)}")


def config_class(name: str) -> type[OptionTable]:
    """The table of the options of the backend `name`, without importing the backend."""
    name = effective_backend(name)
    if name not in QNN_BACKENDS:
        return backend_class(name).Config
    target = backend_options().get(name)
    return OptionTable if target is None else cast(type[OptionTable], import_target(target))
