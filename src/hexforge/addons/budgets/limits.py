# SPDX-License-Identifier: Apache-2.0
"""Budget: what a model may cost on its chips, read from YAML or JSON; what `hexforge gate` checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from hexforge.errors import CallError
from hexforge.formats.json_text import read_yaml
from hexforge.formats.validated import OneOrMore, Within, validated

MOST_BYTES = 4 << 20
NotNegative = Annotated[float, Within(0)]
Count = Annotated[int, Within(0)]
Positive = Annotated[float, Within(0, above=True)]
Samples = Annotated[int, Within(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqnrLimit:
    """How near the outputs must be to those of the float model."""

    reference: str
    data: str
    at_least: float
    limit: Samples | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLimit:
    """How often the model must decide as the float model does; an alarm fails whatever the limit is."""

    reference: str
    data: str
    at_least: float = 0.95
    metric: str = "decisions"
    limit: Samples | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLimit:
    """How well the model must do on labelled samples."""

    data: str
    labels: str | None = None
    name: str = "top1"
    at_least: float
    limit: Samples | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBudget:
    """What one model may cost, and how its inputs and pictures are made.

    `dims`, `shapes` and `pins` fix inputs as --dim, --shape and --pin do (a pin is numbers, or a .npy file); `pictures`
    says how pictures of `data` become numbers, as images.json does.
    """

    model: str
    soc: Annotated[list[str], Within(1), OneOrMore()] = field(default_factory=lambda: ["SM8650"])
    precision: Literal["as-is", "float", "w8a8", "w8a16", "w4a16", "w16a16"] = "as-is"
    dims: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    pins: dict[str, bool | int | float | list[bool | int | float] | str] = field(default_factory=dict)
    pictures: dict[str, str | int | float | list[float]] = field(default_factory=dict)
    latency_ms: float | dict[str, float] | None = None
    refused_nodes: Count | None = None
    ep_refused_nodes: Count | None = None
    context_mb: Positive | None = None
    spill_fill_mb: NotNegative | None = None
    energy_mj: Positive | None = None
    memory_mb: Positive | None = None
    sqnr_db: SqnrLimit | None = None
    decisions: DecisionLimit | None = None
    metric: MetricLimit | None = None

    def latency(self, soc: str) -> float | None:
        """The most milliseconds on a chip, or None where it has no limit."""
        return self.latency_ms.get(soc) if isinstance(self.latency_ms, dict) else self.latency_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioBudget:
    """What models that run together may cost in a scenario; a latency is of every model, or by name."""

    scenario: str
    ram_mb: Positive | None = None
    energy_mw: Positive | None = None
    p99_ms: float | dict[str, float] | None = None
    worst_ms: float | dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What models may cost, and how much worse than the baseline they may get."""

    models: list[ModelBudget] = field(default_factory=list)
    scenarios: list[ScenarioBudget] = field(default_factory=list)
    regression_percent: NotNegative | None = None


def lines_of(path: Path) -> dict[str, int]:
    """The line of a budget file on which each model or scenario is named."""
    import yaml

    root = yaml.compose(path.read_bytes(), yaml.SafeLoader)
    lines: dict[str, int] = {}
    for _, rows in root.value if isinstance(root, yaml.MappingNode) else ():
        for row in rows.value if isinstance(rows, yaml.SequenceNode) else ():
            for key, value in row.value if isinstance(row, yaml.MappingNode) else ():
                if key.value in ("model", "scenario"):
                    lines[value.value] = value.start_mark.line + 1
    return lines


def load(path: Path) -> Budget:
    """Read a budget file; the error lists every fault at once."""
    budgets = validated(Budget, read_yaml(path, MOST_BYTES), str(path))
    if not budgets.models and not budgets.scenarios:
        raise CallError(f"{path}: models and scenarios are empty; give at least 1 model or scenario")
    faults = [
        f"{path}: {budget.model}: latency_ms names {soc!r}, which soc does not list"
        for budget in budgets.models
        if isinstance(budget.latency_ms, dict)
        for soc in budget.latency_ms
        if soc not in budget.soc
    ]
    if faults:
        raise CallError("\n".join(faults))
    return budgets
