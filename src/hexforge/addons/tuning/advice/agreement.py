# SPDX-License-Identifier: Apache-2.0
"""Agreement: whether two models compute the same, on random inputs, in onnxruntime's CPU provider."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from hexforge.analysis.random_inputs import random_inputs
from hexforge.ir import Array
from hexforge.model.extraction import extract_parts
from hexforge.model.reader import Model
from hexforge.patterns.input_numbers import output_step
from hexforge.runtime.cpu_part import CpuPart

TOLERANCE = 1e-4
"""The part of an output's range that float32 sums in another order and folded constants may differ by."""
HALF_TOLERANCE = 4e-3
"""The part of an output's range that outputs in float16 may differ by."""
NUDGE = 1e-6
"""A rounding or two of float32: what an input is moved by, to see how much a model makes of it."""
ENOUGH = 2
"""Samples that are drawn at least; more are drawn while roundings alone move the outputs of all."""
MOST_NOISE = 1e-2
"""The largest part of the range that counts as noise: a model that makes more of a rounding is not excused by it."""
WITHIN_ONE = ("Sigmoid", "Softmax", "HardSigmoid", "Tanh", "Erf")
"""Ops whose results are rounded as numbers about 1 are, however small they come out."""
ROUNDINGS_OF_ONE = 8 * float(np.finfo(np.float32).eps)
"""What results of those may differ by."""


class ReferenceOutputs:
    """A model's outputs for some inputs, to compare others with.

    Inputs for which roundings alone move the outputs are left out where there are others; where there are none, the
    input they move least is kept, and the outputs may differ as far as roundings move them.
    """

    def __init__(self, model: Model) -> None:
        part = _cpu_part(model)
        drawn: list[dict[str, Array]] = []
        outputs: list[dict[str, Array]] = []
        noise: list[dict[str, float]] = []
        steady: list[int] = []
        for sample in random_inputs(model):
            if len(drawn) >= ENOUGH and steady:
                break
            expected = _run(part, sample)
            moved = _run(part, _perturbed(sample))
            drawn.append(sample)
            outputs.append(expected)
            noise.append({name: relative_difference(expected[name], moved[name]) for name in moved})
            if all(n <= TOLERANCE / 4 for n in noise[-1].values()):
                steady.append(len(drawn) - 1)
        chosen = steady or [min(range(len(drawn)), key=lambda i: max(noise[i].values(), default=0.0))]
        self.samples = [drawn[i] for i in chosen]
        self.outputs = [outputs[i] for i in chosen]
        self.allowed = [_allowed_differences(model, outputs[i], noise[i]) for i in chosen]

    def error(self, model: Model) -> tuple[float, bool]:
        """The largest difference of another model's outputs relative to their ranges, and whether that is allowed.

        NaN and True where no output of this model is a finite number, so that there is nothing to compare.
        """
        part = _cpu_part(model)
        largest, fits = math.nan, True
        for sample, expected, allowed in zip(self.samples, self.outputs, self.allowed, strict=True):
            for name, result in _run(part, sample).items():
                error = relative_difference(expected[name], result)
                if not math.isnan(error):
                    largest = error if math.isnan(largest) else max(largest, error)
                    fits &= error <= allowed[name]
        return largest, fits


def _perturbed(sample: Mapping[str, Array]) -> dict[str, Array]:
    """The floats of a sample moved by about a rounding, up and down in turn."""
    nudged: dict[str, Array] = {}
    for name, array in sample.items():
        signs = np.where(np.arange(array.size) % 2, NUDGE, -NUDGE).reshape(array.shape)
        nudged[name] = (array * (1 + signs)).astype(array.dtype) if array.dtype.kind == "f" else array
    return nudged


def _allowed_differences(model: Model, outputs: Mapping[str, Array], noises: Mapping[str, float]) -> dict[str, float]:
    """The difference that each output may have: what rounding explains, or one step of a quantized output."""
    allowed = {}
    for value in model.ir.graph.outputs:
        name = value.name or ""
        noise = noises[name]
        least = HALF_TOLERANCE if outputs[name].dtype == np.float16 else TOLERANCE
        step = 1.001 * output_step(value) / _width(outputs[name])
        made_by = value.producer()
        if made_by is not None and made_by.op_type in WITHIN_ONE:
            least = max(least, ROUNDINGS_OF_ONE / _width(outputs[name]))
        allowed[name] = max(least, step, min(4 * noise, MOST_NOISE) if math.isfinite(noise) else 0.0)
    return allowed


def relative_difference(expected: Array, result: Array) -> float:
    """The largest difference relative to the range of what is expected; infinite for another shape, type or infinity.

    NaN where nothing expected is a finite number, so that there is nothing to compare.
    """
    if expected.shape != result.shape or expected.dtype != result.dtype:
        return math.inf
    if expected.dtype.kind not in "fiu":
        return 0.0 if np.array_equal(expected, result) else math.inf
    a, b = expected.astype(np.float64), result.astype(np.float64)
    odd = ~np.isfinite(a)
    if not np.array_equal(odd, ~np.isfinite(b)) or not np.array_equal(a[odd], b[odd], equal_nan=True):
        return math.inf
    a, b = a[~odd], b[~odd]
    if not a.size:
        return math.nan
    return float(np.abs(a - b).max()) / _width(a)


def _width(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return (float(np.ptp(finite)) or float(np.abs(finite).max()) or 1.0) if finite.size else 1.0


def _cpu_part(model: Model) -> CpuPart:
    nodes = list(model.ir.graph)
    outputs = [v.name or "" for v in model.ir.graph.outputs]
    cut = extract_parts(model, nodes, [v.name or "" for v in model.ir.graph.inputs], outputs)
    return CpuPart(cut, [node.name or "" for node in nodes])


def _run(part: CpuPart, sample: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(value) for name, value in part.run(sample).items()}
