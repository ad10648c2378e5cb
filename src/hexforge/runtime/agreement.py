"""Agreement: whether two models compute the same, on random inputs, in onnxruntime's CPU provider."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from hexforge.frontends.onnx import Model, extract_parts
from hexforge.frontends.onnx.rewrites.ranges import index_range, output_step
from hexforge.ir import Array
from hexforge.runtime.fallback import CpuPart

SEED = 20240229
TOLERANCE = 1e-4
"""Of the range of an output: what float32 sums in another order and folded constants may differ by."""
HALF_TOLERANCE = 4e-3
"""The same for outputs in float16."""


class Reference:
    """A model's outputs for some inputs, to compare others with."""

    def __init__(self, model: Model) -> None:
        self.samples = samples(model)
        part = _part(model)
        self._steps = {v.name or "": step for v in model.ir.graph.outputs if (step := output_step(v))}
        self.outputs = [_run(part, sample) for sample in self.samples]

    def error(self, model: Model) -> float:
        """The largest difference of another model's outputs, relative to their ranges; NaN where none is finite."""
        part = _part(model)
        found = [
            difference(expected[name], result)
            for sample, expected in zip(self.samples, self.outputs, strict=True)
            for name, result in _run(part, sample).items()
        ]
        return max((e for e in found if not math.isnan(e)), default=math.nan)

    @property
    def tolerance(self) -> float:
        """What may be left between models that compute the same."""
        half = any(v.dtype == np.float16 for v in self.outputs[0].values())
        found = HALF_TOLERANCE if half else TOLERANCE
        for name, step in self._steps.items():  # one step of a quantized output
            found = max([found, *(1.001 * step / _width(sample[name]) for sample in self.outputs)])
        return found


def difference(expected: Array, result: Array) -> float:
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


def samples(model: Model, count: int = 2) -> list[dict[str, Array]]:
    """Inputs for a model: floats between 0 and 1, then normal ones; indices within what they look up."""
    random = np.random.default_rng(SEED)
    found: list[dict[str, Array]] = []
    for n in range(count):
        sample: dict[str, Array] = {}
        for value in model.ir.graph.inputs:
            sizes = tuple(d for d in value.shape or () if isinstance(d, int))
            dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
            if dtype.kind in "iu":
                sample[value.name or ""] = random.integers(0, index_range(value), sizes).astype(dtype)
            elif dtype.kind == "b":
                sample[value.name or ""] = random.integers(0, 2, sizes).astype(bool)
            else:
                drawn = random.random(sizes) if n % 2 == 0 else random.standard_normal(sizes)
                sample[value.name or ""] = drawn.astype(dtype)
        found.append(sample)
    return found


def _part(model: Model) -> CpuPart:
    nodes = list(model.ir.graph)
    outputs = [v.name or "" for v in model.ir.graph.outputs]
    cut = extract_parts(model, nodes, [v.name or "" for v in model.ir.graph.inputs], outputs)
    return CpuPart(cut, [node.name or "" for node in nodes])


def _run(part: CpuPart, sample: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(value) for name, value in part.run(sample).items()}
