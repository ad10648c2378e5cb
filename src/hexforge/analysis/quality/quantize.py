# SPDX-License-Identifier: Apache-2.0
"""Quantize: a float model and samples to a model with encodings, and whether the NPU takes it whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hexforge.addon import Hook, has_hook, hook
from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.quality.compare import compare_models
from hexforge.analysis.quality.comparison import ComparisonSettings
from hexforge.analysis.quality.decisions.metric import required_decisions
from hexforge.analysis.quality.held_out import Quality, SplitSamples
from hexforge.analysis.quality.runners import runner
from hexforge.analysis.requests import QuantizeRequest, StageProgress
from hexforge.analysis.timed_graphs import chip_arithmetic, with_nodes_on_cpu
from hexforge.backend import ContextBackend
from hexforge.errors import CallError
from hexforge.formats import encodings as encodings_file
from hexforge.formats.files import require_another_file, require_writable
from hexforge.model.load_check import require_loads
from hexforge.model.reader import Model, read
from hexforge.model.save import save, to_bytes
from hexforge.model.source import ModelSource
from hexforge.patterns.nodes import dims as shape_of
from hexforge.quant.compare import open_outputs
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.observe import Statistics
from hexforge.quant.data.samples import CheckedSamples
from hexforge.quant.data.samples import samples as samples_of
from hexforge.quant.decide.assign import assign, quantized_nodes
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.decide.quant_units import axis_of
from hexforge.quant.decide.recipe import Recipe
from hexforge.quant.decide.recipe_reading import check_method
from hexforge.quant.decide.recipe_reading import recipe as recipe_of
from hexforge.quant.float_source import float_source
from hexforge.quant.fold import fold
from hexforge.quant.improve.tune import Improvement, TriedStep, improve
from hexforge.quant.input_ranges import range_warnings
from hexforge.quant.masks import LimitedMask, limit_masks
from hexforge.quant.write import write
from hexforge.request_fields import takes_fields_of
from hexforge.results import Key, Result, length, rows
from hexforge.runtime import registry
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.stages import PlacedNode


@dataclass(frozen=True, slots=True, eq=False)
class Quantization(Result):
    """What became of a model."""

    name: str
    recipe: Recipe
    soc: str
    plan: EncodingPlan
    statistics: Statistics
    tried: tuple[TriedStep, ...]
    """Improvements, and whether they were kept."""
    nodes: int
    """How many nodes the float model has after folding, which is what was quantized."""
    quantized: int
    """How many of these compute in fixed point."""
    refused: tuple[tuple[str, str], ...]
    """Nodes that HTP does not take on this chip, and why."""
    unused: tuple[str, ...]
    """Tensors that encodings were given for and that the folded model does not have."""
    shapes: Mapping[str, tuple[int, ...]]
    constants: frozenset[str]
    files: tuple[Path, ...]
    """What was written, the model first; empty where no file was named."""
    model: bytes | None
    """The model, where no file was named."""
    warnings: tuple[str, ...] = ()
    """What is odd about the samples."""
    quality: Quality | None = None
    """How near it comes to the float model, where that was asked for."""
    ep_refused: tuple[tuple[str, str], ...] = ()
    """Nodes that HTP takes and onnxruntime's QNN EP leaves to the CPU, and why."""
    masks: tuple[LimitedMask, ...] = ()
    """What is added before a Softmax to take places out, and what it was limited to."""
    rewritten: tuple[str, ...] = ()
    """Nodes of the float model that were written as what HTP takes, as it was asked for."""
    rewritable: tuple[str, ...] = ()
    """Nodes that would be with `rewrite`."""

    described = (
        Key("model", of="name"),
        Key("recipe", of="recipe.name"),
        "soc",
        Key("samples", of="statistics.samples"),
        "nodes quantized",
        Key("tensors", of=lambda made: Counter(fixed.dtype.value for fixed in made.plan.tensors.values())),
        Key("converts", of=length("plan.converts")),
        "placed_whole tried",
        Key("refused", of=rows("refused", "node why")),
        Key("ep_refused", of=rows("ep_refused", "node why"), omit_empty=True),
        Key("floats", of="plan.floats"),
        Key("mixed_heads", of="plan.mixed_heads"),
        Key("unused_encodings", of="unused"),
        "files warnings quality",
        Key("masks", omit_empty=True),
        Key("rewritten", omit_empty=True),
        Key("rewritable", omit_empty=True),
    )

    @property
    def placed_whole(self) -> bool:
        """True where HTP takes every node."""
        return not self.refused

    def export(self, path: Path, version: str = "1.0.0") -> None:
        """Write the encodings as an AIMET file."""
        pairs = {name: (fixed.dtype, fixed.encoding) for name, fixed in self.plan.tensors.items()}
        parameters = {name: pair for name, pair in pairs.items() if name in self.constants}
        activations = {name: pair for name, pair in pairs.items() if name not in self.constants}
        encodings_file.save(path, activations, parameters, self.shapes, version)


@takes_fields_of(QuantizeRequest)
def quantize(request: QuantizeRequest) -> Quantization:
    """Quantize a float model by samples of its inputs (a folder, an iterable, a CalibrationDataReader, or "random:8").

    Quality is measured on one of five samples, which is held out for that, as it is where the recipe improves. A sample
    that cannot be read is left out, as a warning says, unless that is to be an error.
    """
    chosen = request.recipe if isinstance(request.recipe, Recipe) else recipe_of(request.recipe)
    if request.method is not None:
        chosen = replace(chosen, method=check_method(request.method))
    required_decisions(request.metric)
    backend = registry.backend(registry.DEFAULT, {"soc_model": request.soc} if request.soc else {})
    if request.output is not None:
        require_other_file(Path(request.output), request.model)
    loaded = read(request.model, dims=request.dims, shapes=request.shapes, constants=request.constants)
    loaded.require_static()
    loaded = float_source(loaded)
    rewritten: tuple[str, ...] = ()
    if request.rewrite:
        float_refused = [row.node for row in prepare_model(loaded, backend).refused]
        loaded, rewritten = hook(Hook.MEND_REFUSALS)(loaded, backend, float_refused, verify=True)
    folded = fold(loaded.ir)
    samples = _samples(request.data, loaded, request.strict_samples)
    holds_out = request.quality or chosen.improve
    split = SplitSamples.of(samples) if holds_out else SplitSamples(samples, samples, held_out=False)
    report = request.progress or (lambda stage, done, whole: None)
    others = partial(map_tasks, workers=request.workers) if request.workers.several else None
    statistics = calibrate(
        folded, split.calibration, state=None if request.state is None else Path(request.state),
        progress=_stage(report, "calibrating"), task_map=others,
    )  # fmt: skip
    masks = limit_masks(folded, statistics)
    fixed = _FixedEncodings.of(folded, request.encodings)
    arithmetic = chip_arithmetic(backend)
    plan = assign(folded, statistics, chosen, given=fixed.encodings, arithmetic=arithmetic)
    written = write(folded, plan)
    placed = prepare_model(loaded.edited(written), backend)
    if placed.refused:
        arithmetic = with_nodes_on_cpu(arithmetic, placed, loaded.edited(folded), backend)
        plan = assign(folded, statistics, chosen, given=fixed.encodings, arithmetic=arithmetic)
    if chosen.improve:
        better = improve(
            folded, statistics, split.calibration, chosen, lambda edited: runner(loaded.edited(edited), backend),
            held_out=split.judged if split.held_out else None, given=fixed.encodings,
            arithmetic=arithmetic, progress=report, task_map=others,
        )  # fmt: skip
    else:
        better = Improvement(folded, statistics, plan, ())
    written = write(better.model, better.plan) if placed.refused or chosen.improve else written
    files, content = _write_model(written, request.output, loaded.name)
    quantized = read(files[0] if content is None else content)
    measured = None
    if request.quality:
        settings = ComparisonSettings(soc=request.soc or "", metric=request.metric)
        compared = compare_models(loaded, quantized, split.judged, settings, _stage(report, "measuring quality"))
        measured = Quality.of(compared, held_out=split.held_out)
    left_out = [told] if (told := samples.left_out.told()) else []
    unpadded = [said for mask in masks if (said := mask.warning())]
    warnings = (
        *left_out, *range_warnings(loaded.ir, statistics), *unpadded, *_open_lengths(loaded, request.quality),
    )  # fmt: skip
    if placed.refused or chosen.improve:
        placed = prepare_model(quantized, backend)
    refused = _by_unit(placed.refused, lambda row: row.reason or "")
    ep_refused = _by_unit(placed.ep_refused, lambda row: row.ep_refuses)
    rewritable: tuple[str, ...] = ()
    if placed.refused and not request.rewrite and has_hook(Hook.MEND_REFUSALS):
        _, rewritable = hook(Hook.MEND_REFUSALS)(loaded, backend, [row.node for row in placed.refused])
    graph = better.model.graph
    chip = backend.targets[0].label if isinstance(backend, ContextBackend) else backend.name
    return Quantization(
        loaded.name, chosen, chip, better.plan, better.statistics, better.tried, len(graph),
        quantized_nodes(graph, better.plan), refused, fixed.unused, fixed.shapes,
        frozenset(graph.initializers), files, content, warnings, measured, ep_refused, masks,
        rewritten, rewritable,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _FixedEncodings:
    """Encodings that a file gives for a model's tensors, and the shapes of these."""

    encodings: Mapping[str, Fixed | None]
    unused: tuple[str, ...]
    """Tensors of the file that the model does not have."""
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, model: Any, path: str | Path | None) -> _FixedEncodings:
        """The encodings of a file for this model, none without a file; CallError for a file of another model."""
        tensors = {v.name or "": v for v in (*model.graph.inputs, *model.graph.initializers.values())}
        tensors.update((v.name or "", v) for node in model.graph for v in node.outputs)
        shapes = {name: shape for name, value in tensors.items() if (shape := shape_of(value)) is not None}
        if path is None:
            return cls({}, (), shapes)
        pairs = encodings_file.load(Path(path), axis_of(model.graph), shapes)
        unused = tuple(name for name in pairs if name not in tensors)
        if pairs and len(unused) == len(pairs):
            raise CallError(f"{path}: none of its {len(pairs)} tensors is in the model; are they of another one?")
        return cls({name: None if pair is None else Fixed(*pair) for name, pair in pairs.items()}, unused, shapes)


def _open_lengths(model: Model, quality: bool) -> list[str]:
    """That outputs have lengths which depend on the data, where these are compared."""
    names = open_outputs(model.ir) if quality else []
    if not names:
        return []
    which = ", ".join(map(repr, names))
    return [
        f"{which}: the length depends on the data; element is compared with element, and what only one of the two "
        "models finds counts as an error"
    ]


def _stage(report: StageProgress, name: str) -> Callable[[int, int], None]:
    """Progress of one stage."""
    return lambda done, whole: report(name, done, whole)


def _write_model(model: Any, output: str | Path | None, name: str) -> tuple[tuple[Path, ...], bytes | None]:
    """The files that a model became, or its bytes where no file is named."""
    if output is not None:
        return save(model, Path(output)), None
    content = to_bytes(model)
    require_loads(content, name)
    return (), content


def require_other_file(output: Path, model: ModelSource) -> None:
    """The file to write is not the model's own, and can be written."""
    require_writable(output)
    if isinstance(model, str | Path):
        require_another_file(output, Path(model))


def _by_unit(rows: Iterable[PlacedNode], why: Callable[[PlacedNode], str]) -> tuple[tuple[str, str], ...]:
    """Nodes that stay with the CPU, one for each unit, and why."""
    named: dict[int, PlacedNode] = {}
    for row in rows:
        named.setdefault(row.unit, row)
    return tuple((row.node, why(row)) for row in named.values())


def _samples(data: Any, model: Model, strict: bool) -> CheckedSamples:
    if data is None or (isinstance(data, str) and not data.strip()):
        names = ", ".join(repr(value.name) for value in model.inputs)
        raise CallError(
            f"{model.name}: quantizing needs samples of its inputs ({names}): a folder of .npy, .npz, .raw or images; "
            "random:8 makes up eight, which only shows that it works"
        )
    return samples_of(data, model.ir, strict=strict)
