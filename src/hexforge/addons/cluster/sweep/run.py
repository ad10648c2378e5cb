# SPDX-License-Identifier: Apache-2.0
"""Run a sweep: every model is read once, timed for all chips and precisions, and its rows are kept when it is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import hexforge
from hexforge.addons.cluster.sweep.models import SweptModel, models_of
from hexforge.addons.cluster.sweep.table import Sweep, SweepRow
from hexforge.analysis.advise import advise
from hexforge.analysis.estimate import Estimate, estimates
from hexforge.analysis.spread.finished_work import FinishedWork
from hexforge.analysis.spread.pool import SetAside
from hexforge.analysis.spread.spread import spread_on
from hexforge.analysis.spread.workers import Workers
from hexforge.analysis.timed_graphs import SharedModel
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import SOCS, require_chip
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.file_kinds import kind_of
from hexforge.model.open_dimensions import declared_inputs, with_batch_of_one
from hexforge.model.reader import read
from hexforge.model.tensors import external_files

ALL = "all"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What each model of a sweep is asked for."""

    socs: tuple[str, ...] = (ALL,)
    """Chips by name, number or device; `all` is every one."""
    precisions: tuple[str, ...] = ("float", "w8a8", "w8a16")
    runtime: str = "qnn_dlc"
    advice: bool = False
    """Whether each model is asked, on the first chip, what would gain most."""

    def deployments(self) -> list[Deployment]:
        """Every chip at every precision."""
        named = [chip.name for soc in self.socs for chip in (SOCS if soc.lower() == ALL else [require_chip(soc)])]
        chips = tuple(dict.fromkeys(named))
        return [Deployment(soc, precision, self.runtime) for precision in self.precisions for soc in chips]


def sweep(
    models: Iterable[str | Path],
    request: SweepRequest = SweepRequest(),  # noqa: B008 - it is frozen
    *,
    dims: Mapping[str, int] | None = None,
    workers: Workers = Workers(),  # noqa: B008 - it is frozen
    finished: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Sweep:
    """How long each model takes on each chip at each precision.

    `models` are files, patterns, folders, lists or manifests, as `models_of` takes them. `finished` is a file that
    keeps the rows of models that are done: the same sweep goes on from there, and a model that changed is timed again.
    A model that cannot be read, or that kills its worker twice, is a row that says so.
    """
    chosen = models_of(models, dims)
    deployments = request.deployments()
    if not deployments:
        raise CallError("a sweep has at least one chip and one precision")
    job = json.dumps([hexforge.__version__, [str(d) for d in deployments], request.advice])
    rows: dict[str, list[SweepRow]] = {}
    aside: list[str] = []
    with FinishedWork(finished, job) if finished is not None else nullcontext(None) as kept:
        keys = {model.name: _key(model) for model in chosen}
        for model in chosen:
            if kept is not None and (known := kept.get(keys[model.name])) is not None:
                rows[model.name] = [replace(SweepRow(**row), model=model.name) for row in known]
        reused = len(rows)
        # the largest first, so that none of them is left for the end
        left = sorted((m for m in chosen if m.name not in rows), key=lambda m: -_size(m.path))
        progress(len(rows), len(chosen))
        placed = workers.for_model(*(model.path for model in left))
        results = spread_on(_ModelTimes, (deployments, request.advice), left, placed, own_process=True)
        for model, result in zip(left, results, strict=True):
            if isinstance(result, SetAside):
                aside.append(model.name)
            failed = result.reason if isinstance(result, SetAside) else str(result)
            if isinstance(result, SetAside | HexforgeError):
                result = [SweepRow(model.name, d.precision, d.soc, error=failed) for d in deployments]
            rows[model.name] = result
            if kept is not None and model.name not in aside:
                kept.add(keys[model.name], [asdict(row) for row in result])
            progress(len(rows), len(chosen))
    return Sweep(tuple(row for model in chosen for row in rows[model.name]), reused, tuple(aside))


def _size(path: Path) -> int:
    return path.stat().st_size


def _key(model: SweptModel) -> str:
    """What a model's rows depend on, beside the job: its bytes, those of its weights, and the sizes it is given."""
    digest = hashlib.sha256(json.dumps([dict(model.dims), {k: list(v) for k, v in model.shapes.items()}]).encode())
    for path in (model.path, *external_files(model.path)):
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
    return digest.hexdigest()


class _ModelTimes:
    """Times one model after another, in a process of its own."""

    def __init__(self, deployments: list[Deployment], advice: bool) -> None:
        self.deployments, self.advice = deployments, advice

    def __call__(self, model: SweptModel) -> list[SweepRow]:
        source: Any = model.path
        if not kind_of(model.path).is_compiled:
            fixed = with_batch_of_one(model.path, _of(model.path, model.dims), model.shapes)
            source = read(model.path, dims=fixed.dims, shapes=fixed.shapes)
            source.require_static()
        timed = estimates(SharedModel(source), self.deployments, cpu_part=False)
        best = self._best_advice(source) if self.advice else {}
        rows = [_row(model.name, d, one) for d, one in zip(self.deployments, timed, strict=True)]
        return [replace(row, advice=best.get(row.precision, "")) for row in rows]

    def _best_advice(self, source: Any) -> dict[str, str]:
        """For each precision what would gain most on the first chip."""
        first = self.deployments[0].soc
        best = {}
        for deployment in (d for d in self.deployments if d.soc == first):
            try:
                advised = advise(source, deployment, verify=False, cpu_part=False)
            except HexforgeError:
                continue
            best[deployment.precision] = f"{advised[0].title}: {advised[0].gain:.0%}" if advised else ""
        return best


def _of(path: Path, dims: Mapping[str, int]) -> dict[str, int]:
    """Of sizes that are given for all models those that this one has."""
    if not dims:
        return {}
    symbols = {dim for shape in declared_inputs(path).values() for dim in shape or () if isinstance(dim, str)}
    return {name: size for name, size in dims.items() if name in symbols}


def _row(model: str, deployment: Deployment, timed: Estimate | HexforgeError) -> SweepRow:
    if isinstance(timed, HexforgeError):
        return SweepRow(model, deployment.precision, deployment.soc, error=str(timed).splitlines()[0])
    left, line = timed.left_on_cpu, timed.timeline
    slowest = line.bottlenecks()[:1]
    return SweepRow(
        model,
        deployment.precision,
        deployment.soc,
        round(timed.latency_ms, 4),
        round(timed.low_ms, 4),
        round(timed.high_ms, 4),
        len(left),
        f"{left[0].node} ({left[0].op_type}): {left[0].reason}" if left else "",
        line.weight_bytes,
        timed.memory_bytes,
        None if timed.energy_uj is None else round(timed.energy_uj, 3),
        f"{slowest[0].op} {slowest[0].us / line.accelerator_us:.0%}" if slowest and line.accelerator_us else "",
    )
