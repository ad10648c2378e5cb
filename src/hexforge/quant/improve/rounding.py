# SPDX-License-Identifier: Apache-2.0
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
from typing import Any

import numpy as np
import onnx_ir

from hexforge.ir import Array, AxisScaleOffset, DType, Encoding, ScaleOffset
from hexforge.ir.fixed_point import offset_array, quantized_range, scale_array
from hexforge.patterns.layers import Layer, layer
from hexforge.patterns.nodes import float_constant, ints, text
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.improve.bias import correct
from hexforge.quant.improve.side_by_side import NodeStep, Walk

PATCHES = 2048
"""Inputs of one output each that H is measured on, at most."""
COLUMNS = 1152
"""Inputs of an output that are rounded together: of more, each stretch is compensated by itself."""

_DAMPING = 0.01
_RIDGE = 0.1
_FACTORS = np.linspace(1.0, 0.5, 11, dtype=np.float32)
_WORSE = 2
"""Factors in a row that were no better, after which smaller ones are not tried."""
_BLOCK = 64


def round_weights(
    model: onnx_ir.Model,
    plan: EncodingPlan,
    samples: Sequence[Feeds],
    *,
    compensate: bool,
    correct_bias: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> EncodingPlan:
    """A plan with weight scales (with `compensate`, integers) chosen for what layers make, in the model's order."""
    rounded_plan = plan.copied()
    count = len(model.graph)
    for index, step in enumerate(Walk(model, rounded_plan, samples)):
        here = layer(step.node)
        if here is not None:
            _layer(step, here, compensate, np.random.default_rng([seed, index]))
            if correct_bias:
                correct(step, here)
        if progress is not None:
            progress(index + 1, count)
    return rounded_plan


def _layer(step: NodeStep, here: Layer, compensate: bool, random: np.random.Generator) -> None:
    name = here.weight.name
    assert name is not None
    fixed, weight = step.plan.tensors.get(name), step.plan.constants.get(name, float_constant(here.weight))
    if fixed is None or weight is None or len(here.weight.uses()) > 1:
        return
    seen = _LayerInputs.of(step, here, random)
    if seen is None:
        return
    exact = here.matrix(weight).reshape(here.group, here.outputs // here.group, -1)
    fixed = replace(fixed, encoding=_scale(here, fixed, weight, exact, seen))
    grid = _Grid.of(here, fixed, weight.shape)
    nearest = grid.nearest(exact)
    integers = nearest
    if compensate:
        moved = np.concatenate([
            _compensated(exact[..., part] + seen.shift(exact, part, moments), grid.at(part), moments)
            for part, moments in ((part, seen.moments(part)) for part in parts(exact.shape[-1]))
        ], axis=-1)  # fmt: skip
        better = seen.loss(exact, grid.real(moved)) < seen.loss(exact, grid.real(nearest))
        integers = np.where(better[..., None], moved, nearest)
    step.plan.tensors[name] = fixed
    stored = np.ascontiguousarray(here.stored(integers.reshape(here.matrix_shape)))
    step.plan.integers[name] = stored.astype(np.int64).astype(fixed.dtype.numpy)
    step.forget()


# -- what a layer reads -------------------------------------------------------------------------------------------


def parts(size: int) -> list[slice]:
    """Stretches of at most COLUMNS, about as long as each other."""
    count = -(-size // COLUMNS)
    return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]


@dataclass(frozen=True, slots=True)
class _LayerInputs:
    """What a layer reads [groups, n, inputs]: exact and coarse, to fit to, and others (`judge`) to choose by."""

    exact: Array
    coarse: Array
    judge_exact: Array
    judge_coarse: Array

    @classmethod
    def of(cls, step: NodeStep, here: Layer, random: np.random.Generator) -> _LayerInputs | None:
        patches_per_sample = -(-PATCHES // step.samples)
        read = ([step.read(here.data, exact, i) for exact in (True, False)] for i in range(step.samples))
        patches = [p for pair in read if (p := _patches(here, pair, patches_per_sample, random)) is not None]
        if not patches:
            return None
        exact, coarse = (np.concatenate([p[k] for p in patches], axis=1) for k in (0, 1))
        order = random.permutation(exact.shape[1])
        few = order[: max(1, len(order) // 4)]
        many = order[len(few) :] if len(order) > 4 else order
        return cls(exact[:, many], coarse[:, many], exact[:, few], coarse[:, few])

    def moments(self, part: slice) -> Array:
        """Second moments of a stretch of the inputs [groups, inputs, inputs]."""
        x = self.coarse[..., part]
        return np.asarray(x.swapaxes(1, 2) @ x / np.float32(x.shape[1]))

    def shift(self, weight: Array, part: slice, moments: Array) -> Array:
        """What weights change by to make of coarse inputs what they make of exact ones; a cautious least squares."""
        x = self.coarse[..., part]
        lack = (self.exact[..., part] - x) @ weight[..., part].swapaxes(1, 2)
        size = moments.shape[-1]
        ridge = np.float32(_RIDGE) * np.trace(moments, axis1=1, axis2=2)[:, None, None] / size + np.float32(1e-12)
        pull = x.swapaxes(1, 2) @ lack / np.float32(x.shape[1])
        return np.linalg.solve(moments + ridge * np.eye(size, dtype=np.float32), pull).swapaxes(1, 2)

    def loss(self, weight: Array, rounded: Array) -> Array:
        """Squared error of each output [groups, outputs] on inputs that nothing was fitted to, its mean left out."""
        lack = self.judge_exact @ weight.swapaxes(1, 2) - self.judge_coarse @ rounded.swapaxes(1, 2)
        return np.asarray(lack.var(axis=1))

    def own_loss(self, group: int, lack: Array) -> Array:
        """Squared error of each output of a group that a difference of weights [outputs, inputs] makes."""
        return np.asarray(np.square(self.judge_coarse[group] @ lack.T).mean(0))


def _patches(here: Layer, pair: list[Array], count: int, random: np.random.Generator) -> tuple[Array, Array] | None:
    """What some outputs are made of: [groups, n, inputs of a group] of each array, at the same places."""
    if here.node.op_type in ("Gemm", "MatMul"):
        rows = [a.reshape(-1, a.shape[-1]) for a in pair]
        picked = random.permutation(len(rows[0]))[:count]
        return rows[0][picked][None], rows[1][picked][None]
    if here.node.op_type != "Conv" or text(here.node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    window = here.matrix_shape[2:]
    rank = len(window)
    pads = ints(here.node, "pads", (0,) * 2 * rank)
    strides, steps = (ints(here.node, key, (1,) * rank) for key in ("strides", "dilations"))
    spans = [(k - 1) * d + 1 for k, d in zip(window, steps, strict=True)]
    padded = [np.pad(a, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]) for a in pair]
    places = [(n - s) // t + 1 for n, s, t in zip(padded[0].shape[2:], spans, strides, strict=True)]
    total = padded[0].shape[0] * math.prod(places)
    chosen = np.unravel_index(random.permutation(total)[:count], (padded[0].shape[0], *places))
    patches = []
    for array in padded:
        views = np.lib.stride_tricks.sliding_window_view(array, spans, tuple(range(2, 2 + rank)))
        index: list[Any] = [chosen[0], slice(None), *(p * t for p, t in zip(chosen[1:], strides, strict=True))]
        index += [slice(None, None, d) for d in steps]
        rows = views[tuple(index)].reshape(len(chosen[0]), here.group, -1)
        patches.append(np.ascontiguousarray(rows.swapaxes(0, 1)))
    return patches[0], patches[1]


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
        return cls(scale.astype(np.float32), offset.astype(np.float32), *_usable(fixed.dtype, low, high))

    def at(self, part: slice) -> _Grid:
        return replace(self, scale=self.scale[..., part], offset=self.offset[..., part])

    def nearest(self, real: Array) -> Array:
        return np.asarray(np.clip(np.rint(real / self.scale) - self.offset, self.low, self.high))

    def real(self, integers: Array) -> Array:
        return np.asarray((integers + self.offset) * self.scale)


def _usable(dtype: DType, low: int, high: int) -> tuple[int, int]:
    """16-bit weights may not use the top of their range."""
    return (low, min(high, 0x7F7F)) if dtype is DType.INT16 else (low, high)


def _scale(here: Layer, fixed: Fixed, weight: Array, exact: Array, seen: _LayerInputs) -> Encoding:
    """The encoding with the scales that leave the least error of the outputs."""
    encoding = fixed.encoding
    if not isinstance(encoding, (ScaleOffset, AxisScaleOffset)):
        return encoding
    if isinstance(encoding, AxisScaleOffset) and encoding.axis != here.output_axis:
        return encoding
    if isinstance(encoding, AxisScaleOffset) and len(encoding.scales) != here.outputs:
        return encoding  # a transposed convolution's groups share scales
    grid = _Grid.of(here, fixed, weight.shape)
    if isinstance(encoding, ScaleOffset):
        best = _factors(grid, exact, seen, together=True)[0, 0]
        return replace(encoding, scale=float(np.float32(encoding.scale * best)))
    factors = _factors(grid, exact, seen, together=False).reshape(-1)
    return replace(
        encoding, scales=tuple(float(np.float32(s * f)) for s, f in zip(encoding.scales, factors, strict=True))
    )


def _factors(grid: _Grid, exact: Array, seen: _LayerInputs, *, together: bool) -> Array:
    """By how much the scale of each output [groups, outputs] is best made smaller, or of all outputs together.

    One that was worse for the last _WORSE factors is not tried any further: its weights are cut off more and more.
    """
    best = np.ones(exact.shape[:2], np.float32)
    least = np.full(exact.shape[:2], np.inf)
    worse = np.zeros(exact.shape[:2], np.int64)
    for factor in _FACTORS:
        losses = np.full(exact.shape[:2], np.inf)
        for group, left in enumerate(worse < _WORSE):
            if left.any():
                tried = _Grid(grid.scale[group, left] * factor, grid.offset[group, left], grid.low, grid.high)
                real = exact[group, left]
                losses[group, left] = seen.own_loss(group, real - tried.real(tried.nearest(real)))
        if together:
            losses[...] = losses.sum()
        better = losses < least
        best[better], least[better] = factor, losses[better]
        worse = np.where(better, 0, worse + 1)
        if (worse >= _WORSE).all():
            break
    return best


def _compensated(exact: Array, grid: _Grid, moments: Array) -> Array:
    """Integers, rounded column by column (widest inputs first) while later columns make up for earlier errors."""
    size = exact.shape[-1]
    diagonal = np.einsum("gkk->gk", moments)
    order = np.argsort(-diagonal, axis=1, kind="stable")
    across = order[:, None, :]
    damping = np.float32(_DAMPING) * diagonal.mean(1)[:, None, None] + np.float32(1e-12)
    damped = moments + damping * np.eye(size, dtype=np.float32)
    damped = np.take_along_axis(np.take_along_axis(damped, order[:, :, None], 1), across, 2)
    # (w - q) H (w - q)^T is the length of (w - q) M: each column is rounded to undo what those before it left there
    factor = _upper_factor(damped)
    factor /= np.einsum("gkk->gk", factor)[:, None, :]
    aim = np.take_along_axis(exact, across, 2)
    scale, offset = np.take_along_axis(grid.scale, across, 2), np.take_along_axis(grid.offset, across, 2)
    columns, lack = np.empty_like(aim), np.empty_like(aim)
    for start in range(0, size, _BLOCK):
        end = min(start + _BLOCK, size)
        moved = aim[..., start:end] + lack[..., :start] @ factor[:, :start, start:end]
        for k in range(start, end):
            column = moved[..., k - start]
            columns[..., k] = np.clip(np.rint(column / scale[..., k]) - offset[..., k], grid.low, grid.high)
            lack[..., k] = aim[..., k] - (columns[..., k] + offset[..., k]) * scale[..., k]
            moved[..., k + 1 - start :] += lack[..., k, None] * factor[:, None, k, k + 1 : end]
    integers = np.empty_like(columns)
    np.put_along_axis(integers, np.broadcast_to(across, columns.shape), columns, 2)
    # greedy rounding can lose to the nearest integers where there are few columns: then those are kept
    nearest = grid.nearest(exact)
    better = _losses(exact - grid.real(integers), moments) <= _losses(exact - grid.real(nearest), moments)
    return np.where(better[..., None], integers, nearest)


def _losses(lack: Array, moments: Array) -> Array:
    """The error that each output has for what its integers lack."""
    return np.asarray(((lack @ moments) * lack).sum(-1))


def _upper_factor(matrix: Array) -> Array:
    """M, upper triangular, with M M^T = matrix."""
    try:
        lower = np.linalg.cholesky(matrix[:, ::-1, ::-1])
    except np.linalg.LinAlgError:  # too close to singular for float32
        lower = np.linalg.cholesky(matrix[:, ::-1, ::-1].astype(np.float64)).astype(np.float32)
    return np.ascontiguousarray(lower[:, ::-1, ::-1])
