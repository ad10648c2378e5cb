# SPDX-License-Identifier: Apache-2.0
"""Search for mixed precision: quality on the emulator, simulated latency on a chip, over processes or machines."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.tuning.mixes import Choice, Point, SearchPoints, search_mixes
from hexforge.addons.tuning.requests import SearchRequest
from hexforge.analysis.estimate import estimate
from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.quality.decision_agreement import DecisionAgreement
from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge, ReferenceSample
from hexforge.analysis.quality.decisions.metric import DecisionMetric, decisions_or_none
from hexforge.analysis.quality.labelled_samples import labelled_samples
from hexforge.analysis.quality.labels import class_names
from hexforge.analysis.quality.metrics import Sqnr, TopK, check_numbers, in_decibels, metric_of, metric_source
from hexforge.analysis.quality.runners import runner, runner_of_parts
from hexforge.analysis.timed_graphs import chip_arithmetic, graphs_of_parts, with_nodes_on_cpu
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, FormatError
from hexforge.formats.files import write_atomically
from hexforge.model.reader import read
from hexforge.model.save import save, to_bytes
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.observe import Statistics
from hexforge.quant.data.pictures import PictureFolder
from hexforge.quant.data.samples import samples as samples_of
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import ChipArithmetic
from hexforge.quant.decide.quant_units import quant_units
from hexforge.quant.decide.recipe import Override, Recipe
from hexforge.quant.decide.recipe_reading import recipe as recipe_of
from hexforge.quant.float_source import float_source
from hexforge.quant.fold import fold
from hexforge.quant.masks import limit_masks
from hexforge.quant.write import KnownIntegers, write
from hexforge.request_fields import takes_fields_of
from hexforge.results import Key, Result
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.registry import backend_for, timed_backend

REFERENCE_BYTES = 1 << 28
"""What the float model's outputs of all samples may take in each process; further ones are computed again."""
STATE = "decisions 1"
"""What a state file holds; a search with another is another search."""


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that change their precision together."""

    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its first and last node."""
        return self.nodes[0] if len(self.nodes) == 1 else f"{self.nodes[0]} … {self.nodes[-1]}"


@dataclass(frozen=True, slots=True)
class SearchResult(Result):
    """What a search found for a model on a chip."""

    model: str
    soc: str
    metric: str
    groups: tuple[LayerGroup, ...]
    mixes: SearchPoints
    target: float | None
    """The quality that was asked for, None where none was."""
    low: Recipe
    high: Recipe
    mixed_heads: Mapping[str, str] = field(default_factory=dict)
    """Outputs that join parts of very different ranges, and how every mix keeps the parts apart."""

    described = (
        "model soc metric target reason",
        Key("low", of="low.name"),
        Key("high", of="high.name"),
        Key("groups", of=lambda searched: [group.nodes for group in searched.groups]),
        "mixed_heads",
        Key("exhausted", of="mixes.exhausted"),
        Key("dominates_high", of=lambda searched: [searched.record(p) for p in searched.mixes.dominating()]),
        Key("best", of=lambda searched: None if searched.best is None else searched.record(searched.best)),
        Key("points", of=lambda searched: [searched.record(p) for p in searched.mixes.points.values()]),
    )

    @property
    def best(self) -> Point | None:
        """What is recommended: the fastest mix of at least the target's quality, without a target the front's knee."""
        return (
            self.mixes.knee(decibels=in_decibels(self.metric)) if self.target is None else self.mixes.best(self.target)
        )

    @property
    def reason(self) -> str:
        """Why the best one is recommended, in words."""
        best, front = self.best, self.mixes.front()
        if best is None and not front:
            said = next(alarm for p in self.mixes.points.values() for alarm in p.alarms)
            return f"every one of {len(self.mixes.points)} mixes has an alarm: {said}"
        if best is None:
            return f"none of {len(self.mixes.points)} mixes reaches {self.with_unit(self.target)}"
        if self.target is not None:
            return f"the fastest that reaches {self.with_unit(self.target)}"
        first, last = front[0], front[-1]
        if first is last:
            return "it is the fastest and the best at once"
        gained = self.with_unit(best.quality - first.quality)
        paid = best.latency_ms - first.latency_ms
        more, dearer = self.with_unit(last.quality - best.quality), last.latency_ms - best.latency_ms
        if best is first:
            return f"{more} more would cost {dearer:.3f} ms"
        if best is last:
            return f"its {gained} over the fastest mix cost {paid:.3f} ms, and no mix is better"
        return f"its {gained} over the fastest mix cost {paid:.3f} ms; {more} more would cost another {dearer:.3f} ms"

    def with_unit(self, quality: float | None) -> str:
        """A quality with its unit."""
        if quality is None:
            return "nothing in particular"
        return f"{quality:.2f} dB" if in_decibels(self.metric) else f"{quality:.4f}"

    def record(self, point: Point) -> dict[str, Any]:
        """A point as JSON has it."""
        return point.to_json() | {"on_front": point in self.mixes.front()}

    def recipe(self, point: Point) -> Recipe:
        """The recipe of a point."""
        return mixed_recipe(self.low, self.high, self.groups, point.high)


@takes_fields_of(SearchRequest)
def search(request: SearchRequest) -> SearchResult:
    """The mix of two precisions that meets a quality at the lowest simulated latency.

    A state keeps every measured point, and a file beside it what calibration has seen: an interrupted search goes on.
    """
    model = request.model
    chosen = Deployment.of(request.deployment)
    space, scoring, workers, state = request.space, request.scoring, request.workers, request.state
    recipes = _recipes(space.low, space.high)
    given = read(model, dims=request.dims, shapes=request.shapes, constants=request.constants)
    given.require_static()
    loaded = float_source(given)
    measured = metric_of(scoring.metric, Path(model))
    calibration = samples_of(request.data, loaded.ir)
    judged = scoring.data
    if judged is None:
        judged = request.data if isinstance(request.data, str | Path | PictureFolder) else calibration
    scored = labelled_samples(
        judged, scoring.labels, measured, loaded.ir, class_names(scoring.classes), scoring.samples
    )
    folded = fold(loaded.ir)
    if all(unit.reason is not None or unit.moves for unit in quant_units(folded.graph)):
        raise CallError(f"{model}: has no layer to quantize")
    kept = None if state is None else calibration_file(state)
    others = partial(map_tasks, workers=workers) if workers.several else None
    statistics = calibrate(folded, calibration, state=kept, task_map=others)
    limit_masks(folded, statistics)
    backend = backend_for(chosen)
    arithmetic = chip_arithmetic(backend)
    lowest = assign(folded, statistics, recipes[0], arithmetic=arithmetic)
    placed = prepare_model(loaded.edited(write(folded, lowest)), backend)
    if placed.refused:
        arithmetic = with_nodes_on_cpu(arithmetic, placed, loaded.edited(folded), backend)
        lowest = assign(folded, statistics, recipes[0], arithmetic=arithmetic)
    mixed = [u.nodes for u in quant_units(folded.graph) if u.name not in lowest.floats and not u.moves]
    groups = group_layers(mixed, space.groups)
    if not groups:
        raise CallError(f"{model}: has no layer to quantize")
    with tempfile.TemporaryDirectory() as folder:
        statistics_file, samples_file = Path(folder) / "statistics.npz", Path(folder) / "samples.npz"
        statistics.save(statistics_file)
        rows = list(scored)
        np.savez(samples_file, **{f"{i}/{n}": a for i, (_, feeds, _) in enumerate(rows) for n, a in feeds.items()})  # type: ignore[arg-type]
        labels = [label for _, _, label in rows]
        known = measured.classes if isinstance(measured, TopK) else 0
        right = [_label_key(label) for label in labels]
        same = (
            STATE,
            recipes,
            groups,
            chosen.soc,
            chosen.runtime,
            measured.name,
            right,
            known,
            metric_source(scoring.metric),
        )
        changed = bool(request.dims or request.shapes or request.constants) or loaded is not given
        measured_model = save(loaded.ir, Path(folder) / "model.onnx")[0] if changed else Path(model)
        task = MeasuringTask(
            measured_model, statistics_file, samples_file, recipes, groups, chosen, scoring.metric,
            labels, known, arithmetic,
        )  # fmt: skip
        memory = _MeasuredPoints(
            None if state is None else Path(state), _key(model, statistics_file, samples_file, same)
        )

        def measure(choices: Sequence[Choice]) -> Iterator[MeasuredMix]:
            new = [c for c in choices if c not in memory]
            results = iter(map_tasks(Measurer, (task,), [sorted(c) for c in new], workers))
            for choice in choices:
                if choice not in memory:
                    memory.add(choice, next(results))
                yield memory[choice]

        points = search_mixes(len(groups), measure, target=space.target, budget=space.budget, progress=request.progress)
    return SearchResult(
        loaded.name, chosen.soc, measured.name, groups, points, space.target, *recipes, lowest.mixed_heads
    )


def calibration_file(state: str | Path) -> Path:
    """Where calibration keeps what it has seen, next to a search's state."""
    return Path(f"{state}.npz")


def _recipes(low: str, high: str) -> tuple[Recipe, Recipe]:
    """Two recipes that differ in their bits only: what is measured of a mix is what quantizing by its recipe gives."""
    first, second = recipe_of(low), recipe_of(high)
    for chosen in (first, second):
        if chosen.activation is None:
            raise CallError(
                f"recipe {chosen.name!r} leaves activations in float; a search mixes fixed-point precisions"
            )
        if chosen.improve:
            raise CallError(
                f"recipe {chosen.name!r}: a search measures mixes without {'+'.join(chosen.improve)}; improve the one "
                "that it finds, with `improve` in its recipe file"
            )
    if second != with_bits_of(second, Recipe(second.name, None, second.weight)):
        raise CallError(f"recipe {second.name!r}: the high recipe says bits only, such as w8a16; the low one the rest")
    if with_bits_of(second, first) == first:
        raise CallError(f"recipes {first.name!r} and {second.name!r} have the same bits; there is nothing to mix")
    return first, second


def with_bits_of(recipe: Recipe, base: Recipe) -> Recipe:
    """A recipe with another one's bits."""
    return replace(
        base, activation=recipe.activation, weight=recipe.weight, per_channel=recipe.per_channel, block=recipe.block
    )


def mixed_recipe(low: Recipe, high: Recipe, groups: Sequence[LayerGroup], chosen: Choice) -> Recipe:
    """The low recipe with the high one's bits for the nodes of some groups; of all groups, for the whole model."""
    if not chosen:
        return low
    if len(chosen) == len(groups):
        return replace(with_bits_of(high, low), name=high.name)
    rules = tuple(
        Override("node", escape(name), high.activation, high.weight, high.per_channel, high.block)
        for g in sorted(chosen)
        for name in groups[g].nodes
    )
    name = f"{low.name} + {len(chosen)} of {len(groups)} groups {high.name}"
    return replace(low, name=name, rules=(*low.rules, *rules))


def group_layers(layers: Sequence[Sequence[Any]], most: int) -> tuple[LayerGroup, ...]:
    """Layers in their order as at most so many groups of about as many layers each."""
    names = [[n.name for n in nodes if n.name] for nodes in layers]
    names = [layer for layer in names if layer]
    count = min(max(1, most), len(names))
    bounds = [round(i * len(names) / count) for i in range(count + 1)] if count else []
    return tuple(LayerGroup(tuple(n for layer in names[a:b] for n in layer)) for a, b in pairwise(bounds) if b > a)


@dataclass(frozen=True, slots=True)
class MeasuringTask:
    """What a process needs to measure mixes; files are paths, so that it travels."""

    model: Path
    statistics: Path
    samples: Path
    recipes: tuple[Recipe, Recipe]
    groups: tuple[LayerGroup, ...]
    deployment: Deployment
    metric: Any
    labels: Sequence[Any]
    classes: int
    arithmetic: ChipArithmetic | None = None
    """What the chip computes, and which nodes stay with the CPU; None: as any model has it there."""


MeasuredMix = tuple[float, float, float, tuple[str, ...]]
"""Quality, latency in ms, how often it decides as the float model does, and alarms."""


def _judge(task: MeasuringTask) -> DecisionJudge:
    """What judges mixes beside the metric: by the metric's kind of decisions, else by what the outputs look like."""
    return DecisionJudge(read(task.model), decisions_or_none(task.metric) or DecisionMetric())


class _References:
    """The float model's outputs and decisions of each sample, made once for all mixes."""

    def __init__(self, model: Path, judge: DecisionJudge) -> None:
        self.judge = judge
        self._run = runner(model, "ort", threads=1)
        self._kept: dict[int, ReferenceSample] = {}
        self._bytes = 0

    def sample(self, number: int, feeds: Mapping[str, Any]) -> ReferenceSample:
        """The reference of a sample; kept as long as all take little memory."""
        if number in self._kept:
            return self._kept[number]
        reference = self.judge.reference(self._run(feeds))
        size = sum(array.nbytes for array in reference.outputs.values())
        if self._bytes + size <= REFERENCE_BYTES:
            self._kept[number] = reference
            self._bytes += size
        return reference


class Measurer:
    """Quality and latency of a choice; made once in each process."""

    def __init__(self, task: MeasuringTask) -> None:
        self._model, self._statistics = fold(read(task.model).ir), Statistics.load(task.statistics)
        limit_masks(self._model, self._statistics)
        self._integers: KnownIntegers = {}
        self._recipes, self._groups, self._deployment = task.recipes, task.groups, task.deployment
        self._arithmetic = task.arithmetic or chip_arithmetic(backend_for(task.deployment))
        labels = task.labels
        with np.load(task.samples) as file:
            self._samples: list[dict[str, Any]] = [{} for _ in labels]
            for key in file:
                number, _, name = key.partition("/")
                self._samples[int(number)][name] = file[key]
        self._labels, self._metric = labels, metric_of(task.metric, task.model)
        if isinstance(self._metric, TopK):
            self._metric.classes = task.classes
        judge = self._metric.judge if isinstance(self._metric, DecisionAgreement) else None
        self._references = _References(task.model, judge or _judge(task))

    def __call__(self, choice: Sequence[int]) -> MeasuredMix:
        backend = backend_for(self._deployment, threads=1)
        parts = prepare_model(read(self.model(choice)), backend, give_away=True)
        run = runner_of_parts(parts, backend)
        self._metric.reset()
        collector = DecisionCollector(self._references.judge)
        for i, (feeds, label) in enumerate(zip(self._samples, self._labels, strict=True)):
            outputs = run(feeds)
            reference = self._references.sample(i, feeds)
            judged = self._references.judge.compare(reference, outputs)
            collector.keep({}, judged)
            if not isinstance(self._metric, Sqnr | DecisionAgreement):
                check_numbers(outputs, i)  # which these two count, and an alarm tells
            if isinstance(self._metric, Sqnr):
                self._metric.update(self._metric.errors(reference.outputs, outputs), label)
            elif isinstance(self._metric, DecisionAgreement):
                self._metric.update(judged, label)
            else:
                self._metric.update(self._metric.measure(feeds, outputs, label), label)
        decisions = collector.decisions()
        alarms = tuple(alarm.text for alarm in decisions.alarms)
        timed = graphs_of_parts(parts, timed_backend(self._deployment))
        ms = estimate(timed, self._deployment, cpu_part=False).latency_ms
        return self._metric.result(), ms, decisions.agreement, alarms

    def model(self, choice: Sequence[int]) -> bytes:
        """The model of a choice: what quantizing by its recipe gives."""
        chosen = mixed_recipe(*self._recipes, self._groups, frozenset(choice))
        plan = assign(self._model, self._statistics, chosen, arithmetic=self._arithmetic)
        return to_bytes(write(self._model, plan, self._integers))


def _label_key(label: Any) -> Any:
    """A label, or a digest of it where it is a whole picture."""
    array = np.asarray(label)
    return array.tolist() if array.ndim < 2 else hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()


def _key(model: str | Path, *parts: Any) -> str:
    digest = hashlib.blake2b(Path(model).read_bytes(), digest_size=16)
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else repr(part).encode())
    return digest.hexdigest()


class _MeasuredPoints:
    """Measured points, kept in a file if there is one; one of another search is refused."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._path, self._key = path, key
        self._points: dict[Choice, MeasuredMix] = {}
        if path is None or not path.exists():
            return
        try:
            data = json.loads(path.read_text())
            stored_key = data["search"]
            if stored_key == key:
                self._points = {
                    frozenset(c): (float(q), float(ms), math.nan if agreed is None else float(agreed), tuple(alarms))
                    for c, q, ms, agreed, alarms in data["points"]
                }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}: is not the state of a search: {error!r}") from None
        if stored_key != key:
            raise CallError(
                f"{path}: is of another search (other model, data, recipes, chip or metric); name another file"
            )

    def __contains__(self, choice: Choice) -> bool:
        return choice in self._points

    def __getitem__(self, choice: Choice) -> MeasuredMix:
        return self._points[choice]

    def add(self, choice: Choice, measured: MeasuredMix) -> None:
        """Remember a point, on disk at once: each was dear."""
        self._points[choice] = measured
        if self._path is not None:
            rows = [
                [sorted(c), q, ms, None if math.isnan(agreed) else agreed, list(alarms)]
                for c, (q, ms, agreed, alarms) in self._points.items()
            ]
            write_atomically(self._path, json.dumps({"search": self._key, "points": rows}).encode())
