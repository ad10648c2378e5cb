# SPDX-License-Identifier: Apache-2.0
"""Deployment: a chip, and how a model is brought to it: what estimates, advice, searches and contexts are for.

It is plain data; `runtime.registry.backend_for` makes the backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import Power
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.errors import CallError

AS_IS = "as-is"
"""Each node at the precision of its own types: a QDQ model, or float."""
PRECISIONS = ("float", "w8a8", "w8a16", "w4a16", "w16a16")
"""The others, which the math of a whole graph has."""

RUNTIMES = ("qnn_dlc", "onnx", "tflite")
"""Paths to the device. dlc and tflite graphs take and give images channel-last; onnx graphs transpose them."""


SCALED = ("channel", "block")
"""How a recipe says that weights are scaled, behind the precision; it changes no time."""


def known_precision(name: str) -> str:
    """The precision that a name, or a recipe such as w8a8_channel, computes in; CallError for another."""
    word = {"fp16": "float"}.get(name, name).partition("+")[0]
    stem, _, scaled = word.partition("_")
    if stem in PRECISIONS and stem != "float" and scaled.partition("[")[0] in SCALED:
        return stem
    name = word if word in PRECISIONS else name
    if name not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise CallError(f"precision {name!r} is not known; it is one of {known}, or as-is: by the model's own types")
    return name


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where and how a model runs."""

    soc: str = DEFAULT_SOC
    """A chip by name or number; for a context also a comma list of them."""
    precision: str = AS_IS
    """float, w8a8, w8a16, w4a16, w16a16, or as-is: each node at the precision of its own types. A recipe, such as
    w8a8_channel, is the precision that it computes in."""
    runtime: str = "qnn_dlc"
    """The path to the device: qnn_dlc, onnx or tflite."""
    config: GraphConfig = field(default_factory=GraphConfig)
    power: Power = field(default_factory=Power)
    backend: str = "htp"
    """The backend that runs there, by name."""
    cost_file: str = ""
    """Costs that times are estimated with: a file that `python -m hexforge.latency --out FILE` wrote, for measurements
    of one's own; hexforge's costs where none is named."""

    def __post_init__(self) -> None:
        if not isinstance(self.config, GraphConfig) or not isinstance(self.power, Power):
            raise CallError(
                "config is a hexforge.GraphConfig and power a hexforge.Power, with the options as their fields"
            )
        if self.precision != AS_IS:
            object.__setattr__(self, "precision", known_precision(self.precision))
        if not isinstance(self.soc, str):
            raise CallError(f"soc is a {type(self.soc).__name__}; name a chip, e.g. {DEFAULT_SOC!r}")

    @classmethod
    def of(cls, given: Deployment | str) -> Deployment:
        """A deployment, which the name of a chip stands for."""
        return given if isinstance(given, Deployment) else cls(given)

    def on(self, soc: str) -> Deployment:
        """The same on another chip."""
        return replace(self, soc=soc)

    @property
    def driven(self) -> Power:
        """The power with what its runtime asks for where nothing is given."""
        return self.power.through(self.runtime)

    @property
    def quantizes_floats(self) -> bool:
        """Whether the floats of a model stand for the integers that they will be."""
        return self.precision not in (AS_IS, "float")
