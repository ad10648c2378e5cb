# SPDX-License-Identifier: Apache-2.0
"""Advice: one idea to make a model faster and what it gains, and all ideas with the model they give."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.analysis.estimate import Estimate
from hexforge.model.reader import Model
from hexforge.results import Key, Result, length, rows

SLOWER = " (no faster by these rough times)"
"""What the title of advice ends with that brings nodes onto the NPU and gains no time."""


@dataclass(frozen=True, slots=True)
class Advice(Result):
    """One idea, and what it gains by itself."""

    rule: str
    title: str
    nodes: tuple[str, ...]
    places: tuple[str, ...]
    """What was found, in words."""
    why: str
    source: str
    how: str
    keeps_function: bool
    before_us: float
    after_us: float
    error: float | None = None
    """Largest difference of the outputs, relative to their range, on random inputs; None where it was not compared."""
    accuracy: bool = False
    """True where it is for the numbers' sake."""
    brings: int = 0
    """Nodes that come from the CPU onto the NPU; then the times are of NPU and CPU together, and rough."""

    described = (
        "rule title",
        Key("gain_us", rounded=3),
        Key("gain_percent", of=lambda advice: 100 * advice.gain, rounded=2),
        Key("before_us", rounded=3),
        Key("after_us", rounded=3),
        "keeps_function error accuracy",
        Key("brings_to_npu", of="brings"),
        Key("rough", of=lambda advice: bool(advice.brings)),
        "nodes places why source how",
    )

    @property
    def gain_us(self) -> float:
        """Time saved for each inference."""
        return self.before_us - self.after_us

    @property
    def gain(self) -> float:
        """The time saved as a part of the whole inference."""
        return self.gain_us / self.before_us if self.before_us else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class AdviceResult(Result):
    """All advice on a model, and the model with what can be applied."""

    model: str
    soc: str
    precision: str
    runtime: str
    before_us: float
    """The latency; where nodes stay on the CPU, NPU and CPU together, which is rough."""
    advice: tuple[Advice, ...]
    """What brings nodes onto the NPU first, then the rest, each ranked by gain."""
    after_us: float
    """The same with every rewrite applied that keeps the function and gains."""
    applied: tuple[str, ...]
    """The rules that made it, in their order."""
    dropped: tuple[tuple[str, str], ...]
    """Rules that gain and were left out, and why."""
    rewritten: Model
    error: float | None
    timed: Estimate
    """The model as it came: its NPU part, its CPU part, and the nodes there."""
    cpu_nodes_after: int = 0
    """Nodes that stay on the CPU with every rewrite applied."""

    described = (
        "model soc precision runtime",
        Key("before_us", rounded=3),
        Key("after_us", rounded=3),
        Key("npu_us", of="timed.npu_us", rounded=3),
        Key("cpu_us_rough", of="timed.cpu_us_rough", rounded=3),
        Key("cpu_nodes", of=length("timed.left_on_cpu")),
        "cpu_nodes_after applied error",
        Key("dropped", of=rows("dropped", "rule why")),
        "advice",
    )
