# SPDX-License-Identifier: Apache-2.0
"""Compare: a quantized model next to the float one, tensor by tensor, and what each layer's quantization costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from hexforge.analysis.quality.runners import backend_for, runner
from hexforge.analysis.quality.spread import spread
from hexforge.errors import CallError, ModelError
from hexforge.formats.json_text import finite_or_none
from hexforge.ir import Array
from hexforge.model.nodes import dims as shape_of
from hexforge.model.reader import Model, read
from hexforge.model.save import to_bytes
from hexforge.options import did_you_mean
from hexforge.quant.data.feeds import Feeds, Samples
from hexforge.quant.data.samples import samples as samples_of
from hexforge.quant.measure import compare as tensors
from hexforge.quant.measure import sensitivity as layered
from hexforge.quant.measure.compare import ChannelFit, ErrorSums, Watched
from hexforge.quant.prepare.fold import fold
from hexforge.runtime import registry

SENSITIVITY = ("none", "one", "all-but-one")
WATCHED_BYTES = 1 << 29
"""What the watched tensors of one sample may take at a time; more tensors are watched in further rounds."""
DOUBTED_DB = 10.0
"""A tensor this bad may have been rescaled by the quantizer."""
LAYER_SAMPLES = 16
"""Samples that each layer's sensitivity is measured on."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class TensorError:
    """What quantization costs a tensor."""

    name: str
    kind: tensors.Kind
    op_type: str
    """The op that makes it, or reads it where it is a weight."""
    dtype: str
    """Its integer type, empty where it is not quantized."""
    running: ErrorSums | None
    """Its error in the running quantized model, all errors before it included; None for weights."""
    own: ErrorSums | None
    """The error its own quantization adds to the float model's numbers; None where it has none."""
    rescaled_db: float | None = None
    """Where it is the float model's but for factors of its channels (equalized): the SQNR without these."""

    @property
    def sqnr_db(self) -> float:
        """What it is ranked by."""
        sums = self.running or self.own
        assert sums is not None
        return sums.sqnr_db if self.rescaled_db is None else self.rescaled_db

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        named = {"name": self.name, "kind": self.kind, "op": self.op_type, "type": self.dtype}
        figures = {"running": _figures(self.running), "own": _figures(self.own)}
        return named | figures | ({} if self.rescaled_db is None else {"rescaled_db": finite_or_none(self.rescaled_db)})


@dataclass(frozen=True, slots=True)
class LayerError:
    """The outputs' SQNR with only this layer quantized, or with all but this one."""

    name: str
    op_type: str
    sqnr_db: float
    gain_db: float
    """All but one: what leaving it in float wins over the whole model quantized; one alone: 0."""

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "name": self.name,
            "op": self.op_type,
            "sqnr_db": finite_or_none(self.sqnr_db),
            "gain_db": finite_or_none(self.gain_db),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The evidence of one quantized model."""

    model: str
    reference: str
    backend: str
    samples: int
    outputs: tuple[TensorError, ...]
    tensors: tuple[TensorError, ...]
    """Activations, the worst first."""
    weights: tuple[TensorError, ...]
    unmatched: int
    """Quantized activations that the float model has no tensor of the same name for."""
    sensitivity: str = "none"
    layers: tuple[LayerError, ...] = field(default=())

    @property
    def sqnr_db(self) -> float:
        """The SQNR of the output that lost most."""
        return min((row.sqnr_db for row in self.outputs), default=math.nan)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "sqnr_db": finite_or_none(self.sqnr_db),
            "model": self.model,
            "reference": self.reference,
            "backend": self.backend,
            "samples": self.samples,
            "outputs": [row.to_json() for row in self.outputs],
            "tensors": [row.to_json() for row in self.tensors],
            "weights": [row.to_json() for row in self.weights],
            "unmatched": self.unmatched,
            "sensitivity": self.sensitivity,
            "layers": [row.to_json() for row in self.layers],
        }


def _figures(sums: ErrorSums | None) -> dict[str, float | int | None] | None:
    if sums is None:
        return None
    figures: dict[str, float | int | None] = {
        "sqnr_db": finite_or_none(sums.sqnr_db),
        "cosine": finite_or_none(sums.cosine),
    }
    return figures | {"max_error": sums.max_error, "not_finite": sums.not_finite}


def compare(
    float_model: str | Path,
    quantized: str | Path,
    data: str | Path | Samples | Iterable[Feeds],
    *,
    backend: str = registry.DEFAULT,
    soc: str = "",
    limit: int | None = None,
    sensitivity: str = "none",
    jobs: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Run both models on samples: the float one in onnxruntime, the quantized one on `backend`.

    What the float model leaves open of its inputs' shapes is as in the quantized one.
    """
    if sensitivity not in SENSITIVITY:
        known = f"there are {', '.join(SENSITIVITY)}{did_you_mean(sensitivity, SENSITIVITY)}"
        raise CallError(f"sensitivity {sensitivity!r}: {known}")
    exact, coarse = read(float_model), read(quantized)
    coarse.require_static()
    fixed = {v.name or "": shape_of(v) for v in coarse.ir.graph.inputs}
    left = {name: shape for name, _ in exact.dynamic() if (shape := fixed.get(name)) is not None}
    if left:
        exact = read(float_model, shapes=left)
    exact.require_static()
    tensors.require_float(exact.ir, exact.name)
    samples = samples_of(data, exact.ir)
    if not len(samples):
        raise CallError("there are no samples to compare on")
    return compare_models(
        exact, coarse, samples, backend=backend, soc=soc, limit=limit, sensitivity=sensitivity, jobs=jobs,
        progress=progress,
    )  # fmt: skip


def compare_models(
    exact: Model,
    coarse: Model,
    samples: Samples,
    *,
    backend: str = registry.DEFAULT,
    soc: str = "",
    limit: int | None = None,
    sensitivity: str = "none",
    jobs: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two models that are read already, as `compare` does."""
    names = tensors.float_tensors(exact.ir)
    missing = [str(v.name) for v in coarse.ir.graph.inputs if v.name not in names and v.name not in _inputs(exact.ir)]
    if missing or not {v.name for v in exact.ir.graph.outputs} & {v.name for v in coarse.ir.graph.outputs}:
        raise CallError(
            f"{coarse.name} is no quantized {exact.name}: "
            + (f"input {missing[0]!r} is not among its inputs" if missing else "they have no output in common")
        )
    taps = sum(n.op_type == tensors.QUANTIZE and _watchable(n, names) for n in coarse.ir.graph)
    quantizers = sum(n.op_type == tensors.QUANTIZE and _of_activation(n) for n in coarse.ir.graph)
    rows: list[TensorError] = []
    count = len(samples) if limit is None else min(limit, len(samples))
    looked_at = {item.name for item in tensors.watch(coarse.ir.clone(), names)}
    rounds = list(_rounds(exact.ir, [name for name in names if name in looked_at]))
    for index, some in enumerate(rounds):

        def report_round(done: int, of: int, before: int = index * count) -> None:
            if progress is not None:
                progress(before + done, len(rounds) * count)

        rows += _watch(
            exact.ir.clone(), coarse.ir.clone(), some, islice(samples, count), backend, soc, report_round, count
        )
    weights = []
    folded = tensors.float_constants(fold(exact.ir))
    for name, node, real, quantized in tensors.weights(coarse.ir, tensors.float_constants(exact.ir)):
        own = _nearest(quantized, real, folded.get(name))
        linear = tensors.Linear.of(node)
        reader = next(iter(node.outputs[0].consumers()), None)
        kind = linear.type if linear is not None else ""
        weights.append(TensorError(name, "weight", reader.op_type if reader is not None else "", kind, None, own))
    layers: tuple[LayerError, ...] = ()
    if sensitivity != "none":
        chosen = list(islice(samples, min(count, LAYER_SAMPLES)))
        layers = _sensitivity(exact.ir, coarse.ir, chosen, sensitivity, backend, soc, jobs, progress)
    order = {str(v.name): i for i, v in enumerate(exact.ir.graph.outputs)}
    outputs = sorted((r for r in rows if r.name in order), key=lambda r: order[r.name])
    return Comparison(
        coarse.name, exact.name, backend, count, tuple(outputs),
        tuple(sorted((r for r in rows if r.name not in order), key=_rank)), tuple(sorted(weights, key=_rank)),
        quantizers - taps, sensitivity, layers,
    )  # fmt: skip


def _nearest(quantized: Array, *references: Array | None) -> ErrorSums:
    """The error of a weight against the float model's, which has it as it is or with a normalization folded in."""
    errors: list[ErrorSums] = []
    for reference in references:
        if reference is not None and reference.shape == quantized.shape:
            errors.append(ErrorSums())
            errors[-1].update(reference, quantized)
    return max(errors, key=lambda sums: sums.sqnr_db)


def _rank(row: TensorError) -> tuple[float, str]:
    return row.sqnr_db, row.name


def _inputs(model: Any) -> set[str]:
    return {str(v.name) for v in model.graph.inputs}


def _of_activation(node: Any) -> bool:
    return node.inputs[0] is not None and node.inputs[0].const_value is None


def _watchable(node: Any, names: Collection[str]) -> bool:
    return tensors.Linear.of(node) is not None and tensors.float_name(node, names) is not None


def _rounds(model: Any, names: Iterable[str]) -> Iterable[list[str]]:
    """Tensors in groups that fit into memory together."""
    shapes = {v.name: v.shape for v in (*model.graph.inputs, *(v for n in model.graph for v in n.outputs))}
    some: list[str] = []
    size = 0
    for name in names:
        shape = shapes[name]
        mine = 4 * math.prod(d for d in shape if isinstance(d, int)) if shape is not None else 0
        if some and size + 2 * mine > WATCHED_BYTES:
            yield some
            some, size = [], 0
        some.append(name)
        size += 2 * mine
    yield some


def _watch(
    exact: Any, coarse: Any, names: Collection[str], samples: Iterable[Feeds], backend: str, soc: str,
    progress: Progress, count: int,
) -> list[TensorError]:  # fmt: skip
    """The errors of these tensors of the float model; both models are edited."""
    watched = tensors.watch(coarse, names)
    tensors.show(exact, [item.name for item in watched])
    run_exact = runner(to_bytes(exact), "ort", name="the float model")
    run_coarse = runner(to_bytes(coarse), backend_for(backend, soc), name="the quantized model")
    sums = [(ErrorSums(), ErrorSums(), ChannelFit()) for _ in watched]
    for done, feeds in enumerate(samples, 1):
        reference = {**feeds, **run_exact(feeds)}
        results = run_coarse(feeds)
        for item, parts in zip(watched, sums, strict=True):
            _update(item, reference[item.name], results[item.output], *parts)
        progress(done, count)
    rows = []
    for item, (running, own, fit) in zip(watched, sums, strict=True):
        rescaled = fit.sqnr_db() if item.kind == "tensor" and running.sqnr_db < DOUBTED_DB else None
        own_error = (
            own if item.linear is not None and rescaled is None else None
        )  # its encoding is for the scaled numbers
        dtype = item.linear.type if item.linear is not None else ""
        rows.append(TensorError(item.name, item.kind, item.producer, dtype, running, own_error, rescaled))
    return rows


def _update(
    item: Watched, reference: Array, result: Array, running: ErrorSums, own: ErrorSums, fit: ChannelFit
) -> None:
    if reference.size != result.size:
        raise ModelError(
            f"{item.name!r}: the float model's has shape {list(reference.shape)}, the quantized one's "
            f"{list(result.shape)}; compare models of the same shapes"
        )
    running.update(reference, result)
    if item.linear is not None:
        own.update_rounded(reference, item.linear)
    if running.sqnr_db < DOUBTED_DB and reference.shape == result.shape:
        fit.update(reference, result)


def _sensitivity(
    exact: Any, coarse: Any, samples: list[Feeds], mode: str, backend: str, soc: str, jobs: int,
    progress: Progress | None,
) -> tuple[LayerError, ...]:  # fmt: skip
    coarse = coarse.clone()
    layered.restore_clips(coarse, exact)
    layers = layered.layers(coarse)
    if not layers:
        raise ModelError("the quantized model has no QuantizeLinear: there is no layer to be sensitive")
    run = runner(to_bytes(exact), "ort", name="the float model")
    references = [run(feeds) for feeds in samples]
    numbers = layered.float_weights(coarse, tensors.float_constants(exact))
    every = frozenset(name for layer in layers for name in layer.quantizers)
    variants = [layer.quantizers if mode == "one" else every - layer.quantizers for layer in layers]
    arguments = (to_bytes(coarse), numbers, samples, references, backend, soc, 1 if jobs > 1 else 0)
    figures = []
    for figure in spread(_Variant, arguments, [every, *variants], jobs):
        figures.append(figure)
        if progress is not None:
            progress(len(figures), len(variants) + 1)
    whole, *layer_figures = figures
    rows = [
        LayerError(layer.name, layer.op_type, figure, figure - whole if mode == "all-but-one" else 0.0)
        for layer, figure in zip(layers, layer_figures, strict=True)
    ]
    return tuple(sorted(rows, key=lambda r: (r.sqnr_db if mode == "one" else -r.sqnr_db, r.name)))


class _Variant:
    """Gives, in each process, the lowest SQNR of the outputs with only some quantizers left."""

    def __init__(
        self, model: bytes, numbers: Mapping[str, Array], samples: list[Feeds], references: list[dict[str, Array]],
        backend: str, soc: str, threads: int,
    ) -> None:  # fmt: skip
        self.model, self.numbers = read(model).ir, numbers
        self.samples, self.references = samples, references
        self.backend, self.soc, self.threads = backend, soc, threads

    def __call__(self, quantizers: frozenset[str]) -> float:
        edited = layered.quantized_only(self.model, quantizers, self.numbers)
        run = runner(
            to_bytes(edited),
            backend_for(self.backend, self.soc, self.threads),
            threads=self.threads,
            name="the edited model",
        )
        sums: dict[str, ErrorSums] = {}
        for feeds, reference in zip(self.samples, self.references, strict=True):
            for name, array in run(feeds).items():
                if name in reference:
                    sums.setdefault(name, ErrorSums()).update(reference[name], array)
        return min(error.sqnr_db for error in sums.values())
