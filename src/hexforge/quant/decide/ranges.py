# SPDX-License-Identifier: Apache-2.0
"""Ranges: which part of what a tensor holds its integers stand for, and the encoding that follows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable

import numpy as np

from hexforge._native import clipping_errors, divergences, rounding_errors
from hexforge.errors import CallError
from hexforge.ir import Array, AxisScaleOffset, BlockwiseExpansion, DType, Encoding, ScaleOffset
from hexforge.model.tensors import unrepeated
from hexforge.quant.data.observe import TensorStatistics

METHODS = ("minmax", "moving_average", "percentile", "entropy", "mse")
"""Names range_of takes; percentile also with the part to keep, as percentile=99.9."""

SMALLEST_RANGE = 1e-4
"""The smallest range of an activation, as in onnxruntime's QNN configuration, so that floats keep their bits."""

INT16_WEIGHT_RANGE = (-0x8000, 0x7F7F)
"""The integers that the HTP takes as 16-bit weights."""

_PERCENTILE = 99.99
_OCTAVE = 8  # candidates between a range and half of it
_Range = tuple[float, float]


def parse_method(text: str) -> tuple[str, float]:
    """Name and parameter of a method; CallError where there is no such method."""
    name, equals, value = text.partition("=")
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, 1)
        raise CallError(
            f"no range method {name!r}{f', did you mean {near[0]}' if near else ''}; there are {', '.join(METHODS)}"
        )
    if not equals:
        return name, _PERCENTILE
    try:
        percent = float(value)
    except ValueError:
        percent = math.nan
    if name != "percentile" or not 50 < percent <= 100:
        raise CallError(f"range method {text!r}: only percentile takes a number, from 50 to 100: percentile=99.9")
    return name, percent


def range_of(statistics: TensorStatistics, method: str, dtype: DType, symmetric: bool) -> tuple[float, float]:
    """The range a tensor's integers are to cover, within its extremes; around zero where it is to be symmetric."""
    name, percent = parse_method(method)
    if not statistics.count:
        return 0.0, 0.0
    if statistics.counts is None and name in ("percentile", "entropy", "mse"):
        raise CallError(f"range method {method!r} needs histograms, and none were kept; calibrate with histogram=True")
    low, high = _FUNCTIONS[name](statistics, percent, dtype, symmetric)
    if symmetric:
        high = max(-low, high)
        return -high, high
    return low, high


def _minmax(statistics: TensorStatistics, percent: float, dtype: DType, symmetric: bool) -> _Range:
    return statistics.minimum, statistics.maximum


def _moving_average(statistics: TensorStatistics, percent: float, dtype: DType, symmetric: bool) -> _Range:
    return statistics.average


def _percentile(statistics: TensorStatistics, percent: float, dtype: DType, symmetric: bool) -> _Range:
    counts, edges = statistics.histogram()
    ends = np.append(0, np.cumsum(counts))
    cut = (1 - percent / 100) * statistics.count
    if symmetric:
        # The smallest bound with at most `cut` values beyond it on both sides together, at the edge of a bin.
        bounds = np.unique(np.abs(edges))
        inside = np.interp(bounds, edges, ends) - np.interp(-bounds, edges, ends)
        bound = float(bounds[np.searchsorted(inside, statistics.count - cut)])
        low, high = -bound, bound
    else:
        low, high = np.interp((cut / 2, statistics.count - cut / 2), ends, edges)
    low, high = np.clip((low, high), statistics.minimum, statistics.maximum)
    return float(low), float(high)


def _without_zeros(statistics: TensorStatistics) -> tuple[Array, Array]:
    """The histogram without exact zeros, which every range stands for exactly."""
    counts, edges = statistics.histogram()
    counts = counts.astype(np.float64)
    if statistics.zeros:
        counts[np.searchsorted(edges, 0.0, "right") - 1] -= statistics.zeros
    return counts, edges


def _entropy(statistics: TensorStatistics, percent: float, dtype: DType, symmetric: bool) -> _Range:
    """The range that, cut to the type's levels, loses least information (Kullback-Leibler), as TensorRT has it."""
    counts, edges = _without_zeros(statistics)
    levels = 1 << min(dtype.bits, 16)
    if len(counts) <= levels or not counts.any():  # too coarse to tell levels apart: 16 bits lose nothing anyway
        return statistics.minimum, statistics.maximum
    zero = int(np.searchsorted(edges, 0.0).clip(0, len(counts)))
    reach = max(zero, len(counts) - zero)
    reaches = np.unique(np.linspace(min(levels, reach), reach, 64).astype(np.int64))
    first, last = np.maximum(zero - reaches, 0), np.minimum(zero + reaches, len(counts))
    usable = (last - first >= levels) | (reaches == reach)
    first, last = first[usable], last[usable]
    logs = counts * np.log(np.maximum(counts, 1.0))
    sums, filled, log_sums = (np.append(0.0, np.cumsum(values)) for values in (counts, counts > 0, logs))
    divergence = np.empty(len(first))
    divergences(counts, sums, filled, log_sums, first, last, levels, divergence)
    best = int(np.argmin(divergence))
    return max(float(edges[first[best]]), statistics.minimum), min(float(edges[last[best]]), statistics.maximum)


def _mse(statistics: TensorStatistics, percent: float, dtype: DType, symmetric: bool) -> _Range:
    """The range whose rounding and cutting off cost least, searched one side after the other, then finer."""
    low, high = min(statistics.minimum, 0.0), max(statistics.maximum, 0.0)
    if low == high:
        return statistics.minimum, statistics.maximum
    if symmetric:
        high = max(-low, high)
        low = -high
    powers = np.arange(6 * _OCTAVE + 1) / _OCTAVE
    best, step = np.zeros(2), 1.0  # how many halvings of low and of high

    def search(lows: Array, highs: Array) -> Array:
        pairs = np.stack(np.broadcast_arrays(lows, highs), -1).clip(0.0, None)
        narrowed = low * 2.0 ** -pairs[:, 0], high * 2.0 ** -pairs[:, 1]
        return np.asarray(pairs[np.argmin(expected_errors(statistics, *narrowed, dtype, symmetric))])

    best = search(powers, powers)
    step = 1 / _OCTAVE
    if not symmetric and low < 0 < high:
        best = search(best[0], powers) if -low > high else search(powers, best[1])
        best = search(powers, best[1]) if -low > high else search(best[0], powers)
    for _ in range(2):
        around = np.linspace(-step, step, 9)
        if symmetric or not low < 0 < high:
            best = search(best[0] + around, best[1] + around)
        else:
            best = search(np.repeat(best[0] + around, 9), np.tile(best[1] + around, 9))
        step /= 4
    # What was not narrowed stays at the extreme itself, not at zero.
    sides = low * 2.0 ** -best[0], high * 2.0 ** -best[1]
    return max(float(sides[0]), statistics.minimum), min(float(sides[1]), statistics.maximum)


def expected_errors(statistics: TensorStatistics, lows: Array, highs: Array, dtype: DType, symmetric: bool) -> Array:
    """Mean squared error of each range, by the histogram with its values spread evenly over each bin."""
    lows, highs = np.broadcast_arrays(np.atleast_1d(lows), np.atleast_1d(highs))
    scales, _, bottoms, tops = _grid(lows, highs, *dtype.range, symmetric)
    counts, edges = _without_zeros(statistics)
    out = np.empty(len(scales))
    width, extremes = math.ldexp(1.0, statistics.exponent), (statistics.minimum, statistics.maximum)
    clipping_errors(counts, float(edges[0]), width, *extremes, scales, scales * bottoms, scales * tops, out)
    return np.asarray(out / statistics.count)


_FUNCTIONS: dict[str, Callable[[TensorStatistics, float, DType, bool], _Range]] = {
    "minmax": _minmax,
    "moving_average": _moving_average,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
}


def _grid(lows: Array, highs: Array, least: int, most: int, symmetric: bool) -> tuple[Array, Array, Array, Array]:
    """Scales (as float32 has them), zero points, and the lowest and highest step from zero, of ranges with zero in."""
    lows, highs = np.minimum(lows, 0.0, dtype=np.float64), np.maximum(highs, 0.0, dtype=np.float64)
    highs = np.where(highs - lows < SMALLEST_RANGE, lows + SMALLEST_RANGE, highs)
    if symmetric:
        middle = 0 if least < 0 else (most + 1) // 2
        scales = (np.maximum(-lows, highs) / (most - middle)).astype(np.float32).astype(np.float64)
        zeros = np.full(scales.shape, middle, np.int64)
    else:
        scales = ((highs - lows) / (most - least)).astype(np.float32).astype(np.float64)
        zeros = np.clip(np.rint(least - lows / scales), least, most).astype(np.int64)
    return scales, zeros, least - zeros, most - zeros


def encoding(lo: float, hi: float, dtype: DType, symmetric: bool = False) -> ScaleOffset:
    """The encoding of an activation between lo and hi. Zero is always among its values."""
    if not (math.isfinite(lo) and math.isfinite(hi) and lo <= hi):
        raise CallError(f"a range must be finite and in order, not {lo} to {hi}")
    scales, zeros, _, _ = _grid(np.array([lo]), np.array([hi]), *_integer_range(dtype), symmetric)
    return ScaleOffset(float(scales[0]), -int(zeros[0]))


def _integer_range(dtype: DType) -> tuple[int, int]:
    if not dtype.is_integer or dtype.bits > 32:
        raise CallError(f"{dtype.value} has no encodings; use an integer type of up to 32 bits")
    return dtype.range


def weight_encoding(
    weight: Array,
    dtype: DType,
    symmetric: bool = True,
    axis: int | None = None,
    method: str = "minmax",
    block: int | None = None,
    steps: tuple[int, int] | None = None,
) -> Encoding:
    """The encoding of a constant: for all of it, per slice along `axis`, or per `block` of the other axis (LPBQ).

    `steps` are the least and the most integer that it may have.
    """
    if method not in ("minmax", "mse"):
        raise CallError(f"weights have no range method {method!r}; there are minmax and mse")
    least, most = INT16_WEIGHT_RANGE if dtype is DType.INT16 else _integer_range(dtype)
    if steps is not None:
        least, most = max(least, steps[0]), min(most, steps[1], -steps[0])
    values = np.asarray(weight).astype(np.float32, copy=False)
    if not np.isfinite(unrepeated(values)).all():
        raise CallError("a constant with infinities or NaN has no encoding; leave what reads it in float")
    if axis is not None:
        axis = axis % values.ndim if values.ndim else 0
        if axis >= values.ndim:
            raise CallError(f"axis {axis} of a constant with {values.ndim} dimensions")
    if block is not None:
        return _block_encoding(values, dtype, least, most, axis, method, block)
    once = unrepeated(values) if method == "minmax" else values
    rows = once.reshape(1, -1) if axis is None else np.moveaxis(once, axis, 0).reshape(once.shape[axis], -1)
    rows = rows if axis is None else np.broadcast_to(rows, (values.shape[axis], rows.shape[1]))
    scales, zeros = _row_scales(np.ascontiguousarray(rows), least, most, symmetric, method)
    if axis is None:
        return ScaleOffset(float(scales[0]), -int(zeros[0]))
    return AxisScaleOffset(axis, tuple(map(float, scales)), tuple(-int(z) for z in zeros))


def _row_scales(rows: Array, least: int, most: int, symmetric: bool, method: str) -> tuple[Array, Array]:
    """Scale and zero point of each row."""
    lows, highs = rows.min(1, initial=0.0).astype(np.float64), rows.max(1, initial=0.0).astype(np.float64)
    widest = float((highs - lows).max(initial=0.0))
    if widest < 1e-30:
        lows, highs = np.zeros_like(lows), np.full_like(highs, SMALLEST_RANGE)
    else:
        # A row of (nearly) nothing among others: a scale far below theirs would make its bias overflow.
        highs = np.where(highs - lows < widest * 2.0**-20, lows + widest * 2.0**-20, highs)

    def scaled(factor: Array) -> tuple[Array, Array]:
        if symmetric:
            middle = 0 if least < 0 else (most + 1) // 2
            scales = np.maximum(-lows, highs)[:, None] * factor / (most - middle)
            return scales.astype(np.float32), np.full(scales.shape, middle, np.int64)
        scales = ((highs - lows)[:, None] * factor / (most - least)).astype(np.float32)
        return scales, np.clip(np.rint(least - (lows[:, None] * factor) / scales), least, most).astype(np.int64)

    if method == "minmax" or not rows.size:
        scales, zeros = scaled(np.ones(1))
        return scales[:, 0].astype(np.float64), zeros[:, 0]
    scales, zeros = scaled(2.0 ** (-np.arange(2 * 16 + 1) / 16))
    errors = np.empty(scales.shape)
    rounding_errors(rows, scales, (least - zeros).astype(np.float32), (most - zeros).astype(np.float32), errors)
    best = np.argmin(errors, 1)[:, None]
    return np.take_along_axis(scales, best, 1)[:, 0].astype(np.float64), np.take_along_axis(zeros, best, 1)[:, 0]


def _block_encoding(
    values: Array, dtype: DType, least: int, most: int, axis: int | None, method: str, block: int
) -> BlockwiseExpansion:
    """LPBQ: scales of blocks as 1 to 16 times a sixteenth of their channel's largest."""
    if values.ndim < 2 or axis not in (0, 1):
        raise CallError(f"scales per block need a matrix or kernel with its channels on axis 0 or 1, not {axis}")
    block_axis = 1 - axis
    channels, length = values.shape[axis], values.shape[block_axis]
    if block < 1 or length % block:
        raise CallError(f"blocks of {block} do not divide axis {block_axis} of {length}; use a divisor of it")
    count = length // block
    rows = np.ascontiguousarray(np.moveaxis(values, (axis, block_axis), (0, 1)).reshape(channels * count, -1))
    largest = np.abs(rows).max(1, initial=0.0).reshape(channels, count).astype(np.float64)
    scales, _ = _row_scales(largest.reshape(channels, count).astype(np.float32), least, most, True, "minmax")
    scales = (scales / 16).astype(np.float32).astype(np.float64)
    # Rounded up: no value is cut off.
    steps = np.clip(np.ceil(largest / most / scales[:, None] - 1e-6), 1, 16).astype(np.int64)
    if method == "mse":
        candidates = np.ascontiguousarray(np.repeat(scales, count)[:, None] * np.arange(1, 17)).astype(np.float32)
        errors = np.empty(candidates.shape)
        ends = np.full_like(candidates, least), np.full_like(candidates, most)
        rounding_errors(rows, candidates, *ends, errors)
        steps = 1 + np.argmin(errors, 1).reshape(channels, count)
    return BlockwiseExpansion(
        axis, block_axis, tuple(map(float, scales)), (0,) * channels, tuple(map(int, steps.ravel())), dtype.bits, 4
    )
