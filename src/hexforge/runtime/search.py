"""Search for mixed precision: quality on the emulator, simulated latency on a chip, over processes or machines."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.errors import CallError, FormatError
from hexforge.formats.files import write_atomically
from hexforge.frontends.onnx import read
from hexforge.quant.assign import assign
from hexforge.quant.calibrate import calibrate
from hexforge.quant.compare import sqnr_db
from hexforge.quant.equalize import equalize
from hexforge.quant.fold import fold
from hexforge.quant.observe import Statistics
from hexforge.quant.plan import Samples
from hexforge.quant.recipe import Override, Recipe
from hexforge.quant.recipe import recipe as recipe_of
from hexforge.quant.rules import units
from hexforge.quant.samples import samples as samples_of
from hexforge.quant.save import to_bytes
from hexforge.quant.search import Choice, Found, Point, search
from hexforge.quant.write import write
from hexforge.runtime.estimate import estimate
from hexforge.runtime.runners import runner
from hexforge.runtime.spread import spread

Metric = Callable[[Callable[[Mapping[str, Any]], dict[str, Any]]], float]
"""Quality of what runs samples: more is better."""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that change their precision together."""

    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its first and last node."""
        return self.nodes[0] if len(self.nodes) == 1 else f"{self.nodes[0]} … {self.nodes[-1]}"


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found for a model on a chip."""

    model: str
    soc: str
    metric: str
    groups: tuple[Group, ...]
    found: Found
    target: float
    low: Recipe
    high: Recipe

    @property
    def best(self) -> Point | None:
        """The fastest mix of at least the target's quality."""
        return self.found.best(self.target)

    def recipe(self, point: Point) -> Recipe:
        """The recipe of a point."""
        return mixed(self.low, self.high, self.groups, point.high)

    def recipe_file(self, point: Point) -> dict[str, Any]:
        """The recipe of a point as `hexforge quantize --recipe FILE` reads it."""
        nodes = {name: self.high.name for g in sorted(point.high) for name in self.groups[g].nodes}
        return {"recipe": self.low.name, "nodes": nodes}

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        front = self.found.front()

        def said(point: Point) -> dict[str, Any]:
            return {
                "quality": round(point.quality, 4),
                "latency_ms": round(point.latency_ms, 5),
                "high": sorted(point.high),
                "on_front": point in front,
            }

        return {
            "model": self.model,
            "soc": self.soc,
            "metric": self.metric,
            "target": self.target,
            "low": self.low.name,
            "high": self.high.name,
            "groups": [list(g.nodes) for g in self.groups],
            "exhausted": self.found.exhausted,
            "dominates_high": [said(p) for p in self.found.dominating()],
            "best": None if self.best is None else said(self.best),
            "points": [said(p) for p in self.found.points.values()],
        }


def search_precision(
    model: str | Path,
    data: Any,
    *,
    soc: str = "SM8650",
    runtime: str = "qnn_dlc",
    low: str = "w8a8",
    high: str = "w8a16",
    metric: str = "sqnr",
    evaluation: Any = None,
    target: float | None = None,
    budget: int = 100,
    groups: int = 16,
    samples: int = 16,
    jobs: int = 1,
    cluster: bool = False,
    state: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Searched:
    """The mix of two precisions that meets a quality at the lowest simulated latency.

    `metric` is sqnr (of the outputs against the float model, in dB) or FILE.py:FUNCTION, which is given what runs one
    sample and returns a number, more is better. `evaluation` is what it is measured on, the calibration data unless
    given. `state` keeps every measured point: an interrupted search goes on.
    """
    recipes = recipe_of(low), recipe_of(high)
    for chosen in recipes:
        if chosen.activation is None:
            raise CallError(
                f"recipe {chosen.name!r} leaves activations in float; a search mixes fixed-point precisions"
            )
    loaded = read(model)
    loaded.require_static()
    folded = fold(loaded.ir)
    if "equalize" in recipes[0].improve:
        equalize(folded)
    calibration = samples_of(data, loaded.ir)
    statistics = calibrate(folded, calibration)
    found = grouped([u.nodes for u in units(folded.graph) if u.reason is None and not u.moves], groups)
    if not found:
        raise CallError(f"{model}: has no layer to quantize")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "statistics.npz"
        statistics.save(kept)
        shown = Path(folder) / "samples.npz"
        _keep(samples_of(data if evaluation is None else evaluation, loaded.ir), samples, shown)
        arguments = (str(model), str(kept), str(shown), recipes, found, soc, runtime, metric)
        memory = _Memory(None if state is None else Path(state), _key(model, kept, shown, arguments[3:]))

        def measure(choices: Sequence[Choice]) -> Iterator[tuple[float, float]]:
            new = [c for c in choices if c not in memory]
            results = iter(spread(_Measurer, arguments, [sorted(c) for c in new], jobs, cluster=cluster))
            for choice in choices:
                if choice not in memory:
                    memory.add(choice, next(results))
                yield memory[choice]

        points = search(len(found), measure, target=target, budget=budget, progress=progress)
    goal = points.high.quality if target is None else target
    name = Path(model).name
    return Searched(name, soc, metric, found, points, goal, recipes[0], recipes[1])


def mixed(low: Recipe, high: Recipe, groups: Sequence[Group], chosen: Choice) -> Recipe:
    """The low recipe with the high one's bits for the nodes of some groups."""
    rules = tuple(
        Override("node", name, high.activation, high.weight, high.per_channel, high.block)
        for g in sorted(chosen)
        for name in groups[g].nodes
    )
    extra = f" + {len(chosen)} of {len(groups)} groups {high.name}" if chosen else ""
    return Recipe(
        low.name + extra, low.activation, low.weight, low.per_channel, low.block, low.method, low.weight_method,
        low.improve, (*low.rules, *rules),
    )  # fmt: skip


def grouped(layers: Sequence[Sequence[Any]], most: int) -> tuple[Group, ...]:
    """Layers in their order as at most so many groups of about as many layers each."""
    names = [[n.name for n in nodes if n.name] for nodes in layers]
    names = [each for each in names if each]
    count = min(max(1, most), len(names))
    bounds = [round(i * len(names) / count) for i in range(count + 1)] if count else []
    return tuple(Group(tuple(n for each in names[a:b] for n in each)) for a, b in pairwise(bounds) if b > a)


class _Measurer:
    """Quality and latency of a choice; made once in each process."""

    def __init__(
        self, model: str, statistics: str, samples: str, recipes: tuple[Recipe, Recipe], groups: Sequence[Group],
        soc: str, runtime: str, metric: str,
    ) -> None:  # fmt: skip
        self._model = fold(read(model).ir)
        if "equalize" in recipes[0].improve:
            equalize(self._model)
        self._statistics = Statistics.load(Path(statistics))
        self._recipes, self._groups, self._soc, self._runtime = recipes, groups, soc, runtime
        with np.load(samples) as file:
            names = sorted({key.partition("/")[2] for key in file})
            count = len({key.partition("/")[0] for key in file})
            self._samples = [{n: file[f"{i}/{n}"] for n in names} for i in range(count)]
        self._metric = _metric(metric, Path(model), self._samples)

    def __call__(self, choice: Sequence[int]) -> tuple[float, float]:
        chosen = mixed(*self._recipes, self._groups, frozenset(choice))
        written = to_bytes(write(self._model, assign(self._model, self._statistics, chosen)))
        quality = self._metric(runner(written, "htp", soc=self._soc, threads=1))
        return quality, estimate(written, self._soc, runtime=self._runtime).latency_ms


def _metric(text: str, model: Path, samples: Sequence[Mapping[str, Any]]) -> Metric:
    if text == "sqnr":
        reference = [runner(model, "ort", threads=1)(feeds) for feeds in samples]

        def sqnr(run: Callable[[Mapping[str, Any]], dict[str, Any]]) -> float:
            each = [
                sqnr_db(want[name], got[name])
                for feeds, want in zip(samples, reference, strict=True)
                for got in [run(feeds)]
                for name in want
                if want[name].dtype.kind == "f"
            ]
            return float(np.mean(np.minimum(each, 120.0)))

        return sqnr
    path, _, name = text.rpartition(":")
    if not path:
        raise CallError(f"metric {text!r} is not known; give sqnr or FILE.py:FUNCTION")
    return _function(Path(path), name)


def _function(path: Path, name: str) -> Metric:
    import runpy

    try:
        found = runpy.run_path(str(path)).get(name)
    except Exception as error:
        raise CallError(f"{path}: cannot be run: {error!r}") from None
    if not callable(found):
        raise CallError(f"{path}: has no function {name!r}")

    def measured(run: Callable[[Mapping[str, Any]], dict[str, Any]]) -> float:
        try:
            value = float(found(run))
        except Exception as error:
            raise CallError(f"{path}:{name}: failed: {error!r}") from None
        if not np.isfinite(value):
            raise CallError(f"{path}:{name}: gave {value}; a quality is a finite number")
        return value

    return measured


def _keep(samples: Samples, count: int, path: Path) -> None:
    few = list(islice(samples, count))
    if not few:
        raise CallError("there are no samples to measure quality on")
    arrays: dict[str, Any] = {f"{i}/{name}": array for i, feeds in enumerate(few) for name, array in feeds.items()}
    np.savez(path, **arrays)


def _key(model: str | Path, *parts: Any) -> str:
    digest = hashlib.blake2b(Path(model).read_bytes(), digest_size=16)
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else repr(part).encode())
    return digest.hexdigest()


class _Memory:
    """Measured points, kept in a file if there is one; one of another search is refused."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._path, self._key = path, key
        self._points: dict[Choice, tuple[float, float]] = {}
        if path is None or not path.exists():
            return
        try:
            data = json.loads(path.read_text())
            self._points = {frozenset(c): (float(q), float(ms)) for c, q, ms in data["points"]}
            found = data["search"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}: is not the state of a search: {error!r}") from None
        if found != key:
            raise CallError(
                f"{path}: is of another search (other model, data, recipes, chip or metric); name another file"
            )

    def __contains__(self, choice: Choice) -> bool:
        return choice in self._points

    def __getitem__(self, choice: Choice) -> tuple[float, float]:
        return self._points[choice]

    def add(self, choice: Choice, measured: tuple[float, float]) -> None:
        """Remember a point, on disk at once: each was dear."""
        self._points[choice] = measured
        if self._path is not None:
            rows = [[sorted(c), *m] for c, m in self._points.items()]
            write_atomically(self._path, json.dumps({"search": self._key, "points": rows}).encode())


def processes() -> int:
    """How many processes the work is spread over unless said."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
