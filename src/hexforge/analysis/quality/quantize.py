# SPDX-License-Identifier: Apache-2.0
"""Quantize: a float model and samples to a model with encodings, and whether the NPU takes it whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hexforge.analysis.quality.compare import compare_models
from hexforge.analysis.quality.held_out import Quality, SplitSamples
from hexforge.analysis.quality.runners import runner
from hexforge.analysis.timed_graphs import wide_products
from hexforge.backend import Backend, Prepares
from hexforge.errors import CallError
from hexforge.formats import encodings as encodings_file
from hexforge.formats.files import require_another_file, require_writable
from hexforge.frontends.onnx.pipeline import place_model
from hexforge.model.nodes import dims as shape_of
from hexforge.model.reader import Model, read
from hexforge.model.save import save, to_bytes
from hexforge.model.source import ModelSource
from hexforge.model.writing.loads import require_loads
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.feeds import Samples
from hexforge.quant.data.observe import Statistics
from hexforge.quant.data.samples import samples as samples_of
from hexforge.quant.decide.assign import assign, quantized_nodes
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.decide.quant_units import axis_of
from hexforge.quant.decide.recipe import Recipe, check_method
from hexforge.quant.decide.recipe import recipe as recipe_of
from hexforge.quant.improve.tune import Improvement, Tried, improve
from hexforge.quant.measure.compare import require_float
from hexforge.quant.measure.input_ranges import range_warnings
from hexforge.quant.prepare.fold import fold
from hexforge.quant.write import write
from hexforge.runtime import registry
from hexforge.runtime.plan import partitioned
from hexforge.runtime.stages import PlacedNode

Progress = Callable[[str, int, int], None]
"""What is being done, how far it is, and out of how much."""

DEFAULT_RECIPE = "w8a8_channel"
"""A scale for every output channel costs no time and keeps accuracy where one for all loses it (README, accuracy)."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantization:
    """What became of a model."""

    name: str
    recipe: Recipe
    soc: str
    plan: EncodingPlan
    statistics: Statistics
    tried: tuple[Tried, ...]
    """Improvements, and whether they were kept."""
    nodes: int
    """Of the float model that was quantized, folded."""
    quantized: int
    """Of them, those that compute in fixed point."""
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

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        kinds: dict[str, int] = {}
        for fixed in self.plan.tensors.values():
            kinds[fixed.dtype.value] = kinds.get(fixed.dtype.value, 0) + 1
        return {
            "model": self.name,
            "recipe": self.recipe.name,
            "soc": self.soc,
            "samples": self.statistics.samples,
            "nodes": self.nodes,
            "quantized": self.quantized,
            "tensors": kinds,
            "converts": len(self.plan.converts),
            "placed_whole": self.placed_whole,
            "tried": [
                {"step": t.name, "before_db": t.before_db, "after_db": t.after_db, "kept": t.kept} for t in self.tried
            ],
            "refused": [{"node": node, "why": why} for node, why in self.refused],
            "floats": self.plan.floats,
            "unused_encodings": list(self.unused),
            "files": [str(path) for path in self.files],
            "warnings": list(self.warnings),
            "quality": None if self.quality is None else self.quality.to_json(),
        }


def quantize(
    model: ModelSource,
    data: Any,
    recipe: str | Path | Recipe = DEFAULT_RECIPE,
    output: str | Path | None = None,
    *,
    method: str | None = None,
    encodings: str | Path | None = None,
    soc: str | None = None,
    state: str | Path | None = None,
    quality: bool = False,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Quantization:
    """Quantize a float model by samples of its inputs (a folder, an iterable, a CalibrationDataReader, or "random:8").

    `encodings` is an AIMET file whose encodings stand as they are. `state` keeps what calibration has seen, so that an
    interrupted run goes on and the next recipe does without. Without `output` the model comes back as bytes. `quality`
    compares it with the float model: of five samples one is held out for that, as it is where the recipe improves.
    """
    chosen = recipe if isinstance(recipe, Recipe) else recipe_of(recipe)
    if method is not None:
        chosen = replace(chosen, method=check_method(method))
    backend = backend_of(soc)
    wide = wide_products(backend)
    if output is not None:
        require_other(Path(output), model)
    loaded = read(model, dims=dims, shapes=shapes)
    loaded.require_static()
    require_float(loaded.ir, loaded.name)
    folded = fold(loaded.ir)
    given_samples = _samples(data, loaded)
    split = SplitSamples(given_samples, given_samples, held_out=False)
    if quality or chosen.improve:
        split = SplitSamples.of(given_samples)
    samples = split.calibration
    said = progress or (lambda what, done, whole: None)
    statistics = calibrate(
        folded, samples, state=None if state is None else Path(state), progress=lambda d, n: said("calibrating", d, n)
    )
    known = {v.name or "": v for v in (*folded.graph.inputs, *folded.graph.initializers.values())}
    known.update((v.name or "", v) for node in folded.graph for v in node.outputs)
    sizes = {name: size for name, value in known.items() if (size := shape_of(value)) is not None}
    given = {} if encodings is None else _given(Path(encodings), axis_of(folded.graph), sizes)
    unused = tuple(name for name in given if name not in known)
    if given and len(unused) == len(given):
        raise CallError(f"{encodings}: none of its {len(given)} tensors is in the model; are they of another one?")
    if chosen.improve:
        better = improve(
            folded, statistics, samples, chosen, lambda made: runner(loaded.edited(made), backend),
            held_out=split.judged if split.held_out else None, given=given, wide_products=wide, progress=said,
        )  # fmt: skip
    else:
        plan = assign(folded, statistics, chosen, given=given, wide_products=wide)
        better = Improvement(folded, statistics, plan, ())
    written = write(better.model, better.plan)
    files = () if output is None else save(written, Path(output))
    found = to_bytes(written) if output is None else None
    if found is not None:
        require_loads(found, loaded.name)
    quantized = read(files[0] if found is None else found)
    measured = None
    if quality:
        compared = compare_models(
            loaded, quantized, split.judged, soc=soc or "", progress=lambda d, n: said("measuring quality", d, n)
        )
        measured = Quality.of(compared, held_out=split.held_out)
    refused = _refused(quantized, backend)
    graph = better.model.graph
    return Quantization(
        loaded.name, chosen, chip_label(backend), better.plan, better.statistics, better.tried, len(graph),
        quantized_nodes(graph, better.plan), refused, unused, sizes, frozenset(graph.initializers), files, found,
        tuple(range_warnings(loaded.ir, statistics)), measured,
    )  # fmt: skip


def require_other(output: Path, model: ModelSource) -> None:
    """The file to write is not the model's own, and can be written."""
    require_writable(output)
    if isinstance(model, str | Path):
        require_another_file(output, Path(model))


def backend_of(soc: str | None) -> Backend:
    """The NPU that a model is quantized for; of any chip where none is named."""
    return registry.backend(registry.DEFAULT, {"soc_model": soc} if soc else {})


def chip_label(backend: Backend) -> str:
    """What messages call the chip."""
    return backend.targets[0].label if isinstance(backend, Prepares) else backend.name


def _given(path: Path, axes: Mapping[str, int], sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Fixed | None]:
    encodings = encodings_file.load(path, axes, sizes)
    return {name: None if pair is None else Fixed(*pair) for name, pair in encodings.items()}


def _refused(model: Model, backend: Backend) -> tuple[tuple[str, str], ...]:
    """Every node that the NPU refuses, as in a session without CPU fallback."""
    refused: dict[int, PlacedNode] = {}
    for row in partitioned(place_model(model, backend), keep_converts=True).refused:
        refused.setdefault(row.unit, row)
    return tuple((row.node, row.reason or "") for row in refused.values())


def _samples(data: Any, model: Model) -> Samples:
    if data is None or (isinstance(data, str) and not data.strip()):
        names = ", ".join(repr(value.name) for value in model.inputs)
        raise CallError(
            f"{model.name}: quantizing needs samples of its inputs ({names}): a folder of .npy, .npz, .raw or images; "
            "random:8 makes up eight, which only shows that it works"
        )
    return samples_of(data, model.ir)
