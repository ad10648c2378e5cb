# SPDX-License-Identifier: Apache-2.0
"""Run a sweep: every model is read once, timed for all chips and precisions, and its rows are kept when it is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import hexforge
from hexforge.addons.cluster.sweep_request import SweepRequest
from hexforge.addons.cluster.sweep_table import Sweep, SweepRow
from hexforge.addons.cluster.swept_models import SweepEntry, models_of
from hexforge.addons.tuning.advice.advise import advise
from hexforge.analysis.estimate import Estimate, estimates
from hexforge.analysis.finished_work import FinishedWork
from hexforge.analysis.mapped_tasks import try_tasks
from hexforge.analysis.timed_graphs import TimedSource
from hexforge.analysis.workers import SetAside, Workers
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.file_kinds import kind_of
from hexforge.model.declarations import declared_inputs, with_batch_of_one
from hexforge.model.reader import read
from hexforge.model.tensors import external_files

_STATE = "rows by model, precision and chip"
"""What the file of finished work has."""
_READ_BYTES = 1 << 20
_MOST_LINES = 8
"""Of an error in a row."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A model, and what it is to be timed for."""

    model: SweepEntry
    deployments: tuple[Deployment, ...]


@dataclass(frozen=True, slots=True)
class _TimedRows:
    """The rows of a file's content; other files may have the same."""

    path: Path
    rows: Mapping[tuple[str, str], SweepRow] = field(default_factory=dict)
    """By precision and chip."""
    fault: str = ""
    """Why there is no row with a time: it cannot be read, or ends whoever works on it."""

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the file of what is finished."""
        return {"path": str(self.path), "rows": [asdict(row) for row in self.rows.values()], "fault": self.fault}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> _TimedRows:
        """What `to_json` wrote."""
        rows = (SweepRow(**row) for row in data["rows"])
        return cls(Path(data["path"]), {(row.precision, row.soc): row for row in rows}, data["fault"])

    def lacks(self, deployments: Iterable[Deployment]) -> tuple[Deployment, ...]:
        """Of what it is asked for that which it was not timed for."""
        return () if self.fault else tuple(d for d in deployments if (d.precision, d.soc) not in self.rows)

    def rows_of(self, model: SweepEntry, deployments: Iterable[Deployment]) -> list[SweepRow]:
        """The rows of a file with this content, under its own name."""
        if self.fault:
            fault = self._named(self.fault, model.path)
            return [SweepRow(model.name, d.precision, d.soc, error=fault) for d in deployments]
        rows = (self.rows[d.precision, d.soc] for d in deployments)
        return [replace(row, model=model.name, error=self._named(row.error, model.path)) for row in rows]

    def _named(self, error: str, path: Path) -> str:
        """An error that begins with the name of the file that was timed, with the name of another."""
        for timed, own in ((str(self.path), str(path)), (self.path.name, path.name)):
            if error.startswith(f"{timed}:"):
                return own + error.removeprefix(timed)
        return error


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
    keeps the rows of models that are done: a sweep goes on from there, for other chips and precisions, too, and a model
    that changed is timed again. Files with the same content are timed once. A model that cannot be read, or that kills
    its worker twice, is a row that says so.
    """
    chosen = models_of(models, dims)
    deployments = request.deployments()
    if not deployments:
        raise CallError("a sweep has at least one chip and one precision")
    advised_soc = deployments[0].soc if request.advice else ""
    job = json.dumps([_STATE, hexforge.__version__, request.runtime, advised_soc])
    timed: dict[str, _TimedRows] = {}
    aside: set[str] = set()
    with FinishedWork(finished, job) if finished is not None else nullcontext(None) as kept:
        keys = {model.name: _key(model) for model in chosen}
        first_of = {key: next(m for m in chosen if keys[m.name] == key) for key in keys.values()}
        for key, model in first_of.items():
            known = None if kept is None else kept.get(key)
            timed[key] = _TimedRows(model.path) if known is None else _TimedRows.from_json(known)
        tasks = {key: _Task(first_of[key], left) for key, one in timed.items() if (left := one.lacks(deployments))}
        reused = sum(key not in tasks for key in keys.values())
        # the largest first, so that none of them is left for the end
        order = sorted(tasks, key=lambda key: -_size(tasks[key].model.path))
        progress(len(timed) - len(order), len(timed))
        placed = workers.for_model(*(tasks[key].model.path for key in order))
        results = try_tasks(_RowTimer, (advised_soc,), [tasks[key] for key in order], placed, own_process=True)
        for done, (key, result) in enumerate(zip(order, results, strict=True), len(timed) - len(order) + 1):
            if isinstance(result, SetAside | HexforgeError):
                fault = result.reason if isinstance(result, SetAside) else one_line(result)
                timed[key] = _TimedRows(first_of[key].path, fault=fault)
            else:
                made = {(row.precision, row.soc): row for row in result}
                timed[key] = _TimedRows(first_of[key].path, {**timed[key].rows, **made})
            if isinstance(result, SetAside):
                aside.add(key)
            elif kept is not None:
                kept.add(key, timed[key].to_json())
            progress(done, len(timed))
    return Sweep(
        tuple(row for model in chosen for row in timed[keys[model.name]].rows_of(model, deployments)),
        reused,
        tuple(model.name for model in chosen if keys[model.name] in aside),
        tuple(model.name for model in chosen if timed[keys[model.name]].fault),
    )


def one_line(error: HexforgeError) -> str:
    """An error's lines as one: what a row of a table can say."""
    first, *more = (" ".join(line.split()) for line in str(error).splitlines())
    left = len(more) - _MOST_LINES
    shown = "; ".join(more[:_MOST_LINES] + ([f"and {left} more"] if left > 0 else []))
    return f"{first} {shown}" if shown else first


def _size(path: Path) -> int:
    return path.stat().st_size


def _key(model: SweepEntry) -> str:
    """What a model's rows depend on, apart from the job: its bytes, those of its weights, and the sizes it is given."""
    digest = hashlib.sha256(json.dumps([dict(model.dims), {k: list(v) for k, v in model.shapes.items()}]).encode())
    try:
        for path in (model.path, *external_files(model.path)):
            with path.open("rb") as file:
                while block := file.read(_READ_BYTES):
                    digest.update(block)
    except (OSError, HexforgeError) as error:  # whoever times it says so
        digest.update(f"{model.path.resolve()}: {error}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class _RowTimer:
    """Times one model after another, in a process of its own."""

    def __init__(self, advised_soc: str) -> None:
        self.advised_soc = advised_soc

    def __call__(self, task: _Task) -> list[SweepRow]:
        model = task.model
        source: Any = model.path
        if not kind_of(model.path).is_compiled:
            fixed = with_batch_of_one(model.path, _of(model.path, model.dims), model.shapes)
            source = read(model.path, dims=fixed.dims, shapes=fixed.shapes)
            source.require_static()
        timed = estimates(TimedSource(source), task.deployments, cpu_part=False)
        best = self._best_advice(source, task.deployments) if self.advised_soc else {}
        rows = [_row(model.name, d, one) for d, one in zip(task.deployments, timed, strict=True)]
        return [replace(row, advice=best.get(row.precision, "")) for row in rows]

    def _best_advice(self, source: Any, deployments: Iterable[Deployment]) -> dict[str, str]:
        """For each precision what would gain most on the first chip."""
        best = {}
        for deployment in {d.precision: replace(d, soc=self.advised_soc) for d in deployments}.values():
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
        return SweepRow(model, deployment.precision, deployment.soc, error=one_line(timed))
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
