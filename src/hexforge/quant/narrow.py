"""Narrower ranges: how far a tensor's range may shrink is judged by what its readers make of the tensor.

Cutting off rare extremes makes all steps finer. Whether that pays depends on what the extremes are worth to the nodes
that read them, so each candidate is tried on them: the error of their outputs, all else in float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx_ir

from hexforge.ir import Array, ScaleOffset
from hexforge.ir.fixed_point import quantized_range
from hexforge.quant.plan import Feeds, Fixed, Plan
from hexforge.quant.ranges import encoding
from hexforge.quant.rules import units
from hexforge.quant.walk import Step, Walk, rounded

_FACTORS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
_SIDED = ((1.0, 0.9), (0.9, 1.0), (1.0, 0.75), (0.75, 1.0))
_GAIN = 0.97
"""A narrower range must lower the error at least this much: small gains on few samples are chance."""


def narrow(
    model: onnx_ir.Model,
    plan: Plan,
    samples: Sequence[Feeds],
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Fixed]:
    """Encodings of the 8-bit activations that are better narrower; one stands for all that share it."""
    kept = _fixed_by_rule(model, plan)
    names = {v.name for v in model.graph.inputs} | {v.name for node in model.graph for v in node.outputs}
    candidates = {f: _candidates(f) for n, f in plan.tensors.items() if n in names and f not in kept}
    errors = {f: np.zeros(len(c)) for f, c in candidates.items() if len(c) > 1}
    count = len(model.graph)
    for index, step in enumerate(Walk(model, None, samples)):
        for value in step.runner.fed:
            fixed = plan.tensors.get(value.name or "")
            if fixed in errors and value.const_value is None and (value.name, step.node.name) not in plan.converts:
                errors[fixed] += _errors(step, value, candidates[fixed])
        if progress is not None:
            progress(index + 1, count)
    found: dict[Fixed, Fixed] = {}
    for fixed, lost in errors.items():
        best = int(np.argmin(lost))
        if lost[best] < _GAIN * lost[0]:
            found[fixed] = candidates[fixed][best]
    return {n: found[f] for n, f in plan.tensors.items() if n in names and f in found}


def _fixed_by_rule(model: onnx_ir.Model, plan: Plan) -> set[Fixed]:
    """Encodings that ops prescribe."""
    found = set()
    for unit in units(model.graph):
        for value in unit.writes:
            fixed = plan.tensors.get(value.name or "")
            if fixed is not None and unit.rule.fixed.get(fixed.dtype) == fixed.encoding:
                found.add(fixed)
    return found


def _candidates(fixed: Fixed) -> list[Fixed]:
    """The encoding itself, and narrower ones."""
    given = fixed.encoding
    if not isinstance(given, ScaleOffset) or fixed.dtype.bits > 8:
        return [fixed]
    low, high = (given.scale * (q + given.offset) for q in quantized_range(fixed.dtype, given))
    pairs: Iterable[tuple[float, float]] = ((f, f) for f in _FACTORS[1:])
    if low < 0 < high:
        pairs = (*pairs, *_SIDED)
    return list(
        dict.fromkeys([fixed, *(Fixed(fixed.dtype, encoding(low * a, high * b, fixed.dtype)) for a, b in pairs)])
    )


def _errors(step: Step, value: onnx_ir.Value, candidates: list[Fixed]) -> Array:
    """The share of its outputs' power that a node loses, by candidate for one of its inputs."""
    noise, power = np.zeros(len(candidates)), 1e-30
    for sample, outputs in enumerate(step.outputs(True)):
        floats = [i for i, o in enumerate(outputs) if o.dtype == np.float32 and o.size]
        if not floats:
            return noise
        fed = [step.read(v, True, sample) for v in step.runner.fed]
        place = step.runner.fed.index(value)
        power += sum(_square(outputs[i] - outputs[i].mean()) for i in floats)
        for k, candidate in enumerate(candidates):
            tried = step.runner([*fed[:place], rounded(fed[place], candidate), *fed[place + 1 :]])
            noise[k] += sum(_square(tried[i] - outputs[i]) for i in floats)
    return noise / power


def _square(array: Array) -> float:
    flat = array.ravel()
    return float(np.dot(flat, flat))
