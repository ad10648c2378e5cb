# SPDX-License-Identifier: Apache-2.0
"""Any model: estimates, profiles and gates also of .pte files and of exported programs of torch."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from hexforge.analysis.estimate import estimate as _estimate
from hexforge.analysis.estimate import estimates as _estimates
from hexforge.analysis.gate import GateResult, ScenarioFigures
from hexforge.analysis.gate import gate as _gate
from hexforge.analysis.profile.simulated import profile as _profile
from hexforge.formats.executorch.pte import is_pte

_Function = TypeVar("_Function", bound=Callable[..., Any])


def timeable(model: Any) -> Any:
    """The graphs of a .pte by its path or of an exported program, which is lowered; any other model as it is."""
    is_file = isinstance(model, str | os.PathLike) and is_pte(model)
    if not is_file and not type(model).__module__.startswith("torch."):
        return model
    from hexforge.executorch.running.pte_graphs import timed_graphs_of

    graphs = timed_graphs_of(model)
    return model if graphs is None else graphs


def _of_any_model(function: _Function) -> _Function:
    """The function, taking also models that ExecuTorch's front end has to open first."""

    @functools.wraps(function)
    def with_opened_model(model: Any, *arguments: Any, **keywords: Any) -> Any:
        return function(timeable(model), *arguments, **keywords)

    return cast(_Function, with_opened_model)


estimate = _of_any_model(_estimate)
estimates = _of_any_model(_estimates)
profile = _of_any_model(_profile)


def gate(
    budget: str | Path,
    baseline: str | Path | Mapping[str, float] | None = None,
    progress: Callable[[str], None] = lambda model: None,
    metric: str = "",
) -> GateResult:
    """Measure every model of a budget file, whose paths are relative to it; a fault of one model is a failed check.

    `baseline` is a file that `hexforge gate --save-baseline` wrote, or the `figures()` of an earlier result. `metric`
    says what decisions are judged by in place of what the budget says.
    """
    return _gate(budget, baseline, progress, timeable, metric, scenario_figures)


def scenario_figures(path: Path) -> ScenarioFigures:
    """What the models of a scenario's file cost together, played on the simulated device."""
    from hexforge.device.scenario.play import play
    from hexforge.device.scenario.script import read_script

    played = play(read_script(path))
    device = played.device
    wrong = tuple(f"{step.step.do}: {step.message}" for step in played.unexpected)
    power = device.energy_uj / 1e3 / (max(device.clock.now_us, 1.0) / 1e6)
    return ScenarioFigures(device.log.peak_bytes, power, played.responses_by_context(), wrong)
