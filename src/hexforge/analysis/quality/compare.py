# SPDX-License-Identifier: Apache-2.0
"""Compare: a quantized model next to the float one, tensor by tensor, and what each layer's quantization costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from hexforge.analysis.quality.comparison import Comparison, ComparisonSettings, LayerError, TensorError
from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge
from hexforge.analysis.quality.decisions.metric import required_decisions
from hexforge.analysis.quality.held_out import sample_names
from hexforge.analysis.quality.layer_sensitivity import Progress, layer_errors
from hexforge.analysis.quality.runners import backend_for, runner
from hexforge.analysis.requests import CompareRequest
from hexforge.analysis.workers import Workers
from hexforge.errors import CallError, ModelError
from hexforge.ir import Array
from hexforge.model.reader import Model, read
from hexforge.model.save import to_bytes
from hexforge.options import did_you_mean
from hexforge.patterns.nodes import dims as shape_of
from hexforge.quant import compare as tensors
from hexforge.quant.compare import ChannelFit, ErrorSums, WatchedTensor
from hexforge.quant.data.feeds import Feeds, Samples
from hexforge.quant.data.samples import samples as samples_of
from hexforge.quant.float_source import float_source
from hexforge.quant.fold import fold
from hexforge.quant.masks import masked_tensors
from hexforge.request_fields import takes_fields_of

T = TypeVar("T")
SENSITIVITY = ("none", "one", "all-but-one")
WATCHED_BYTES = 1 << 29
"""What the watched tensors of one sample may take at a time; more tensors are watched in further rounds."""
DOUBTED_DB = 10.0
"""A tensor this bad may have been rescaled by the quantizer."""
LAYER_SAMPLES = 16
"""Samples that each layer's sensitivity is measured on."""


@takes_fields_of(CompareRequest)
def compare(request: CompareRequest) -> Comparison:
    """Run both models on samples: the float one in onnxruntime, the quantized one on the backend.

    What the float model leaves open of its inputs' shapes is as in the quantized one; `dims`, `shapes` and `constants`
    fix the inputs of both, as far as the quantized one still has them. A sample that cannot be read is left out and
    counted, unless that is to be an error.
    """
    if request.sensitivity not in SENSITIVITY:
        known = f"there are {', '.join(SENSITIVITY)}{did_you_mean(request.sensitivity, SENSITIVITY)}"
        raise CallError(f"sensitivity {request.sensitivity!r}: {known}")
    required_decisions(request.metric)
    dims, shapes, constants = request.dims, request.shapes, request.constants
    coarse = read(request.quantized)
    if coarse.dynamic() or {v.name for v in coarse.inputs} & {*(shapes or ()), *(constants or ())}:
        names = {value.name for value in coarse.inputs}
        symbols = {dim for value in coarse.inputs for dim in value.shape or () if isinstance(dim, str)}
        coarse = read(
            request.quantized, dims=_only(dims, symbols), shapes=_only(shapes, names), constants=_only(constants, names)
        )
    coarse.require_static()
    exact = read(request.float_model, dims=dims, shapes=shapes, constants=constants)
    fixed = {v.name or "": shape_of(v) for v in coarse.ir.graph.inputs}
    left = {name: shape for name, _ in exact.dynamic() if (shape := fixed.get(name)) is not None}
    if left:
        exact = read(request.float_model, dims=dims, shapes={**(shapes or {}), **left}, constants=constants)
    exact.require_static()
    exact = float_source(exact)
    samples = samples_of(request.data, exact.ir, strict=request.strict_samples)
    if not len(samples):
        raise CallError("there are no samples to compare on")
    settings = ComparisonSettings(
        request.backend, request.soc, request.limit, request.sensitivity, Workers(request.jobs, request.cluster),
        request.metric,
    )  # fmt: skip
    compared = compare_models(exact, coarse, samples, settings, request.progress)
    return replace(compared, left_out=samples.left_out.told())


def _only(given: Mapping[str, T] | None, names: Container[str | None]) -> dict[str, T]:
    """What is given for one of the names."""
    return {name: value for name, value in (given or {}).items() if name in names}


def compare_models(
    exact: Model, coarse: Model, samples: Samples, settings: ComparisonSettings, progress: Progress | None = None
) -> Comparison:
    """Compare two models that are read already, as `compare` does."""
    masked = masked_tensors(exact.ir)
    names = [name for name in tensors.float_tensors(exact.ir) if name not in masked]
    missing = [str(v.name) for v in coarse.ir.graph.inputs if v.name not in names and v.name not in _inputs(exact.ir)]
    if missing or not {v.name for v in exact.ir.graph.outputs} & {v.name for v in coarse.ir.graph.outputs}:
        raise CallError(
            f"{coarse.name} is no quantized {exact.name}: "
            + (f"input {missing[0]!r} is not among its inputs" if missing else "they have no output in common")
        )
    taps = sum(n.op_type == tensors.QUANTIZE and _watchable(n, names) for n in coarse.ir.graph)
    quantizers = sum(n.op_type == tensors.QUANTIZE and _of_activation(n) for n in coarse.ir.graph)
    rows: list[TensorError] = []
    count = len(samples) if settings.limit is None else min(settings.limit, len(samples))
    looked_at = {item.name for item in tensors.watch(coarse.ir.clone(), names)}
    rounds = list(_groups_that_fit(exact.ir, [name for name in names if name in looked_at]))
    rule = required_decisions(settings.metric)
    collector = None if rule is None else DecisionCollector(DecisionJudge(exact, rule))
    seen = 0
    for index, some in enumerate(rounds):

        def report(done: int, before: int = index * count) -> None:
            nonlocal seen
            seen = max(seen, done)
            if progress is not None:
                progress(before + done, len(rounds) * count)

        rows += _watch(exact.ir.clone(), coarse.ir.clone(), some, islice(samples, count), settings, report,
                       collector if index == 0 else None)  # fmt: skip
    weights = _weight_errors(exact.ir, coarse.ir)
    layers: tuple[LayerError, ...] = ()
    if settings.sensitivity != "none":
        chosen = list(islice(samples, min(count, LAYER_SAMPLES)))
        layers = layer_errors(exact.ir, coarse.ir, chosen, settings, progress)
    order = {str(v.name): i for i, v in enumerate(exact.ir.graph.outputs)}
    outputs = sorted((r for r in rows if r.name in order), key=lambda r: order[r.name])
    return Comparison(
        coarse.name, exact.name, str(settings.backend), seen, tuple(outputs),
        tuple(sorted((r for r in rows if r.name not in order), key=_rank)), tuple(sorted(weights, key=_rank)),
        quantizers - taps, settings.sensitivity, layers,
        None if collector is None else collector.decisions(*sample_names(samples)),
    )  # fmt: skip


def _weight_errors(exact: Any, coarse: Any) -> list[TensorError]:
    """The error of each quantized weight."""
    errors = []
    folded = tensors.float_constants(fold(exact))
    for name, node, real, quantized in tensors.quantized_weights(coarse, tensors.float_constants(exact)):
        own = _nearest_weight_error(quantized, real, folded.get(name))
        linear = tensors.LinearQuantizer.of(node)
        reader = next(iter(node.outputs[0].consumers()), None)
        dtype = linear.type if linear is not None else ""
        errors.append(TensorError(name, "weight", reader.op_type if reader is not None else "", dtype, None, own))
    return errors


def _nearest_weight_error(quantized: Array, *references: Array | None) -> ErrorSums:
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
    return tensors.LinearQuantizer.of(node) is not None and tensors.float_name(node, names) is not None


def _groups_that_fit(model: Any, names: Iterable[str]) -> Iterable[list[str]]:
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
    exact: Any, coarse: Any, names: Collection[str], samples: Iterable[Feeds], settings: ComparisonSettings,
    report: Callable[[int], None], collector: DecisionCollector | None,
) -> list[TensorError]:  # fmt: skip
    """The errors of these tensors of the float model; both models are edited. The collector gets the outputs."""
    outputs = [str(value.name) for value in exact.graph.outputs]
    watched = tensors.watch(coarse, names)
    tensors.add_outputs(exact, [item.name for item in watched])
    open_lengths = {v.name for node in exact.graph for v in node.outputs if shape_of(v) is None}
    run_exact = runner(to_bytes(exact), "ort", name="the float model")
    run_coarse = runner(to_bytes(coarse), backend_for(settings.backend, settings.soc), name="the quantized model")
    sums = [(ErrorSums(), ErrorSums(), ChannelFit()) for _ in watched]
    for done, feeds in enumerate(samples, 1):
        reference = {**feeds, **run_exact(feeds)}
        results = run_coarse(feeds)
        if collector is not None:
            collector.add(feeds, {name: reference[name] for name in outputs}, results)
        for item, parts in zip(watched, sums, strict=True):
            wanted, given = reference[item.name], results[item.output]
            if item.name in open_lengths:
                parts[0].update(wanted, given)
            else:
                _update(item, wanted, given, *parts)
        report(done)
    rows = []
    for item, (running, own, fit) in zip(watched, sums, strict=True):
        rescaled = fit.sqnr_db() if item.kind == "tensor" and running.sqnr_db < DOUBTED_DB else None
        # the encoding of a rescaled tensor is for the scaled numbers
        own_error = own if item.linear is not None and rescaled is None and own.count else None
        dtype = item.linear.type if item.linear is not None else ""
        rows.append(TensorError(item.name, item.kind, item.producer, dtype, running, own_error, rescaled))
    return rows


def _update(
    item: WatchedTensor, reference: Array, result: Array, running: ErrorSums, own: ErrorSums, fit: ChannelFit
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
