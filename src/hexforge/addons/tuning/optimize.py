# SPDX-License-Identifier: Apache-2.0
"""Optimize: the whole way of a model to a chip in one call, a folder of files at its end.

Shapes are fixed, rewrites that keep the function applied, mixes of precisions measured, the best one quantized and
compiled. Every file is written whole or not at all, and what was measured is kept in the folder: the same call after an
interruption goes on from there.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.tuning.advice.advise import AdviceRequest, advise_and_rewrite
from hexforge.addons.tuning.advice.result import Advice, AdviceResult
from hexforge.addons.tuning.recommend import Recommendation, confirmed, recommend
from hexforge.addons.tuning.requests import OptimizeRequest, Scoring, SearchSpace
from hexforge.addons.tuning.search import SearchResult, calibration_file, search
from hexforge.analysis.estimate import Estimate, estimate
from hexforge.analysis.quality.compare import compare
from hexforge.analysis.quality.comparison import Comparison
from hexforge.analysis.quality.decision_agreement import DecisionAgreement
from hexforge.analysis.quality.decisions.metric import AUTO, decisions_or_none
from hexforge.analysis.quality.evaluate import evaluate
from hexforge.analysis.quality.labelled_samples import labelled_samples
from hexforge.analysis.quality.labels import class_names
from hexforge.analysis.quality.metrics import metric_of
from hexforge.analysis.quality.pictures import PictureComparison, as_picture, compare_pictures
from hexforge.analysis.quality.quantize import Quantization, quantize
from hexforge.analysis.requests import SQNR, StageProgress
from hexforge.analysis.workers import Workers
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.file_kinds import stem_of
from hexforge.formats.files import write_atomically
from hexforge.model.extraction import model_bytes
from hexforge.model.reader import read
from hexforge.patterns.nodes import dims as shape_of
from hexforge.quant.float_source import as_float
from hexforge.results import Key, Result, rows
from hexforge.runtime.contexts.compile import Compiled
from hexforge.runtime.contexts.compile import compile as compile_context
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.registry import backend_for


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """Where the files of a model go."""

    path: Path
    stem: str
    usable: bool = True
    """False where nothing is recommended: the quantized model is called unusable then, and is not compiled."""

    @property
    def float_model(self) -> Path:
        """The float model, shapes fixed and rewritten."""
        return self.path / f"{self.stem}.float.onnx"

    @property
    def quantized(self) -> Path:
        """The recommended model; where none is, the one that is least bad, by another name."""
        return self.path / (f"{self.stem}.qdq.onnx" if self.usable else f"{self.stem}.unusable.onnx")

    @property
    def context(self) -> Path:
        """The recommended model compiled."""
        return self.path / f"{self.stem}.bin"

    @property
    def recipe(self) -> Path:
        """How it was quantized."""
        return self.path / "recipe.json"

    @property
    def page(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def result(self) -> Path:
        """What `--json` prints."""
        return self.path / "result.json"

    @property
    def state(self) -> Path:
        """What the search has measured."""
        return self.path / "search.state.json"


@dataclass(frozen=True, slots=True, eq=False)
class OptimizeResult(Result):
    """What became of a model, and why."""

    model: str
    folder: OutputFolder
    metric: str
    before: Estimate | None
    """The model as it came, in float; None where the chip has no float math."""
    after: Estimate
    """The recommended model."""
    rewrites: AdviceResult
    searched: SearchResult
    recommendation: Recommendation
    quantization: Quantization
    comparison: Comparison
    float_score: float | None
    """The float model's score by the metric; None for sqnr, which is measured against that model."""
    score: float
    """The recommended model's score on the samples that are kept for the end."""
    scored: int
    compiled: Compiled | None
    """None where the chip refuses a node."""
    next_steps: tuple[Advice, ...]
    """Advice that is left: what keeps the function is applied already."""
    pictures: PictureComparison | None = None
    """Float, recommended and fastest mix side by side; None where the model makes no picture."""

    described = (
        "model",
        Key("soc", of="after.soc"),
        "metric",
        Key("latency_ms", of="after.latency_ms", rounded=4),
        Key("float_latency_ms", of=lambda made: None if made.before is None else made.before.latency_ms, rounded=4),
        Key("speedup", rounded=3),
        Key("score", rounded=6),
        Key("float_score", rounded=6),
        Key("scored_samples", of="scored"),
        Key("sqnr_db", of="comparison.sqnr_db", rounded=6),
        Key("decisions", of="comparison.decisions"),
        Key("recommended", of=lambda made: _choice(made) if made.recommendation.recommended else None),
        Key("not_recommended", of=lambda made: None if made.recommendation.recommended else _choice(made)),
        "rewrites",
        Key("search", of="searched"),
        Key("mixed_heads", of="quantization.plan.mixed_heads"),
        Key("next", of="next_steps"),
        Key("refused", of=rows("quantization.refused", "node why")),
        "files",
    )

    @property
    def speedup(self) -> float | None:
        """How many times faster it became, the CPU's part included where it is known; None without a float time."""
        if self.before is None:
            return None
        whole = self.before.total_us_rough, self.after.total_us_rough
        if whole[0] is None or whole[1] is None:
            return self.before.latency_ms / self.after.latency_ms
        return whole[0] / whole[1]

    @property
    def files(self) -> tuple[Path, ...]:
        """What was written, the model first."""
        folder = self.folder
        possible = (folder.quantized, folder.context, folder.float_model, folder.recipe, folder.page, folder.result)
        return tuple(path for path in possible if path.exists())


def _choice(optimized: OptimizeResult) -> dict[str, str]:
    """The recipe, as JSON has it."""
    recommendation = optimized.recommendation
    return {"recipe": optimized.quantization.recipe.name, "kind": recommendation.kind, "reason": recommendation.reason}


def optimize(
    model: str | Path,
    output: str | Path,
    request: OptimizeRequest,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    *,
    progress: StageProgress = lambda what, done, of: None,
) -> OptimizeResult:
    """The model made as fast as it gets on a chip at little loss; everything but the page is written into `output`."""
    path, chosen = Path(model), Deployment.of(deployment)
    folder = OutputFolder(Path(output), stem_of(path))
    _make_folder(folder, path)
    before = None
    if require_chip(chosen.soc).float16:
        floating = read(path, dims=request.dims, shapes=request.shapes, constants=request.constants)
        before = estimate(floating, replace(chosen, precision="float"))
    rewrites = _rewrite_model(path, folder, request, chosen, progress)
    searched = _search_precisions(folder, request, chosen, progress)
    float_score, count = _float_score(folder, request, progress)
    choice = recommend(searched, float_score)
    recipe = searched.recipe(choice.point)
    write_atomically(folder.recipe, json.dumps(recipe.to_mapping(), indent=1).encode())
    quantization = quantize(
        folder.float_model, request.data, recipe, folder.quantized, soc=chosen.soc,
        state=calibration_file(folder.state), progress=progress,
    )  # fmt: skip
    after = estimate(folder.quantized, replace(chosen, precision="as-is"))
    comparison = compare(
        folder.float_model, folder.quantized, _is_scored(request), soc=chosen.soc, limit=request.samples,
        metric=_judged_by(request.metric), progress=lambda done, of: progress("comparing tensors", done, of),
    )  # fmt: skip
    choice = confirmed(choice, comparison.decisions)
    unusable = replace(folder, usable=False)
    unusable.quantized.unlink(missing_ok=True)  # of an earlier run
    if not choice.recommended:
        folder.quantized.replace(unusable.quantized)
        folder.context.unlink(missing_ok=True)
        folder = unusable
    score = comparison.sqnr_db
    if isinstance(metric_of(request.metric, folder.float_model), DecisionAgreement):
        assert comparison.decisions is not None
        score, count = comparison.decisions.agreement, comparison.samples
    elif float_score is not None:
        measured = evaluate(
            folder.quantized, _is_scored(request), request.labels, request.metric, classes=request.classes,
            soc=chosen.soc, limit=request.scored, progress=lambda done, of: progress("scoring", done, of),
        )  # fmt: skip
        score, count = measured.score, measured.samples
    compiled = None
    if quantization.placed_whole and choice.recommended:
        compiled = compile_context(
            folder.quantized, folder.context, backend_for(chosen), ContextRequest(graph_names=(stem_of(path),)),
            progress=lambda done, of: progress("compiling", done, of),
        )  # fmt: skip
    left = tuple(a for a in _remaining_advice(folder.quantized, chosen, progress) if not a.keeps_function or a.gain > 0)
    optimized = OptimizeResult(
        path.name, folder, searched.metric, before, after, rewrites, searched, choice, quantization,
        comparison, float_score, score, count, compiled, left, _pictures(folder, request, chosen, searched, choice),
    )  # fmt: skip
    write_atomically(folder.result, json.dumps(optimized.to_json(), indent=1).encode())
    return optimized


def _make_folder(folder: OutputFolder, model: Path) -> None:
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CallError(f"{folder.path}: cannot be made: {error.strerror}; name another folder with -o") from None
    if model.resolve() in {p.resolve() for p in (folder.float_model, folder.quantized, folder.context)}:
        raise CallError(f"{folder.path}: has the model itself, which would be overwritten; name another folder with -o")


def _rewrite_model(
    path: Path, folder: OutputFolder, request: OptimizeRequest, deployment: Deployment, progress: StageProgress
) -> AdviceResult:
    """The model with every rewrite that keeps its function and gains at 8 bits, written with its shapes fixed."""
    read_model = read(path, dims=request.dims, shapes=request.shapes, constants=request.constants)
    loaded = as_float(read_model)
    prepared = bool(request.constants) or loaded is not read_model
    given = folder.float_model if prepared else path
    if prepared:
        loaded.require_static()
        write_atomically(folder.float_model, model_bytes(loaded))
    advice = advise_and_rewrite(
        given,
        replace(deployment, precision="w8a8"),
        AdviceRequest(),
        dims={} if prepared else request.dims,
        shapes={} if prepared else request.shapes,
        observe=lambda done, of, rule: progress("trying rewrites", done, of),
    )
    if advice.applied and advice.error is None:  # nothing could be compared, so the model stays as it is
        advice = replace(advice, rewritten=loaded, applied=(), after_us=advice.before_us)
    write_atomically(folder.float_model, model_bytes(advice.rewritten))
    return advice


def _search_precisions(
    folder: OutputFolder, request: OptimizeRequest, deployment: Deployment, progress: StageProgress
) -> SearchResult:
    space = SearchSpace(request.low, request.high, request.groups, budget=request.budget)
    scoring = Scoring(request.metric, request.labels, request.classes, request.evaluation, request.samples)

    def once() -> SearchResult:
        return search(
            folder.float_model, request.data, deployment, space, scoring,
            workers=Workers(request.jobs, request.cluster), state=folder.state,
            progress=lambda done, of: progress("measuring mixes", done, of),
        )  # fmt: skip

    try:
        return once()
    except CallError:
        if not folder.state.exists():
            raise
        # of another model, data or chip: it is of no use, and the folder is this one's
        folder.state.unlink()
        calibration_file(folder.state).unlink(missing_ok=True)
        return once()


def _judged_by(metric: Any) -> str:
    """What decisions are judged by beside a metric: its own kind, else what the outputs look like."""
    rule = decisions_or_none(metric)
    return str(metric) if isinstance(metric, str) and rule is not None and not metric.count(".py:") else AUTO


def _is_scored(request: OptimizeRequest) -> Any:
    return request.data if request.evaluation is None else request.evaluation


def _float_score(folder: OutputFolder, request: OptimizeRequest, progress: StageProgress) -> tuple[float | None, int]:
    """The float model's score and its samples; sqnr needs none."""
    if str(request.metric) == SQNR:
        return None, request.samples
    if isinstance(metric_of(request.metric, folder.float_model), DecisionAgreement):
        return 1.0, request.samples  # it decides as it does
    measured = evaluate(
        folder.float_model, _is_scored(request), request.labels, request.metric, classes=request.classes, backend="ort",
        limit=request.scored, progress=lambda done, of: progress("scoring the float model", done, of),
    )  # fmt: skip
    return measured.score, measured.samples


def _pictures(
    folder: OutputFolder,
    request: OptimizeRequest,
    deployment: Deployment,
    searched: SearchResult,
    choice: Recommendation,
) -> PictureComparison | None:
    """What the recommended mix makes of pictures, and what the fastest one does where that is another."""
    loaded = read(folder.float_model)
    shapes = [shape_of(output) or () for output in loaded.ir.graph.outputs]
    if all(as_picture(np.broadcast_to(np.float32(0), shape)) is None for shape in shapes):
        return None
    metric = metric_of(request.metric, folder.float_model)
    classes = class_names(request.classes)
    samples = labelled_samples(_is_scored(request), request.labels, metric, loaded.ir, classes, request.samples)
    with tempfile.TemporaryDirectory() as temporary:
        models: dict[str, Path] = {searched.recipe(choice.point).name: folder.quantized}
        if searched.mixes.low != choice.point:
            fastest = searched.recipe(searched.mixes.low)
            models[fastest.name] = Path(temporary) / "fastest.onnx"
            quantize(
                folder.float_model, request.data, fastest, models[fastest.name], soc=deployment.soc,
                state=calibration_file(folder.state),
            )  # fmt: skip
        return compare_pictures(folder.float_model, models, samples, backend_for(deployment))


def _remaining_advice(model: Path, deployment: Deployment, progress: StageProgress) -> tuple[Advice, ...]:
    """What would make the recommended model faster still; nothing where it cannot be told."""
    try:
        advised = advise_and_rewrite(
            model,
            replace(deployment, precision="as-is"),
            AdviceRequest(verify=False),
            observe=lambda done, of, rule: progress("looking for more", done, of),
        )
        return tuple(advice for advice in advised.advice if advice.accuracy or advice.gain > 0)
    except HexforgeError:
        return ()
