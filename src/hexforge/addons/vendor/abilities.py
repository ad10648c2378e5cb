# SPDX-License-Identifier: Apache-2.0
"""Abilities: what the installed package can do, or why there is none and what would work."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.addons.vendor.package import PACKAGE, WANTED, find_package, require_package
from hexforge.addons.vendor.process import ProcessLimits, VendorProcess
from hexforge.errors import PackageError
from hexforge.results import Key, Result
from hexforge.runtime import registry

_STARTING = ProcessLimits(seconds=120.0)


def _if_known(name: str) -> Key:
    return Key(name, of=lambda found: getattr(found, name) or None)


@dataclass(frozen=True, slots=True)
class VendorAbilities(Result):
    """The installed package and what it can do; `reason` says why it cannot be used."""

    python: str = ""
    version: str = ""
    onnxruntime: str = ""
    backends: tuple[str, ...] = ()
    """Its backend libraries that are there."""
    devices: tuple[str, ...] = ()
    """Kinds of devices that it offers here; CPU alone: it emulates."""
    reason: str = ""

    described = (
        Key("package", of=lambda found: PACKAGE),
        Key("wanted", of=lambda found: WANTED),
        "usable",
        *map(_if_known, ("reason", "python", "version", "onnxruntime")),
        "backends devices",
        Key("compiles_contexts", of=lambda found: found.usable and registry.DEFAULT in found.backends),
        "emulates",
    )

    @property
    def usable(self) -> bool:
        """True where contexts can be made and run."""
        return not self.reason

    @property
    def emulates(self) -> bool:
        """True where there is no NPU here, so that its results come from its emulator."""
        return self.usable and "NPU" not in self.devices


def vendor_abilities() -> VendorAbilities:
    """What is installed and what it can do; no error where nothing is."""
    try:
        package = find_package()
    except PackageError as error:
        return VendorAbilities(reason=str(error))
    python, version, onnxruntime = (
        ("", "", "") if package is None else (str(package.python), package.version, package.onnxruntime)
    )
    try:
        with VendorProcess(require_package(), _STARTING) as process:
            said = process.ask("about", PACKAGE)
    except PackageError as error:
        return VendorAbilities(python, version, onnxruntime, reason=str(error))
    backends = tuple(name for name, there in said["backends"].items() if there)
    return VendorAbilities(python, version, onnxruntime, backends, tuple(said["devices"]))
