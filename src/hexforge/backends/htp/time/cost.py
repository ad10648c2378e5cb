"""Cost: what work takes on a chip. Parameters are physical, with units and bounds; their values are fitted (cost.json).

They hold for the reference chip, Snapdragon 8 Gen 3; a chip is seven factors on top. `benchmarks/fit_latency.py`
writes cost.json from the measured latencies, with the error left on model families that were held out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from hexforge.backends.htp.chip.soc import SOCS, Soc
from hexforge.backends.htp.time.tile import Task
from hexforge.errors import CallError

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

    @property
    def bounds(self) -> tuple[float, float]:
        """The fit does not leave them."""
        return self.prior / BOUND, self.prior * BOUND


def _parameters() -> tuple[Parameter, ...]:
    rates = {"float": 125.0, "w8a8": 32.0, "w8a16": 65.0}
    found = [
        Parameter(f"hmx.{name}", "us per 1e9 MACs", v, 0.2, "hmx_float" if name == "float" else "hmx_fixed")
        for name, v in rates.items()
    ]
    shares = {  # time relative to a dense convolution of as many padded MACs; the last three come on top
        "conv": (1.0, 0.01),
        "pointwise": (1.0, 0.2),
        "grouped": (1.0, 0.3),
        "depthwise": (1.0, 0.4),
        "fully_connected": (1.0, 0.2),
        "matmul": (1.5, 0.4),
        "dilation": (0.5, 0.7),
        "odd_rows": (0.3, 0.7),
        "readout": (0.05, 0.7),
    }
    for kind, (prior, spread) in shares.items():
        unit = "1e3 MACs per output element" if kind == "readout" else "of a dense convolution"
        found.append(Parameter(f"share.{kind}", unit, prior, spread, ""))
    for kind, prior in VECTOR.items():
        found.append(Parameter(f"hvx.{kind}", "us per 1e6 padded bytes", prior, 0.5, "hvx"))
    for kind, prior in COUNTED.items():
        unit = "us per 1e6 elements" if kind == "border_transpose" else "us each"
        found.append(Parameter(f"hvx.{kind}", unit, prior, 0.5, "hvx"))
    for name in rates:
        for group in ("arithmetic", "move", "function"):
            # sums and exponentials of 8-bit elements are computed as wide as those of 16-bit ones
            believed = 2.0 if (name, group) == ("w8a8", "function") else 1.0
            found.append(Parameter(f"hvx_{name}.{group}", "of the time for as many bytes", believed, 0.25, ""))
    found += [
        Parameter("dram", "us per 1e6 bytes", 20.0, 0.3, "dram"),
        Parameter("task", "us each", 1.0, 0.7, "hvx"),
        Parameter("serial", "of HVX and HMX time in a task that does not overlap, at most 1", 0.8, 0.2, ""),
        Parameter("host.call", "us per inference", 45.0, 0.5, "host"),
        Parameter("host.io", "us per 1e6 elements of input and output", 20.0, 0.7, "host"),
        Parameter("runtime.onnx", "of the time with qnn_dlc", 1.0, 0.1, ""),
        Parameter("runtime.tflite", "of the time with qnn_dlc", 1.0, 0.1, ""),
        Parameter("call.onnx", "of host.call with qnn_dlc", 1.0, 0.3, "call_onnx"),
        Parameter("call.tflite", "of host.call with qnn_dlc", 1.0, 0.3, "call_tflite"),
    ]
    return tuple(found)


VECTOR: Mapping[str, float] = {
    "add": 15, "affine": 12, "chain": 4, "divide": 80, "lookup": 15, "softmax": 60, "norm": 40, "reduce": 12,
    "pool": 4, "resize": 20, "transpose": 20, "reshape": 12, "concat": 4, "gather": 12, "slice": 10,
    "depth_to_space": 12, "argmax": 20, "cast": 15, "prelu": 20, "border": 8, "stride": 10, "pack": 8, "operand": 12,
    "blocks": 4,
}  # fmt: skip
"""Kinds of vector work counted in bytes, and what they are believed to cost."""
COUNTED: Mapping[str, float] = {"border_transpose": 100, "vector_op": 1, "matrix_op": 2, "move_op": 1}
MOVES = frozenset("transpose reshape concat gather slice depth_to_space stride pack operand border blocks".split())
FUNCTIONS = frozenset(("softmax", "norm"))
PARAMETERS = _parameters()
TIMES = ("hmx_float", "hmx_fixed", "hvx", "dram", "host")
FACTORS = (*TIMES, "call_onnx", "call_tflite")
"""What a chip is: its time for each kind of work, relative to the reference chip, and for a call by its runtimes."""


def group(kind: str) -> str | None:
    """The group of a kind of vector work whose time depends on the precision beyond the bytes."""
    if kind in COUNTED:
        return None
    return "move" if kind in MOVES else "function" if kind in FUNCTIONS else "arithmetic"


@dataclass(frozen=True, slots=True)
class Costs:
    """Parameters of one chip, by name, in microseconds."""

    soc: Soc
    values: Mapping[str, float]
    provenance: str
    """fitted: the chip was measured; assumed: it stands on another chip's factors."""

    @property
    def vtcm_bytes(self) -> int:
        """The chip's vector memory."""
        return self.soc.vtcm_mb << 20

    def slowed(self, factors: Mapping[str, float]) -> Costs:
        """The same chip with factors of time (FACTORS), 1 where none is given."""
        return replace(self, values=scaled(self.values, {**dict.fromkeys(FACTORS, 1.0), **factors}))

    def hmx_us(self, task: Task) -> float:
        """Time of the matrix unit."""
        v = self.values
        return v[f"hmx.{task.precision.rate}"] * sum(v[f"share.{k}"] * n for k, n in task.hmx.items())

    def hvx_us(self, task: Task) -> float:
        """Time of the vector units."""
        return sum(self.vector_us(kind, task.precision.rate) * n for kind, n in task.hvx.items())

    def vector_us(self, kind: str, rate: str) -> float:
        """Time of one unit of a kind of vector work."""
        found = group(kind)
        return self.values[f"hvx.{kind}"] * (1.0 if found is None else self.values[f"hvx_{rate}.{found}"])

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


@functools.cache
def fitted() -> dict[str, Any]:
    """What cost.json holds: parameters, chips, the error on held-out families."""
    found: dict[str, Any] = json.loads((files("hexforge.backends.htp.time") / "cost.json").read_text())
    return found


def costs(soc: Soc, data: Mapping[str, Any] | None = None) -> Costs:
    """The costs of a chip; one that was not measured stands on the nearest that was: architecture, then memory.

    Its transfers take as much longer as the peak of its memory is lower.
    """
    data = fitted() if data is None else data
    chips: Mapping[str, Mapping[str, float]] = data["chips"]
    if soc.name in chips:
        return Costs(soc, scaled(data["parameters"], chips[soc.name]), "fitted")
    measured = [s for s in SOCS if s.name in chips]
    if not measured:
        raise CallError(f"{soc.name}: no chip was measured to stand on; fit the costs (benchmarks/fit_latency.py)")
    like = min(measured, key=lambda s: (abs(s.htp_arch - soc.htp_arch), abs(s.dram_gbps - soc.dram_gbps), s.name))
    factors = {**chips[like.name], "dram": chips[like.name]["dram"] * like.dram_gbps / soc.dram_gbps}
    return Costs(soc, scaled(data["parameters"], factors), f"assumed as {like.name}")


def scaled(values: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    """The reference chip's parameters with a chip's factors of time."""
    return {p.name: values[p.name] * (factors[p.factor] if p.factor else 1.0) for p in PARAMETERS}
