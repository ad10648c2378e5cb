# SPDX-License-Identifier: Apache-2.0
"""VendorEngine: Qualcomm's package as what runs a model, wherever hexforge's own backends can be named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.vendor.process import DEFAULT_LIMITS, ProcessLimits, VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorSession
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.cli.runnable import Runnable
    from hexforge.runtime.model_request import ModelRequest

VENDOR = "vendor"
"""The name that stands for the package beside those of backends."""


@dataclass(frozen=True, slots=True)
class VendorEngine:
    """The package on a chip; each model that is opened has a process of its own, which goes with what runs it."""

    soc: str = DEFAULT_SOC
    provider_options: Mapping[str, str] = field(default_factory=dict)
    limits: ProcessLimits = DEFAULT_LIMITS

    def __str__(self) -> str:
        return VENDOR

    def open_session(self, model: Path | bytes, name: str = "") -> VendorSession:
        """A session of the package with a process of its own."""
        options = VendorOptions(self.soc, self.provider_options)
        return VendorSession(VendorProcess(limits=self.limits), model, options, name)

    def open_runnable(self, path: Path, request: ModelRequest) -> Runnable:
        """A model in the package, for the command line."""
        from hexforge.addons.vendor.commands import placed_model

        return placed_model.open_runnable(path, self, request)

    def print_check(self, model: Path, request: ModelRequest, as_json: bool, strict: bool) -> None:
        """Print where the package places each node, beside hexforge's rules."""
        from hexforge.addons.vendor.commands import placed_model

        placed_model.print_check(model, self, request, as_json, strict)

    def open_engine(self, model: Path | bytes, name: str) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        """What runs a model on the package's emulator, or its NPU."""
        return self.open_session(model, name).run
