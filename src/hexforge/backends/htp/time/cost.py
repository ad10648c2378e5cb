# SPDX-License-Identifier: Apache-2.0
"""Cost: what work takes on a chip. Parameters are physical, with units and bounds; their values are fitted (cost.json).

They hold for the reference chip, Snapdragon 8 Gen 3; a chip is six factors on top. `hexforge.latency` fits
them several times, each time on a part of the model families; the geometric mean is used, and how far the fits differ
says how sure an estimate is (`band`).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.backends.htp.time.mechanisms import BY_COUNT, MECHANISMS
from hexforge.backends.htp.time.tile import Task
from hexforge.chips.soc import SOCS, Soc
from hexforge.errors import CallError, FormatError
from hexforge.timeline import Accelerator

REFERENCE = "SM8650"
BOUND = 8.0
"""How many times less or more than believed a parameter may be."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A quantity of the model: what is believed of it before the fit (`prior`, within a factor `e**spread`)."""

    name: str
    unit: str
    prior: float
    spread: float
    factor: str
    """Which of a chip's factors of time it is multiplied by, "" for none."""
    off: float | None = None
    """What it is where it is a switch that is off; None for what is always on."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The fit does not leave them."""
        return self.prior / BOUND, self.prior * BOUND


def _parameters() -> tuple[Parameter, ...]:
    parameters = [
        Parameter(f"hmx.{rate}", "us per 1e9 MACs", prior, 0.2, "hmx_float" if rate == "float" else "hmx_fixed")
        for rate, prior in RATES.items()
    ]
    for kind, (prior, spread) in MATRIX.items():
        parameters.append(Parameter(f"share.{kind}", "of a dense convolution of as many MACs", prior, spread, ""))
    for kind, prior in VECTOR.items():
        parameters.append(Parameter(f"hvx.{kind}", "us per 1e6 bytes", prior, 0.5, "hvx"))
    for kind, prior in COUNTED.items():
        parameters.append(Parameter(f"hvx.{kind}", "us each", prior, 0.5, "hvx"))
    for m in MECHANISMS:
        parameters.append(
            Parameter(m.name, m.unit, m.prior, m.spread, "hvx" if m.name.startswith("hvx") else "", m.off)
        )
    parameters += [
        Parameter("dram", "us per 1e6 bytes", 20.0, 0.3, "dram"),
        Parameter("task", "us each", 1.0, 0.7, "hvx"),
        Parameter("serial", "of HVX and HMX time in a task that does not overlap, at most 1", 0.8, 0.2, ""),
        Parameter("host.call", "us per inference", 45.0, 0.5, "host"),
        Parameter("host.io", "us per 1e6 elements of input and output", 20.0, 0.7, "host"),
        Parameter("runtime.onnx", "of the time with qnn_dlc", 1.0, 0.1, ""),
        Parameter("runtime.tflite", "of the time with qnn_dlc", 1.0, 0.1, ""),
        Parameter("call.onnx", "of host.call with qnn_dlc", 1.0, 0.3, "onnx"),
        Parameter("call.tflite", "of host.call with qnn_dlc", 1.0, 0.3, ""),
    ]
    return tuple(parameters)


RATES: Mapping[str, float] = {"float": 125.0, "w8a8": 32.0, "w8a16": 65.0}
"""What 1e9 multiply-accumulates of a dense convolution are believed to take."""
MATRIX: Mapping[str, tuple[float, float]] = {
    "pointwise": (1.0, 0.2),
    "depthwise": (1.0, 0.4),
    "product": (1.0, 0.2),
    "conv3d": (1.5, 0.3),
    "grouped": (1.0, 0.4),
}
"""Kinds of matrix work beside the dense convolution, what is believed of them, and how firmly."""
ON_TOP = ("dilation", "large_window")
"""Mechanisms that are more matrix work: on top of a dense convolution, and of a depthwise one."""
VECTOR: Mapping[str, float] = {
    "add": 12, "divide": 80, "lookup": 15, "softmax": 60, "norm": 40, "reduce": 12, "pool": 4, "resize": 20,
    "shuffle": 30, "copy": 5, "stride": 10, "operand": 60,
}  # fmt: skip
"""Kinds of vector work counted in bytes, and what they are believed to cost."""
COUNTED: Mapping[str, float] = {"vector_op": 1.0, "handover": 1.0}
"""Kinds counted in ops; a handover brings a tensor into another layout, or to the matrix unit as an operand."""
ONCE = frozenset((*COUNTED, *BY_COUNT))
"""Kinds whose amount is a count, which more tiles do not make more."""
PRICED_AS: Mapping[str, str] = {"pack": "stride", "cast": "add", "mac": "add"}
"""Kinds told apart in the timeline alone: a shallow image brought into tiles costs as much as a strided one, a change
of precision as much as a sum, multiply-accumulates of a convolution off the matrix unit as so many sums."""
MOVES = frozenset("shuffle copy piece cut split stride border_transpose".split())
FIXED_POINT = frozenset(("divide",))
"""Kinds whose time deviates at fixed point alike for codes of 8 and of 16 bits, beyond the bytes."""
PRODUCTS = ("w8a16",)
"""Rates at which products over tokens may deviate; those of one row and of pixels do not."""
UNDEVIATING = frozenset(("classifier", "linear"))
"""Products that take as long as others at the rate of a convolution."""
PARAMETERS = _parameters()
FACTORS = ("hmx_float", "hmx_fixed", "hvx", "dram", "host", "onnx")
"""What a chip is: its time for each kind of work, relative to the reference chip; `onnx` is its host's time for a call
through that runtime, on top of `host`."""
OTHERS = ("dram", "task", "host.call", "host.io")
"""Parameters that are a kind of work by themselves."""


def group(kind: str) -> str | None:
    """The group of a kind of vector work whose time may deviate with the precision, beyond the bytes."""
    return "lookup" if kind == "lookup" else "move" if kind in MOVES else None


def factors_of(kind: str, rate: str) -> tuple[str, ...]:
    """The parameters whose product one unit of a kind of work takes at a matrix rate."""
    if kind == "conv":
        return (f"hmx.{rate}",)
    if kind in UNDEVIATING:
        return f"hmx.{rate}", "share.product"
    if kind in MATRIX or kind in ON_TOP:
        deviates = kind == "product" and rate in PRODUCTS
        return (f"hmx.{rate}", f"share.{kind}", *((f"deviation.{rate}.product",) if deviates else ()))
    if kind in OTHERS:
        return (kind,)
    kind = PRICED_AS.get(kind, kind)
    if kind in FIXED_POINT and rate != "float":
        return f"hvx.{kind}", f"deviation.fixed.{kind}"
    among = group(kind)
    return (f"hvx.{kind}",) if among is None or rate == "float" else (f"hvx.{kind}", f"deviation.{rate}.{among}")


@dataclass(frozen=True, slots=True)
class Costs:
    """Parameters of one chip, by name, in microseconds."""

    soc: Soc
    values: Mapping[str, float]
    provenance: str
    """fitted: the chip was measured; assumed: it stands on another chip's factors."""
    members: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What each fit of the bag has for a parameter, relative to the value here, which is their geometric mean."""
    _units: dict[tuple[str, str], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def vtcm_bytes(self) -> int:
        """The chip's vector memory."""
        return self.soc.vtcm_mb << 20

    def slowed(self, factors: Mapping[str, float]) -> Costs:
        """The same chip with factors of time (FACTORS), 1 where none is given."""
        return replace(self, values=scaled(self.values, {**dict.fromkeys(FACTORS, 1.0), **factors}))

    def unit_us(self, kind: str, rate: str) -> float:
        """Time of one unit of a kind of work."""
        known = self._units.get((kind, rate))
        if known is None:
            known = self._units[kind, rate] = math.prod(self.values[name] for name in factors_of(kind, rate))
        return known

    def hmx_us(self, task: Task) -> float:
        """Time of the matrix unit."""
        return sum(self.unit_us(kind, task.precision.rate) * n for kind, n in task.hmx.items())

    def hvx_us(self, task: Task) -> float:
        """Time of the vector units."""
        return sum(self.unit_us(kind, task.precision.rate) * n for kind, n in task.hvx.items())

    def dram_us(self, size: float) -> float:
        """Time to move bytes to or from DRAM."""
        return self.values["dram"] * size / 1e6

    def host_us(self, elements: int, runtime: str) -> float:
        """Time of a call on the host's side: RPC and that many elements of input and output."""
        call = self.values["host.call"] * self.values.get(f"call.{runtime}", 1.0)
        return call + self.values["host.io"] * elements / 1e6

    def runtime(self, name: str) -> float:
        """Time with a runtime relative to qnn_dlc."""
        return self.values.get(f"runtime.{name}", 1.0)

    def member_ratio(self, kind: str, rate: str) -> np.ndarray:
        """What each fit of the bag says of a kind of work, relative to the value that is used."""
        ratio = np.ones(1)
        for name in factors_of(kind, rate):
            ratio = ratio * self.members.get(name, np.ones(1))
        return ratio


def accelerator(soc: Soc) -> Accelerator:
    """What models that run on a chip at the same time share."""
    known = costs(soc)
    return Accelerator(soc.vtcm_mb << 20, known.dram_us(1 << 20), known.provenance)


FILE_PARTS = ("parameters", "chips", "support", "profile_kinds", "profiles", "band")
"""What a file of costs has."""


@functools.lru_cache(32)
def fitted(cost_file: str = "") -> dict[str, Any]:
    """What a file of costs holds, cost.json where none is named: fits of a bag, their mean, and their errors."""
    shipped = files("hexforge.backends.htp.time") / "cost.json"
    contents: Any = None
    try:
        contents = json.loads(Path(cost_file).read_bytes() if cost_file else shipped.read_bytes())
    except (OSError, ValueError) as error:
        raise FormatError(
            f"{cost_file}: is no file of costs ({error}); python -m hexforge.latency writes one"
        ) from None
    missing = [name for name in FILE_PARTS if name not in contents]
    missing += [p.name for p in PARAMETERS if not missing and p.name not in contents["parameters"]]
    if missing:
        raise FormatError(f"{cost_file}: has no {missing[0]}; python -m hexforge.latency writes files of costs")
    return dict(contents)


def costs(soc: Soc, fit: Mapping[str, Any] | None = None) -> Costs:
    """The costs of a chip; one that was not measured stands on the nearest that was: architecture, memory, floats.

    Its transfers take as much longer as the peak of its memory is lower.
    """
    return fitted_costs(soc) if fit is None else _costs(soc, fit)


@functools.lru_cache(256)
def fitted_costs(soc: Soc, cost_file: str = "") -> Costs:
    """The costs of a chip by a file of them, hexforge's own where none is named."""
    return _costs(soc, fitted(cost_file))


def _costs(soc: Soc, fit: Mapping[str, Any]) -> Costs:
    factors, like = chip_factors(soc, fit)
    provenance = "fitted" if like is soc else f"assumed as {like.name}"
    return Costs(soc, scaled(fit["parameters"], factors), provenance, _members(fit))


def chip_factors(soc: Soc, fit: Mapping[str, Any]) -> tuple[dict[str, float], Soc]:
    """A chip's factors of time in a file of costs, and the chip that they are of where it was not measured itself."""
    chips: Mapping[str, Mapping[str, float]] = fit["chips"]
    if soc.name in chips:
        return dict(chips[soc.name]), soc
    like = nearest(soc, [s for s in SOCS if s.name in chips])
    return {**chips[like.name], "dram": chips[like.name]["dram"] * like.dram_gbps / soc.dram_gbps}, like


def nearest(soc: Soc, measured: Sequence[Soc]) -> Soc:
    """Of the chips that were measured, the one most like a chip."""
    if not measured:
        raise CallError(f"{soc.name}: no chip was measured to stand on; fit the costs (python -m hexforge.latency)")

    def unlike(other: Soc) -> tuple[object, ...]:
        away = abs(other.htp_arch - soc.htp_arch), abs(other.dram_gbps - soc.dram_gbps)
        return (*away, other.float16 != soc.float16, other.name)

    return min(measured, key=unlike)


def _members(fit: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """For each parameter what the fits of the bag have, relative to their mean."""
    each = {name: np.asarray(values) for name, values in fit.get("members", {}).items()}
    return {name: values / np.exp(np.log(values).mean()) for name, values in each.items()}


def scaled(values: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    """The reference chip's parameters with a chip's factors of time."""
    return {p.name: values[p.name] * (factors[p.factor] if p.factor else 1.0) for p in PARAMETERS}
