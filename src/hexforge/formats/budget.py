# SPDX-License-Identifier: Apache-2.0
"""Budget: what a model may cost on its chips, read from YAML or JSON; what `hexforge gate` checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hexforge.errors import CallError, FormatError
from hexforge.options import did_you_mean

MOST_BYTES = 4 << 20


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SqnrLimit(_Limits):
    """How near the outputs must be to those of the float model."""

    reference: str
    data: str
    at_least: float
    limit: int | None = Field(None, ge=1)


class DecisionLimit(_Limits):
    """How often the model must decide as the float model does; an alarm fails whatever the limit is."""

    reference: str
    data: str
    at_least: float = 0.95
    metric: str = "decisions"
    limit: int | None = Field(None, ge=1)


class MetricLimit(_Limits):
    """How well the model must do on labelled samples."""

    data: str
    labels: str | None = None
    name: str = "top1"
    at_least: float
    limit: int | None = Field(None, ge=1)


class ModelBudget(_Limits):
    """What one model may cost, and how its inputs and pictures are made.

    `dims`, `shapes` and `pins` fix inputs as --dim, --shape and --pin do (a pin is numbers, or a .npy file); `pictures`
    says how pictures of `data` become numbers, as images.json does.
    """

    model: str
    soc: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)] = Field(
        default=["SM8650"], min_length=1
    )
    precision: Literal["as-is", "float", "w8a8", "w8a16", "w4a16", "w16a16"] = "as-is"
    dims: dict[str, int] = {}
    shapes: dict[str, list[int]] = {}
    pins: dict[str, bool | int | float | list[bool | int | float] | str] = {}
    pictures: dict[str, str | int | float | list[float]] = {}
    latency_ms: float | dict[str, float] | None = None
    refused_nodes: int | None = Field(None, ge=0)
    ep_refused_nodes: int | None = Field(None, ge=0)
    context_mb: float | None = Field(None, gt=0)
    spill_fill_mb: float | None = Field(None, ge=0)
    energy_mj: float | None = Field(None, gt=0)
    memory_mb: float | None = Field(None, gt=0)
    sqnr_db: SqnrLimit | None = None
    decisions: DecisionLimit | None = None
    metric: MetricLimit | None = None

    def latency(self, soc: str) -> float | None:
        """The most milliseconds on a chip, or None where it has no limit."""
        return self.latency_ms.get(soc) if isinstance(self.latency_ms, dict) else self.latency_ms


class ScenarioBudget(_Limits):
    """What models that run together may cost in a scenario; a latency is of every model, or by name."""

    scenario: str
    ram_mb: float | None = Field(None, gt=0)
    energy_mw: float | None = Field(None, gt=0)
    p99_ms: float | dict[str, float] | None = None
    worst_ms: float | dict[str, float] | None = None


class Budget(_Limits):
    """What models may cost, and how much worse than the baseline they may get."""

    models: list[ModelBudget] = []
    scenarios: list[ScenarioBudget] = []
    regression_percent: float | None = Field(None, ge=0)


def load(path: Path) -> Budget:
    """Read a budget file; the error lists every fault at once."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FormatError(f"{path}: is larger than a budget file can be ({MOST_BYTES:,} bytes)")
        data = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path}: neither YAML nor JSON: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise FormatError(f"{path}: holds no budget; it begins with `models:`")
    try:
        budgets = Budget.model_validate(data)
    except ValidationError as error:
        raise CallError("\n".join(f"{path}: {_fault_text(fault)}" for fault in error.errors())) from None
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


def _fault_text(fault: Any) -> str:
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        known = [*Budget.model_fields, *ModelBudget.model_fields, *SqnrLimit.model_fields,
                 *DecisionLimit.model_fields, *MetricLimit.model_fields, *ScenarioBudget.model_fields]  # fmt: skip
        return f"{place}: unknown key{did_you_mean(str(fault['loc'][-1]), known)}"
    return f"{place}: {fault['msg'][0].lower()}{fault['msg'][1:]}"
