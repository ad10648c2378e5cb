# SPDX-License-Identifier: Apache-2.0
"""Advice: one idea to make a model faster and what it gains, and all ideas with the model they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hexforge.analysis.estimate import Estimate
from hexforge.model.reader import Model

SLOWER = " (no faster by these rough times)"
"""What the title of advice ends with that brings nodes onto the NPU and gains no time."""


@dataclass(frozen=True, slots=True)
class Advice:
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

    @property
    def gain_us(self) -> float:
        """Time saved for each inference."""
        return self.before_us - self.after_us

    @property
    def gain(self) -> float:
        """The time saved as a part of the whole inference."""
        return self.gain_us / self.before_us if self.before_us else 0.0

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "rule": self.rule,
            "title": self.title,
            "gain_us": round(self.gain_us, 3),
            "gain_percent": round(100 * self.gain, 2),
            "before_us": round(self.before_us, 3),
            "after_us": round(self.after_us, 3),
            "keeps_function": self.keeps_function,
            "error": self.error,
            "accuracy": self.accuracy,
            "brings_to_npu": self.brings,
            "rough": bool(self.brings),
            "nodes": list(self.nodes),
            "places": list(self.places),
            "why": self.why,
            "source": self.source,
            "how": self.how,
        }


@dataclass(frozen=True, slots=True, eq=False)
class AdviceResult:
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

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "model": self.model,
            "soc": self.soc,
            "precision": self.precision,
            "runtime": self.runtime,
            "before_us": round(self.before_us, 3),
            "after_us": round(self.after_us, 3),
            "npu_us": round(self.timed.npu_us, 3),
            "cpu_us_rough": None if self.timed.cpu_us_rough is None else round(self.timed.cpu_us_rough, 3),
            "cpu_nodes": len(self.timed.left_on_cpu),
            "cpu_nodes_after": self.cpu_nodes_after,
            "applied": list(self.applied),
            "error": self.error,
            "dropped": [{"rule": rule, "why": why} for rule, why in self.dropped],
            "advice": [a.to_json() for a in self.advice],
        }
