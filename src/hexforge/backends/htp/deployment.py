# SPDX-License-Identifier: Apache-2.0
"""Deployment: a chip, and how a model is brought to it: what estimates, advice, searches and contexts are for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.chip import soc as chips
from hexforge.backends.htp.chip.power import Power
from hexforge.backends.htp.chip.soc import DEFAULT_SOC as DEFAULT_SOC
from hexforge.backends.htp.config import GraphConfig, HtpConfig
from hexforge.backends.htp.timing import AS_IS
from hexforge.errors import CallError


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where and how a model runs."""

    soc: str = DEFAULT_SOC
    """A chip by name or number; for a context also a comma list of them."""
    precision: str = AS_IS
    """float, w8a8, w8a16, w4a16, or as-is: each node at the precision of its own types."""
    runtime: str = "qnn_dlc"
    """The path to the device: qnn_dlc, onnx or tflite."""
    config: GraphConfig = field(default_factory=GraphConfig)
    power: Power = field(default_factory=Power)

    def __post_init__(self) -> None:
        if not isinstance(self.config, GraphConfig) or not isinstance(self.power, Power):
            raise CallError(
                "config is a hexforge.GraphConfig and power a hexforge.Power, with the options as their fields"
            )
        if not isinstance(self.soc, str):
            raise CallError(f"soc is a {type(self.soc).__name__}; name a chip, e.g. {DEFAULT_SOC!r}")

    @classmethod
    def of(cls, given: Deployment | str) -> Deployment:
        """A deployment, which the name of a chip stands for."""
        return given if isinstance(given, Deployment) else cls(given)

    def on(self, soc: str) -> Deployment:
        """The same on another chip."""
        return replace(self, soc=soc)

    def timed_backend(self) -> HtpBackend:
        """The backend for one known chip, which times."""
        backend = self.backend()
        if len(backend.config.soc_model) > 1:
            raise CallError(f"{self.soc}: an estimate is for one chip; give one of them")
        chips.named(self.soc)
        return backend

    def backend(self, threads: int = 0) -> HtpBackend:
        """The backend that places, times and compiles for it.

        At another precision than the model's own, floats stand for the integers that they will be.
        """
        promised = self.precision not in (AS_IS, "float")
        config = HtpConfig.of(self.soc, self.config)
        return HtpBackend(config, threads, power=self.power, floats_are_promised=promised)
