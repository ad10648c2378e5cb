# SPDX-License-Identifier: Apache-2.0
"""Gate: models measured against a budget and a baseline, so that a regression is seen before a phone sees it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.budgets.limits import DecisionLimit, ModelBudget, ScenarioBudget
from hexforge.addons.budgets.limits import load as load_budget
from hexforge.addons.device.scenario.play import ScenarioFigures, scenario_figures
from hexforge.analysis.estimate import estimate
from hexforge.analysis.mapped_tasks import try_tasks
from hexforge.analysis.quality.compare import compare
from hexforge.analysis.quality.decisions.metric import AUTO, required_decisions
from hexforge.analysis.quality.evaluate import evaluate
from hexforge.analysis.timed_graphs import TimedSource
from hexforge.analysis.workers import SetAside, Workers
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.npy_files import read_npy
from hexforge.formats.validated import validated
from hexforge.model.reader import Model
from hexforge.model.tensors import external_files
from hexforge.quant.data.pictures import PictureFolder, holds_pictures
from hexforge.results import Column, Key, Result
from hexforge.runtime.prepare import ModelRequest
from hexforge.runtime.registry import backend_for

_MB = 1 << 20
_COMPARED = "against the float model"
_MOST_FIGURE = 1e300
"""Of a baseline; a NaN is not at most that."""


@dataclass(frozen=True, slots=True)
class GateCheck(Result):
    """One figure of a model, its limit, and what it was."""

    model: str
    what: str
    """latency_ms on SM8650, refused_nodes, …"""
    value: float
    limit: float | None
    higher_is_better: bool = False
    baseline: float | None = None
    regression_percent: float | None = None
    error: str = ""
    """Why it could not be measured."""
    detail: str = ""
    """What it is made of, told where it does not pass."""

    described = (
        Column("model"),
        Column("check", key="what"),
        Column("is", "significant", 4, key="value", of=lambda check: None if check.error else check.value),
        Column("limit", "significant", 4),
        Column("was", "significant", 4, key="baseline", leaves=2),
        Column("change", key="change_percent", text=lambda check: check.change_text(), leaves=1),
        Key("passes", of=lambda check: not check.fault),
        "fault",
    )

    @property
    def key(self) -> str:
        """What a baseline calls it."""
        return f"{self.model}: {self.what}"

    @property
    def change_percent(self) -> float | None:
        """How much more it is than the baseline."""
        if self.baseline is None or self.baseline == 0:
            return None
        return 100 * (self.value - self.baseline) / abs(self.baseline)

    def change_text(self) -> str:
        """The same in percent."""
        return "-" if self.change_percent is None else f"{self.change_percent:+.1f} %"

    @property
    def fault(self) -> str:
        """Why it does not pass; empty where it does."""
        if self.error:
            return self.error
        sign = -1 if self.higher_is_better else 1
        if self.limit is not None and not sign * self.value <= sign * self.limit:  # so that a NaN does not pass
            beyond = "is below" if self.higher_is_better else "is above"
            beyond = "cannot be held against" if math.isnan(self.value) else beyond
            more = f": {self.detail}" if self.detail else ""
            return f"{self.value:.4g} {beyond} the limit {self.limit:.4g}{more}"
        if self.baseline is not None and self.regression_percent is not None:
            allowed = self.baseline + sign * abs(self.baseline) * self.regression_percent / 100
            if not sign * self.value <= sign * allowed:
                return (
                    f"{self.value:.4g} is worse than the baseline {self.baseline:.4g} by more than "
                    f"{self.regression_percent:g} %"
                )
        return ""


@dataclass(frozen=True, slots=True)
class GateResult:
    """Every check of a budget."""

    checks: tuple[GateCheck, ...]
    notes: tuple[str, ...] = ()
    """What the baseline does not say of this budget: models that are new in it, or no longer there."""

    @property
    def passes(self) -> bool:
        """True where nothing is over its budget."""
        return not any(check.fault for check in self.checks)

    def figures(self) -> dict[str, float]:
        """What a later run compares with: its `baseline`."""
        return {check.key: check.value for check in self.checks if not check.error and math.isfinite(check.value)}


@dataclass(frozen=True, slots=True)
class BudgetFiles:
    """The files that the limits of a model name, relative to the budget's folder; they travel to other machines."""

    files: Mapping[str, Path]

    @classmethod
    def of(cls, item: ModelBudget, folder: Path) -> BudgetFiles:
        """The files of a model's limits."""
        named = [item.model, *(pin for pin in item.pins.values() if isinstance(pin, str))]
        for limit in (item.sqnr_db, item.decisions, item.metric):
            for name in ("reference", "data", "labels"):
                if isinstance(text := getattr(limit, name, None), str):
                    named.append(text)
        return cls({name: folder / name for name in named})

    def __truediv__(self, name: str) -> Path:
        return self.files[name]


class _BudgetMeasurer:
    """Measures one model after another, in whatever process it is."""

    def __call__(self, task: tuple[ModelBudget, BudgetFiles]) -> list[GateCheck]:
        return _model_checks(*task)


def _judged_by(item: ModelBudget, metric: str) -> ModelBudget:
    """The limits with another way to judge decisions, where one is given."""
    if not metric or item.decisions is None:
        return item
    return replace(item, decisions=replace(item.decisions, metric=metric))


def gate(
    budget: str | Path,
    baseline: str | Path | Mapping[str, float] | None = None,
    progress: Callable[[str], None] = lambda model: None,
    metric: str = "",
    workers: Workers = Workers(),  # noqa: B008 - it is frozen
) -> GateResult:
    """Measure every model of a budget file, whose paths are relative to it; a fault of one model is a failed check.

    `baseline` is a file that `hexforge gate --save-baseline` wrote, or the `figures()` of an earlier result.
    `metric` says what decisions are judged by in place of what the budget says. Models are measured by `workers`, each
    by one of them; a model that kills two is a failed check. A model or scenario that is not there is a CallError.
    """
    limits = load_budget(Path(budget))
    names = [*(item.model for item in limits.models), *(item.scenario for item in limits.scenarios)]
    if missing := [name for name in names if not (Path(budget).parent / name).exists()]:
        raise CallError(f"{budget}: there is no {', no '.join(missing)} beside it; nothing was measured")
    if metric:
        required_decisions(metric)
    before = read_baseline(Path(baseline)) if isinstance(baseline, str | Path) else baseline or {}
    checks: list[GateCheck] = []
    items = [_judged_by(item, metric) for item in limits.models]
    tasks = ((item, BudgetFiles.of(item, Path(budget).parent)) for item in items)
    measured = try_tasks(_BudgetMeasurer, (), tasks, workers)
    for item in items:
        progress(item.model)
        result = next(measured)
        if isinstance(result, SetAside | HexforgeError):
            why = result.reason if isinstance(result, SetAside) else str(result)
            result = [GateCheck(item.model, "measured", 0.0, None, error=why[:400])]
        checks += result
    for scenario in limits.scenarios:
        progress(scenario.scenario)
        try:
            checks += _scenario_checks(scenario, scenario_figures(Path(budget).parent / scenario.scenario))
        except (HexforgeError, OSError) as error:
            words = " ".join(str(error).split())
            checks.append(GateCheck(scenario.scenario, "played", 0.0, None, error=words[:400]))
    percent = limits.regression_percent
    return GateResult(
        tuple(replace(c, baseline=before.get(c.key), regression_percent=percent) for c in checks),
        _renamed(names, before),
    )


def gate_model(model: Path, limits: Mapping[str, Any], folder: Path) -> GateResult:
    """Hold one model to limits, which are the fields of a model in a budget; files that they name are in the folder."""
    if not model.exists():
        raise CallError(f"{model}: there is no such model")
    item = validated(ModelBudget, {**limits, "model": model.name}, f"limits of {model.name}")
    files = {**BudgetFiles.of(item, folder).files, item.model: model}
    return GateResult(tuple(_model_checks(item, BudgetFiles(files))))


def content_key(budget: str | Path) -> str:
    """One word for what a budget's figures depend on: itself, the files that it names, and hexforge's version.

    Two checkouts with the same key have the same figures, so that a CI's cache can hold a baseline by it.
    """
    folder, limits = Path(budget).parent, load_budget(Path(budget))
    digest = hashlib.sha256(f"hexforge {version('hexforge')}\n".encode())
    digest.update(Path(budget).read_bytes())
    named = {name: path for item in limits.models for name, path in BudgetFiles.of(item, folder).files.items()}
    named |= {item.scenario: folder / item.scenario for item in limits.scenarios}
    for name, path in sorted(named.items()):
        weights = external_files(path) if path.suffix == ".onnx" and path.is_file() else []
        for file in sorted(path.rglob("*")) if path.is_dir() else [path, *weights]:
            if file.is_dir():
                continue
            if not file.is_file():
                raise CallError(f"{budget}: there is no {name} beside it; it has no key")
            with file.open("rb") as content:
                own = hashlib.file_digest(content, "sha256").hexdigest()
            digest.update(f"{name}/{file.name}: {own}\n".encode())
    return digest.hexdigest()[:32]


def _renamed(names: Sequence[str], before: Mapping[str, float]) -> tuple[str, ...]:
    """In words, what a budget and a baseline do not both name: a model that was renamed is held against nothing."""
    known = {key.partition(": ")[0] for key in before}
    lost = [name for name in known if name not in names]
    hint = f"; was it called {' or '.join(map(repr, sorted(lost)))}?" if lost else ""
    new = [
        f"{name}: the baseline has no figures of it, so it is held against none{hint}"
        for name in names
        if before and name not in known
    ]
    gone = [f"{name}: is in the baseline, and the budget does not name it" for name in sorted(lost)]
    return (*new, *gone)


def _scenario_checks(item: ScenarioBudget, played: ScenarioFigures) -> Iterator[GateCheck]:
    """A scenario that was played: what went otherwise, memory, energy and latencies."""
    name, graphs = item.scenario, played.latencies_us
    told = "; ".join(played.unexpected)
    yield GateCheck(name, "unexpected_steps", len(played.unexpected), 0, detail=told[:400])
    yield GateCheck(name, "ram_mb", played.ram_bytes / _MB, item.ram_mb)
    yield GateCheck(name, "energy_mw (assumed)", played.energy_mw, item.energy_mw)
    for what, limit, figure in (
        ("p99_ms", item.p99_ms, lambda times: float(np.percentile(times, 99))),
        ("worst_ms", item.worst_ms, max),
    ):
        unknown = [key for key in limit if key not in graphs] if isinstance(limit, dict) else []
        if unknown:
            raise CallError(f"{name}: {what} names {unknown[0]!r}, which does not run there; {', '.join(graphs)} do")
        for graph, times in graphs.items():
            own = limit.get(graph) if isinstance(limit, dict) else limit
            yield GateCheck(name, f"{what} of {graph}", figure(times) / 1e3, own)


def read_baseline(path: Path) -> dict[str, float]:
    """The figures of an earlier run."""
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise FormatError(f"{path}: is no JSON; `hexforge gate --save-baseline` writes a baseline") from None
    figures = data.get("figures") if isinstance(data, dict) else None
    if not isinstance(figures, dict) or not all(map(_is_figure, figures.values())):
        raise CallError(f"{path}: is no baseline of finite numbers; `hexforge gate --save-baseline` writes one")
    return dict(figures)


def _is_figure(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) <= _MOST_FIGURE


def _model_checks(item: ModelBudget, folder: BudgetFiles) -> list[GateCheck]:
    path = folder / item.model
    checks: list[GateCheck] = []
    for measure in (_latencies, _sizes, _against_float, _metric):
        try:
            checks += measure(item, path, folder)
        except (HexforgeError, OSError) as error:
            words = " ".join(str(error).split())
            named = _COMPARED if measure is _against_float else measure.__name__.strip("_")
            checks.append(GateCheck(item.model, named, 0.0, None, error=words[:400]))
    return checks


def _fixed_inputs(item: ModelBudget, folder: BudgetFiles) -> dict[str, Any]:
    """What the budget says of the model's inputs, as every function takes it; files are relative to the budget."""
    pins = {name: _pin(value, f"{item.model}: pins.{name}", folder) for name, value in item.pins.items()}
    return {"dims": dict(item.dims) or None, "shapes": dict(item.shapes) or None, "constants": pins or None}


def _pin(value: Any, where: str, folder: BudgetFiles) -> Any:
    if not isinstance(value, str):
        return value
    return read_npy(folder / value, f"{where}: {value!r}")


def _samples(item: ModelBudget, data: str, folder: BudgetFiles) -> Any:
    """The samples, with what the budget says of pictures."""
    path = folder / data
    if not item.pictures:
        return path
    if not holds_pictures(path):
        raise CallError(f"{item.model}: pictures says how pictures become numbers, and {data} holds none")
    return PictureFolder(path, dict(item.pictures))


def _latencies(item: ModelBudget, path: Path, folder: BudgetFiles) -> Iterator[GateCheck]:
    refused: dict[str, int] = {}
    why: dict[str, None] = {}
    by_ep: dict[str, int] = {}
    shared = TimedSource(path, ModelRequest(**_fixed_inputs(item, folder)))
    for soc in item.soc:
        deployment = Deployment(soc, item.precision)
        estimated = estimate(shared, deployment, cpu_part=False)
        refused[soc] = len(estimated.left_on_cpu) + len(estimated.ep_refused)
        why |= {f"{row.op_type} {row.node}: {row.reason or row.ep_refuses}": None
                for row in (*estimated.left_on_cpu, *estimated.ep_refused)}  # fmt: skip
        yield GateCheck(item.model, f"latency_ms on {soc}", estimated.latency_ms, item.latency(soc))
        if item.energy_mj is not None and (energy := estimated.energy_uj) is not None:
            assumed = f"energy_mj on {soc} (assumed)"
            yield GateCheck(item.model, assumed, energy / 1e3, item.energy_mj, detail="a model without measurements")
        if item.memory_mb is not None:
            exists, is_promised = estimated.weights_bytes is not None, deployment.quantizes_floats and _is_float(shared)
            taken = estimated.memory_bytes if exists or is_promised else _context_memory(item, path, soc, folder)
            yield GateCheck(item.model, f"memory_mb on {soc}", taken / _MB, item.memory_mb)
        if item.ep_refused_nodes is not None:
            by_ep[soc] = _ep_refused(shared.source, soc, item)
    told = "; ".join(why)[:400]
    yield GateCheck(item.model, "refused_nodes", max(refused.values()), item.refused_nodes, detail=told)
    if by_ep:
        yield GateCheck(item.model, "ep_refused_nodes", max(by_ep.values()), item.ep_refused_nodes)


def _is_float(shared: TimedSource) -> bool:
    """Whether a model has no encodings, so that its context is of another precision than what is estimated of it."""
    return isinstance(shared.source, Model) and shared.as_if_quantized is not None


def _context_memory(item: ModelBudget, path: Path, soc: str, folder: BudgetFiles) -> int:
    """What the context that the model becomes takes of the device's memory."""
    from hexforge.runtime.contexts.compile import compile as compile_models
    from hexforge.runtime.contexts.context import Context
    from hexforge.runtime.contexts.describe import memory_bytes
    from hexforge.runtime.contexts.request import ContextRequest

    request = ContextRequest(allow_partial=True)
    compiled = compile_models(path, None, Deployment(soc), request, **_fixed_inputs(item, folder))
    return memory_bytes(Context(compiled.to_bytes(), path.name))


def _ep_refused(model: object, soc: str, item: ModelBudget) -> int:
    """Nodes that the QNN execution provider would leave to the CPU."""
    from hexforge.runtime.prepare import prepare_model

    if not isinstance(model, Model):
        raise CallError(f"{item.model}: is compiled already; ep_refused_nodes is for the ONNX file")
    return sum(bool(row.ep_refuses) for row in prepare_model(model, backend_for(Deployment(soc))).rows)


def _sizes(item: ModelBudget, path: Path, folder: BudgetFiles) -> Iterator[GateCheck]:
    from hexforge.runtime.contexts.compile import compile as compile_models
    from hexforge.runtime.contexts.request import ContextRequest

    if item.context_mb is None and item.spill_fill_mb is None:
        return
    request = ContextRequest(allow_partial=True)
    compiled = compile_models(path, None, Deployment(item.soc[0]), request, **_fixed_inputs(item, folder))
    spill = max((graph.spill_fill_bytes for graph in compiled.info.graphs), default=0)
    yield GateCheck(item.model, "context_mb", compiled.nbytes / _MB, item.context_mb)
    yield GateCheck(item.model, "spill_fill_mb", spill / _MB, item.spill_fill_mb)


def _against_float(item: ModelBudget, path: Path, folder: BudgetFiles) -> Iterator[GateCheck]:
    """SQNR and decisions against the float model; where both are asked for on the same samples, in one run."""
    runs: dict[tuple[str, str, int | None], str] = {}
    for budget in (item.sqnr_db, item.decisions):
        if budget is not None:
            run = budget.reference, budget.data, budget.limit
            runs[run] = budget.metric if isinstance(budget, DecisionLimit) else runs.get(run, AUTO)
    for (reference, data, limit), metric in runs.items():
        compared = compare(
            folder / reference, path, _samples(item, data, folder), soc=item.soc[0], limit=limit, metric=metric,
            strict_samples=True, **_fixed_inputs(item, folder),
        )  # fmt: skip
        for budget in (item.sqnr_db, item.decisions):
            if budget is None or (budget.reference, budget.data, budget.limit) != (reference, data, limit):
                continue
            if isinstance(budget, DecisionLimit):
                decided = compared.decisions
                agreement = math.nan if decided is None else decided.agreement
                what = f"{'decisions' if decided is None else decided.kind} agreement"
                nothing = "" if math.isfinite(agreement) else "nothing is decided on these samples"
                yield GateCheck(item.model, what, agreement, budget.at_least, higher_is_better=True, error=nothing)
            else:
                yield GateCheck(item.model, "sqnr_db", compared.sqnr_db, budget.at_least, higher_is_better=True)
        alarms = () if compared.decisions is None else compared.decisions.alarms
        said = "; ".join(alarm.text for alarm in alarms)[:400]
        yield GateCheck(item.model, "alarms", len(alarms), 0, detail=said)


def _metric(item: ModelBudget, path: Path, folder: BudgetFiles) -> Iterator[GateCheck]:
    if item.metric is not None:
        budget = item.metric
        labels = None if budget.labels is None else folder / budget.labels
        evaluation = evaluate(
            path, _samples(item, budget.data, folder), labels, budget.name, soc=item.soc[0], limit=budget.limit,
            strict_samples=True, **_fixed_inputs(item, folder),
        )  # fmt: skip
        yield GateCheck(item.model, evaluation.metric, evaluation.score, budget.at_least, higher_is_better=True)
