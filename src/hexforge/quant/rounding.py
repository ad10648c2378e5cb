"""Rounding weights for what a layer makes of them, not one by one.

Of a layer y = W x the error of rounded weights is (W - Q) H (W - Q)^T with H = E[x x^T], the second moments of what it
really reads (quantized, behind layers that are rounded already). `scale` picks the scale that makes it least
(sequential MSE); `adaround` then rounds column by column, the columns to come taking up the error made so far, and
aims at the float layer's output on float inputs: it takes up part of the errors from above as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir

from hexforge.ir import Array, AxisScaleOffset, DType, Encoding, ScaleOffset
from hexforge.ir.fixed_point import offset_array, quantized_range, scale_array
from hexforge.quant.bias import correct
from hexforge.quant.layers import Layer, attribute, constant, layer, numbers
from hexforge.quant.plan import Feeds, Fixed, Plan
from hexforge.quant.walk import Step, Walk

PATCHES = 2048
"""Inputs of one output each that H is measured on, at most."""
COLUMNS = 2304
"""Layers of more inputs per output are rounded to the nearest: H would take too long."""

_DAMPING = 0.01
_RIDGE = 0.1
_FACTORS = np.linspace(1.0, 0.5, 21)
_BLOCK = 64


def round_weights(
    model: onnx_ir.Model,
    plan: Plan,
    samples: Sequence[Feeds],
    *,
    compensate: bool,
    correct_bias: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """A plan with weight scales (and with `compensate` integers) chosen for the layers' outputs, in the model's order."""
    found = plan.merged(())
    count = len(model.graph)
    for index, step in enumerate(Walk(model, found, samples)):
        here = layer(step.node)
        if here is not None:
            _layer(step, here, compensate, np.random.default_rng([seed, index]))
            if correct_bias:
                correct(step, here)
        if progress is not None:
            progress(index + 1, count)
    return found


def _layer(step: Step, here: Layer, compensate: bool, random: np.random.Generator) -> None:
    name = here.weight.name
    assert name is not None
    fixed, weight = step.plan.tensors.get(name), step.plan.constants.get(name, constant(here.weight))
    if fixed is None or weight is None or len(here.weight.uses()) > 1 or math.prod(here.matrix_shape[1:]) > COLUMNS:
        return
    seen = _Seen.of(step, here, random)
    if seen is None:
        return
    wanted = here.matrix(weight).reshape(here.group, here.outputs // here.group, -1).astype(np.float64)
    fixed = replace(fixed, encoding=_scale(here, fixed, weight, wanted, seen))
    grid = _Grid.of(here, fixed, weight.shape)
    nearest = grid.nearest(wanted)
    integers = nearest
    if compensate:
        moved = _compensated(wanted + seen.shift(wanted), grid, seen.moments)
        better = seen.loss(wanted, grid.real(moved)) < seen.loss(wanted, grid.real(nearest))
        integers = np.where(better[..., None], moved, nearest)
    step.plan.tensors[name] = fixed
    stored = here.stored(integers.reshape(here.matrix_shape))
    step.plan.integers[name] = stored.astype(np.int64).astype(fixed.dtype.numpy)
    step.forget()


# -- what a layer reads -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """Second moments of a layer's inputs [groups, inputs, inputs], and inputs kept to judge by [groups, n, inputs]."""

    moments: Array
    cross: Array
    """E[(exact - coarse) coarse^T]."""
    exact: Array
    coarse: Array

    @classmethod
    def of(cls, step: Step, here: Layer, random: np.random.Generator) -> _Seen | None:
        each = -(-PATCHES // step.samples)
        pairs = [_patches(here, [step.read(here.data, e, i) for e in (True, False)], each, random) for i in range(step.samples)]
        found = [p for p in pairs if p is not None]
        if not found:
            return None
        exact, coarse = (np.concatenate([p[k] for p in found], axis=1) for k in (0, 1))
        kept = random.permutation(exact.shape[1])
        few = kept[: max(1, len(kept) // 4)]
        many = kept[len(few) :] if len(kept) > 4 else kept
        x, y = exact[:, many], coarse[:, many]
        moments = y.swapaxes(1, 2) @ y / len(many)
        cross = (x - y).swapaxes(1, 2) @ y / len(many)
        return cls(moments.astype(np.float64), cross.astype(np.float64), exact[:, few], coarse[:, few])

    def shift(self, weight: Array) -> Array:
        """What weights change by to make of coarse inputs what they make of exact ones; a cautious least squares."""
        size = self.moments.shape[-1]
        ridge = _RIDGE * np.trace(self.moments, axis1=1, axis2=2)[:, None, None] / size + 1e-12
        return weight @ np.linalg.solve(self.moments + ridge * np.eye(size), self.cross.swapaxes(1, 2)).swapaxes(1, 2)

    def loss(self, weight: Array, rounded: Array) -> Array:
        """Squared error of each output [groups, outputs] on the inputs kept."""
        lack = self.exact @ weight.swapaxes(1, 2) - self.coarse @ rounded.swapaxes(1, 2)
        return np.asarray((lack - lack.mean(1, keepdims=True)).__pow__(2).mean(1))


def _patches(
    here: Layer, pair: list[Array], count: int, random: np.random.Generator
) -> tuple[Array, Array] | None:
    """What some outputs are made of: [groups, n, inputs of a group] of each array, at the same places."""
    if here.node.op_type in ("Gemm", "MatMul"):
        rows = [a.reshape(-1, a.shape[-1]) for a in pair]
        picked = random.permutation(len(rows[0]))[:count]
        return rows[0][picked][None], rows[1][picked][None]
    if here.node.op_type != "Conv" or attribute(here.node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    window = here.matrix_shape[2:]
    rank = len(window)
    pads = numbers(here.node, "pads", (0,) * 2 * rank)
    strides, steps = (numbers(here.node, key, (1,) * rank) for key in ("strides", "dilations"))
    spans = [(k - 1) * d + 1 for k, d in zip(window, steps, strict=True)]
    padded = [np.pad(a, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]) for a in pair]
    places = [(n - s) // t + 1 for n, s, t in zip(padded[0].shape[2:], spans, strides, strict=True)]
    total = padded[0].shape[0] * math.prod(places)
    picked = np.unravel_index(random.permutation(total)[:count], (padded[0].shape[0], *places))
    found = []
    for array in padded:
        views = np.lib.stride_tricks.sliding_window_view(array, spans, tuple(range(2, 2 + rank)))
        views = views[(..., *(slice(None, None, d) for d in steps))]
        index = (picked[0], slice(None), *(p * t for p, t in zip(picked[1:], strides, strict=True)))
        rows = views[index].reshape(len(picked[0]), here.group, -1)
        found.append(np.ascontiguousarray(rows.swapaxes(0, 1)))
    return found[0], found[1]


# -- how weights are rounded --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Grid:
    """The numbers a weight [groups, outputs, inputs] may have."""

    scale: Array
    offset: Array
    low: int
    high: int

    @classmethod
    def of(cls, here: Layer, fixed: Fixed, shape: tuple[int, ...]) -> _Grid:
        low, high = quantized_range(fixed.dtype, fixed.encoding)
        arrays = [np.broadcast_to(f(fixed.encoding, shape), shape) for f in (scale_array, offset_array)]
        scale, offset = (here.matrix(a).reshape(here.group, here.outputs // here.group, -1) for a in arrays)
        return cls(scale, offset, *_usable(fixed.dtype, low, high))

    def nearest(self, real: Array) -> Array:
        return np.clip(np.rint(real / self.scale) - self.offset, self.low, self.high)

    def real(self, integers: Array) -> Array:
        return (integers + self.offset) * self.scale


def _usable(dtype: DType, low: int, high: int) -> tuple[int, int]:
    """16-bit weights may not use the top of their range."""
    return (low, min(high, 0x7F7F)) if dtype is DType.INT16 else (low, high)


def _scale(here: Layer, fixed: Fixed, weight: Array, wanted: Array, seen: _Seen) -> Encoding:
    """The encoding with the scales that leave the least error of the outputs."""
    encoding = fixed.encoding
    if not isinstance(encoding, (ScaleOffset, AxisScaleOffset)):
        return encoding
    if isinstance(encoding, AxisScaleOffset) and encoding.axis != here.output_axis:
        return encoding
    grid = _Grid.of(here, fixed, weight.shape)
    losses = []
    for factor in _FACTORS:
        tried = replace(grid, scale=grid.scale * factor)
        lack = wanted - tried.real(tried.nearest(wanted))
        losses.append(((lack @ seen.moments) * lack).sum(-1).reshape(-1))
    if isinstance(encoding, ScaleOffset):
        best = _FACTORS[int(np.argmin(np.sum(losses, axis=1)))]
        return replace(encoding, scale=float(np.float32(encoding.scale * best)))
    factors = _FACTORS[np.argmin(losses, axis=0)]
    if len(encoding.scales) != here.outputs:  # a transposed convolution's groups share scales
        return encoding
    return replace(encoding, scales=tuple(float(np.float32(s * f)) for s, f in zip(encoding.scales, factors, strict=True)))


def _compensated(wanted: Array, grid: _Grid, moments: Array) -> Array:
    """Integers, rounded column by column (widest inputs first) while later columns make up for earlier errors."""
    size = wanted.shape[-1]
    diagonal = np.einsum("gkk->gk", moments)
    order = np.argsort(-diagonal, axis=1, kind="stable")
    across = order[:, None, :]
    damped = moments + (_DAMPING * diagonal.mean(1)[:, None, None] + 1e-12) * np.eye(size)
    damped = np.take_along_axis(np.take_along_axis(damped, order[:, :, None], 1), across, 2)
    # the upper factor of the inverse: row i is how an error in column i is made up for by those behind it
    factor = np.linalg.cholesky(np.linalg.inv(damped)).swapaxes(1, 2)
    rest = np.take_along_axis(wanted, across, 2)
    scale, offset = np.take_along_axis(grid.scale, across, 2), np.take_along_axis(grid.offset, across, 2)
    found = np.empty_like(rest)
    for start in range(0, size, _BLOCK):
        end = min(start + _BLOCK, size)
        errors = np.empty((*rest.shape[:2], end - start))
        for k in range(start, end):
            column = rest[..., k]
            found[..., k] = np.clip(np.rint(column / scale[..., k]) - offset[..., k], grid.low, grid.high)
            lack = (column - (found[..., k] + offset[..., k]) * scale[..., k]) / factor[:, None, k, k]
            errors[..., k - start] = lack
            rest[..., k:end] -= lack[..., None] * factor[:, None, k, k:end]
        rest[..., end:] -= errors @ factor[:, start:end, end:]
    integers = np.empty_like(found)
    np.put_along_axis(integers, np.broadcast_to(across, found.shape), found, 2)
    return integers
